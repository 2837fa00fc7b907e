package helios.spark.engine;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.api.java.UDF1;

/** Converts scan tasks and their delete files into plain values, which Python fetches in one call. */
public class ScanFiles implements UDF1 {
  private static final long serialVersionUID = 1L;

  public Object call(Object tasks) {
    List files = new ArrayList();
    for (Iterator each = ((List) tasks).iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      List deletes = new ArrayList();
      for (Iterator deleteFiles = task.deletes().iterator(); deleteFiles.hasNext();) {
        DeleteFile delete = (DeleteFile) deleteFiles.next();
        deletes.add(new Object[] {
          delete.location(), delete.content().name(), delete.format().name(),
          Long.valueOf(delete.fileSizeInBytes()), delete.contentOffset(), delete.contentSizeInBytes()
        });
      }
      files.add(new Object[] {
        file.location(), file.format().name(), Long.valueOf(file.fileSizeInBytes()),
        Long.valueOf(file.recordCount()), file.firstRowId(), file.dataSequenceNumber(), deletes
      });
    }
    return files;
  }
}
