package helios.spark.sources;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Splits the text of a whole json file into records. Each value is a record, but an array is replaced with its
 * elements. A record consists of its text, and the reason why it cannot be a row (null if it can). From the first place
 * that is not JSON, the rest of the file is one record.
 */
public class JsonRecords implements UDF1 {
  private static final long serialVersionUID = 1L;

  private static final String UNPARSED = "the row does not parse";

  private static final String NO_OBJECT = "it is neither a JSON object nor an array of JSON objects";

  private final String features;
  private transient JsonFactory factory;

  /** Takes the features of Jackson to enable, separated by commas. */
  public JsonRecords(String features) {
    this.features = features;
  }

  public Object call(Object value) throws Exception {
    if (factory == null) {
      factory = new JsonFactory();
      String[] names = features.split(",");
      for (int i = 0; i < names.length; i++) {
        if (names[i].length() > 0) {
          factory.enable(JsonParser.Feature.valueOf(names[i]));
        }
      }
    }
    String text = (String) value;
    char[] content = text.toCharArray();
    List result = new ArrayList();
    int at = text.startsWith("\uFEFF") ? 1 : 0;
    while (at < content.length) {
      JsonParser parser = factory.createParser(content, at, content.length - at);
      try {
        at = addRecords(parser, text, at, result);
      } finally {
        parser.close();
      }
      while (at < content.length && (content[at] <= ' ' || content[at] == ',')) {
        at++;
      }
    }
    return result;
  }

  /** Adds the records of the next value of a text, and returns the offset of the value's end. */
  private static int addRecords(JsonParser parser, String text, int from, List result) {
    int start = from;
    try {
      JsonToken first = parser.nextToken();
      if (first == null) {
        return text.length();
      }
      start = from + begin(parser);
      if (first != JsonToken.START_ARRAY) {
        int end = from + end(parser);
        result.add(record(text.substring(start, end), first));
        return end;
      }
      JsonToken token = parser.nextToken();
      while (token != JsonToken.END_ARRAY) {
        start = from + begin(parser);
        int end = from + end(parser);
        result.add(record(text.substring(start, end), token));
        start = end;
        token = parser.nextToken();
      }
      return from + (int) parser.currentLocation().getCharOffset();
    } catch (IOException error) {
      result.add(Arrays.asList(new String[] {text.substring(start), UNPARSED}));
      return text.length();
    }
  }

  private static List record(String text, JsonToken first) {
    return Arrays.asList(new String[] {text, first == JsonToken.START_OBJECT ? null : NO_OBJECT});
  }

  /** The start of the parser's current value, counted from the start of the parser. */
  private static int begin(JsonParser parser) {
    return (int) parser.currentTokenLocation().getCharOffset();
  }

  /** The end of the parser's current value, counted from the start of the parser. */
  private static int end(JsonParser parser) throws IOException {
    parser.skipChildren();
    parser.finishToken();
    return (int) parser.currentLocation().getCharOffset();
  }
}
