"""The inputs of a batch, as sets of snapshots or as digests, and their compact form in a record; without a JVM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias


class RetainedSnapshot(NamedTuple):
    """The parent of a retained snapshot (None for the first), and its sequence number (None in format v1)."""

    parent: int | None
    sequence: int | None


SnapshotLookup: TypeAlias = Callable[[int], "RetainedSnapshot | None"]
"""Looks up a snapshot of a source; None if it has expired."""


@dataclass(frozen=True)
class SnapshotPoint:
    """The id of a snapshot of a source, and its sequence number if it is known."""

    snapshot: int
    sequence: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StateInput:
    """The state of a table at a snapshot; `at` is None for an empty table."""

    table: str
    at: SnapshotPoint | None


@dataclass(frozen=True)
class RangeInput:
    """The rows that a table's snapshots in `(after, to]` added; `after` is None for all up to `to`."""

    table: str
    after: SnapshotPoint | None
    to: SnapshotPoint


@dataclass(frozen=True)
class DigestInput:
    """Files, rows in memory, or any other input that can only be compared for equality."""

    value: str


Input: TypeAlias = StateInput | RangeInput | DigestInput

NOT_KEPT = DigestInput("")
"""Stands for an input that an entry for several batches does not keep."""


# from a recorded position


def recorded_input(entry: Mapping[str, Any], lookup: SnapshotLookup) -> Input:
    """Returns the input from one source, given its entry in a recorded position."""

    def point(snapshot: int) -> SnapshotPoint:
        node = lookup(snapshot)
        return SnapshotPoint(snapshot, node.sequence if node is not None else None)

    table = str(entry.get("uuid") or entry.get("source"))
    to, after = entry.get("snapshot", entry.get("to")), entry.get("after")
    if isinstance(to, int) and ("after" in entry or "to" in entry):
        # A range that begins with the state of the table counts from the table's first snapshot.
        start = point(after) if isinstance(after, int) and entry.get("state") is None else None
        return RangeInput(table, start, point(to))
    if "snapshot" in entry:
        return StateInput(table, point(to) if isinstance(to, int) else None)
    return DigestInput(hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:16])


# sets of snapshots


def have_common_snapshot(one: Input, other: Input, lookup: SnapshotLookup) -> bool | None:
    """True if a range and another range or state have a common snapshot; None if expired snapshots hide the answer."""
    if isinstance(one, DigestInput) or isinstance(other, DigestInput) or one.table != other.table:
        return False
    if isinstance(one, StateInput) and isinstance(other, StateInput):
        return False
    a, b = _as_range(one), _as_range(other)
    if a is None or b is None or _ends_before(a, b) or _ends_before(b, a):
        return False
    # A snapshot at or before the start of either range is not in both.
    stops = {point.snapshot for point in (a.after, b.after) if point is not None}
    in_a, a_complete = _walk(a, lookup, stops)
    in_b, b_complete = _walk(b, lookup, stops)
    if in_a & in_b:
        return True
    one_is_empty = (a_complete and not in_a) or (b_complete and not in_b)
    return False if one_is_empty or (a_complete and b_complete) else None


def _as_range(source_input: StateInput | RangeInput) -> RangeInput | None:
    if isinstance(source_input, RangeInput):
        return source_input
    return RangeInput(source_input.table, None, source_input.at) if source_input.at is not None else None


def _ends_before(a: RangeInput, b: RangeInput) -> bool:
    """True if range `a` certainly ends at or before the start of range `b`: sequence numbers grow along a history."""
    if b.after is None:
        return False
    end, begin = a.to.sequence, b.after.sequence
    return b.after == a.to or (end is not None and begin is not None and end <= begin)


def _walk(span: RangeInput, lookup: SnapshotLookup, stops: set[int]) -> tuple[set[int], bool]:
    """Walks from the end of a range back to a stop.

    Returns the snapshots on the way, without the stop, and whether the walk met no expired snapshot.
    """
    walked: set[int] = set()
    snapshot: int | None = span.to.snapshot
    while snapshot is not None and snapshot not in stops:
        node = lookup(snapshot)
        if node is None:
            return walked, False
        walked.add(snapshot)
        snapshot = node.parent
    return walked, True


def snapshots_in(span: RangeInput, lookup: SnapshotLookup) -> tuple[set[int], bool]:
    """The retained snapshots of a range, and whether they are all of its snapshots."""
    return _walk(span, lookup, {span.after.snapshot} if span.after is not None else set())


# the compact form


def packed(source_input: Input, tables: list[str]) -> Any:
    """An input as JSON values, with the index of its table in `tables`."""
    if isinstance(source_input, DigestInput):
        return source_input.value
    if isinstance(source_input, StateInput):
        return [tables.index(source_input.table), *_packed_point(source_input.at)]
    return [tables.index(source_input.table), *_packed_point(source_input.after), *_packed_point(source_input.to)]


def _packed_point(point: SnapshotPoint | None) -> tuple[int | None, int | None]:
    return (point.snapshot, point.sequence) if point is not None else (None, None)


def unpacked(source_input: Any, tables: list[str]) -> Input:
    """The inverse of `packed`.

    Raises:
        ValueError: A list has the wrong length, or a range has no end.
    """
    if isinstance(source_input, str):
        return DigestInput(source_input)
    table_index, *numbers = source_input
    ids, sequences = numbers[::2], numbers[1::2]
    points = [None if id is None else SnapshotPoint(id, sequence) for id, sequence in zip(ids, sequences, strict=True)]
    if len(points) == 1:
        return StateInput(tables[table_index], points[0])
    after, to = points
    if to is None:
        raise ValueError("a range without an end")
    return RangeInput(tables[table_index], after, to)
