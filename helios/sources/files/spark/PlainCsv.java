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
 * line, it returns the result of CsvLine.
 *
 * <p>Like PlainJson, it never rejects a line. A line is not plain if it may be the header or a part of a quoted field,
 * if it has quotes, control characters, or another number of fields than there are columns, or if a field has spaces at
 * its ends or a value that is not plain for its type.
 */
public class PlainCsv extends PlainBytes implements Function, Serializable {
  private static final long serialVersionUID = 1L;

  private static final int MAX_LENGTH = 1 << 20;

  private final UDF3 csvLine;
  private final byte separator;
  private final byte quote;
  private final byte escape;
  private final String types;

  private transient UTF8String path;
  private transient long splitBegin;
  private transient boolean startsRow;
  private transient char[] typeCodes;
  private transient int[] precisions;
  private transient int[] scales;
  private transient int[] ends;
  private transient byte[] quoted;

  /**
   * Takes a CsvLine; the separator, quote and escape, each of one byte; and the codes of the columns' types, separated
   * by semicolons. A code is a letter; for a decimal, the precision and scale follow the letter.
   */
  public PlainCsv(UDF3 csvLine, String separator, String quote, String escape, String types) {
    this.csvLine = csvLine;
    this.separator = (byte) separator.charAt(0);
    this.quote = quote.length() > 0 ? (byte) quote.charAt(0) : (byte) '"';
    this.escape = escape.length() > 0 ? (byte) escape.charAt(0) : (byte) '"';
    this.types = types;
  }

  /**
   * Takes the path of a file, the offset in the file at which the task begins, and the bytes of a line. Returns the row
   * of a plain line, or else the result of CsvLine.
   */
  public Object apply(Object value) {
    InternalRow given = (InternalRow) value;
    UTF8String file = given.getUTF8String(0);
    long begin = given.getLong(1);
    byte[] line = given.getBinary(2);
    if (begin != splitBegin || !file.equals(path)) {
      path = file.clone();
      splitBegin = begin;
      startsRow = false;
    }
    Object row = startsRow ? row(line) : UNSURE;
    if (row != UNSURE) {
      return new GenericInternalRow(new Object[] {row, null});
    }
    Object result;
    try {
      result = csvLine.call(file.toString(), Long.valueOf(begin), UTF8String.fromBytes(line).makeValid().toString());
    } catch (Exception error) {
      throw new RuntimeException(error.getMessage(), error);
    }
    startsRow = ((BooleanSupplier) csvLine).getAsBoolean();
    UTF8String text = result == null ? null : UTF8String.fromString((String) result);
    return new GenericInternalRow(new Object[] {null, text});
  }

  private void parseTypes() {
    String[] given = types.split(";");
    typeCodes = new char[given.length];
    precisions = new int[given.length];
    scales = new int[given.length];
    ends = new int[given.length];
    for (int i = 0; i < given.length; i++) {
      String[] parts = given[i].split(",");
      typeCodes[i] = parts[0].charAt(0);
      precisions[i] = parts.length > 1 ? Integer.parseInt(parts[1]) : 0;
      scales[i] = parts.length > 1 ? Integer.parseInt(parts[2]) : 0;
    }
  }

  private Object row(byte[] line) {
    if (typeCodes == null) {
      parseTypes();
    }
    if (line.length > MAX_LENGTH || !splitFields(line)) {
      return UNSURE;
    }
    Object[] values = new Object[typeCodes.length];
    in = quoted;
    int begin = 1;
    for (int i = 0; i < values.length; i++) {
      int end = ends[i];
      if (begin < end) {
        if (quoted[begin] == ' ' || quoted[end - 1] == ' ') {
          return UNSURE;
        }
        values[i] =
            typeCodes[i] == 't' ? UTF8String.fromBytes(line, begin - 1, end - begin) : value(i, begin, end);
        if (values[i] == UNSURE) {
          return UNSURE;
        }
      }
      begin = end + 1;
    }
    return new GenericInternalRow(values);
  }

  /** Copies a line with a quotation mark around each field, and notes the fields' ends; false if it is not plain. */
  private boolean splitFields(byte[] line) {
    if (quoted == null || quoted.length < line.length + 2) {
      quoted = new byte[line.length * 2 + 2];
    }
    int fieldCount = 0;
    boolean hasWide = false;
    boolean hasText = false;
    quoted[0] = '"';
    for (int i = 0; i < line.length; i++) {
      byte letter = line[i];
      if (letter == separator) {
        if (fieldCount == ends.length - 1) {
          return false;
        }
        ends[fieldCount++] = i + 1;
        letter = '"';
      } else if (letter == '"' || letter == quote || letter == escape || (letter >= 0 && letter < ' ')) {
        return false;
      } else if (letter < 0) {
        hasWide = true;
      } else if (letter > ' ') {
        hasText = true;
      }
      quoted[i + 1] = letter;
    }
    quoted[line.length + 1] = '"';
    ends[fieldCount] = line.length + 1;
    return fieldCount == ends.length - 1 && hasText && (!hasWide || UTF8String.fromBytes(line).isValid());
  }

  private Object value(int column, int begin, int end) {
    Object result;
    char typeCode = typeCodes[column];
    at = begin;
    if (typeCode == 'o') {
      result = skipWord("true") ? (Object) Boolean.TRUE : skipWord("false") ? (Object) Boolean.FALSE : UNSURE;
      return at == end ? result : UNSURE;
    } else if (typeCode == '1' || typeCode == '2' || typeCode == '4' || typeCode == '8') {
      result = integer(typeCode - '0');
      return at == end ? result : UNSURE;
    }
    at = begin - 1;
    switch (typeCode) {
      case 'f':
        result = floatingPoint(false);
        break;
      case 'd':
        result = floatingPoint(true);
        break;
      case 'm':
        result = decimal(precisions[column], scales[column]);
        break;
      case 'y':
        result = date();
        break;
      case 'z':
        result = time(true);
        break;
      case 'n':
        result = time(false);
        break;
      default:
        return UNSURE;
    }
    return at == end + 1 ? result : UNSURE;
  }
}
