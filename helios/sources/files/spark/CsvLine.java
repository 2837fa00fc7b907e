package helios.spark.sources;

import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.input.LineRecordReader;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Classifies a line of a csv file. The result is null for a row, an empty text for a line without a row (the header, a
 * comment, an empty line), and otherwise the reason why the line cannot be a row. Each task has its own instance, and
 * passes the lines of its split in the order of the file.
 *
 * <p>For the text of a whole file, it returns the records. A record consists of its text, and the reason why it cannot
 * be a row, which is null if it can.
 */
public class CsvLine implements UDF3, UDF1, BooleanSupplier {
  private static final long serialVersionUID = 1L;

  /** The maximum number of further lines of a quoted field that is not closed on its first line. */
  private static final int MAX_OPEN_LINES = 100;

  /** The bytes before a split that are read first, to find out whether a quoted field is open at its start. */
  private static final long LOOK_BACK = 1 << 16;

  private static final String OPEN =
      "a quote is not closed on its line; fields with line breaks need .option(multiLine=True)";

  private static final String UNCLOSED = "a quote is not closed, or one inside it is not doubled";

  private static final String MAYBE = "it may belong to a quoted field that began on a line before";

  private static final String LONG = "it has more fields than the option maxColumns allows";

  private static final String NUL = "it holds a NUL character, which Spark's parser may leave out";

  private static final String BLANK = "it has a field of quoted spaces, which ignoreTrailingWhiteSpace cannot read";

  private static final String SPACES = "it holds only spaces, which may be a value of the only column, or no row";

  private static final String LAST =
      "its last field ends with a quote, which Spark doubles if the separator has several characters";

  private final SerializableConfiguration conf;
  private final String encoding;
  private final String lineSeparator;
  private final String separator;
  private final String quote;
  private final String escape;
  private final String comment;
  private final boolean header;
  private final boolean trimsLeading;
  private final boolean stopsAtClosingQuote;
  private final boolean trimsTrailing;
  private final int maxColumns;
  private final boolean singleColumn;

  private transient String path;
  private transient long splitBegin;
  private transient boolean awaitsHeader;

  /** How many of the next lines may belong to a quoted field that began on an earlier line. */
  private transient int openLines;

  /** The start of the field that `endOfRecord` has reached last. */
  private transient int lastField;

  public CsvLine(SerializableConfiguration conf, String encoding, String lineSeparator, String separator, String quote,
      String escape, String comment, Boolean header, Boolean trimsLeading, Boolean stopsAtClosingQuote,
      Boolean trimsTrailing, Integer maxColumns, Boolean singleColumn) {
    this.conf = conf;
    this.encoding = encoding;
    this.lineSeparator = lineSeparator;
    this.separator = separator;
    this.quote = quote;
    this.escape = escape;
    this.comment = comment;
    this.header = header.booleanValue();
    this.trimsLeading = trimsLeading.booleanValue();
    this.stopsAtClosingQuote = stopsAtClosingQuote.booleanValue();
    this.trimsTrailing = trimsTrailing.booleanValue();
    this.maxColumns = maxColumns.intValue();
    this.singleColumn = singleColumn.booleanValue();
  }

  public Object call(Object path, Object splitBegin, Object value) throws Exception {
    String line = (String) value;
    long begin = ((Long) splitBegin).longValue();
    if (begin != this.splitBegin || !path.equals(this.path)) {
      this.path = (String) path;
      this.splitBegin = begin;
      this.awaitsHeader = header && (begin == 0 || isBeforeHeader(this.path, begin));
      this.openLines = begin == 0 || quote.length() == 0 ? 0 : openLinesBefore(this.path, begin);
    }
    if (hasNoRow(line, openLines)) {
      return !awaitsHeader && isSpaces(line) ? SPACES : "";
    }
    if (awaitsHeader) {
      awaitsHeader = false;
      return "";
    }
    if (hasTooManyFields(line)) {
      return LONG;
    }
    int openBefore = openLines;
    openLines = openLinesAfter(line, openBefore);
    String why = reasonNotRead(line);
    if (why != null) {
      return why;
    }
    if (openLines == MAX_OPEN_LINES) {
      return OPEN;
    }
    return openBefore == 0 ? null : isBlank(line) ? "" : MAYBE;
  }

  /** True if the next line is neither the header nor a part of a field that began on an earlier line. */
  public boolean getAsBoolean() {
    return !awaitsHeader && openLines == 0;
  }

