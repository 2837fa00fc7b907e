package helios.spark.sources;

import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.YearMonth;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads the texts, numbers and times of JSON from bytes, as Spark's internal values. */
public abstract class PlainBytes {
  /** The result for a value that is not plain: Spark's parser has to read the value. */
  public static final Object UNSURE = new Object();

  public static final int MAX_NUMBER_LENGTH = 100;

  /** A double represents every smaller whole number exactly, and every power of ten up to 10^22. */
  private static final long EXACT = 1L << 53;

  private static final String ESCAPES = "\"\\/bfnrt";
  private static final String ESCAPED = "\"\\/\b\f\n\r\t";

  public transient byte[] in;
  public transient int at;
  private transient byte[] buffer;

  // The last number that was read. `digits` is its value without the point and the exponent, if at most 18 digits.
  private transient boolean negative;
  private transient boolean hasFewDigits;
  private transient boolean hasExponent;
  private transient long digits;
  private transient int fraction;

  /** The byte at a place; 0 after the end, as JSON never contains a byte 0 outside of an escape. */
  public final byte byteAt(int place) {
    return place < in.length ? in[place] : (byte) 0;
  }

  /** Skips white space, and returns the next byte. */
  public final byte skipSpaces() {
    byte letter = byteAt(at);
    while (letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t') {
      letter = byteAt(++at);
    }
    return letter;
  }

  public final boolean skipWord(String word) {
    for (int i = 0; i < word.length(); i++) {
      if (byteAt(at + i) != word.charAt(i)) {
        return false;
      }
    }
    at += word.length();
    return true;
  }

  // texts

  /** Reads the text whose opening quotation mark is at the current place. */
  public final Object text() {
    int begin = ++at;
    while (at < in.length) {
      byte letter = in[at];
      if (letter == '"') {
        return UTF8String.fromBytes(in, begin, at++ - begin);
      } else if (letter == '\\') {
        return unescaped(begin);
      } else if (letter >= ' ') {
        at++;
      } else if (letter >= 0 || !skipWide()) {
        return UNSURE;
      }
    }
    return UNSURE;
  }

  /** Skips a character of several bytes; false if the bytes are not UTF-8. */
  private boolean skipWide() {
    int first = in[at] & 0xFF;
    int more = first >= 0xC2 && first <= 0xDF ? 1 : first >= 0xE0 && first <= 0xEF ? 2 : first >= 0xF0 ? 3 : 0;
    if (more == 0 || first > 0xF4) {
      return false;
    }
    int second = byteAt(at + 1) & 0xFF;
    int min = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    int max = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF; // a larger byte after ED is half a surrogate pair
    if (second < min || second > max) {
      return false;
    }
    for (int i = 2; i <= more; i++) {
      if ((byteAt(at + i) & 0xC0) != 0x80) {
        return false;
      }
    }
    at += more + 1;
    return true;
  }

  private Object unescaped(int begin) {
    if (buffer == null || buffer.length < in.length) {
      buffer = new byte[in.length];
    }
    int size = at - begin;
    System.arraycopy(in, begin, buffer, 0, size);
    while (at < in.length) {
      byte letter = in[at];
      if (letter == '"') {
        at++;
        byte[] bytes = new byte[size];
        System.arraycopy(buffer, 0, bytes, 0, size);
        return UTF8String.fromBytes(bytes);
      } else if (letter == '\\') {
        int code = escape();
        if (code < 0) {
          return UNSURE;
        } else if (code < 0x80) {
          buffer[size++] = (byte) code;
        } else {
          byte[] encoded = String.valueOf((char) code).getBytes(StandardCharsets.UTF_8);
          System.arraycopy(encoded, 0, buffer, size, encoded.length);
          size += encoded.length;
        }
      } else {
        int from = at;
        if (letter >= ' ') {
          at++;
        } else if (letter >= 0 || !skipWide()) {
          return UNSURE;
        }
        while (from < at) {
          buffer[size++] = in[from++];
        }
      }
    }
    return UNSURE;
  }

  /** Reads an escape, and returns its character; -1 for a wrong escape, and for half of a surrogate pair. */
  private int escape() {
    byte letter = byteAt(at + 1);
    int index = ESCAPES.indexOf(letter);
    if (index >= 0) {
      at += 2;
      return ESCAPED.charAt(index);
    }
    int code = 0;
    for (int i = 2; i < 6; i++) {
      int digit = Character.digit(byteAt(at + i), 16);
      code = digit < 0 || code < 0 ? -1 : code * 16 + digit;
    }
    at += 6;
    return letter != 'u' || (code >= 0xD800 && code <= 0xDFFF) ? -1 : code;
  }

  // numbers

  /** Reads a number; false if there is none at the current place, or if it is too long. */
  public final boolean number() {
    int begin = at;
    negative = byteAt(at) == '-';
    at += negative ? 1 : 0;
    int first = at;
    digits = 0;
    readDigits();
    int count = at - first;
    if (count == 0 || (count > 1 && in[first] == '0')) {
      return false;
    }
    fraction = 0;
    if (byteAt(at) == '.') {
      int point = ++at;
      readDigits();
      fraction = at - point;
      if (fraction == 0) {
        return false;
      }
    }
    hasFewDigits = count + fraction <= 18;
    hasExponent = byteAt(at) == 'e' || byteAt(at) == 'E';
    if (hasExponent) {
      byte sign = byteAt(++at);
      at += sign == '-' || sign == '+' ? 1 : 0;
      int exponent = at;
      readDigits();
      if (at == exponent) {
        return false;
      }
    }
    return at - begin <= MAX_NUMBER_LENGTH;
  }

  private void readDigits() {
    byte letter = byteAt(at);
    while (letter >= '0' && letter <= '9') {
      digits = digits * 10 + (letter - '0');
      letter = byteAt(++at);
    }
  }

