package helios.spark.sources;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Base64;
import org.apache.spark.sql.api.java.UDF2;

/** The text of a decimal from Kafka Connect's JSON, which has its digits in base64, and a scale; null if damaged. */
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
