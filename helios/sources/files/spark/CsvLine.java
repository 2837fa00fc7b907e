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
 * Classifies a line of a csv file: null for a row, an empty text for a line without a row (the header, a comment, an
 * empty line), otherwise the reason why the line cannot be a row. Each task has its own instance, and passes the lines
 * of its split in the order of the file. For the text of a whole file, it gives the records: each is its text, and the
 * reason why it cannot be a row, or null.
 */
public class CsvLine implements UDF3, UDF1, BooleanSupplier {
  private static final long serialVersionUID = 1L;

  /** A quoted field that is not closed on its line may take at most so many further lines. */
  private static final int REACH = 100;

  /** So many bytes before the split are read first to find out whether a quoted field is open at its start. */
  private static final long LOOK_BACK = 1 << 16;

  private static final String OPEN =
      "a quote is not closed on its line; fields with line breaks need .option(multiLine=True)";

  private static final String UNCLOSED = "a quote is not closed, or one inside it is not doubled";

  private static final String MAYBE = "it may belong to a quoted field that began on a line before";

  private static final String LONG = "it has more fields than the option maxColumns allows";

  private static final String NUL = "it holds a NUL character, which Spark's parser may leave out";

  private static final String BLANK = "it has spaces alone in quotes, which ignoreTrailingWhiteSpace cannot read";

  private static final String SPACES = "it holds spaces alone: a value of the only column, or no row";

  private static final String LAST =
      "its last field ends with a quote, which Spark doubles beside a separator of several characters";

  private final SerializableConfiguration conf;
  private final String encoding;
  private final String lineEnd;
  private final String separator;
  private final String quote;
  private final String escape;
  private final String comment;
  private final boolean header;
  private final boolean trims;
  private final boolean lenient;
  private final boolean trimsEnds;
  private final int most;
  private final boolean single;

  private transient String path;
  private transient long block;
  private transient boolean awaitsHeader;
  private transient int within;

  /** The start of the last field that `record` has reached. */
  private transient int last;

  public CsvLine(SerializableConfiguration conf, String encoding, String lineEnd, String separator, String quote,
      String escape, String comment, Boolean header, Boolean trims, Boolean lenient,
      Boolean trimsEnds, Integer most, Boolean single) {
    this.conf = conf;
    this.encoding = encoding;
    this.lineEnd = lineEnd;
    this.separator = separator;
    this.quote = quote;
    this.escape = escape;
    this.comment = comment;
    this.header = header.booleanValue();
    this.trims = trims.booleanValue();
    this.lenient = lenient.booleanValue();
    this.trimsEnds = trimsEnds.booleanValue();
    this.most = most.intValue();
    this.single = single.booleanValue();
  }

  public Object call(Object path, Object block, Object value) throws Exception {
    String line = (String) value;
    long begin = ((Long) block).longValue();
    if (begin != this.block || !path.equals(this.path)) {
      this.path = (String) path;
      this.block = begin;
      this.awaitsHeader = header && (begin == 0 || isBeforeHeader(this.path, begin));
      this.within = begin == 0 || quote.length() == 0 ? 0 : before(this.path, begin);
    }
    if (isNone(line, within)) {
      return !awaitsHeader && isSpaces(line) ? SPACES : "";
    }
    if (awaitsHeader) {
      awaitsHeader = false;
      return "";
    }
    if (isLong(line)) {
      return LONG;
    }
    int was = within;
    within = after(line, was);
    String why = unread(line);
    if (why != null) {
      return why;
    }
    if (within == REACH) {
      return OPEN;
    }
    return was == 0 ? null : isEmpty(line) ? "" : MAYBE;
  }

  /** True if the next line is neither the header nor a part of a field that began on an earlier line. */
  public boolean getAsBoolean() {
    return !awaitsHeader && within == 0;
  }

  /**
   * The number of lines at the start of a split that may belong to a field that began before the split. It is computed
   * twice from some earlier lines: as if a quoted field were open at the first of them, and as if none were. Both
   * results are equal as soon as a line closes or opens a field. Until they are equal, more lines are read.
   */
  private int before(String path, long begin) throws Exception {
    Path file = new Path(new URI(path));
    for (long back = LOOK_BACK;; back *= 16) {
      long from = Math.max(0, begin - back);
      boolean awaits = header && from == 0;
      int closed = 0;
      int open = from == 0 ? 0 : REACH;
      LineRecordReader lines = lines(file, from, begin);
      try {
        while (lines.nextKeyValue()) {
          String line = current(lines);
          if (awaits) {
            awaits = isNone(line, 0);
            continue;
          }
          closed = after(line, closed);
          open = after(line, open);
        }
      } finally {
        lines.close();
      }
      if (closed == open) {
        return closed;
      }
    }
  }

  /** True if no line before the split has a row: then the first row of the split is the header. */
  private boolean isBeforeHeader(String path, long begin) throws Exception {
    LineRecordReader lines = lines(new Path(new URI(path)), 0, begin);
    try {
      while (lines.nextKeyValue()) {
        if (!isNone(current(lines), 0)) {
          return false;
        }
      }
    } finally {
      lines.close();
    }
    return true;
  }

  /** The lines of a file that begin between two offsets, as Spark's reader finds them. */
  private LineRecordReader lines(Path file, long from, long upto) throws Exception {
    LineRecordReader lines =
        lineEnd.length() == 0 ? new LineRecordReader() : new LineRecordReader(lineEnd.getBytes("UTF-8"));
    lines.initialize(new FileSplit(file, from, upto - from, new String[0]),
        new TaskAttemptContextImpl(conf.value(), new TaskAttemptID()));
    return lines;
  }

  private String current(LineRecordReader lines) throws Exception {
    Text text = (Text) lines.getCurrentValue();
    return new String(text.getBytes(), 0, text.getLength(), encoding);
  }