  /** Reads an integer of a type with `width` bytes. */
  public final Object integer(int width) {
    if (!number() || !hasFewDigits || hasExponent || fraction > 0) {
      return UNSURE;
    }
    long value = negative ? -digits : digits;
    if (width == 8) {
      return Long.valueOf(value);
    } else if (width == 4) {
      return value == (int) value ? (Object) Integer.valueOf((int) value) : UNSURE;
    } else if (width == 2) {
      return value == (short) value ? (Object) Short.valueOf((short) value) : UNSURE;
    }
    return value == (byte) value ? (Object) Byte.valueOf((byte) value) : UNSURE;
  }

  /** Reads a double or a float, with or without quotation marks: Spark's casts of texts accept both. */
  public final Object floatingPoint(boolean isDouble) {
    boolean quoted = byteAt(at) == '"';
    at += quoted ? 1 : 0;
    int begin = at;
    if (!number()) {
      return UNSURE;
    }
    Object result;
    if (isDouble && hasFewDigits && !hasExponent && digits < EXACT) {
      double exact = digits / (double) powerOfTen(fraction); // both are exact, so the division rounds only once
      result = Double.valueOf(negative ? -exact : exact);
    } else {
      String text = new String(in, begin, at - begin, StandardCharsets.US_ASCII);
      float value = Float.parseFloat(text);
      double asDouble = isDouble ? Double.parseDouble(text) : value;
      result = isDouble ? (Object) Double.valueOf(asDouble) : (Object) Float.valueOf(value);
      result = Double.isInfinite(asDouble) ? UNSURE : result;
    }
    return !quoted || byteAt(at++) == '"' ? result : UNSURE;
  }

  /** Reads a decimal, with or without quotation marks; `UNSURE` if the type would lose digits. */
  public final Object decimal(int precision, int scale) {
    boolean quoted = byteAt(at) == '"';
    at += quoted ? 1 : 0;
    if (!number() || !hasFewDigits || hasExponent || fraction > scale || (quoted && byteAt(at++) != '"')) {
      return UNSURE;
    }
    long factor = powerOfTen(scale - fraction);
    if (digits > (powerOfTen(precision) - 1) / factor) {
      return UNSURE;
    }
    return Decimal.createUnsafe((negative ? -digits : digits) * factor, precision, scale);
  }

  private static long powerOfTen(int count) {
    long power = 1;
    for (int i = 0; i < count; i++) {
      power *= 10;
    }
    return power;
  }

  // times

  /** Reads a day, as days since 1970. */
  public final Object date() {
    long day = day();
    return day != Long.MIN_VALUE && byteAt(at++) == '"' ? (Object) Integer.valueOf((int) day) : UNSURE;
  }

  /** Reads a time, as microseconds since 1970; a time without a zone is in UTC, as the session is. */
  public final Object time(boolean zoned) {
    long day = day();
    byte letter = byteAt(at);
    int hour = twoDigits(at + 1);
    int minute = twoDigits(at + 4);
    int second = twoDigits(at + 7);
    boolean hasSeparators = (letter == 'T' || letter == ' ') && byteAt(at + 3) == ':' && byteAt(at + 6) == ':';
    if (day == Long.MIN_VALUE || !hasSeparators || !isUpTo(hour, 23) || !isUpTo(minute, 59) || !isUpTo(second, 59)) {
      return UNSURE;
    }
    at += 9;
    long micros = 0;
    if (byteAt(at) == '.') {
      int point = ++at;
      digits = 0;
      readDigits();
      int count = at - point;
      if (count == 0 || count > 6) {
        return UNSURE;
      }
      micros = digits * powerOfTen(6 - count);
    }
    long seconds = ((day * 24 + hour) * 60 + minute) * 60 + second;
    letter = byteAt(at++);
    if (letter == '+' || letter == '-') {
      int hours = twoDigits(at);
      int minutes = twoDigits(at + 3);
      if (!isUpTo(hours, 17) || !isUpTo(minutes, 59) || byteAt(at + 2) != ':') {
        return UNSURE;
      }
      seconds -= (letter == '+' ? 1 : -1) * (hours * 60 + minutes) * 60;
      at += 5;
    }
    if (letter == '+' || letter == '-' || letter == 'Z') {
      letter = zoned ? byteAt(at++) : (byte) 0;
    }
    return letter == '"' ? (Object) Long.valueOf(seconds * 1000000L + micros) : UNSURE;
  }

  /** Reads the day whose opening quotation mark is at the current place; `Long.MIN_VALUE` if there is none. */
  private long day() {
    int century = twoDigits(at + 1);
    int year = twoDigits(at + 3) + century * 100;
    int month = twoDigits(at + 6);
    int day = twoDigits(at + 9);
    boolean hasYear = byteAt(at) == '"' && century >= 0 && twoDigits(at + 3) >= 0 && year > 0;
    boolean hasSeparators = byteAt(at + 5) == '-' && byteAt(at + 8) == '-';
    if (!hasYear || !hasSeparators || month < 1 || month > 12 || day < 1 || day > 31) {
      return Long.MIN_VALUE;
    }
    if (day > 28 && day > YearMonth.of(year, month).lengthOfMonth()) {
      return Long.MIN_VALUE;
    }
    at += 11;
    return LocalDate.of(year, month, day).toEpochDay();
  }

  /** The number of two digits at a place; -1 if there are none. */
  private int twoDigits(int place) {
    int first = byteAt(place) - '0';
    int second = byteAt(place + 1) - '0';
    return isUpTo(first, 9) && isUpTo(second, 9) ? first * 10 + second : -1;
  }

  private static boolean isUpTo(int value, int max) {
    return value >= 0 && value <= max;
  }
}
