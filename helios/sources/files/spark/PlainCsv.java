package helios.spark.sources;

import java.io.Serializable;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads a plain line of a csv file in one pass, from its bytes to Spark's row of the file's columns. For any other
 * line, it gives the class of the line by CsvLine.
 *
 * <p>Like PlainJson, it never rejects a line. Not plain are: lines that may be the header or a part of a quoted field,
 * quotes, control characters, another number of fields than there are columns, spaces at the ends of a field, and
 * values that are not plain for their types.
 */
public class PlainCsv extends PlainBytes implements Function, Serializable {
  private static final long serialVersionUID = 1L;

  private static final int LONGEST = 1 << 20;

  private final UDF3 judge;
  private final byte separator;
  private final byte quote;
  private final byte escape;
  private final String types;

  private transient UTF8String path;
  private transient long block;
  private transient boolean clear;
  private transient char[] kinds;
  private transient int[] precisions;
  private transient int[] scales;
  private transient int[] ends;
  private transient byte[] quoted;

  /**
   * Takes a CsvLine; the separator, quote and escape, each of one byte; and the types of the columns, separated by
   * semicolons. A type is a letter; a decimal also has its precision and scale.
   */
  public PlainCsv(UDF3 judge, String separator, String quote, String escape, String types) {
    this.judge = judge;
    this.separator = (byte) separator.charAt(0);
    this.quote = quote.length() > 0 ? (byte) quote.charAt(0) : (byte) '"';
    this.escape = escape.length() > 0 ? (byte) escape.charAt(0) : (byte) '"';
    this.types = types;
  }

  /**
   * Takes the path of a file, the offset at which the task begins in the file, and the bytes of a line. Gives the row
   * of a plain line, or else the class of the line.
   */
  public Object apply(Object value) {
    InternalRow given = (InternalRow) value;
    UTF8String file = given.getUTF8String(0);
    long begin = given.getLong(1);
    byte[] line = given.getBinary(2);
    if (begin != block || !file.equals(path)) {
      path = file.clone();
      block = begin;
      clear = false;
    }
    Object row = clear ? row(line) : UNSURE;
    if (row != UNSURE) {
      return new GenericInternalRow(new Object[] {row, null});
    }
    Object what;
    try {
      what = judge.call(file.toString(), Long.valueOf(begin), UTF8String.fromBytes(line).makeValid().toString());
    } catch (Exception error) {
      throw new RuntimeException(error.getMessage(), error);
    }
    clear = ((BooleanSupplier) judge).getAsBoolean();
    return new GenericInternalRow(new Object[] {null, what == null ? null : UTF8String.fromString((String) what)});
  }

  private void start() {
    String[] given = types.split(";");
    kinds = new char[given.length];
    precisions = new int[given.length];
    scales = new int[given.length];
    ends = new int[given.length];
    for (int i = 0; i < given.length; i++) {
      String[] parts = given[i].split(",");
      kinds[i] = parts[0].charAt(0);
      precisions[i] = parts.length > 1 ? Integer.parseInt(parts[1]) : 0;
      scales[i] = parts.length > 1 ? Integer.parseInt(parts[2]) : 0;
    }
  }

  private Object row(byte[] line) {
    if (kinds == null) {
      start();
    }
    if (line.length > LONGEST || !cut(line)) {
      return UNSURE;
    }
    Object[] values = new Object[kinds.length];
    in = quoted;
    int begin = 1;
    for (int i = 0; i < values.length; i++) {
      int end = ends[i];
      if (begin < end) {
        if (quoted[begin] == ' ' || quoted[end - 1] == ' ') {
          return UNSURE;
        }
        values[i] =
            kinds[i] == 't' ? UTF8String.fromBytes(line, begin - 1, end - begin) : value(i, begin, end);
        if (values[i] == UNSURE) {
          return UNSURE;
        }
      }
      begin = end + 1;
    }
    return new GenericInternalRow(values);
  }

  /** Copies a line with a quotation mark around each field, and notes the fields' ends; false if it is not plain. */
  private boolean cut(byte[] line) {
    if (quoted == null || quoted.length < line.length + 2) {
      quoted = new byte[line.length * 2 + 2];
    }
    int found = 0;
    boolean wide = false;
    boolean ink = false;
    quoted[0] = '"';
    for (int i = 0; i < line.length; i++) {
      byte letter = line[i];
      if (letter == separator) {
        if (found == ends.length - 1) {
          return false;
        }
        ends[found++] = i + 1;
        letter = '"';
      } else if (letter == '"' || letter == quote || letter == escape || (letter >= 0 && letter < ' ')) {
        return false;
      } else if (letter < 0) {
        wide = true;
      } else if (letter > ' ') {
        ink = true;
      }
      quoted[i + 1] = letter;
    }
    quoted[line.length + 1] = '"';
    ends[found] = line.length + 1;
    return found == ends.length - 1 && ink && (!wide || UTF8String.fromBytes(line).isValid());
  }

  private Object value(int column, int begin, int end) {
    Object found;
    char kind = kinds[column];
    at = begin;
    if (kind == 'o') {
      found = word("true") ? (Object) Boolean.TRUE : word("false") ? (Object) Boolean.FALSE : UNSURE;
      return at == end ? found : UNSURE;
    } else if (kind == '1' || kind == '2' || kind == '4' || kind == '8') {
      found = whole(kind - '0');
      return at == end ? found : UNSURE;
    }
    at = begin - 1;
    switch (kind) {
      case 'f':
        found = floating(false);
        break;
      case 'd':
        found = floating(true);
        break;
      case 'm':
        found = decimal(precisions[column], scales[column]);
        break;
      case 'y':
        found = date();
        break;
      case 'z':
        found = time(true);
        break;
      case 'n':
        found = time(false);
        break;
      default:
        return UNSURE;
    }
    return at == end + 1 ? found : UNSURE;
  }
}
