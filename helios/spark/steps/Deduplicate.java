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
 * Keeps a row only if its time is more than `within` after the last kept row of its key.
 *
 * <p>In a stream, the state of a key is a row of two columns: the time of its last kept row or null, and the rows that
 * the watermark has not passed yet. Janino, which compiles this class, supports no generics and no lambdas.
 */
public class Deduplicate implements FlatMapGroupsWithStateFunction, FlatMapGroupsFunction, Comparator {
  private static final long serialVersionUID = 1L;

  private final int time;
  private final int tie;
  private final long within;

  /**
   * @param time the ordinal of a row's event time, in microseconds
   * @param tie the ordinal of a number that orders rows with the same time
   * @param within the time in microseconds after a kept row, in which other rows of its key are dropped
   */
  public Deduplicate(int time, int tie, long within) {
    this.time = time;
    this.tie = tie;
    this.within = within;
  }

  /** Returns the kept rows of a key in a stream, up to the watermark: no earlier row can arrive any more. */
  public Iterator call(Object key, Iterator rows, GroupState state) {
    boolean hasState = state.exists();
    Row oldState = hasState ? (Row) state.get() : null;
    boolean kept = hasState && !oldState.isNullAt(0);
    long last = kept ? oldState.getLong(0) : 0L;
    ArrayList all = new ArrayList();
    if (hasState) {
      all.addAll(oldState.getList(1));
    }
    while (rows.hasNext()) {
      all.add(rows.next());
    }
    Collections.sort(all, this);
    long watermark = state.getCurrentWatermarkMs() * 1000L;
    ArrayList keptRows = new ArrayList();
    int next = 0;
    while (next < all.size() && timeOf(all.get(next)) <= watermark) {
      Object row = all.get(next++);
      if (!kept || timeOf(row) - last > within) {
        keptRows.add(row);
        kept = true;
        last = timeOf(row);
      }
    }
    // The time when the watermark passes the next row, or when the last kept row drops no more rows.
    long due = next < all.size() ? timeOf(all.get(next)) : last + within;
    if (due <= watermark) {
      if (hasState) {
        state.remove();
      }
      return keptRows.iterator();
    }
    Object[] waiting = all.subList(next, all.size()).toArray();
    state.update(RowFactory.create(new Object[] {kept ? Long.valueOf(last) : null, waiting}));
    // Spark calls again when the watermark is later than this time, which must be after 1970.
    state.setTimeoutTimestamp(Math.max(1L, Math.floorDiv(due - 1L, 1000L)));
    return keptRows.iterator();
  }

  /** Returns the kept rows of a key in a batch, whose rows arrive sorted. */
  public Iterator call(Object key, Iterator rows) {
    return new Kept(rows, time, within);
  }

  public int compare(Object first, Object second) {
    int order = Long.compare(timeOf(first), timeOf(second));
    return order != 0 ? order : Long.compare(((Row) first).getLong(tie), ((Row) second).getLong(tie));
  }

  private long timeOf(Object row) {
    return ((Row) row).getLong(time);
  }

  /** Iterates over the kept rows among sorted rows. */
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