  /**
   * The number of lines at the start of a split that may belong to a field that began before the split. The number is
   * computed twice from some earlier lines: once as if a quoted field were open at the first of them, and once as if
   * none were open. The results are equal as soon as a line closes or opens a field. Otherwise, more lines are read.
   */
  private int openLinesBefore(String path, long begin) throws Exception {
    Path file = new Path(new URI(path));
    for (long back = LOOK_BACK;; back *= 16) {
      long from = Math.max(0, begin - back);
      boolean headerPending = header && from == 0;
      int closed = 0;
      int open = from == 0 ? 0 : MAX_OPEN_LINES;
      LineRecordReader lines = lines(file, from, begin);
      try {
        while (lines.nextKeyValue()) {
          String line = current(lines);
          if (headerPending) {
            headerPending = hasNoRow(line, 0);
            continue;
          }
          closed = openLinesAfter(line, closed);
          open = openLinesAfter(line, open);
        }
      } finally {
        lines.close();
      }
      if (closed == open) {
        return closed;
      }
    }
  }

  /** Returns true if no line before the split has a row, so that the first row of the split is the header. */
  private boolean isBeforeHeader(String path, long begin) throws Exception {
    LineRecordReader lines = lines(new Path(new URI(path)), 0, begin);
    try {
      while (lines.nextKeyValue()) {
        if (!hasNoRow(current(lines), 0)) {
          return false;
        }
      }
    } finally {
      lines.close();
    }
    return true;
  }

  /** The lines of a file that begin between two offsets, as Spark's reader finds them. */
  private LineRecordReader lines(Path file, long from, long end) throws Exception {
    LineRecordReader lines =
        lineSeparator.length() == 0 ? new LineRecordReader() : new LineRecordReader(lineSeparator.getBytes("UTF-8"));
    lines.initialize(new FileSplit(file, from, end - from, new String[0]),
        new TaskAttemptContextImpl(conf.value(), new TaskAttemptID()));
    return lines;
  }

  private String current(LineRecordReader lines) throws Exception {
    Text text = (Text) lines.getCurrentValue();
    return new String(text.getBytes(), 0, text.getLength(), encoding);
  }

  /** The number of open lines after a line, from the number of open lines at the line. */
  private int openLinesAfter(String line, int openLines) {
    if (hasNoRow(line, openLines) || hasTooManyFields(line)) {
      return openLines;
    }
    if (quote.length() == 0 || line.indexOf(quote.charAt(0)) < 0) {
      return Math.max(0, openLines - 1);
    }
    if (openLines > 0 && isClosed(line)) {
      return 0;
    }
    return isOpen(line) ? MAX_OPEN_LINES : Math.max(0, openLines - 1);
  }

  /** True if a line is neither a row nor a part of one. */
  private boolean hasNoRow(String line, int openLines) {
    return openLines == 0 && (isBlank(line) || (comment.length() > 0 && line.startsWith(comment)));
  }

  /** True if a line of spaces could be a value of the only column. */
  private boolean isSpaces(String line) {
    return singleColumn && !trimsLeading && !trimsTrailing && line.length() > 0 && isBlank(line);
  }

  /** True if a line has more fields than Spark's parser accepts. */
  private boolean hasTooManyFields(String line) {
    if (line.length() < maxColumns) {
      return false;
    }
    int count = 1;
    for (int at = line.indexOf(separator); at >= 0; at = line.indexOf(separator, at + separator.length())) {
      count++;
    }
    return count > maxColumns;
  }

  /** The reason why Spark's parser would change a record or stop at it; null if it reads the record unchanged. */
  private String reasonNotRead(String record) {
    if (record.indexOf('\0') >= 0) {
      return NUL;
    }
    if (separator.length() > 1 && quote.length() > 0 && record.stripTrailing().endsWith(quote)
        && endOfRecord(record, 0) >= 0 && !record.startsWith(quote, lastField)) {
      return LAST;
    }
    if (!trimsTrailing || quote.length() == 0) {
      return null;
    }
    for (int at = record.indexOf(quote); at >= 0; at = record.indexOf(quote, at + 1)) {
      int end = at + 1;
      while (end < record.length() && record.charAt(end) <= ' ') {
        end++;
      }
      if (end > at + 1 && record.startsWith(quote, end)) {
        return BLANK;
      }
    }
    return null;
  }

  /** True if a line has only white space, none of which is part of the separator. */
  private boolean isBlank(String line) {
    for (int i = 0; i < line.length(); i++) {
      char letter = line.charAt(i);
      if ((letter != ' ' && (letter < '\t' || letter > '\r')) || separator.indexOf(letter) >= 0) {
        return false;
      }
    }
    return true;
  }

  /** True if a quoted field of a line is not closed on the line. */
  private boolean isOpen(String line) {
    return endOfRecord(line, 0) < 0;
  }

  /** True if a line closes a quoted field that began on an earlier line. */
  private boolean isClosed(String line) {
    int end = endOfQuoted(line, 0);
    return end >= 0 && endOfRecord(line, end) >= 0;
  }

