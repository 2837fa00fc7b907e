package helios.spark.engine;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.spark.sql.api.java.UDF2;

/** Finds the scan tasks that only one of two states has. Tasks with the same data file and deletes are equal. */
public class OtherTasks implements UDF2 {
  private static final long serialVersionUID = 1L;

  /** Returns two lists: the tasks that only the first state has, and those that only the second has. */
  public Object call(Object first, Object second) {
    List onlySecond = new ArrayList();
    Map unmatched = new HashMap(); // lists, since a state may have a file twice, and then has its rows twice
    for (Iterator each = ((List) first).iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      String key = identity(task);
      ArrayDeque same = (ArrayDeque) unmatched.get(key);
      if (same == null) {
        same = new ArrayDeque();
        unmatched.put(key, same);
      }
      same.add(task);
    }
    for (Iterator each = ((List) second).iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      ArrayDeque same = (ArrayDeque) unmatched.get(identity(task));
      if (same == null || same.isEmpty()) {
        onlySecond.add(task);
      } else {
        same.remove();
      }
    }
    List onlyFirst = new ArrayList();
    for (Iterator each = unmatched.values().iterator(); each.hasNext();) {
      onlyFirst.addAll((ArrayDeque) each.next());
    }
    List both = new ArrayList();
    both.add(onlyFirst);
    both.add(onlySecond);
    return both;
  }

  private static String identity(FileScanTask task) {
    List deletes = new ArrayList();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      deletes.add(delete.location() + "@" + delete.contentOffset());
    }
    Collections.sort(deletes);
    return task.file().location() + "\n" + deletes;
  }
}
