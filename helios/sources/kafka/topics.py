"""How far Kafka topics are read, and where the next batch ends; no JVM is needed.

A position has the id of each topic and, for each partition, the offset of the next record to read. The id
distinguishes a topic from a later topic with the same name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from helios.errors import LedgerError
from helios.sources.common.position import SourcePosition

SHOWN_PARTITIONS = 3
"""The text of a position names at most this many partitions."""


@dataclass(frozen=True)
class TopicOffsets:
    """How far a topic is read.

    Attributes:
        offsets: For each partition, the offset of the next record to read.
        batch_start: For each partition, the first offset of the batch that ends here; empty if the batch begins where
            the last batch ended. Only a new topic, or deleted records, make a batch begin elsewhere.
    """

    id: str
    offsets: tuple[int, ...]
    batch_start: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        since = {"since": list(self.batch_start)} if any(self.batch_start) else {}
        return {"id": self.id, "offsets": list(self.offsets), **since}


@dataclass(frozen=True)
class Log:
    """The log of a topic.

    Attributes:
        earliest: For each partition, the offset of the oldest record.
        latest: For each partition, the offset after the last record that can be read.
    """

    id: str
    earliest: tuple[int, ...]
    latest: tuple[int, ...]


@dataclass(frozen=True)
class TopicsPosition(SourcePosition):
    """How far topics are read, by their names."""

    only_followed: ClassVar[bool] = False  # a source that is read once has a position, too

    topics: Mapping[str, TopicOffsets]

    def as_json(self) -> dict[str, Any]:
        """The position as Spark's offset log and the snapshot summary store it.

        Examples:
            >>> TopicsPosition({"orders": TopicOffsets("qUe1", (15, 20))}).as_json()
            {'topics': {'orders': {'id': 'qUe1', 'offsets': [15, 20]}}}
        """
        return {"topics": {name: topic.as_json() for name, topic in sorted(self.topics.items())}}

    def text(self, before: SourcePosition | None) -> str:
        """The records between two positions, for people.

        Examples:
            >>> start, end = (TopicsPosition({"t": TopicOffsets("q", (offset, 20))}) for offset in (5, 15))
            >>> end.text(start)
            '10 records: t/0 5 to 15'
        """
        start = before if isinstance(before, TopicsPosition) else TopicsPosition({})
        read = ranges(start, self)
        if not read:
            return "0 records"
        shown = ", ".join(
            f"{part.topic}/{part.partition} {part.start:,} to {part.end:,}" for part in read[:SHOWN_PARTITIONS]
        )
        return f"{sum(map(len, read)):,} records: {shown}{', ...' if len(read) > SHOWN_PARTITIONS else ''}"

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """The position from its JSON.

        Raises:
            KeyError: The value is not a position of topics.
        """
        topics = {
            str(name): TopicOffsets(str(topic["id"]), _numbers(topic["offsets"]), _numbers(topic.get("since", ())))
            for name, topic in value["topics"].items()
        }
        return cls(topics)

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The position from JSON of any shape; None if the value is not a position of topics.

        Examples:
            >>> TopicsPosition.of({"snapshot_id": 7}), TopicsPosition.of(7)
            (None, None)
        """
        return cls.parse(value) if isinstance(value, Mapping) and isinstance(value.get("topics"), Mapping) else None


