package helios.spark.engine;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.iceberg.parquet.ParquetSchemaUtil;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.Encoding;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.iceberg.shaded.org.apache.parquet.io.InputFile;
import org.apache.iceberg.shaded.org.apache.parquet.schema.GroupType;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType;
import org.apache.iceberg.shaded.org.apache.parquet.schema.Type;
import org.apache.spark.sql.api.java.UDF1;

/** Reads the leaf columns of parquet files from their footers; returns the fields of `Leaf` in file_metadata.py. */
public class Footers implements UDF1 {
  private static final long serialVersionUID = 1L;
  private static final int THREADS = 16;
  private final transient FileIO io;
  // With default options each reader would parse Hadoop's XML files again.
  private final transient ParquetReadOptions options =
    ParquetReadOptions.builder(new PlainParquetConfiguration()).build();
  private final String mapping;

  public Footers(FileIO io, String mapping) {
    this.io = io;
    this.mapping = mapping;
  }

  public Object call(Object locations) throws Exception {
    List paths = (List) locations;
    ExecutorService pool = Executors.newFixedThreadPool(Math.max(1, Math.min(THREADS, paths.size())));
    try {
      List futures = new ArrayList();
      for (Iterator each = paths.iterator(); each.hasNext();) {
        final String location = (String) each.next();
        futures.add(pool.submit(new Callable() {
          public Object call() throws Exception {
            return columns(location);
          }
        }));
      }
      List results = new ArrayList();
      for (Iterator each = futures.iterator(); each.hasNext();) {
        results.add(((Future) each.next()).get());
      }
      return results;
    } catch (ExecutionException failure) {
      throw failure.getCause() instanceof Exception ? (Exception) failure.getCause() : failure;
    } finally {
      pool.shutdownNow();
    }
  }

  private List columns(String location) throws Exception {
    // ParquetIO.file converts an input file of Iceberg to one of parquet. It is not public.
    Method file = Class.forName("org.apache.iceberg.parquet.ParquetIO")
      .getDeclaredMethod("file", new Class[] {org.apache.iceberg.io.InputFile.class});
    file.setAccessible(true);
    InputFile input = (InputFile) file.invoke(null, new Object[] {io.newInputFile(location)});
    ParquetFileReader reader = ParquetFileReader.open(input, options);
    try {
      MessageType schema = reader.getFileMetaData().getSchema();
      if (mapping != null && !ParquetSchemaUtil.hasIds(schema)) {
        schema = ParquetSchemaUtil.applyNameMapping(schema, NameMappingParser.fromJson(mapping));
      }
      boolean hasFieldIds = ParquetSchemaUtil.hasIds(reader.getFileMetaData().getSchema());
      Map nulls = new HashMap();
      Map missingCodecs = new HashMap();
      Set uncounted = new HashSet();
      Set dictionaries = new HashSet();
      for (Iterator each = reader.getFooter().getBlocks().iterator(); each.hasNext();) {
        for (Iterator chunks = ((BlockMetaData) each.next()).getColumns().iterator(); chunks.hasNext();) {
          ColumnChunkMetaData chunk = (ColumnChunkMetaData) chunks.next();
          String path = chunk.getPath().toDotString();
          // The columnar engine may be able to read a file with field ids.
          if (!hasFieldIds && !isAvailable(chunk.getCodec())) {
            missingCodecs.put(path, chunk.getCodec().name().toLowerCase());
          }
          if (chunk.getEncodings().contains(Encoding.PLAIN_DICTIONARY)
              || chunk.getEncodings().contains(Encoding.RLE_DICTIONARY)) {
            dictionaries.add(path);
          }
          if (chunk.getStatistics() == null || !chunk.getStatistics().isNumNullsSet()) {
            uncounted.add(path);
          } else {
            Long before = (Long) nulls.get(path);
            long count = chunk.getStatistics().getNumNulls() + (before == null ? 0L : before.longValue());
            nulls.put(path, Long.valueOf(count));
          }
        }
      }
      nulls.keySet().removeAll(uncounted);
      List leaves = new ArrayList();
      for (Iterator each = schema.getColumns().iterator(); each.hasNext();) {
        ColumnDescriptor column = (ColumnDescriptor) each.next();
        PrimitiveType type = column.getPrimitiveType();
        if (type.getId() != null) {
          String path = String.join(".", column.getPath());
          leaves.add(new Object[] {
            Integer.valueOf(type.getId().intValue()), type.getPrimitiveTypeName().name(),
            type.getLogicalTypeAnnotation() == null ? "" : type.getLogicalTypeAnnotation().toString(),
            Boolean.valueOf(column.getMaxDefinitionLevel() > 0), nulls.get(path),
            Boolean.valueOf(dictionaries.contains(path)),
            hasTwoLevels(schema, column.getPath()) ? "levels"
              : missingCodecs.containsKey(path) ? missingCodecs.get(path) : ""
          });
        }
      }
      return leaves;
    } finally {
      reader.close();
    }
  }

  private static boolean isAvailable(CompressionCodecName codec) {
    String name = codec.getHadoopCompressionCodecClassName();
    if (name == null) {
      return true;
    }
    try {
      Class.forName(name, false, Thread.currentThread().getContextClassLoader());
      return true;
    } catch (ClassNotFoundException missing) {
      return false;
    }
  }

  /** True if a list on the path to a column repeats its elements without a group around each element. */
  private static boolean hasTwoLevels(MessageType schema, String[] path) {
    GroupType group = schema;
    for (int i = 0; i + 1 < path.length; i++) {
      group = group.getType(path[i]).asGroupType();
      if (group.getLogicalTypeAnnotation() instanceof LogicalTypeAnnotation.ListLogicalTypeAnnotation
          && ParquetSchemaUtil.determineListElementType(group).isRepetition(Type.Repetition.REPEATED)) {
        return true;
      }
    }
    return false;
  }
}
