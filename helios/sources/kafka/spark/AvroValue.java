package helios.spark.sources;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.ConnectException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.Decoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.util.Utf8;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Resolves a value in Avro's binary format, by Avro's rules, from the schema of its writer into the wanted schema. The
 * result has two fields: the bytes in the wanted schema, and the reason if the value is bad. One of the two is null.
 */
public class AvroValue implements UDF1 {
  private static final long serialVersionUID = 1L;

  /** The milliseconds after which a request to the registry fails. */
  private static final int TIMEOUT_MILLIS = 10000;

  /** A value may have at most this many elements that take no bytes. */
  private static final int EMPTY_ITEMS = 65536;

  /** The key of the wanted schema in `resolutions`; all other keys are ids of the registry. */
  private static final Integer WANTED = Integer.valueOf(-1);

  /** The schemas from registries, by address and id: a registry never uses an id for another schema. */
  private static final Map SCHEMAS = new HashMap();

  private final String schema;
  private final String registry;
  private final String login;
  private final boolean strict;
  private transient Schema wanted;
  private transient Map resolutions;

  /**
   * Creates the function. `schema` is the wanted schema as JSON. `registry` is the address of the registry; it is empty
   * if values have no header, and are written with the wanted schema. `login` is the value of the Authorization header,
   * or empty. If `strict` is true, a value with a field that the wanted schema lacks is bad.
   */
  public AvroValue(String schema, String registry, String login, Boolean strict) {
    this.schema = schema;
    this.registry = registry;
    this.login = login;
    this.strict = strict.booleanValue();
  }

  /** A bad value; the message is the reason. */
  private static class Bad extends IOException {
    private static final long serialVersionUID = 1L;

    Bad(String why) {
      super(why);
    }
  }

  /** The resolution of values of one schema into the wanted schema, or the reason why they cannot be resolved. */
  private static class Resolution {
    private String why;
    private boolean sameSchema;
    private GenericDatumReader reader;
  }

  public Object call(Object value) throws Exception {
    if (value == null) {
      return null;
    }
    if (wanted == null) {
      resolutions = new HashMap();
      wanted = new Schema.Parser().parse(schema);
    }
    byte[] bytes = (byte[]) value;
    try {
      byte[] resolved = registry.isEmpty() ? resolvedWithoutHeader(bytes) : resolvedWithHeader(bytes);
      return RowFactory.create(new Object[] {resolved, null});
    } catch (Bad error) {
      return RowFactory.create(new Object[] {null, error.getMessage()});
    }
  }

  private byte[] resolvedWithoutHeader(byte[] bytes) throws IOException {
    return resolved(bytes, 0, resolution(WANTED));
  }

  private byte[] resolvedWithHeader(byte[] bytes) throws IOException {
    if (bytes.length < 5 || bytes[0] != 0) {
      throw new Bad("the value does not begin with the byte 0 and the id of a schema");
    }
    return resolved(bytes, 5, resolution(Integer.valueOf(ByteBuffer.wrap(bytes).getInt(1))));
  }

  private byte[] resolved(byte[] bytes, int begin, Resolution resolution) throws IOException {
    if (resolution.why != null) {
      throw new Bad(resolution.why);
    }
    Bounded decoder = new Bounded(bytes, begin);
    Object datum;
    try {
      datum = resolution.reader.read(null, decoder);
    } catch (Bad error) {
      throw error;
    } catch (RuntimeException error) {
      throw new Bad("the value does not fit its schema: " + error.getMessage());
    } catch (StackOverflowError error) {
      throw new Bad("the value does not fit its schema: it is nested too deep");
    }
    if (decoder.left() > 0) {
      throw new Bad("the value does not fit its schema: " + decoder.left() + " bytes are left over");
    }
    verify(datum, wanted, "");
    if (resolution.sameSchema) {
      return begin == 0 ? bytes : Arrays.copyOfRange(bytes, begin, bytes.length);
    }
    ByteArrayOutputStream written = new ByteArrayOutputStream(bytes.length + 16);
    BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(written, null);
    new GenericDatumWriter(wanted).write(datum, encoder);
    encoder.flush();
    return written.toByteArray();
  }

