package helios.spark.sources;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.StringWriter;
import java.math.BigInteger;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Rewrites a line of JSON so that Spark's parser reads it without changing a value. An object becomes JSON with the
 * names of the columns, and with strings where Spark would round a number. An array of objects becomes an array of such
 * JSON texts. The result for a bad row is "!" with the reason. The result for a line without a row is null.
 */
public class JsonLine implements UDF1 {
  private static final long serialVersionUID = 1L;

  private static final String SEVERAL = "!it holds more than one JSON value, and Spark would read only the first";

  /** The field with the raw text of an object in an array. */
  private static final String RAW = "__helios_raw";

  /** A feature of Helios: only white space may follow the value. It is passed together with Jackson's features. */
  private static final String ALONE = "ALONE";

  /** The first and the last second of the years 1 to 9999, in seconds since 1970. */
  private static final long FIRST = -62135596800L, LAST = 253402300799L;

  private static final String NO_SECONDS =
      "its number of seconds lies outside of the years 1 to 9999: if it counts milliseconds or microseconds,"
          + " write timestamps=\"ms\" or \"us\"";

  private static final String NO_OBJECT = "!it is neither a JSON object nor an array of JSON objects";

  /** The type for a value of any type. */
  private static final Node ANY = new Node();

  static {
    ANY.kind = "any";
    ANY.element = ANY;
  }

  private final String schema;
  private final String rescued;
  private final Set textTypes = new HashSet();
  private final Set features = new HashSet();
  private final String unit;
  private transient Node root;
  private transient JsonFactory factory;

  /**
   * @param schema the columns, as Spark's JSON form of a schema; empty to keep all fields
   * @param textTypes the types whose values become strings, separated by commas
   * @param features the features of Jackson to enable, and `ALONE`, separated by commas
   * @param rescued the name of the field that gets all fields without a column, as JSON; empty to leave them out
   * @param unit the unit of numbers for timestamps: "s", "ms" or "us"
   */
  public JsonLine(String schema, String textTypes, String features, String rescued, String unit) {
    this.unit = unit;
    this.schema = schema;
    this.rescued = rescued;
    String[] kinds = textTypes.split(",");
    for (int i = 0; i < kinds.length; i++) {
      this.textTypes.add(kinds[i]);
    }
    String[] names = features.split(",");
    for (int i = 0; i < names.length; i++) {
      if (names[i].length() > 0) {
        this.features.add(names[i]);
      }
    }
  }

  /** A type. A struct has fields, by exact name and by name in lower case; an array or a map has an element. */
  private static class Node {
    private String kind;
    private Node element;
    private final Map exact = new HashMap();
    private final Map folded = new HashMap();
    private int index;
    private String name;
  }

  /** A bad row, with the reason. */
  private static class Bad extends IOException {
    private static final long serialVersionUID = 1L;

    Bad(String why) {
      super(why);
    }
  }

  public Object call(Object value) throws Exception {
    if (value == null) {
      return null;
    }
    if (root == null) {
      factory = new JsonFactory();
      JsonParser.Feature[] all = JsonParser.Feature.values();
      for (int i = 0; i < all.length; i++) {
        if (features.contains(all[i].name())) {
          factory.enable(all[i]);
        }
      }
      root = schema.length() > 0 ? node(new ObjectMapper().readTree(schema)) : ANY;
    }
    String line = (String) value;
    StringWriter written = new StringWriter(line.length() + 16);
    JsonParser parser = factory.createParser(line);
    JsonGenerator generator = factory.createGenerator(written);
    int end = 0;
    boolean isEmptyArray = false;
    try {
      JsonToken first = parser.nextToken();
      if (first == null) {
        return null;
      }
      if (first == JsonToken.START_ARRAY) {
        generator.writeStartArray();
        int rows = 0;
        while (parser.nextToken() != JsonToken.END_ARRAY) {
          if (parser.currentToken() != JsonToken.START_OBJECT) {
            return NO_OBJECT;
          }
          generator.writeString(element(parser, line));
          rows++;
        }
        generator.writeEndArray();
        isEmptyArray = rows == 0;
      } else if (first == JsonToken.START_OBJECT) {
        copy(parser, generator, root, line);
      } else {
        return NO_OBJECT;
      }
      end = (int) parser.getCurrentLocation().getCharOffset();
      generator.close();
    } catch (Bad error) {
      return "!" + error.getMessage();
    } catch (IOException error) {
      return "!the row does not parse";
    } finally {
      parser.close();
    }
    // In a file, a comma may follow an object, as in an array with an object on each line. In a message, only JSON's
    // white space may follow.
    String allowed = features.contains(ALONE) ? " \t\r\n" : null;
    while (end < line.length() && mayFollow(line.charAt(end), allowed)) {
      end++;
    }
    return end < line.length() ? SEVERAL : isEmptyArray ? null : written.toString();
  }