  /** The number of lines after a line that may belong to an open field, if `within` is that number at the line. */
  private int after(String line, int within) {
    if (isNone(line, within) || isLong(line)) {
      return within;
    }
    if (quote.length() == 0 || line.indexOf(quote.charAt(0)) < 0) {
      return Math.max(0, within - 1);
    }
    if (within > 0 && isClosed(line)) {
      return 0;
    }
    return isOpen(line) ? REACH : Math.max(0, within - 1);
  }

  /** True if a line is neither a row nor a part of one. */
  private boolean isNone(String line, int within) {
    return within == 0 && (isEmpty(line) || (comment.length() > 0 && line.startsWith(comment)));
  }

  /** True if a line of spaces could be a value of the only column. */
  private boolean isSpaces(String line) {
    return single && !trims && !trimsEnds && line.length() > 0 && isEmpty(line);
  }

  /** True if a line has more fields than Spark's parser accepts. */
  private boolean isLong(String line) {
    if (line.length() < most) {
      return false;
    }
    int found = 1;
    for (int at = line.indexOf(separator); at >= 0; at = line.indexOf(separator, at + separator.length())) {
      found++;
    }
    return found > most;
  }

  /** The reason if Spark's parser would change a record, or stop at it; otherwise null. */
  private String unread(String record) {
    if (record.indexOf('\0') >= 0) {
      return NUL;
    }
    if (separator.length() > 1 && quote.length() > 0 && record.stripTrailing().endsWith(quote)
        && record(record, 0) >= 0 && !record.startsWith(quote, last)) {
      return LAST;
    }
    if (!trimsEnds || quote.length() == 0) {
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
  private boolean isEmpty(String line) {
    for (int i = 0; i < line.length(); i++) {
      char one = line.charAt(i);
      if ((one != ' ' && (one < '\t' || one > '\r')) || separator.indexOf(one) >= 0) {
        return false;
      }
    }
    return true;
  }

  /** True if a quoted field of a line is not closed on the line. */
  private boolean isOpen(String line) {
    return record(line, 0) < 0;
  }

  /** True if a line closes a quoted field that began on an earlier line. */
  private boolean isClosed(String line) {
    int end = closed(line, 0);
    return end >= 0 && record(line, end) >= 0;
  }

  public Object call(Object value) throws Exception {
    String text = (String) value;
    List found = new ArrayList();
    boolean awaits = header;
    int at = text.startsWith("\uFEFF") ? 1 : 0;
    int upto = -1; // a line that begins up to here may be a part of a field that was not closed
    while (at < text.length()) {
      boolean maybe = at <= upto;
      boolean line = at < upto || (!maybe && comment.length() > 0 && text.startsWith(comment, at));
      int end = line ? lineEnd(text, at) : record(text, at);
      boolean open = end < 0;
      if (open) {
        upto = lineStart(text, at, -end - 1);
        end = lineEnd(text, at);
      }
      String record = text.substring(at, end);
      at = end + lineBreak(text, end);
      if (isEmpty(record) || (line && !maybe)) {
        if (!awaits && isSpaces(record)) {
          found.add(Arrays.asList(new String[] {record, SPACES}));
        }
        continue;
      }
      if (awaits && !open) {
        awaits = false;
        continue;
      }
      awaits = false;
      String why = isLong(record) ? LONG : unread(record);
      found.add(Arrays.asList(new String[] {record, why != null ? why : maybe ? MAYBE : open ? UNCLOSED : null}));
    }
    return found;
  }

  /** The length of the line break at an offset of a text; 0 if there is none. */
  private int lineBreak(String text, int at) {
    if (at >= text.length()) {
      return 0;
    }
    if (lineEnd.length() > 0) {
      return text.startsWith(lineEnd, at) ? lineEnd.length() : 0;
    }
    return text.charAt(at) == '\n' ? 1 : text.charAt(at) != '\r' ? 0 : text.startsWith("\r\n", at) ? 2 : 1;
  }

  private int lineEnd(String text, int at) {
    int end = at;
    while (end < text.length() && lineBreak(text, end) == 0) {
      end++;
    }
    return end;
  }

  /** The start of the line that has the offset `place`, where `from` is the start of that line or of an earlier one. */
  private int lineStart(String text, int from, int place) {
    int start = from;
    while (true) {
      int end = lineEnd(text, start);
      int next = end + lineBreak(text, end);
      if (next > place || next == start) {
        return start;
      }
      start = next;
    }
  }

  /** The end of the record that begins at an offset; -1 - p if a quoted field is not closed, as offset p shows. */
  private int record(String text, int from) {
    int at = from;
    while (true) {
      while (trims && isSpace(text, at)) {
        at++;
      }
      last = at;
      if (quote.length() > 0 && text.startsWith(quote, at)) {
        at = closed(text, at + 1);
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
   * The end of a quoted field, after its closing quote; -1 - p if the field is not closed, as offset p shows.
   * Spark takes a quote in the field that is not doubled as text. In a field of several lines, such a quote may as well
   * begin a field of a later row: the field counts as not closed then.
   */
  private int closed(String text, int from) {
    char quoting = quote.charAt(0);
    char escaping = escape.length() == 0 ? '\0' : escape.charAt(0);
    boolean broken = false;
    for (int i = from; i < text.length(); i++) {
      char one = text.charAt(i);
      if (one == quoting) {
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
        if (broken && !lenient) {
          return -1 - i;
        }
        if (!lenient) {
          return i + 1; // Spark ends such a field at the next separator, or at the end of the line
        }
      } else if (one == escaping && i + 1 < text.length()) {
        i++;
      }
      broken = broken || lineBreak(text, i) > 0;
    }
    return -1 - text.length();
  }
}
