"""How far Kafka topics are read, and where the next batch of them ends; no JVM is needed.

A position is the id of each topic and, by partition, the offset of the next record to read. The id tells a topic from a
later one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from helios.errors import LedgerError
from helios.sources.common.position import SourcePosition

SHOWN = 3
"""So many partitions are named for people."""


@dataclass(frozen=True)
class Topic:
    """How far a topic is read.

    Attributes:
        id: Its id.
        offsets: By partition, the offset of the next record to read.
        since: By partition, where the batch that ends here begins, unless that is where the last one ended: of a topic
            that is new, or of one whose next records were gone.
    """

    id: str
    offsets: tuple[int, ...]
    since: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        since = {"since": list(self.since)} if any(self.since) else {}
        return {"id": self.id, "offsets": list(self.offsets), **since}


@dataclass(frozen=True)
class Log:
    """The log of a topic.

    Attributes:
        id: Its id.
        earliest: By partition, the offset of the oldest record that is kept.
        latest: By partition, the offset behind the last record that can be read.
    """

    id: str
    earliest: tuple[int, ...]
    latest: tuple[int, ...]


@dataclass(frozen=True)
class TopicsPosition(SourcePosition):
    """How far topics are read, by their names."""

    only_followed: ClassVar[bool] = False  # topics that are read once end somewhere, too

    topics: Mapping[str, Topic]

    def as_json(self) -> dict[str, Any]:
        """The position as Spark's log of offsets and the snapshot summary keep it.

        Examples:
            >>> TopicsPosition({"orders": Topic("qUe1", (15, 20))}).as_json()
            {'topics': {'orders': {'id': 'qUe1', 'offsets': [15, 20]}}}
        """
        return {"topics": {name: topic.as_json() for name, topic in sorted(self.topics.items())}}

    def text(self, before: SourcePosition | None) -> str:
        """The records between two positions, for people.

        Examples:
            >>> TopicsPosition({"orders": Topic("q", (15, 20))}).text(TopicsPosition({"orders": Topic("q", (5, 20))}))
            '10 records: orders/0 5 to 15'
        """
        start = before if isinstance(before, TopicsPosition) else TopicsPosition({})
        found = [one for one in ranges(start, self) if len(one)]
        parts = ", ".join(f"{one.topic}/{one.partition} {one.start:,} to {one.end:,}" for one in found[:SHOWN])
        more = ", ..." if len(found) > SHOWN else ""
        return f"{sum(map(len, found)):,} records{f': {parts}{more}' if parts else ''}"

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """The position of JSON.

        Raises:
            KeyError: It is no position of topics.
        """
        topics = {
            str(name): Topic(str(topic["id"]), _numbers(topic["offsets"]), _numbers(topic.get("since", ())))
            for name, topic in value["topics"].items()
        }
        return cls(topics)

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The position of JSON that may hold anything; None for everything else.

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
        return self.end - self.start


class RecordsLost(LedgerError):
    """Records that were not read yet are gone, or a topic is not the one that was read."""


def ranges(start: TopicsPosition, end: TopicsPosition) -> list[Range]:
    """The ranges between two positions, without empty ones.

    A partition that the first one lacks is read from offset 0, unless the second one says where its batch begins.

    Examples:
        >>> ranges(TopicsPosition({"t": Topic("a", (5,))}), TopicsPosition({"t": Topic("a", (7, 3))}))
        [Range(topic='t', partition=0, start=5, end=7), Range(topic='t', partition=1, start=0, end=3)]
    """
    parts: list[Range] = []
    for name, topic in sorted(end.topics.items()):
        begun = topic.since or (start.topics[name].offsets if name in start.topics else ())
        for partition, offset in enumerate(topic.offsets):
            parts.append(Range(name, partition, begun[partition] if partition < len(begun) else 0, offset))
    return [offsets for offsets in parts if len(offsets) > 0]


def onward(position: TopicsPosition) -> list[Range]:
    """Where reading goes on, as empty ranges."""
    return [
        Range(name, partition, offset, offset)
        for name, topic in sorted(position.topics.items())
        for partition, offset in enumerate(topic.offsets)
    ]


def verify(position: TopicsPosition, wanted: Iterable[Range], logs: Mapping[str, Log]) -> None:
    """Refuses topics that are not those of a position, or no longer hold some records.

    Args:
        position: The position.
        wanted: The records; where reading only goes on, empty ranges.
        logs: What the topics hold now.

    Raises:
        RecordsLost: A topic is gone or was made again, or records were deleted.
    """
    for name, topic in sorted(position.topics.items()):
        log = logs.get(name)
        if log is None:
            raise RecordsLost(
                f"the topic {name} is gone.",
                fix="make it again under another name, or take it out of the source and run under a new name.",
            )
        if log.id != topic.id or len(log.latest) < len(topic.offsets):
            raise RecordsLost(
                f"the topic {name} was deleted and made again: its id is {log.id}, and {topic.id} was read up to "
                f"{_listed(topic.offsets)}.",
                fix="read the new topic under a new name, or refill the target with `helios run --full-refresh`.",
            )
    _verify_records(list(wanted), logs)


def _verify_records(wanted: Sequence[Range], logs: Mapping[str, Log]) -> None:
    gone = [offsets for offsets in wanted if offsets.start < logs[offsets.topic].earliest[offsets.partition]]
    if gone:
        first, earliest = gone[0], logs[gone[0].topic].earliest[gone[0].partition]
        more = f", and others in {len(gone) - 1} more partitions" if len(gone) > 1 else ""
        raise RecordsLost(
            f"{earliest - first.start:,} records of {first.topic}, partition {first.partition}, were deleted before "
            f"they were read: its oldest offset is {earliest}, and the next to read is {first.start}{more}.",
            fix="keep records longer than the pipeline may be stopped (retention.ms, retention.bytes); to go on "
            'without them, declare .on_missing("skip").',
        )
    short = next((offsets for offsets in wanted if offsets.end > logs[offsets.topic].latest[offsets.partition]), None)
    if short is not None:
        raise RecordsLost(
            f"{short.topic}, partition {short.partition}, ends at offset {logs[short.topic].latest[short.partition]}, "
            f"and went up to {short.end}: its log was truncated, as by an unclean leader election.",
            fix="look which records were written twice or lost, then refill the target with `helios run "
            "--full-refresh`, or run under a new name.",
        )


def gone(at: TopicsPosition, logs: Mapping[str, Log]) -> list[Range]:
    """The records that were deleted before they were read."""
    return [
        Range(name, partition, offset, logs[name].earliest[partition])
        for name, topic in sorted(at.topics.items())
        for partition, offset in enumerate(topic.offsets)
        if offset < logs[name].earliest[partition]
    ]


def advance(
    after: TopicsPosition, logs: Mapping[str, Log], max_rows: int | None = None, *, skips: bool = False
) -> TopicsPosition:
    """The end of the batch after a position: as far as the topics go and the limit allows.

    A partition that is new begins at 0, a topic that is new at its oldest record. A limit is shared out in proportion
    to what waits in each partition.

    Args:
        after: Where the last batch ended.
        logs: What the topics hold now.
        max_rows: The most records.
        skips: Whether records that are gone are passed over.

    Examples:
        >>> logs = {"t": Log("a", (0, 0), (90, 10))}
        >>> advance(TopicsPosition({"t": Topic("a", (0,))}), logs, max_rows=50).topics["t"].offsets
        (45, 5)
    """
    starts = {name: _begun(after.topics.get(name), log, skips=skips) for name, log in logs.items()}
    waiting = {
        (name, partition): log.latest[partition] - starts[name].offsets[partition]
        for name, log in logs.items()
        for partition in range(len(log.latest))
    }
    taken = waiting if max_rows is None else _shared(waiting, max_rows)
    ends = {
        name: replace(topic, offsets=tuple(offset + taken[name, p] for p, offset in enumerate(topic.offsets)))
        for name, topic in starts.items()
    }
    return TopicsPosition(ends)


def sampled(at: TopicsPosition, logs: Mapping[str, Log], most: int) -> list[Range]:
    """About so many records to look at: the first ones from a position on, or else the last ones before it.

    Args:
        at: The position.
        logs: What the topics hold now.
        most: How many offsets.

    Examples:
        >>> at = TopicsPosition({"t": Topic("a", (5,))})
        >>> sampled(at, {"t": Log("a", (0,), (90,))}, 10), sampled(at, {"t": Log("a", (0,), (5,))}, 3)
        ([Range(topic='t', partition=0, start=5, end=15)], [Range(topic='t', partition=0, start=2, end=5)])
    """
    sample = ranges(at, advance(at, logs, most))
    if sample:
        return sample
    ends = [
        (name, partition, offset) for name, topic in at.topics.items() for partition, offset in enumerate(topic.offsets)
    ]
    share = -(-most // max(1, len(ends)))
    before = [Range(name, p, max(logs[name].earliest[p], offset - share), offset) for name, p, offset in ends]
    return [offsets for offsets in before if len(offsets) > 0]


def _begun(topic: Topic | None, log: Log, *, skips: bool) -> Topic:
    """Where the next batch begins in a topic."""
    if topic is None:
        return Topic(log.id, log.earliest, since=log.earliest)
    offsets = (*topic.offsets, *(0 for _ in log.latest[len(topic.offsets) :]))
    left = tuple(map(max, offsets, log.earliest)) if skips else offsets
    return Topic(log.id, left, since=left if left != offsets else ())


def _shared(waiting: Mapping[tuple[str, int], int], most: int) -> dict[tuple[str, int], int]:
    """Each partition's share of a batch, which is at least one record in all."""
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    left, shares = most, dict.fromkeys(waiting, 0)
    # The longest first: with more partitions than records, the others get no record.
    for partition, count in sorted(waiting.items(), key=lambda item: -item[1]):
        share = min(left, -(-count * most // total))
        shares[partition] = share
        left -= share
    return shares


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _listed(offsets: Sequence[int]) -> str:
    """Offsets in a sentence."""
    shown = ", ".join(map(str, offsets[:5]))
    return f"offset{'s' if len(offsets) > 1 else ''} {shown}{', ...' if len(offsets) > 5 else ''}"
