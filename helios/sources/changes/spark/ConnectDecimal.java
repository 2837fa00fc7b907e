package helios.spark.sources;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Base64;
import org.apache.spark.sql.api.java.UDF2;

/** Turns a decimal of Kafka Connect, digits in base64 and a scale, into text; a damaged one becomes null. */
public class ConnectDecimal implements UDF2 {
  private static final long serialVersionUID = 1L;

  public Object call(Object value, Object scale) throws Exception {
    if (value == null || scale == null) {
      return null;
    }
    try {
      byte[] digits = Base64.getDecoder().decode((String) value);
      return new BigDecimal(new BigInteger(digits), ((Number) scale).intValue()).toPlainString();
    } catch (RuntimeException error) {
      return null;
    }
  }
}