  public Object call(Object value) throws Exception {
    String text = (String) value;
    List records = new ArrayList();
    boolean headerPending = header;
    int at = text.startsWith("\uFEFF") ? 1 : 0;
    int openUntil = -1; // a line that begins up to here may be a part of a field that was not closed
    while (at < text.length()) {
      boolean maybe = at <= openUntil;
      boolean byLine = at < openUntil || (!maybe && comment.length() > 0 && text.startsWith(comment, at));
      int end = byLine ? endOfLine(text, at) : endOfRecord(text, at);
      boolean open = end < 0;
      if (open) {
        openUntil = startOfLine(text, at, -end - 1);
        end = endOfLine(text, at);
      }
      String record = text.substring(at, end);
      at = end + lineBreak(text, end);
      if (isBlank(record) || (byLine && !maybe)) {
        if (!headerPending && isSpaces(record)) {
          records.add(Arrays.asList(new String[] {record, SPACES}));
        }
        continue;
      }
      if (headerPending && !open) {
        headerPending = false;
        continue;
      }
      headerPending = false;
      String why = hasTooManyFields(record) ? LONG : reasonNotRead(record);
      records.add(Arrays.asList(new String[] {record, why != null ? why : maybe ? MAYBE : open ? UNCLOSED : null}));
    }
    return records;
  }

  /** The length of the line break at an offset of a text; 0 if there is none. */
  private int lineBreak(String text, int at) {
    if (at >= text.length()) {
      return 0;
    }
    if (lineSeparator.length() > 0) {
      return text.startsWith(lineSeparator, at) ? lineSeparator.length() : 0;
    }
    return text.charAt(at) == '\n' ? 1 : text.charAt(at) != '\r' ? 0 : text.startsWith("\r\n", at) ? 2 : 1;
  }

  private int endOfLine(String text, int at) {
    int end = at;
    while (end < text.length() && lineBreak(text, end) == 0) {
      end++;
    }
    return end;
  }

  /** The start of the line with the offset `place`. The search begins at `from`, the start of a line. */
  private int startOfLine(String text, int from, int place) {
    int start = from;
    while (true) {
      int end = endOfLine(text, start);
      int next = end + lineBreak(text, end);
      if (next > place || next == start) {
        return start;
      }
      start = next;
    }
  }

  /** The end of the record that begins at an offset; -1 - p if a quoted field is not closed: offset p shows that. */
  private int endOfRecord(String text, int from) {
    int at = from;
    while (true) {
      while (trimsLeading && isSpace(text, at)) {
        at++;
      }
      lastField = at;
      if (quote.length() > 0 && text.startsWith(quote, at)) {
        at = endOfQuoted(text, at + 1);
        if (at < 0) {
          return at;
        }
      }
      while (at < text.length() && lineBreak(text, at) == 0 && !text.startsWith(separator, at)) {
        at++;
      }
      if (at >= text.length() || lineBreak(text, at) > 0) {
        return at;
      }
      at += separator.length();
    }
  }

  /** True for a space that neither separates fields nor ends a line. */
  private boolean isSpace(String text, int at) {
    return at < text.length() && text.charAt(at) <= ' ' && lineBreak(text, at) == 0 && !text.startsWith(separator, at);
  }

  /**
   * The end of a quoted field, after its closing quote; -1 - p if the field is not closed: offset p shows that.
   * Spark takes a quote that is not doubled as text. But in a field of several lines, such a quote may also begin a
   * field of a later row. So a field of several lines with such a quote does not count as closed.
   */
  private int endOfQuoted(String text, int from) {
    char quoting = quote.charAt(0);
    char escaping = escape.length() == 0 ? '\0' : escape.charAt(0);
    boolean hasLineBreak = false;
    for (int i = from; i < text.length(); i++) {
      char letter = text.charAt(i);
      if (letter == quoting) {
        if (escaping == quoting && i + 1 < text.length() && text.charAt(i + 1) == quoting) {
          i++;
          continue;
        }
        int next = i + 1;
        while (isSpace(text, next)) {
          next++;
        }
        if (next == text.length() || lineBreak(text, next) > 0 || text.startsWith(separator, next)) {
          return next;
        }
        if (hasLineBreak && !stopsAtClosingQuote) {
          return -1 - i;
        }
        if (!stopsAtClosingQuote) {
          return i + 1; // Spark ends such a field at the next separator, or at the end of the line
        }
      } else if (letter == escaping && i + 1 < text.length()) {
        i++;
      }
      hasLineBreak = hasLineBreak || lineBreak(text, i) > 0;
    }
    return -1 - text.length();
  }
}
