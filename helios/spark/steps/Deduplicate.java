package helios.spark.steps;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import org.apache.spark.api.java.function.FlatMapGroupsFunction;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.GroupState;

/**
 * Keeps the rows of a key that are later than `within` after its last kept row.
 *
 * <p>Janino, which compiles this class, knows no generics and no lambdas. The state of a key is a row: the time of its
 * last kept row or null, and the rows that the watermark has not passed.
 */
public class Deduplicate implements FlatMapGroupsWithStateFunction, FlatMapGroupsFunction, Comparator {
  private static final long serialVersionUID = 1L;

  private final int time;
  private final int tie;
  private final long within;

  /**
   * @param time the ordinal of a row's event time, in microseconds
   * @param tie the ordinal of the number that orders rows of one time
   * @param within microseconds
   */
  public Deduplicate(int time, int tie, long within) {
    this.time = time;
    this.tie = tie;
    this.within = within;
  }

  /** The kept rows of a key in a stream, up to the watermark: no earlier row can come any more. */
  public Iterator call(Object key, Iterator rows, GroupState state) {
    boolean known = state.exists();
    Row before = known ? (Row) state.get() : null;
    boolean kept = known && !before.isNullAt(0);
    long last = kept ? before.getLong(0) : 0L;
    ArrayList all = new ArrayList();
    if (known) {
      all.addAll(before.getList(1));
    }
    while (rows.hasNext()) {
      all.add(rows.next());
    }
    Collections.sort(all, this);
    long passed = state.getCurrentWatermarkMs() * 1000L;
    ArrayList out = new ArrayList();
    int next = 0;
    while (next < all.size() && at(all.get(next)) <= passed) {
      Object row = all.get(next++);
      if (!kept || at(row) - last > within) {
        out.add(row);
        kept = true;
        last = at(row);
      }
    }
    // The time when the watermark passes the next row, or when the last kept row drops no more rows.
    long due = next < all.size() ? at(all.get(next)) : last + within;
    if (due <= passed) {
      if (known) {
        state.remove();
      }
      return out.iterator();
    }
    Object[] waiting = all.subList(next, all.size()).toArray();
    state.update(RowFactory.create(new Object[] {kept ? Long.valueOf(last) : null, waiting}));
    // Spark calls again when the watermark is later than this time, which must be after 1970.
    state.setTimeoutTimestamp(Math.max(1L, Math.floorDiv(due - 1L, 1000L)));
    return out.iterator();
  }

  /** The kept rows of a key in a batch; the rows come sorted. */
  public Iterator call(Object key, Iterator rows) {
    return new Kept(rows, time, within);
  }

  public int compare(Object one, Object other) {
    int order = Long.compare(at(one), at(other));
    return order != 0 ? order : Long.compare(((Row) one).getLong(tie), ((Row) other).getLong(tie));
  }

  private long at(Object row) {
    return ((Row) row).getLong(time);
  }

  /** The kept rows of sorted rows. */
  private static class Kept implements Iterator {
    private final Iterator rows;
    private final int time;
    private final long within;
    private Object ahead;
    private boolean kept;
    private long last;

    Kept(Iterator rows, int time, long within) {
      this.rows = rows;
      this.time = time;
      this.within = within;
    }

    public boolean hasNext() {
      while (ahead == null && rows.hasNext()) {
        Row row = (Row) rows.next();
        if (!kept || row.getLong(time) - last > within) {
          ahead = row;
          kept = true;
          last = row.getLong(time);
        }
      }
      return ahead != null;
    }

    public Object next() {
      if (!hasNext()) {
        throw new java.util.NoSuchElementException();
      }
      Object row = ahead;
      ahead = null;
      return row;
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }
}
