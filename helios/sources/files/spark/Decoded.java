package helios.spark.sources;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.Charset;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import org.apache.spark.sql.api.java.UDF1;

/** The text that bytes stand for; null where they stand for none and the decoder is strict. */
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
      // Of UTF-16, Java takes the character behind half of a surrogate pair with it: it may be a quote or a line's end.
      in.position(in.position() + (decoder.charset().name().startsWith("UTF-16") ? 2 : result.length()));
      result = decoder.decode(in, out, true);
    }
    decoder.flush(out);
    return out.flip().toString();
  }
}
