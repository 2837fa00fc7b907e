package helios.spark.sources;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.api.java.UDF2;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Writes the path, size and modification time of files to a file. A NUL, which no path contains, ends each field. */
public class Statuses implements UDF2 {
  private static final long serialVersionUID = 1L;

  public Object call(Object statuses, Object file) throws Exception {
    BufferedWriter writer = Files.newBufferedWriter(Paths.get((String) file), StandardCharsets.UTF_8);
    try {
      for (Iterator each = ((Seq) statuses).iterator(); each.hasNext();) {
        FileStatus status = (FileStatus) each.next();
        writer.write(status.getPath().toString());
        writer.write(0);
        writer.write(Long.toString(status.getLen()));
        writer.write(0);
        writer.write(Long.toString(status.getModificationTime()));
        writer.write(0);
      }
    } finally {
      writer.close();
    }
    return null;
  }
}