  // schemas

  private Resolution resolution(Integer id) throws IOException {
    Resolution resolution = (Resolution) resolutions.get(id);
    if (resolution == null) {
      resolution = new Resolution();
      Object schemaOrReason = id.equals(WANTED) ? (Object) wanted : writerSchema(id);
      if (schemaOrReason instanceof String) {
        resolution.why = (String) schemaOrReason;
      } else {
        Schema writer = (Schema) schemaOrReason;
        StringBuilder lacking = new StringBuilder();
        if (strict) {
          collectLacking(writer, wanted, "", lacking);
        }
        resolution.why = lacking.length() > 0 ? "fields that the schema lacks: " + lacking : null;
        resolution.sameSchema = writer.equals(wanted);
        resolution.reader = new GenericDatumReader(writer, wanted);
      }
      resolutions.put(id, resolution);
    }
    return resolution;
  }

  /** The schema with an id, from the registry; or the reason, as a text, why values with the id cannot be read. */
  private Object writerSchema(Integer id) throws IOException {
    String key = registry + " " + id;
    synchronized (SCHEMAS) {
      Object known = SCHEMAS.get(key);
      if (known != null) {
        return known;
      }
    }
    JsonNode answer = requestSchema(id);
    if (answer == null) {
      return "the schema id " + id + " is not in the registry";
    }
    JsonNode type = child(answer, "schemaType");
    if (type.isTextual() && !type.asText().equals("AVRO")) {
      return "the schema id " + id + " names a schema of " + type.asText() + ", and not of Avro";
    }
    if (child(answer, "references").size() > 0) {
      return "the schema id " + id + " refers to other schemas, which are not resolved";
    }
    Schema writer;
    try {
      writer = new Schema.Parser().parse(child(answer, "schema").asText());
    } catch (RuntimeException error) {
      return "the schema id " + id + " is no schema of Avro: " + error.getMessage();
    }
    synchronized (SCHEMAS) {
      SCHEMAS.put(key, writer);
    }
    return writer;
  }

  /** The registry's answer to the request for an id; null if the registry does not know the id. */
  private JsonNode requestSchema(Integer id) throws IOException {
    int status;
    byte[] body;
    try {
      HttpURLConnection connection = (HttpURLConnection) new URL(registry + "/schemas/ids/" + id).openConnection();
      connection.setConnectTimeout(TIMEOUT_MILLIS);
      connection.setReadTimeout(TIMEOUT_MILLIS);
      connection.setInstanceFollowRedirects(false);
      connection.setRequestProperty("Accept", "application/vnd.schemaregistry.v1+json, application/json");
      if (login.length() > 0) {
        connection.setRequestProperty("Authorization", login);
      }
      status = connection.getResponseCode();
      InputStream stream = status < 400 ? connection.getInputStream() : connection.getErrorStream();
      body = stream == null ? new byte[0] : stream.readAllBytes();
    } catch (IOException error) {
      throw new ConnectException("the schema registry " + registry + " does not answer: " + error);
    }
    JsonNode answer = null;
    try {
      answer = (JsonNode) new ObjectMapper().readTree(body);
    } catch (IOException error) {
      status = status < 400 ? 502 : status; // an answer that is not JSON is not from the registry
    }
    if (status == 404 && answer != null && child(answer, "error_code").asInt() == 40403) {
      return null;
    }
    if (status == 429 || status >= 500) {
      throw new ConnectException("the schema registry " + registry + " answers " + status);
    }
    if (status != 200) {
      throw new IOException("helios: registry: the schema registry " + registry + " answers " + status
          + " to the question for schema id " + id);
    }
    return answer;
  }

  private static JsonNode child(JsonNode node, String name) {
    return (JsonNode) node.path(name);
  }