  /** An object of an array, rewritten as a JSON text, with the raw text of the object in the field `RAW`. */
  private String element(JsonParser parser, String line) throws IOException {
    StringWriter written = new StringWriter();
    JsonGenerator generator = factory.createGenerator(written);
    int begin = (int) parser.currentTokenLocation().getCharOffset();
    if (root.kind.equals("struct")) {
      generator.writeStartObject();
      copyFields(parser, generator, root, line);
      generator.writeStringField(RAW, line.substring(begin, (int) parser.getCurrentLocation().getCharOffset()));
      generator.writeEndObject();
    } else {
      copy(parser, generator, root, line);
    }
    generator.close();
    return written.toString();
  }

  private Node node(JsonNode type) {
    Node result = new Node();
    if (type.isTextual()) {
      String name = type.asText();
      result.kind = name.startsWith("decimal") ? "decimal" : name;
      return result;
    }
    result.kind = child(type, "type").asText();
    if (result.kind.equals("array")) {
      result.element = node(child(type, "elementType"));
    } else if (result.kind.equals("map")) {
      result.element = node(child(type, "valueType"));
    } else if (result.kind.equals("struct")) {
      JsonNode fields = child(type, "fields");
      for (int i = 0; i < fields.size(); i++) {
        JsonNode declared = (JsonNode) fields.get(i);
        Node field = node(child(declared, "type"));
        field.name = child(declared, "name").asText();
        field.index = i;
        result.exact.put(field.name, field);
        result.folded.put(field.name.toLowerCase(Locale.ROOT), field);
      }
    }
    return result;
  }

  private static JsonNode child(JsonNode node, String name) {
    return (JsonNode) node.get(name);
  }

  /** Copies the parser's current value. Returns the fields without a column as JSON, or null. */
  private String copy(JsonParser parser, JsonGenerator to, Node node, String line) throws IOException {
    JsonToken token = parser.currentToken();
    if (token == JsonToken.START_OBJECT && node.kind.equals("struct")) {
      return copyStruct(parser, to, node, line);
    } else if (token == JsonToken.START_OBJECT && node.element != null && !node.kind.equals("array")) {
      return copyMap(parser, to, node, line);
    } else if (token == JsonToken.START_ARRAY && node.element != null && !node.kind.equals("map")) {
      return copyArray(parser, to, node, line);
    } else if (token == JsonToken.VALUE_NUMBER_INT && node.kind.equals("timestamp") && textTypes.contains(node.kind)) {
      to.writeString(instant(parser));
    } else if (token == JsonToken.VALUE_NUMBER_INT && node.kind.equals("timestamp") && !isInstant(parser)) {
      throw new Bad("its number of seconds is too large for a timestamp"); // Spark's cast would overflow
    } else if (node.kind.equals("string") && token.isStructStart()) {
      int begin = (int) parser.currentTokenLocation().getCharOffset();
      parser.skipChildren();
      to.writeString(line.substring(begin, (int) parser.getCurrentLocation().getCharOffset()));
    } else if (token.isNumeric() && (node.kind.equals("string") || textTypes.contains(node.kind))) {
      // The parser's own text would leave out leading zeros.
      int begin = (int) parser.currentTokenLocation().getCharOffset();
      to.writeString(line.substring(begin, (int) parser.getCurrentLocation().getCharOffset()));
    } else {
      copyScalar(parser, to, line);
    }
    return null;
  }

  private String copyMap(JsonParser parser, JsonGenerator to, Node node, String line) throws IOException {
    Set seen = new HashSet();
    StringBuilder rest = null;
    boolean inner = !to.getOutputContext().inRoot();
    JsonToken next = parser.nextToken();
    if (next == JsonToken.END_OBJECT && inner && root == ANY) {
      to.writeNull(); // Spark infers no column from an object without fields, but a text column from null
      return null;
    }
    to.writeStartObject();
    while (next != JsonToken.END_OBJECT) {
      String name = parser.currentName();
      if (!seen.add(node.kind.equals("any") ? name.toLowerCase(Locale.ROOT) : name)) {
        throw new Bad("its field " + name + " occurs twice");
      }
      to.writeFieldName(encodable(name));
      parser.nextToken();
      rest = addedTo(rest, name, copy(parser, to, node.element, line));
      next = parser.nextToken();
    }
    to.writeEndObject();
    return finished(rest);
  }

