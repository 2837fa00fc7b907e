"""The end of a batch of changes, if all tables of a database must be at one position of the database's log.

Each record from PostgreSQL has the position of the last commit before its own transaction. A batch ends before the
first transaction that may be incomplete:
- If a partition is not read to its end, the newest transaction in the records that are read may continue after them.
- If records still arrive, the newest transaction of a moment ago may continue, and later records may have overtaken
  records of other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from helios.sources.kafka.topics import Log, Range, TopicsPosition, advance, ranges

QUIET_SECONDS = 1.0
"""The seconds without a new record after which all transactions are complete. Debezium may hold back the end of a
transaction for its `poll.interval.ms`, half a second by default. Records of other partitions may overtake that
end."""

Partition = tuple[str, int]


def end_of_transactions(
    at: TopicsPosition,
    earlier_logs: Mapping[str, Log],
    logs: Mapping[str, Log],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    *,
    max_rows: int | None,
    skips_deleted: bool,
) -> TopicsPosition:
    """The end of the batch after a position, before a transaction that may be incomplete.

    Args:
        earlier_logs: The logs of the topics `QUIET_SECONDS` ago.
        max_rows: The limit of records in the batch; a single large transaction may exceed it.
        skips_deleted: Whether records that were deleted before they were read are skipped.
    """
    topics_end = advance(at, logs, skips_deleted=skips_deleted)
    earlier_ends = {name: log.latest for name, log in earlier_logs.items()}
    has_new_records = earlier_ends != {name: log.latest for name, log in logs.items()}
    while True:
        bound = advance(at, logs, max_rows, skips_deleted=skips_deleted)
        wanted = ranges(at, bound)
        earlier = earlier_logs if has_new_records else None
        end = _end(bound, topics_end, wanted, read, earlier) if wanted else bound
        if max_rows is None or ranges(at, end) or bound == topics_end:
            return end
        max_rows *= 4


def _end(
    bound: TopicsPosition,
    topics_end: TopicsPosition,
    wanted: Sequence[Range],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    earlier_logs: Mapping[str, Log] | None,
) -> TopicsPosition:
    """The end of the batch, at `bound` or before it.

    Without `earlier_logs`, no record has arrived for `QUIET_SECONDS`: only partitions that are not read to their end
    have transactions that may be incomplete.
    """
    unfinished = {(part.topic, part.partition) for part in ranges(bound, topics_end)}
    if earlier_logs is None and not unfinished:
        return bound
    is_seen = _is_seen(earlier_logs) if earlier_logs is not None else F.lit(True)
    before = commit_before().alias("before")
    records = read(bound, wanted).select("topic", "partition", "offset", before, is_seen.alias("seen"))
    records = records.persist()
    try:
        # Rows of a snapshot have no commit before them: they come before all transactions.
        commit = F.coalesce("before", F.lit(-1))
        newest, newest_seen = F.max(commit).alias("newest"), F.max(F.when(F.col("seen"), commit)).alias("newest_seen")
        aggregated = _by_partition(records, newest, newest_seen)
        rows = {(str(row["topic"]), int(row["partition"])): row for row in aggregated}
        seen_commits = [row["newest_seen"] for row in rows.values() if row["newest_seen"] is not None]
        if unfinished - rows.keys() or not seen_commits:
            return _moved_back(bound, {(part.topic, part.partition): part.start for part in wanted})
        incomplete = [row["newest"] for part, row in rows.items() if part in unfinished]
        if earlier_logs is not None:
            incomplete.append(max(seen_commits))
        firsts = _by_partition(records.where(F.col("before") >= min(incomplete)), F.min("offset").alias("first"))
        return _moved_back(bound, {(str(row["topic"]), int(row["partition"])): int(row["first"]) for row in firsts})
    finally:
        records.unpersist()


def _by_partition(records: DataFrame, *aggregates: Column) -> list[Row]:
    return records.groupBy("topic", "partition").agg(*aggregates).collect()


def _is_seen(earlier_logs: Mapping[str, Log]) -> Column:
    """The condition that a record was already in the earlier log of its topic."""
    logs = earlier_logs.items()
    ends = {f"{name}/{partition}": end for name, log in logs for partition, end in enumerate(log.latest)}
    if not ends:
        return F.lit(False)
    of_partition = F.map_from_arrays(F.lit(list(ends)), F.lit(list(ends.values())))
    end = F.try_element_at(of_partition, F.concat_ws("/", "topic", F.col("partition").cast("string")))
    return F.coalesce(F.col("offset") < end, F.lit(False))


def _moved_back(position: TopicsPosition, firsts: Mapping[Partition, int]) -> TopicsPosition:
    """A position with the offsets of some partitions moved back to `firsts`."""
    topics = {}
    for name, topic in position.topics.items():
        offsets = (firsts.get((name, partition), end) for partition, end in enumerate(topic.offsets))
        topics[name] = replace(topic, offsets=tuple(offsets))
    return TopicsPosition(topics)


def commit_before() -> Column:
    """The position in PostgreSQL's log of the last commit before a record's transaction; null if it is unknown."""
    value = F.col("value").cast("string")

    def field(name: str) -> Column:
        in_payload = F.get_json_object(value, f"$.payload.source.{name}")
        return F.coalesce(in_payload, F.get_json_object(value, f"$.source.{name}"))

    sequence = field("sequence")
    commit = F.get_json_object(sequence, "$[0]").try_cast("bigint")  # a JSON null is the text "null", and no number
    # Neither a snapshot's rows nor the first transaction that Debezium streams have a commit before them. The rows get
    # null. The transaction gets 0, since it comes after them.
    first = F.when(sequence.isNotNull() & (field("snapshot") == "false"), F.lit(0))
    return F.coalesce(commit, first)
