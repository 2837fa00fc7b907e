package helios.spark.sources;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.Charset;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import org.apache.spark.sql.api.java.UDF1;

/** Decodes bytes to text. If bytes are not valid, a strict decoder returns null; a lenient one replaces them. */
public class Decoded implements UDF1 {
  private static final long serialVersionUID = 1L;

  private final String charset;
  private final boolean strict;

  public Decoded(String charset, Boolean strict) {
    this.charset = charset;
    this.strict = strict.booleanValue();
  }

  public Object call(Object bytes) throws Exception {
    CharsetDecoder decoder = Charset.forName(charset).newDecoder().onMalformedInput(CodingErrorAction.REPORT)
        .onUnmappableCharacter(CodingErrorAction.REPORT);
    ByteBuffer in = ByteBuffer.wrap((byte[]) bytes);
    CharBuffer out = CharBuffer.allocate((int) (in.remaining() * (double) decoder.maxCharsPerByte()) + 1);
    CoderResult result = decoder.decode(in, out, true);
    while (!result.isUnderflow()) {
      if (strict) {
        return null;
      }
      out.put('\uFFFD');
      // In UTF-16, half of a surrogate pair is two bytes. Java's length includes the next character, which may be a
      // quote or a line end.
      int bad = decoder.charset().name().startsWith("UTF-16") ? 2 : result.length();
      in.position(Math.min(in.limit(), in.position() + bad));
      result = decoder.decode(in, out, true);
    }
    decoder.flush(out);
    return out.flip().toString();
  }
}