  /** Collects the fields that the wanted schema lacks. The recursion ends: Spark accepts no recursive schemas. */
  private static void collectLacking(Schema writer, Schema wanted, String path, StringBuilder lacking) {
    if (writer.getType() == Schema.Type.UNION) {
      for (Iterator types = writer.getTypes().iterator(); types.hasNext();) {
        collectLacking((Schema) types.next(), wanted, path, lacking);
      }
    } else if (wanted.getType() == Schema.Type.UNION) {
      for (Iterator types = wanted.getTypes().iterator(); types.hasNext();) {
        Schema type = (Schema) types.next();
        boolean named = writer.getType() == Schema.Type.RECORD && wanted.getTypes().size() > 2;
        if (type.getType() == writer.getType() && (!named || type.getFullName().equals(writer.getFullName()))) {
          collectLacking(writer, type, path, lacking);
        }
      }
    } else if (writer.getType() == Schema.Type.RECORD && wanted.getType() == Schema.Type.RECORD) {
      for (Iterator fields = writer.getFields().iterator(); fields.hasNext();) {
        Schema.Field field = (Schema.Field) fields.next();
        Schema.Field match = match(field.name(), wanted);
        if (match != null) {
          collectLacking(field.schema(), match.schema(), path + field.name() + ".", lacking);
        } else {
          lacking.append(lacking.length() > 0 ? ", " : "").append(path).append(field.name());
        }
      }
    } else if (writer.getType() == Schema.Type.ARRAY && wanted.getType() == Schema.Type.ARRAY) {
      collectLacking(writer.getElementType(), wanted.getElementType(), path, lacking);
    } else if (writer.getType() == Schema.Type.MAP && wanted.getType() == Schema.Type.MAP) {
      collectLacking(writer.getValueType(), wanted.getValueType(), path, lacking);
    }
  }

  /** The field of the wanted schema with a name, or with the name as an alias; null if there is none. */
  private static Schema.Field match(String name, Schema wanted) {
    Schema.Field match = wanted.getField(name);
    for (Iterator fields = wanted.getFields().iterator(); match == null && fields.hasNext();) {
      Schema.Field field = (Schema.Field) fields.next();
      if (field.aliases().contains(name)) {
        match = field;
      }
    }
    return match;
  }

  // values that Spark would change silently

  private static void verify(Object datum, Schema schema, String name) throws IOException {
    Schema.Type type = schema.getType();
    if (datum == null) {
      return;
    } else if (type == Schema.Type.UNION) {
      verify(datum, (Schema) schema.getTypes().get(GenericData.get().resolveUnion(schema, datum)), name);
    } else if (type == Schema.Type.RECORD) {
      List fields = schema.getFields();
      for (int i = 0; i < fields.size(); i++) {
        Schema.Field field = (Schema.Field) fields.get(i);
        verify(((IndexedRecord) datum).get(i), field.schema(), field.name());
      }
    } else if (type == Schema.Type.ARRAY) {
      for (Iterator elements = ((Collection) datum).iterator(); elements.hasNext();) {
        verify(elements.next(), schema.getElementType(), name);
      }
    } else if (type == Schema.Type.MAP) {
      for (Iterator values = ((Map) datum).values().iterator(); values.hasNext();) {
        verify(values.next(), schema.getValueType(), name);
      }
    } else if (schema.getLogicalType() != null) {
      verify(datum, schema.getLogicalType(), type, name);
    }
  }

  private static void verify(Object datum, LogicalType logical, Schema.Type type, String name) throws IOException {
    if (logical instanceof LogicalTypes.Decimal && (type == Schema.Type.BYTES || type == Schema.Type.FIXED)) {
      byte[] digits;
      if (type == Schema.Type.FIXED) {
        digits = ((GenericFixed) datum).bytes();
      } else {
        ByteBuffer buffer = ((ByteBuffer) datum).asReadOnlyBuffer();
        digits = new byte[buffer.remaining()];
        buffer.get(digits);
      }
      int precision = ((LogicalTypes.Decimal) logical).getPrecision();
      if (digits.length == 0 || new BigDecimal(new BigInteger(digits)).precision() > precision) {
        throw new Bad(name + " does not fit a decimal of " + precision + " digits");
      }
    } else if (logical.getName().endsWith("timestamp-millis")) {
      long millis = ((Long) datum).longValue();
      if (millis > Long.MAX_VALUE / 1000 || millis < Long.MIN_VALUE / 1000) {
        throw new Bad(name + " does not fit a timestamp");
      }
    }
  }

