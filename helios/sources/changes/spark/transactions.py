"""The end of a batch of changes, if all tables of a database must be at one position of its log.

Each record of PostgreSQL says which transaction was committed before its own. A batch ends before a transaction of
which more may come: in a partition that it does not read to its end, or, while records still arrive, the one that was
the newest a moment before. Those that came since may have overtaken records of other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from helios.sources.kafka.topics import Log, Range, TopicsPosition, advance, ranges

SETTLED = 1.0
"""Seconds without a new record after which a transaction is whole, and in which a record may be overtaken by those of
other partitions. Debezium keeps the end of a transaction back for up to its `poll.interval.ms`, half a second."""

Partition = tuple[str, int]


def end_of_transactions(
    at: TopicsPosition,
    seen: Mapping[str, Log],
    logs: Mapping[str, Log],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    *,
    most: int | None,
    skips: bool,
) -> TopicsPosition:
    """The end of the batch after a position, before a transaction that may be incomplete.

    Args:
        at: Where the last batch ended.
        seen: What the topics held `SETTLED` seconds before.
        logs: What the topics hold.
        read: Reads ranges of records, as far as a position.
        most: The most records, which one large transaction exceeds.
        skips: Whether records that are gone are passed over.
    """
    whole = advance(at, logs, skips=skips)
    grown = {name: log.latest for name, log in seen.items()} != {name: log.latest for name, log in logs.items()}
    while True:
        upto = advance(at, logs, most, skips=skips)
        wanted = ranges(at, upto)
        end = _end(upto, whole, wanted, read, seen if grown else None) if wanted else upto
        if most is None or ranges(at, end) or upto == whole:
            return end
        most *= 4


def _end(
    upto: TopicsPosition,
    whole: TopicsPosition,
    wanted: Sequence[Range],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    seen: Mapping[str, Log] | None,
) -> TopicsPosition:
    """The end of the batch, of records up to a position; `seen` only where more have come since."""
    more = {(part.topic, part.partition) for part in ranges(upto, whole)}
    if seen is None and not more:
        return upto
    there = _earlier(seen) if seen is not None else F.lit(True)
    records = read(upto, wanted).select("topic", "partition", "offset", before().alias("before"), there.alias("there"))
    records = records.persist()
    try:
        # Rows of a snapshot say no commit: they come before all transactions.
        commit = F.coalesce("before", F.lit(-1))
        newest = F.max(commit).alias("newest"), F.max(F.when(F.col("there"), commit)).alias("settled")
        newest_rows = {(str(row["topic"]), int(row["partition"])): row for row in _by_partition(records, *newest)}
        settled = max((row["settled"] for row in newest_rows.values() if row["settled"] is not None), default=None)
        if more - newest_rows.keys() or settled is None:
            return _until(upto, {(part.topic, part.partition): part.start for part in wanted})
        limit = min([*(newest_rows[part]["newest"] for part in more), *([settled] if seen is not None else [])])
        firsts = _by_partition(records.where(F.col("before") >= limit), F.min("offset").alias("first"))
        return _until(upto, {(str(row["topic"]), int(row["partition"])): int(row["first"]) for row in firsts})
    finally:
        records.unpersist()


def _by_partition(records: DataFrame, *found: Column) -> list[Row]:
    return records.groupBy("topic", "partition").agg(*found).collect()


def _earlier(seen: Mapping[str, Log]) -> Column:
    """A condition that is true if a record was in its topic at the last look."""
    ends = {f"{name}/{partition}": end for name, log in seen.items() for partition, end in enumerate(log.latest)}
    if not ends:
        return F.lit(False)
    of_partition = F.map_from_arrays(F.lit(list(ends)), F.lit(list(ends.values())))
    end = F.try_element_at(of_partition, F.concat_ws("/", "topic", F.col("partition").cast("string")))
    return F.coalesce(F.col("offset") < end, F.lit(False))


def _until(upto: TopicsPosition, firsts: Mapping[Partition, int]) -> TopicsPosition:
    """A position with the ends moved back to some offsets."""
    return TopicsPosition(
        {
            name: replace(topic, offsets=tuple(firsts.get((name, p), end) for p, end in enumerate(topic.offsets)))
            for name, topic in upto.topics.items()
        }
    )


def before() -> Column:
    """The commit in PostgreSQL's log that came before a record's transaction; null where it does not say."""
    value = F.col("value").cast("string")

    def said(name: str) -> Column:
        inner = F.get_json_object(value, f"$.payload.source.{name}")
        return F.coalesce(inner, F.get_json_object(value, f"$.source.{name}"))

    sequence = said("sequence")
    commit = F.get_json_object(sequence, "$[0]").try_cast("bigint")  # of JSON's null it makes a text
    # The first transaction that Debezium streams knows none, as rows of a snapshot do, which come before it.
    first = F.when(sequence.isNotNull() & (said("snapshot") == "false"), F.lit(0))
    return F.coalesce(commit, first)
