"""Chooses where a batch of changes ends, if a mirror keeps all tables at one position of the database's log.

Each record from PostgreSQL has the position of the previous commit: the last commit before the record's transaction.
Records with the same position belong to the same transaction. A batch ends before the first transaction that may be
incomplete:
- If a partition has records after the batch, the newest transaction of the batch's records in the partition may
  continue in the records after the batch.
- If records still arrive, the transaction that was the newest `QUIET_SECONDS` ago may be incomplete, and so may every
  later transaction: records of one partition may arrive before older records of another partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from helios.sources.kafka.topics import Log, Range, TopicsPosition, advance, ranges

QUIET_SECONDS = 1.0
"""If no record has arrived for this number of seconds, all transactions are complete.

Debezium may hold back the last records of a transaction for its `poll.interval.ms`, by default half a second.
Meanwhile, later records may arrive in other partitions.
"""

Partition = tuple[str, int]


def end_of_transactions(
    at: TopicsPosition,
    earlier_logs: Mapping[str, Log],
    logs: Mapping[str, Log],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    *,
    max_rows: int | None,
    skips_expired: bool,
) -> TopicsPosition:
    """Where the batch that begins at `at` ends: before the first transaction that may be incomplete.

    Args:
        earlier_logs: The logs of the topics, `QUIET_SECONDS` before `logs`.
        logs: The logs of the topics. The batch ends at their ends, or before.
        read: Takes a position and the ranges up to the position, and returns the records of the ranges.
        max_rows: The limit of records in the batch. If a single transaction exceeds the limit, the batch does too.
        skips_expired: Whether to skip records that Kafka deleted before they were read.
    """
    topics_end = advance(at, logs, skips_expired=skips_expired)
    earlier_ends = {name: log.latest for name, log in earlier_logs.items()}
    has_new_records = earlier_ends != {name: log.latest for name, log in logs.items()}
    while True:
        bound = advance(at, logs, max_rows, skips_expired=skips_expired)
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
    """The end of the batch, at `bound` or before `bound`.

    Args:
        bound: The position up to which records are read.
        topics_end: The end of the topics.
        wanted: The ranges from the start of the batch to `bound`.
        earlier_logs: The logs of the topics `QUIET_SECONDS` ago. None if no record has arrived since then: only
            partitions with records after `bound` can then have incomplete transactions.
    """
    unfinished = {(part.topic, part.partition) for part in ranges(bound, topics_end)}
    if earlier_logs is None and not unfinished:
        return bound
    in_earlier_log = _in_earlier_log(earlier_logs) if earlier_logs is not None else F.lit(True)
    columns = previous_commit().alias("previous_commit"), in_earlier_log.alias("in_earlier_log")
    records = read(bound, wanted).select("topic", "partition", "offset", *columns).persist()
    try:
        # Rows of a snapshot have no previous commit. They come before all transactions.
        commit = F.coalesce("previous_commit", F.lit(-1))
        newest = F.max(commit).alias("newest")
        newest_earlier = F.max(F.when(F.col("in_earlier_log"), commit)).alias("newest_earlier")
        aggregated = _by_partition(records, newest, newest_earlier)
        rows = {(str(row["topic"]), int(row["partition"])): row for row in aggregated}
        earlier_commits = [row["newest_earlier"] for row in rows.values() if row["newest_earlier"] is not None]
        if unfinished - rows.keys() or not earlier_commits:
            return _moved_back(bound, {(part.topic, part.partition): part.start for part in wanted})
        incomplete = [row["newest"] for part, row in rows.items() if part in unfinished]
        if earlier_logs is not None:
            incomplete.append(max(earlier_commits))
        later = records.where(F.col("previous_commit") >= min(incomplete))
        firsts = _by_partition(later, F.min("offset").alias("first"))
        return _moved_back(bound, {(str(row["topic"]), int(row["partition"])): int(row["first"]) for row in firsts})
    finally:
        records.unpersist()


def _by_partition(records: DataFrame, *aggregates: Column) -> list[Row]:
    return records.groupBy("topic", "partition").agg(*aggregates).collect()


def _in_earlier_log(earlier_logs: Mapping[str, Log]) -> Column:
    """The condition that the earlier log of a record's topic already had the record."""
    logs = earlier_logs.items()
    ends = {f"{name}/{partition}": end for name, log in logs for partition, end in enumerate(log.latest)}
    if not ends:
        return F.lit(False)
    end_by_partition = F.map_from_arrays(F.lit(list(ends)), F.lit(list(ends.values())))
    end = F.try_element_at(end_by_partition, F.concat_ws("/", "topic", F.col("partition").cast("string")))
    return F.coalesce(F.col("offset") < end, F.lit(False))


def _moved_back(position: TopicsPosition, firsts: Mapping[Partition, int]) -> TopicsPosition:
    """The position, with the offsets of some partitions moved back to the offsets that `firsts` has for them."""
    topics = {}
    for name, topic in position.topics.items():
        offsets = (firsts.get((name, partition), end) for partition, end in enumerate(topic.offsets))
        topics[name] = replace(topic, offsets=tuple(offsets))
    return TopicsPosition(topics)


def previous_commit() -> Column:
    """The position in PostgreSQL's log of the last commit before a record's transaction; null if it is unknown."""
    value = F.col("value").cast("string")

    def field(name: str) -> Column:
        in_payload = F.get_json_object(value, f"$.payload.source.{name}")
        return F.coalesce(in_payload, F.get_json_object(value, f"$.source.{name}"))

    sequence = field("sequence")
    # `get_json_object` returns a JSON null as the text "null", which `try_cast` turns into null.
    commit = F.get_json_object(sequence, "$[0]").try_cast("bigint")
    # The rows of a snapshot have no previous commit, and get null. The first transaction that Debezium streams has none
    # either, but gets 0, since this transaction comes after the snapshot.
    first_transaction = F.when(sequence.isNotNull() & (field("snapshot") == "false"), F.lit(0))
    return F.coalesce(commit, first_transaction)
