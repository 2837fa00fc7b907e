package helios.spark.engine;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterator;
import org.apache.iceberg.util.Tasks;
import org.apache.iceberg.util.ThreadPools;

/** Finds the files that have nulls in some columns, in the manifests of a table, and reads each manifest once. */
public class ManifestNulls extends NullCounts {
  private static final long serialVersionUID = 1L;
  private static final int MAX_ENTRIES = 100000;
  private static final List COLUMNS =
      Arrays.asList(new Object[] {"file_path", "file_format", "record_count", "partition", "null_value_counts"});
  private final String stamp;
  private final Map checkedManifests = bounded();
  private final Map checkedSnapshots = bounded();

  /** Checks the given columns. A snapshot with the entry `stamp` in its summary cannot have added nulls. */
  public ManifestNulls(List columns, String stamp) {
    super(columns, Boolean.FALSE);
    this.stamp = stamp;
  }

  /** Returns the paths of the manifests that this call has read, and the files with nulls that they list. */
  public synchronized Object readUnchecked(final Table table, Snapshot snapshot) {
    final List withNulls = Collections.synchronizedList(new ArrayList());
    List unread = new ArrayList();
    List paths = new ArrayList();
    if (!isChecked(table, snapshot)) {
      for (Iterator each = snapshot.dataManifests(table.io()).iterator(); each.hasNext();) {
        ManifestFile manifest = (ManifestFile) each.next();
        if (!checkedManifests.containsKey(manifest.path())
            && (manifest.hasAddedFiles() || manifest.hasExistingFiles())) {
          unread.add(manifest);
          paths.add(manifest.path());
        }
      }
      final Map specs = table.specs();
      Tasks.foreach(unread).executeWith(ThreadPools.getWorkerPool()).stopOnFailure().throwFailureWhenFinished()
        .run(new Tasks.Task() {
          public void run(Object manifest) throws Exception {
            read(table, specs, (ManifestFile) manifest, withNulls);
          }
        });
    }
    if (withNulls.isEmpty()) {
      for (Iterator each = paths.iterator(); each.hasNext();) {
        checkedManifests.put(each.next(), Boolean.TRUE);
      }
      checkedSnapshots.put(Long.valueOf(snapshot.snapshotId()), Boolean.TRUE);
    }
    return new Object[] {paths, withNulls};
  }

  /**
   * True if all snapshots after a checked ancestor, or else all from the first snapshot of the table, are stamped and
   * have the table's current schema.
   */
  private boolean isChecked(Table table, Snapshot snapshot) {
    Integer schema = Integer.valueOf(table.schema().schemaId());
    for (Snapshot each = snapshot; each != null;) {
      if (checkedSnapshots.containsKey(Long.valueOf(each.snapshotId()))) {
        return true;
      }
      if (!schema.equals(each.schemaId()) || each.summary() == null || !each.summary().containsKey(stamp)) {
        return false;
      }
      if (each.parentId() == null) {
        return each.sequenceNumber() <= 1; // PyIceberg's expiry has removed the parent's id from a later snapshot
      }
      if (checkedSnapshots.containsKey(each.parentId())) {
        return true; // a checked parent may have expired by now
      }
      each = table.snapshot(each.parentId().longValue());
    }
    return false; // a snapshot that was not checked has expired
  }

  private void read(Table table, Map specs, ManifestFile manifest, List withNulls) throws Exception {
    PartitionSpec spec = (PartitionSpec) specs.get(Integer.valueOf(manifest.partitionSpecId()));
    ManifestReader reader = ManifestFiles.read(manifest, table.io(), specs).select(COLUMNS);
    try {
      // The reader leaves out deleted entries.
      for (CloseableIterator each = reader.iterator(); each.hasNext();) {
        addNulls((DataFile) each.next(), spec, withNulls);
      }
    } finally {
      reader.close();
    }
  }

  private static Map bounded() {
    return new LinkedHashMap() {
      protected boolean removeEldestEntry(Map.Entry eldest) {
        return size() > MAX_ENTRIES;
      }
    };
  }
}
