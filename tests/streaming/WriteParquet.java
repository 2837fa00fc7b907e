package helios.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.api.java.UDF1;

/** Writes a parquet file of a schema in parquet's own text, whatever its annotations are; bytes are base64. */
public class WriteParquet implements UDF1 {
  private static final long serialVersionUID = 1L;

  public Object call(Object text) throws Exception {
    JsonNode asked = new ObjectMapper().readTree((String) text);
    MessageType schema = MessageTypeParser.parseMessageType(asked.get("schema").asText());
    ParquetWriter writer = ((ExampleParquetWriter.Builder) ExampleParquetWriter.builder(
      new Path(asked.get("path").asText())).withType(schema)).build();
    for (Iterator rows = asked.get("rows").elements(); rows.hasNext();) {
      writer.write(group(schema, (JsonNode) rows.next()));
    }
    writer.close();
    return null;
  }

  private Group group(GroupType schema, JsonNode row) throws Exception {
    Group group = new SimpleGroup(schema);
    for (Iterator fields = row.fields(); fields.hasNext();) {
      Map.Entry field = (Map.Entry) fields.next();
      String name = (String) field.getKey();
      JsonNode value = (JsonNode) field.getValue();
      if (value.isArray()) {
        for (Iterator each = value.elements(); each.hasNext();) {
          add(group, name, schema.getType(name), (JsonNode) each.next());
        }
      } else if (!value.isNull()) {
        add(group, name, schema.getType(name), value);
      }
    }
    return group;
  }

  private void add(Group group, String name, Type type, JsonNode value) throws Exception {
    if (!type.isPrimitive()) {
      group.add(name, group(type.asGroupType(), value));
      return;
    }
    String kind = type.asPrimitiveType().getPrimitiveTypeName().name();
    if (kind.equals("BOOLEAN")) {
      group.add(name, value.asBoolean());
    } else if (kind.equals("INT32")) {
      group.add(name, value.asInt());
    } else if (kind.equals("INT64")) {
      group.add(name, value.asLong());
    } else if (kind.equals("FLOAT")) {
      group.add(name, (float) value.asDouble());
    } else if (kind.equals("DOUBLE")) {
      group.add(name, value.asDouble());
    } else {
      group.add(name, Binary.fromConstantByteArray(value.binaryValue()));
    }
  }
}
