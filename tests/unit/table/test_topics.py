"""Positions in topics: the end of the next batch, the ranges between two, and what is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.sources.kafka.topics import (
    Log,
    Range,
    RecordsLost,
    TopicOffsets,
    TopicsPosition,
    advance,
    deleted_ranges,
    empty_ranges,
    ranges,
    verify,
)

AT = TopicsPosition({"t": TopicOffsets("a", (5, 7))})


def verified(at: TopicsPosition, **logs: Log) -> None:
    verify(at, empty_ranges(at), logs)


def test_a_position_is_read_back() -> None:
    at = TopicsPosition({"t": TopicOffsets("a", (5, 7)), "b.c": TopicOffsets("b", (9,), batch_start=(4,))})
    assert TopicsPosition.parse(at.as_json()) == at
    assert at.as_json()["topics"]["b.c"] == {"id": "b", "offsets": [9], "since": [4]}
    assert TopicsPosition.of({"log": "x", "entry": 1}) is None


def test_a_new_partition_begins_at_0_and_a_new_topic_at_its_oldest_record() -> None:
    logs = {"t": Log("a", (0, 0, 0), (5, 9, 4)), "u": Log("b", (3,), (6,))}
    end = advance(AT, logs)
    assert ranges(AT, end) == [Range("t", 1, 7, 9), Range("t", 2, 0, 4), Range("u", 0, 3, 6)]
    assert end.topics["u"] == TopicOffsets("b", (6,), batch_start=(3,))
    assert advance(end, logs).topics["u"] == TopicOffsets("b", (6,))
    assert ranges(end, advance(end, logs)) == []


def test_records_that_are_gone_are_passed_over_and_the_position_says_so() -> None:
    logs = {"t": Log("a", (8, 0, 2), (9, 9, 3))}
    end = advance(AT, logs, skips_expired=True)
    assert end.topics["t"] == TopicOffsets("a", (9, 9, 3), batch_start=(8, 7, 2))
    assert ranges(AT, end) == [Range("t", 0, 8, 9), Range("t", 1, 7, 9), Range("t", 2, 2, 3)]
    assert ranges(AT, TopicsPosition.parse(end.as_json())) == ranges(AT, end)
    assert deleted_ranges(AT, logs) == [Range("t", 0, 5, 8)]
    assert advance(end, logs, skips_expired=True).topics["t"] == TopicOffsets("a", (9, 9, 3))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
    st.integers(1, 60),
)
def test_bounded_batches_read_each_offset_once(partitions: list[tuple[int, int]], most: int) -> None:
    starts, counts = zip(*partitions, strict=True)
    log = Log("a", starts, tuple(start + count for start, count in partitions))
    at = TopicsPosition({"t": TopicOffsets("a", starts)})
    read: list[tuple[int, int]] = []
    while at != (end := advance(at, {"t": log}, most)):
        found = ranges(at, end)
        assert 0 < sum(map(len, found)) <= most
        read += [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
        at = end
    assert sorted(read) == [(p, o) for p, (start, count) in enumerate(partitions) for o in range(start, start + count)]
    assert sum(counts) == len(read)


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ({}, "the topic t is gone"),
        (
            {"t": Log("z", (0, 0), (9, 9))},
            "was deleted and recreated: its id is z, and the topic with the id a was read up to offsets 5, 7",
        ),
        ({"t": Log("a", (0,), (9,))}, "was deleted and recreated"),
        ({"t": Log("a", (8, 0), (9, 9))}, "3 records of t, partition 0, were deleted .* the next to read is 5\\."),
        ({"t": Log("a", (8, 8), (9, 9))}, "the next to read is 5; partitions with deleted records: 2"),
        (
            {"t": Log("a", (0, 0), (9, 6))},
            "t, partition 1, ends at offset 6, and ended at 7 before: its log was truncated",
        ),
    ],
)
def test_what_is_lost(logs: dict[str, Log], message: str) -> None:
    with pytest.raises(RecordsLost, match=message):
        verified(AT, **logs)


def test_what_was_read_may_be_deleted() -> None:
    verified(AT, t=Log("a", (5, 7), (5, 7)))
    verify(AT, [], {"t": Log("a", (100, 100), (100, 100))})


def test_deleted_records_may_be_skipped_and_a_truncated_log_may_not() -> None:
    verify(AT, empty_ranges(AT), {"t": Log("a", (8, 0), (9, 9))}, skips_expired=True)
    with pytest.raises(RecordsLost, match="its log was truncated"):
        verify(AT, empty_ranges(AT), {"t": Log("a", (0, 0), (9, 6))}, skips_expired=True)
    assert ranges(AT, advance(AT, {"t": Log("a", (0, 0), (3, 9))}, skips_expired=True)) == [Range("t", 1, 7, 9)]