  private String copyArray(JsonParser parser, JsonGenerator to, Node node, String line) throws IOException {
    StringBuilder rests = new StringBuilder("[");
    boolean hasRest = false;
    to.writeStartArray();
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      String rest = copy(parser, to, node.element, line);
      hasRest = hasRest || rest != null;
      rests.append(rests.length() > 1 ? "," : "").append(rest == null ? "null" : rest);
    }
    to.writeEndArray();
    return hasRest ? rests.append("]").toString() : null;
  }

  private String copyStruct(JsonParser parser, JsonGenerator to, Node node, String line) throws IOException {
    to.writeStartObject();
    String rest = copyFields(parser, to, node, line);
    to.writeEndObject();
    return rest;
  }

  private String copyFields(JsonParser parser, JsonGenerator to, Node node, String line) throws IOException {
    boolean[] seen = new boolean[node.exact.size()];
    StringBuilder rest = null;
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      String name = parser.currentName();
      Node field = (Node) node.exact.get(name);
      if (field == null) {
        field = (Node) node.folded.get(name.toLowerCase(Locale.ROOT));
      }
      parser.nextToken();
      if (field == null) {
        rest = addedTo(rest, name, unknown(parser, line));
        continue;
      }
      if (seen[field.index]) {
        throw new Bad("its field " + field.name + " occurs twice");
      }
      seen[field.index] = true;
      to.writeFieldName(field.name);
      rest = addedTo(rest, name, copy(parser, to, field, line));
    }
    if (node == root && rescued.length() > 0 && rest != null) {
      to.writeStringField(rescued, finished(rest));
    }
    return finished(rest);
  }

  /** The value of a field without a column, as JSON; null if such fields are left out. */
  private String unknown(JsonParser parser, String line) throws IOException {
    if (rescued.length() == 0) {
      parser.skipChildren();
      return null;
    }
    StringWriter written = new StringWriter();
    JsonGenerator generator = factory.createGenerator(written);
    copy(parser, generator, ANY, line);
    generator.close();
    return written.toString();
  }

  private static StringBuilder addedTo(StringBuilder rest, String name, String value) throws IOException {
    if (value == null) {
      return rest;
    }
    encodable(name);
    StringBuilder result = rest == null ? new StringBuilder("{") : rest.append(",");
    return result.append('"').append(JsonStringEncoder.getInstance().quoteAsString(name)).append("\":").append(value);
  }

  private static String finished(StringBuilder rest) {
    return rest == null ? null : rest.toString() + "}";
  }

  /** Returns the text, if UTF-8 can encode it: half of a surrogate pair would become a question mark. */
  private static String encodable(String text) throws IOException {
    for (int i = 0; i < text.length(); i++) {
      if (Character.isSurrogate(text.charAt(i))) {
        if (i + 1 == text.length() || !Character.isSurrogatePair(text.charAt(i), text.charAt(i + 1))) {
          throw new Bad("its text holds half of a surrogate pair");
        }
        i++;
      }
    }
    return text;
  }

  /** Copies a value unchanged. NaN and infinity, which are not JSON, become strings, which Spark also reads. */
  private void copyScalar(JsonParser parser, JsonGenerator to, String line) throws IOException {
    JsonToken token = parser.currentToken();
    if (token == JsonToken.VALUE_STRING || (token.isNumeric() && parser.isNaN())) {
      to.writeString(encodable(parser.getText()));
    } else {
      int begin = (int) parser.currentTokenLocation().getCharOffset();
      parser.skipChildren();
      if (token.isStructStart()) {
        to.writeRawValue(line.substring(begin, (int) parser.getCurrentLocation().getCharOffset()));
      } else {
        to.writeRawValue(parser.getText());
      }
    }
  }

  private static boolean mayFollow(char letter, String allowed) {
    return allowed != null ? allowed.indexOf(letter) >= 0 : letter <= ' ' || letter == ',';
  }

  private static boolean isInstant(JsonParser parser) throws IOException {
    BigInteger max = BigInteger.valueOf(Long.MAX_VALUE / 1000000L);
    return parser.getBigIntegerValue().abs().compareTo(max) <= 0;
  }

  private String instant(JsonParser parser) throws IOException {
    long number;
    try {
      number = parser.getLongValue();
    } catch (IOException error) {
      return parser.getText();
    }
    long perSecond = unit.equals("s") ? 1 : unit.equals("ms") ? 1000L : 1000000L;
    long seconds = Math.floorDiv(number, perSecond);
    if (seconds < FIRST || seconds > LAST) { // the range of Python's datetime and of most readers of tables
      throw new Bad(perSecond == 1 ? NO_SECONDS
          : "its number for a timestamp, in " + unit + ", lies outside of the years 1 to 9999");
    }
    return Instant.ofEpochSecond(seconds, Math.floorMod(number, perSecond) * (1000000000L / perSecond)).toString();
  }
}
