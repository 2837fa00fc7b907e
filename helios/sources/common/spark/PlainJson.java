package helios.spark.sources;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/**
 * Reads the bytes of a JSON object as Spark's internal row, in one pass; returns null if the object is not plain.
 *
 * <p>An object is plain if JsonLine, `from_json` and the casts after them certainly return the same row. They read all
 * objects that are not plain. An object is not plain if it has an error or more than a megabyte, if a field occurs
 * twice, has escapes in its name or (unless `skipsUnknown`) has no column, or if the JSON type of a value differs from
 * its column (but decimals and floating-point numbers may be texts). These values are not plain: integers and
 * decimals of more than 18 digits or with an exponent, decimals that would lose digits, times without seconds or not in
 * ISO 8601, halves of surrogate pairs, maps and bytes.
 */
public class PlainJson extends PlainBytes implements Function, Serializable {
  private static final long serialVersionUID = 1L;

  private static final int MAX_LENGTH = 1 << 20;
  private static final int MAX_DEPTH = 100;

  private static final String[] KINDS = {
    "string", "boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"
  };
  private static final int STRING = 0;
  private static final int BOOLEAN = 1;
  private static final int BYTE = 2;
  private static final int SHORT = 3;
  private static final int INTEGER = 4;
  private static final int LONG = 5;
  private static final int FLOAT = 6;
  private static final int DOUBLE = 7;
  private static final int DATE = 8;
  private static final int TIMESTAMP = 9;
  private static final int TIMESTAMP_NTZ = 10;
  private static final int DECIMAL = 11;
  private static final int STRUCT = 12;
  private static final int ARRAY = 13;
  private static final int OTHER = 14;
  private static final JsonNode NONE = TextNode.valueOf("");

  private final String schema;
  private final boolean skipsUnknown;
  private transient Node root;

  /** Takes the columns, as Spark's JSON form of a schema, and whether fields without a column are left out. */
  public PlainJson(String schema, boolean skipsUnknown) {
    this.schema = schema;
    this.skipsUnknown = skipsUnknown;
  }

  /** A type. A struct has fields, an array has an element. */
  private static class Node {
    private int kind;
    private byte[] name;
    private Node[] fields;
    private Node element;
    private int precision;
    private int scale;
    private final Set folded = new HashSet();
  }

