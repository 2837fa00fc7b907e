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

/** The files of scan tasks, each with the columns that have nulls, and the columns whose nulls are not counted. */
public class NullCounts implements UDF1 {
  private static final long serialVersionUID = 1L;
  private final List columns;
  private final boolean all;

  /** Looks at the given columns; gives all files, or only those that are known to have nulls. */
  public NullCounts(List columns, Boolean all) {
    this.columns = columns;
    this.all = all.booleanValue();
  }

  public Object call(Object tasks) {
    List found = new ArrayList();
    for (Iterator each = ((List) tasks).iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      look((DataFile) task.file(), task.spec(), found);
    }
    return found;
  }

  /** Adds a file to `found`, if it has nulls or if all files are asked for. */
  protected void look(DataFile file, PartitionSpec spec, List found) {
    List nulls = new ArrayList();
    List unknown = new ArrayList();
    for (Iterator one = columns.iterator(); file.recordCount() > 0 && one.hasNext();) {
      Integer id = (Integer) one.next();
      Long count = count(spec, file, id);
      if (count == null) {
        unknown.add(id);
      } else if (count.longValue() > 0) {
        nulls.add(new Object[] {id, count});
      }
    }
    if (all || !nulls.isEmpty()) {
      found.add(new Object[] {file.location(), file.format().name(), nulls, unknown});
    }
  }

  private Long count(PartitionSpec spec, DataFile file, Integer id) {
    List fields = spec.fields();
    for (int i = 0; i < fields.size(); i++) {
      PartitionField field = (PartitionField) fields.get(i);
      if (field.transform().isIdentity() && field.sourceId() == id.intValue()) {
        // Readers take the value from the partition.
        return Long.valueOf(file.partition().get(i, Object.class) == null ? file.recordCount() : 0L);
      }
    }
    Map counts = file.nullValueCounts();
    return counts == null ? null : (Long) counts.get(id);
  }
}
