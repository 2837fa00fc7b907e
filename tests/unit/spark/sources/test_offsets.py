"""Places in a history: whatever bounds the batches, every file of every unit is read once, in order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.sources.iceberg.offsets import IcebergOffset, SnapshotRange, range_between
from helios.sources.iceberg.spark.offsets import SnapshotDelta, advance, lag
from helios.table.positions import Lag


@dataclass(frozen=True)
class Snapshot:
    id: int

    def snapshotId(self) -> int:
        return self.id


def history(sizes: list[list[int]], *, state: bool) -> list[SnapshotDelta]:
    """Units of files with these rows; the first one is a state, or all are appends."""
    return [
        SnapshotDelta(
            snapshot=number + 1,
            state=state and number == 0,
            after=number if number else None,
            files=len(rows),
            rows=sum(rows),
            bytes=None,
            commit_time=number,
        )
        for number, rows in enumerate(sizes)
    ]


def ahead(units: list[SnapshotDelta], place: IcebergOffset) -> list[SnapshotDelta]:
    """As `place.ahead` finds them in a table."""
    begun = place.files is not None
    after = place.after if begun and not place.state else place.snapshot
    found = [u for u in units if not u.state and (after is None or u.snapshot > after)]
    return [u for u in units if u.state and begun and place.state and u.snapshot == place.snapshot] + found


def files(units: list[SnapshotDelta], span: SnapshotRange) -> list[tuple[int, int]]:
    """The files of a range, by the snapshot and the number of each."""
    parts = [u for u in units if u.state and u.snapshot == span.state]
    parts += [u for u in units if not u.state and (span.after or 0) < u.snapshot <= (span.to or 0)]
    read = []
    for number, unit in enumerate(parts):
        first = span.skipped if number == 0 else 0
        last = span.taken if number == len(parts) - 1 and span.taken is not None else unit.files
        read += [(unit.snapshot, file) for file in range(first, last)]
    return read


SIZES = st.lists(st.lists(st.integers(1, 50), max_size=6), min_size=1, max_size=6)
BOUNDS = st.one_of(st.none(), st.integers(1, 8))


@given(SIZES, st.booleans(), BOUNDS, st.one_of(st.none(), st.integers(1, 120)))
def test_every_file_is_read_once(
    sizes: list[list[int]], state: bool, max_files: int | None, max_rows: int | None
) -> None:
    units = history(sizes, state=state)
    newest = Snapshot(units[-1].snapshot)
    place = IcebergOffset(snapshot=1, files=0, state=True) if state else IcebergOffset()
    read: list[tuple[int, int]] = []
    for _ in range(100):
        end = advance(
            place,
            ahead(units, place),
            newest,
            max_rows=max_rows,
            max_files=max_files,
            rows_of=lambda unit: sizes[unit.snapshot - 1],
        )
        assert IcebergOffset.parse(end.as_json()) == end
        if end == place:
            break
        batch = files(units, range_between(place, end))
        assert max_files is None or len(batch) <= max_files
        assert max_rows is None or len(batch) == 1 or sum(sizes[s - 1][f] for s, f in batch) <= max_rows
        read += batch
        place = end
    assert place == IcebergOffset(snapshot=newest.id)
    assert read == [(unit.snapshot, file) for unit in units for file in range(unit.files)]


@pytest.mark.parametrize(
    ("before", "end", "span"),
    [
        (IcebergOffset(), IcebergOffset(), SnapshotRange()),
        (IcebergOffset(snapshot=3), IcebergOffset(snapshot=3), SnapshotRange()),
        (IcebergOffset(), IcebergOffset(snapshot=3), SnapshotRange(to=3)),
        (IcebergOffset(snapshot=1), IcebergOffset(snapshot=3), SnapshotRange(after=1, to=3)),
        (
            IcebergOffset(snapshot=1, files=0, state=True),
            IcebergOffset(snapshot=3),
            SnapshotRange(state=1, after=1, to=3),
        ),
        (
            IcebergOffset(snapshot=1, files=2, state=True),
            IcebergOffset(snapshot=1, files=4, state=True),
            SnapshotRange(state=1, after=1, to=1, skipped=2, taken=4),
        ),
        (
            IcebergOffset(snapshot=2, files=2, after=1),
            IcebergOffset(snapshot=3),
            SnapshotRange(after=1, to=3, skipped=2),
        ),
        (IcebergOffset(snapshot=1), IcebergOffset(snapshot=2, files=1, after=1), SnapshotRange(after=1, to=2, taken=1)),
    ],
)
def test_what_lies_between_two_places(before: IcebergOffset, end: IcebergOffset, span: SnapshotRange) -> None:
    assert range_between(before, end) == span


def test_a_state_that_is_read_anew_replaces_what_lay_between() -> None:
    whole = IcebergOffset(snapshot=9, state=True, since=40, rows=90)
    assert range_between(IcebergOffset(snapshot=3, rows=40), whole) == SnapshotRange(state=9, after=9, to=9, since=40)
    part = IcebergOffset(snapshot=9, files=2, state=True, since=40)
    assert range_between(IcebergOffset(snapshot=3, rows=40), part) == SnapshotRange(
        state=9, after=9, to=9, taken=2, since=40
    )
    assert range_between(part, whole) == SnapshotRange(state=9, after=9, to=9, skipped=2, since=40)
    assert range_between(whole, IcebergOffset(snapshot=10)) == SnapshotRange(after=9, to=10)
    assert range_between(IcebergOffset(snapshot=1, files=3, state=True), part).skipped == 0


def test_the_lag_counts_what_has_files() -> None:
    units = history([[1], [], [2, 3]], state=False)
    behind = lag(units)
    assert behind.snapshots == 2
    assert behind.seconds > 0
    assert lag([]) == Lag(0, 0.0)
