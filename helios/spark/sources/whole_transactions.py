"""Where a batch of a database's changes ends, if all its tables are to be at one position of the database's log.

Each record of PostgreSQL says which transaction was committed before its own. A batch ends before a transaction of
which more may come: in a partition that it does not read to its end, or, while records still arrive, the newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.table.topics import Log, Range, TopicsPosition, advance, ranges

SETTLED = 0.3
"""Seconds without a new record after which a transaction is whole: a broker has what its database's log had before."""

Partition = tuple[str, int]


def end_of_transactions(
    at: TopicsPosition,
    logs: Mapping[str, Log],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    *,
    quiet: bool,
    most: int | None,
    skips: bool,
) -> TopicsPosition:
    """The end of the batch after a position, in front of a transaction that may not be whole.

    Args:
        at: Where the last batch ended.
        logs: What the topics hold.
        read: Reads ranges of records, as far as a position.
        quiet: Whether no record has come for a while.
        most: The most records, which one large transaction exceeds.
        skips: Whether records that are gone are passed over.
    """
    whole = advance(at, logs, skips=skips)
    while True:
        upto = advance(at, logs, most, skips=skips)
        wanted = ranges(at, upto)
        found = _end(upto, whole, wanted, read, quiet=quiet) if wanted else upto
        if most is None or ranges(at, found) or upto == whole:
            return found
        most *= 4


def _end(
    upto: TopicsPosition,
    whole: TopicsPosition,
    wanted: Sequence[Range],
    read: Callable[[TopicsPosition, Sequence[Range]], DataFrame],
    *,
    quiet: bool,
) -> TopicsPosition:
    more = {(one.topic, one.partition) for one in ranges(upto, whole)}
    if quiet and not more:
        return upto
    records = read(upto, wanted).select("topic", "partition", "offset", before().alias("before")).persist()
    try:
        by_partition = records.groupBy("topic", "partition").agg(F.max("before").alias("newest")).collect()
        newest = {(str(row["topic"]), int(row["partition"])): row["newest"] for row in by_partition}
        if more - newest.keys():
            return _until(upto, {(one.topic, one.partition): one.start for one in wanted})
        # Rows of a snapshot say no commit: they come before all transactions.
        seen = [commit if commit is not None else -1 for one, commit in newest.items() if not more or one in more]
        later = records.where(F.col("before") >= (min(seen) if more else max(seen)))
        firsts = later.groupBy("topic", "partition").agg(F.min("offset").alias("first")).collect()
        return _until(upto, {(str(row["topic"]), int(row["partition"])): int(row["first"]) for row in firsts})
    finally:
        records.unpersist()


def _until(upto: TopicsPosition, firsts: Mapping[Partition, int]) -> TopicsPosition:
    """A position that is brought back to some offsets."""
    return TopicsPosition(
        {
            name: replace(topic, offsets=tuple(firsts.get((name, p), end) for p, end in enumerate(topic.offsets)))
            for name, topic in upto.topics.items()
        }
    )


def before() -> Column:
    """The commit in PostgreSQL's log that came before a record's transaction; null where it does not say."""
    value = F.col("value").cast("string")
    sequence = F.coalesce(
        F.get_json_object(value, "$.payload.source.sequence"), F.get_json_object(value, "$.source.sequence")
    )
    return F.get_json_object(sequence, "$[0]").try_cast("bigint")  # of JSON's null it makes a text