  /** A decoder of Avro's binary format that compares lengths and counts with the number of bytes that are left. */
  private static class Bounded extends Decoder {
    private final byte[] bytes;
    private int at;
    private long items;

    Bounded(byte[] bytes, int at) {
      this.bytes = bytes;
      this.at = at;
    }

    int left() {
      return bytes.length - at;
    }

    private byte[] take(int count) throws IOException {
      if (count > left()) {
        throw new Bad("the value does not fit its schema: it ends too early");
      }
      at += count;
      return Arrays.copyOfRange(bytes, at - count, at);
    }

    private int length() throws IOException {
      long length = readLong();
      if (length < 0 || length > left()) {
        throw new Bad("the value does not fit its schema: a length goes beyond its end");
      }
      return (int) length;
    }

    private long items(long count) throws IOException {
      items += count;
      if (count < 0 || items > (long) bytes.length + EMPTY_ITEMS) {
        throw new Bad("the value does not fit its schema: it has fewer elements than it says");
      }
      return count;
    }

    public void readNull() {
    }

    public boolean readBoolean() throws IOException {
      byte value = take(1)[0];
      if (value != 0 && value != 1) {
        throw new Bad("the value does not fit its schema: a boolean is neither true nor false");
      }
      return value == 1;
    }

    public int readInt() throws IOException {
      long value = readLong();
      if (value != (int) value) {
        throw new Bad("the value does not fit its schema: an int is too large");
      }
      return (int) value;
    }

    public long readLong() throws IOException {
      long value = 0;
      for (int shift = 0; shift < 64; shift += 7) {
        if (at >= bytes.length) {
          throw new Bad("the value does not fit its schema: it ends too early");
        }
        byte next = bytes[at++];
        value |= (next & 0x7fL) << shift;
        if (next >= 0) {
          return (value >>> 1) ^ -(value & 1);
        }
      }
      throw new Bad("the value does not fit its schema: a long is too large");
    }

    public float readFloat() throws IOException {
      return ByteBuffer.wrap(take(4)).order(ByteOrder.LITTLE_ENDIAN).getFloat();
    }

    public double readDouble() throws IOException {
      return ByteBuffer.wrap(take(8)).order(ByteOrder.LITTLE_ENDIAN).getDouble();
    }

    public Utf8 readString(Utf8 old) throws IOException {
      byte[] text = take(length());
      try {
        StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(text));
      } catch (CharacterCodingException error) {
        throw new Bad("the value does not fit its schema: a string is no UTF-8 text");
      }
      return new Utf8(text);
    }

    public String readString() throws IOException {
      return readString(null).toString();
    }

    public void skipString() throws IOException {
      take(length());
    }

    public ByteBuffer readBytes(ByteBuffer old) throws IOException {
      return ByteBuffer.wrap(take(length()));
    }

    public void skipBytes() throws IOException {
      take(length());
    }

    public void readFixed(byte[] to, int start, int length) throws IOException {
      System.arraycopy(take(length), 0, to, start, length);
    }

    public void skipFixed(int length) throws IOException {
      take(length);
    }

    public int readEnum() throws IOException {
      return readInt();
    }

    public long readArrayStart() throws IOException {
      long count = readLong();
      if (count < 0) {
        count = -count;
        readLong(); // skips the size of the block
      }
      return items(count);
    }

    public long arrayNext() throws IOException {
      return readArrayStart();
    }

    public long skipArray() throws IOException {
      long count = readLong();
      while (count < 0) {
        take(length());
        count = readLong();
      }
      return items(count);
    }

    public long readMapStart() throws IOException {
      return readArrayStart();
    }

    public long mapNext() throws IOException {
      return readArrayStart();
    }

    public long skipMap() throws IOException {
      return skipArray();
    }

    public int readIndex() throws IOException {
      return readInt();
    }
  }
}