  public Object apply(Object value) {
    if (root == null) {
      try {
        root = node(new ObjectMapper().readTree(schema));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    in = (byte[]) value;
    at = 0;
    if (in.length > MAX_LENGTH || skipSpaces() != '{') {
      return null;
    }
    Object row = struct(root, 0);
    return row == UNSURE || skipSpaces() != 0 || at < in.length ? null : row;
  }

  // the types

  private static Node node(JsonNode type) {
    Node result = new Node();
    result.kind = OTHER;
    if (type.isTextual()) {
      String name = type.asText();
      for (int i = 0; i < KINDS.length; i++) {
        result.kind = KINDS[i].equals(name) ? i : result.kind;
      }
      if (name.startsWith("decimal(")) {
        String[] arguments = name.substring("decimal(".length(), name.length() - 1).split(",");
        result.precision = Integer.parseInt(arguments[0].trim());
        result.scale = Integer.parseInt(arguments[1].trim());
        result.kind = result.precision <= 18 && result.scale >= 0 ? DECIMAL : OTHER;
      }
      return result;
    }
    String kind = ((JsonNode) type.get("type")).asText();
    if (kind.equals("array") && ((JsonNode) type.get("containsNull")).asBoolean()) {
      result.kind = ARRAY;
      result.element = node((JsonNode) type.get("elementType"));
    } else if (kind.equals("struct")) {
      result.kind = STRUCT;
      JsonNode fields = (JsonNode) type.get("fields");
      result.fields = new Node[fields.size()];
      for (int i = 0; i < fields.size(); i++) {
        JsonNode field = (JsonNode) fields.get(i);
        JsonNode inner = (JsonNode) field.get("type");
        String name = ((JsonNode) field.get("name")).asText();
        result.fields[i] = node(hasRequired(inner) ? NONE : inner);
        result.fields[i].name = name.getBytes(StandardCharsets.UTF_8);
        result.folded.add(name.toLowerCase(Locale.ROOT));
      }
    }
    return result;
  }

  /** Returns true if a field or an element somewhere inside a type is required. */
  private static boolean hasRequired(JsonNode type) {
    String text = type.toString();
    return text.indexOf("\"nullable\":false") >= 0 || text.indexOf("\"containsNull\":false") >= 0;
  }

  // values

  private Object struct(Node node, int depth) {
    Object[] values = new Object[node.fields.length];
    boolean[] seen = new boolean[values.length];
    int next = 0;
    at++;
    byte token = skipSpaces();
    while (token == '"') {
      int begin = at + 1;
      byte letter = byteAt(++at);
      while (letter != '"' && letter != '\\' && (letter >= ' ' || letter < 0)) {
        letter = byteAt(++at);
      }
      if (letter != '"') {
        return UNSURE;
      }
      int index = columnIndex(node, begin, at, next);
      if (index < 0 && !leavesOut(node, begin, at)) {
        return UNSURE;
      }
      at++;
      if (skipSpaces() != ':') {
        return UNSURE;
      }
      at++;
      if (index < 0) {
        if (!skip(depth + 1)) {
          return UNSURE;
        }
      } else {
        if (seen[index]) {
          return UNSURE;
        }
        seen[index] = true;
        values[index] = value(node.fields[index], depth + 1);
        if (values[index] == UNSURE) {
          return UNSURE;
        }
        next = index + 1;
      }
      token = skipSpaces();
      if (token == ',') {
        at++;
        token = skipSpaces();
        if (token != '"') {
          return UNSURE;
        }
      } else if (token != '}') {
        return UNSURE;
      }
    }
    if (token != '}') {
      return UNSURE;
    }
    at++;
    return new GenericInternalRow(values);
  }

  /** The index of the column with exactly this name; -1 if there is none. The search begins at the index `next`. */
  private int columnIndex(Node node, int begin, int end, int next) {
    for (int i = 0; i < node.fields.length; i++) {
      int index = next + i < node.fields.length ? next + i : next + i - node.fields.length;
      if (Arrays.equals(in, begin, end, node.fields[index].name, 0, node.fields[index].name.length)) {
        return index;
      }
    }
    return -1;
  }

  /**
   * Returns true if fields without a column are left out, and certainly no column has the name of this field. A name
   * that is not ASCII, or is longer than `MAX_NUMBER_LENGTH`, is not compared: the object is not plain then.
   */
  private boolean leavesOut(Node node, int begin, int end) {
    if (!skipsUnknown || end - begin > MAX_NUMBER_LENGTH) {
      return false;
    }
    for (int i = begin; i < end; i++) {
      if (in[i] < 0) {
        return false;
      }
    }
    String name = new String(in, begin, end - begin, StandardCharsets.US_ASCII);
    return !node.folded.contains(name.toLowerCase(Locale.ROOT));
  }

  private Object array(Node element, int depth) {
    Object[] values = new Object[8];
    int size = 0;
    at++;
    byte token = skipSpaces();
    while (token != ']') {
      if (size == values.length) {
        values = Arrays.copyOf(values, size * 2);
      }
      Object value = value(element, depth + 1);
      values[size++] = value;
      token = skipSpaces();
      if (value == UNSURE || (token != ',' && token != ']')) {
        return UNSURE;
      }
      if (token == ',') {
        at++;
        if (skipSpaces() == ']') {
          return UNSURE;
        }
      }
    }
    at++;
    return new GenericArrayData(Arrays.copyOf(values, size));
  }

  private Object value(Node node, int depth) {
    byte first = skipSpaces();
    if (first == 'n') {
      return skipWord("null") ? null : UNSURE;
    }
    switch (node.kind) {
      case STRING:
        return first == '"' ? text() : UNSURE;
      case BOOLEAN:
        return skipWord("true") ? (Object) Boolean.TRUE : skipWord("false") ? (Object) Boolean.FALSE : UNSURE;
      case BYTE:
        return integer(1);
      case SHORT:
        return integer(2);
      case INTEGER:
        return integer(4);
      case LONG:
        return integer(8);
      case FLOAT:
        return floatingPoint(false);
      case DOUBLE:
        return floatingPoint(true);
      case DECIMAL:
        return decimal(node.precision, node.scale);
      case DATE:
        return date();
      case TIMESTAMP:
        return time(true);
      case TIMESTAMP_NTZ:
        return time(false);
      case STRUCT:
        return first == '{' && depth < MAX_DEPTH ? struct(node, depth) : UNSURE;
      case ARRAY:
        return first == '[' && depth < MAX_DEPTH ? array(node.element, depth) : UNSURE;
      default:
        return UNSURE;
    }
  }

  /** Skips a value without a column; false if the value is not plain. */
  private boolean skip(int depth) {
    byte first = skipSpaces();
    if (first == '"') {
      return text() != UNSURE;
    } else if (first == 'n' || first == 't' || first == 'f') {
      return skipWord("null") || skipWord("true") || skipWord("false");
    } else if (first != '{' && first != '[') {
      return number();
    } else if (depth >= MAX_DEPTH) {
      return false;
    }
    byte last = (byte) (first == '{' ? '}' : ']');
    at++;
    byte token = skipSpaces();
    while (token != last) {
      // `at++ < 0` is never true: it steps over the colon.
      if (first == '{' && (token != '"' || text() == UNSURE || skipSpaces() != ':' || at++ < 0)) {
        return false;
      }
      if (!skip(depth + 1)) {
        return false;
      }
      token = skipSpaces();
      if (token == ',') {
        at++;
        token = skipSpaces();
        if (token == last) {
          return false;
        }
      } else if (token != last) {
        return false;
      }
    }
    at++;
    return true;
  }
}
