package helios.spark.engine;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.spark.sql.api.java.UDF1;

/** Finds, for each file of scan tasks, the columns that have nulls, and the columns whose nulls are not counted. */
public class NullCounts implements UDF1 {
  private static final long serialVersionUID = 1L;
  private final List columns;
  private final boolean all;

  /** Checks the given columns; returns all files, or only those that are known to have nulls. */
  public NullCounts(List columns, Boolean all) {
    this.columns = columns;
    this.all = all.booleanValue();
  }

  public Object call(Object tasks) {
    List files = new ArrayList();
    for (Iterator each = ((List) tasks).iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      addNulls((DataFile) task.file(), task.spec(), files);
    }
    return files;
  }

  /** Adds a file to `files` if it has nulls, or if all files are requested. */
  protected void addNulls(DataFile file, PartitionSpec spec, List files) {
    List nulls = new ArrayList();
    List unknown = new ArrayList();
    for (Iterator each = columns.iterator(); file.recordCount() > 0 && each.hasNext();) {
      Integer id = (Integer) each.next();
      Long count = count(spec, file, id);
      if (count == null) {
        unknown.add(id);
      } else if (count.longValue() > 0) {
        nulls.add(new Object[] {id, count});
      }
    }
    if (all || !nulls.isEmpty()) {
      files.add(new Object[] {file.location(), file.format().name(), nulls, unknown});
    }
  }

  private Long count(PartitionSpec spec, DataFile file, Integer id) {
    List fields = spec.fields();
    for (int i = 0; i < fields.size(); i++) {
      PartitionField field = (PartitionField) fields.get(i);
      if (field.transform().isIdentity() && field.sourceId() == id.intValue()) {
        // Readers take the value of an identity-partitioned column from the partition, not from the file.
        return Long.valueOf(file.partition().get(i, Object.class) == null ? file.recordCount() : 0L);
      }
    }
    Map counts = file.nullValueCounts();
    return counts == null ? null : (Long) counts.get(id);
  }
}