@dataclass(frozen=True)
class Range:
    """Records of one partition: those with offsets in `[start, end)`."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)  # `end` is before `start` if the log was truncated


class RecordsLost(LedgerError):
    """Records of a topic are gone, or the topic itself."""


def ranges(start: TopicsPosition, end: TopicsPosition) -> list[Range]:
    """The ranges between two positions, without empty ones.

    A partition that `start` lacks is read from offset 0, unless `end` has a `batch_start`.

    Examples:
        >>> ranges(TopicsPosition({"t": TopicOffsets("a", (5,))}), TopicsPosition({"t": TopicOffsets("a", (7, 3))}))
        [Range(topic='t', partition=0, start=5, end=7), Range(topic='t', partition=1, start=0, end=3)]
    """
    found: list[Range] = []
    for name, topic in sorted(end.topics.items()):
        last_end = start.topics[name].offsets if name in start.topics else ()
        begin = topic.batch_start or last_end
        for partition, offset in enumerate(topic.offsets):
            found.append(Range(name, partition, begin[partition] if partition < len(begin) else 0, offset))
    return [part for part in found if len(part) > 0]


def empty_ranges(position: TopicsPosition) -> list[Range]:
    """An empty range at the next offset of each partition: `verify` checks that reading can continue there."""
    return [
        Range(name, partition, offset, offset)
        for name, topic in sorted(position.topics.items())
        for partition, offset in enumerate(topic.offsets)
    ]


def verify(
    position: TopicsPosition, wanted: Iterable[Range], logs: Mapping[str, Log], *, skips_expired: bool = False
) -> None:
    """Refuses topics that were deleted or recreated since a position, or that have lost records.

    Args:
        wanted: The records to read; they may be empty ranges, see `empty_ranges`.
        skips_expired: Whether to skip records that Kafka deleted before they were read.

    Raises:
        RecordsLost: A topic is gone or was recreated, its log was truncated, or records were deleted.
    """
    for name, topic in sorted(position.topics.items()):
        log = logs.get(name)
        if log is None:
            raise RecordsLost(
                f"the topic {name} is gone.",
                fix="create the topic again or remove it from the source, then run under a new name, or refill the "
                "target with `helios run --full-refresh`.",
            )
        if log.id != topic.id or len(log.latest) < len(topic.offsets):
            raise RecordsLost(
                f"the topic {name} was deleted and recreated: its id is {log.id}, and the topic with the id "
                f"{topic.id} was read up to {_listed(topic.offsets)}.",
                fix="read the new topic under a new name, or refill the target with `helios run --full-refresh`.",
            )
    to_read = list(wanted)
    if not skips_expired:
        _refuse_deleted(to_read, logs)
    _refuse_truncated(to_read, logs)


def _refuse_deleted(wanted: Sequence[Range], logs: Mapping[str, Log]) -> None:
    deleted = [part for part in wanted if part.start < logs[part.topic].earliest[part.partition]]
    if deleted:
        first = deleted[0]
        earliest = logs[first.topic].earliest[first.partition]
        more = f"; partitions with deleted records: {len(deleted)}" if len(deleted) > 1 else ""
        raise RecordsLost(
            f"{earliest - first.start:,} records of {first.topic}, partition {first.partition}, were deleted before "
            f"they were read: the oldest offset is {earliest}, and the next to read is {first.start}{more}.",
            fix="keep records longer than the pipeline may be stopped (retention.ms, retention.bytes); to continue "
            'without the deleted records, declare .on_missing("skip").',
        )


def _refuse_truncated(wanted: Sequence[Range], logs: Mapping[str, Log]) -> None:
    short = next((part for part in wanted if part.end > logs[part.topic].latest[part.partition]), None)
    if short is not None:
        raise RecordsLost(
            f"{short.topic}, partition {short.partition}, ends at offset {logs[short.topic].latest[short.partition]}, "
            f"and ended at {short.end} before: its log was truncated, as by an unclean leader election.",
            fix="find out which records were written twice or lost, then refill the target with `helios run "
            "--full-refresh`, or run under a new name.",
        )


def deleted_ranges(at: TopicsPosition, logs: Mapping[str, Log]) -> list[Range]:
    """The records after a position that were deleted before they were read."""
    return [
        Range(name, partition, offset, logs[name].earliest[partition])
        for name, topic in sorted(at.topics.items())
        for partition, offset in enumerate(topic.offsets)
        if offset < logs[name].earliest[partition]
    ]


def advance(
    after: TopicsPosition, logs: Mapping[str, Log], max_rows: int | None = None, *, skips_expired: bool = False
) -> TopicsPosition:
    """The end of the batch after a position: the end of the topics, or with a limit an earlier position.

    A new partition is read from offset 0, a new topic from its oldest record. The partitions share the limit in
    proportion to their waiting records.

    Args:
        after: The end of the last batch.
        max_rows: The limit of records in the batch.
        skips_expired: Whether to skip records that Kafka deleted before they were read.

    Examples:
        >>> logs = {"t": Log("a", (0, 0), (90, 10))}
        >>> advance(TopicsPosition({"t": TopicOffsets("a", (0,))}), logs, max_rows=50).topics["t"].offsets
        (45, 5)
    """
    starts = {name: _batch_start(after.topics.get(name), log, skips_expired) for name, log in logs.items()}
    waiting = {
        (name, partition): log.latest[partition] - starts[name].offsets[partition]
        for name, log in logs.items()
        for partition in range(len(log.latest))
    }
    counts = waiting if max_rows is None else _shares(waiting, max_rows)
    ends: dict[str, TopicOffsets] = {}
    for name, topic in starts.items():
        offsets = (offset + counts[name, partition] for partition, offset in enumerate(topic.offsets))
        ends[name] = replace(topic, offsets=tuple(offsets))
    return TopicsPosition(ends)


def sample_ranges(at: TopicsPosition, logs: Mapping[str, Log], count: int) -> list[Range]:
    """Ranges of about `count` records: the first after a position or, without any, the last before the position.

    Examples:
        >>> at = TopicsPosition({"t": TopicOffsets("a", (5,))})
        >>> sample_ranges(at, {"t": Log("a", (0,), (90,))}, 10), sample_ranges(at, {"t": Log("a", (0,), (5,))}, 3)
        ([Range(topic='t', partition=0, start=5, end=15)], [Range(topic='t', partition=0, start=2, end=5)])
    """
    sample = ranges(at, advance(at, logs, count))
    if sample:
        return sample
    partitions = sum(len(topic.offsets) for topic in at.topics.values())
    share = math.ceil(count / max(1, partitions))
    before = [
        Range(name, partition, max(logs[name].earliest[partition], offset - share), offset)
        for name, topic in at.topics.items()
        if name in logs
        for partition, offset in enumerate(topic.offsets)
    ]
    return [part for part in before if len(part) > 0]


def _batch_start(topic: TopicOffsets | None, log: Log, skips_expired: bool) -> TopicOffsets:
    """The start of the next batch in a topic; `topic` is None for a new topic."""
    if topic is None:
        return TopicOffsets(log.id, log.earliest, batch_start=log.earliest)
    new_partitions = len(log.latest) - len(topic.offsets)
    offsets = topic.offsets + (0,) * new_partitions
    start = tuple(map(max, offsets, log.earliest)) if skips_expired else offsets
    return TopicOffsets(log.id, start, batch_start=start if start != offsets else ())


def _shares(waiting: Mapping[tuple[str, int], int], limit: int) -> dict[tuple[str, int], int]:
    """The number of records of a batch in each partition, in proportion to `waiting`, together at most `limit`."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    remaining, shares = limit, dict.fromkeys(waiting, 0)
    # Partitions with many records first: if there are more partitions than records, the last ones get none.
    for partition, count in sorted(waiting.items(), key=lambda item: -item[1]):
        rounded_up = -(-count * limit // total)
        shares[partition] = min(remaining, rounded_up)
        remaining -= shares[partition]
    return shares


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _listed(offsets: Sequence[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    return f"offset{'s' if len(offsets) > 1 else ''} {shown}{', ...' if len(offsets) > 5 else ''}"
