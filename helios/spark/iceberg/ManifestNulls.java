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
  private static final int MOST = 100000;
  private static final List COLUMNS =
      Arrays.asList(new Object[] {"file_path", "file_format", "record_count", "partition", "null_value_counts"});
  private final String stamp;
  private final Map manifests = bounded();
  private final Map states = bounded();

  /** Looks at the given columns. A snapshot with the entry `stamp` in its summary cannot have added nulls. */
  public ManifestNulls(List columns, String stamp) {
    super(columns, Boolean.FALSE);
    this.stamp = stamp;
  }

  /** The paths of the manifests that this call reads, and their files that have nulls. */
  public synchronized Object state(final Table table, Snapshot state) {
    final List found = Collections.synchronizedList(new ArrayList());
    List unread = new ArrayList();
    List paths = new ArrayList();
    if (!isKnown(table, state)) {
      for (Iterator each = state.dataManifests(table.io()).iterator(); each.hasNext();) {
        ManifestFile manifest = (ManifestFile) each.next();
        if (!manifests.containsKey(manifest.path()) && (manifest.hasAddedFiles() || manifest.hasExistingFiles())) {
          unread.add(manifest);
          paths.add(manifest.path());
        }
      }
      final Map specs = table.specs();
      Tasks.foreach(unread).executeWith(ThreadPools.getWorkerPool()).stopOnFailure().throwFailureWhenFinished()
        .run(new Tasks.Task() {
          public void run(Object manifest) throws Exception {
            read(table, specs, (ManifestFile) manifest, found);
          }
        });
    }
    if (found.isEmpty()) {
      for (Iterator each = paths.iterator(); each.hasNext();) {
        manifests.put(each.next(), Boolean.TRUE);
      }
      states.put(Long.valueOf(state.snapshotId()), Boolean.TRUE);
    }
    return new Object[] {paths, found};
  }

  /** True if an ancestor was checked, and all snapshots since then are stamped and have the table's schema. */
  private boolean isKnown(Table table, Snapshot state) {
    Integer schema = Integer.valueOf(table.schema().schemaId());
    for (Snapshot each = state; each != null;) {
      if (states.containsKey(Long.valueOf(each.snapshotId()))) {
        return true;
      }
      if (!schema.equals(each.schemaId()) || each.summary() == null || !each.summary().containsKey(stamp)) {
        return false;
      }
      if (each.parentId() == null || states.containsKey(each.parentId())) {
        return true; // a checked parent may have expired by now
      }
      each = table.snapshot(each.parentId().longValue());
    }
    return false; // a snapshot that was not checked has expired
  }

  private void read(Table table, Map specs, ManifestFile manifest, List found) throws Exception {
    PartitionSpec spec = (PartitionSpec) specs.get(Integer.valueOf(manifest.partitionSpecId()));
    ManifestReader reader = ManifestFiles.read(manifest, table.io(), specs).select(COLUMNS);
    try {
      // The reader leaves out deleted entries.
      for (CloseableIterator each = reader.iterator(); each.hasNext();) {
        look((DataFile) each.next(), spec, found);
      }
    } finally {
      reader.close();
    }
  }

  private static Map bounded() {
    return new LinkedHashMap() {
      protected boolean removeEldestEntry(Map.Entry eldest) {
        return size() > MOST;
      }
    };
  }
}
