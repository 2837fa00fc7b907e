"""What batch pipelines have appended, against a reference that knows every snapshot's place for ever."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.table.appended import JOINED_LAST, LIMIT, Appended, Entry, Verdict, entry_of, without_steps
from helios.table.inputs import DigestInput, RangeInput, RetainedSnapshot, SnapshotLookup, SnapshotPoint, StateInput

pytestmark = pytest.mark.promise("again")

T = "u"


@dataclass
class Source:
    """A table whose snapshots form a tree, as with branches and rollbacks; some of them expire."""

    numbered: bool = True
    parents: dict[int, int | None] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)

    def look(self, snapshot: int) -> RetainedSnapshot | None:
        if snapshot in self.expired or snapshot not in self.parents:
            return None
        return RetainedSnapshot(self.parents[snapshot], snapshot if self.numbered else None)

    def history(self, snapshot: int | None) -> list[int]:
        found = []
        while snapshot is not None:
            found.append(snapshot)
            snapshot = self.parents[snapshot]
        return found

    def point(self, snapshot: int) -> SnapshotPoint:
        return SnapshotPoint(snapshot, snapshot if self.numbered else None)

    def range(self, after: int | None, to: int) -> RangeInput:
        return RangeInput(T, self.point(after) if after is not None else None, self.point(to))

    def held(self, one: StateInput | RangeInput) -> set[int]:
        """The snapshots of a range, or those that a state holds."""
        if isinstance(one, StateInput):
            return set(self.history(one.at.snapshot)) if one.at else set()
        return set(self.history(one.to.snapshot)) - set(self.history(one.after.snapshot if one.after else None))


@st.composite
def stories(draw: st.DrawFn) -> tuple[Source, list[Entry], list[set[int]], int]:
    """A source, batches over it, what had expired at each, and a limit."""
    source = Source(numbered=draw(st.booleans()))
    count = draw(st.integers(2, 9))
    for snapshot in range(1, count + 1):
        # mostly a line
        source.parents[snapshot] = draw(
            st.one_of(st.just(snapshot - 1 or None), st.sampled_from([*source.parents, None]))
        )
    expires = draw(st.booleans())
    entries, expired, gone = [], [], set()
    for _ in range(draw(st.integers(1, 8))):
        if expires:
            gone = gone | draw(st.sets(st.integers(1, count), max_size=2))
        there = [snapshot for snapshot in source.parents if snapshot not in gone]
        if not there:
            break
        to = draw(st.sampled_from(there))
        line = source.history(to)[1:]
        readable = [a for i, a in enumerate(line) if not set(line[: i + 1]) & gone]
        after = draw(st.sampled_from([*readable, None])) if readable else None
        readable_whole = not set(line) & gone
        state = draw(st.integers(0, 3)) == 0 or (after is None and not readable_whole)
        one = StateInput(T, source.point(to)) if state else source.range(after, to)
        around = draw(st.sampled_from([(), (), (DigestInput("d"),), (DigestInput("e"),)]))
        entries.append(Entry(draw(st.sampled_from(["x", "x", "y"])), (one, *around)))
        expired.append(set(gone))
    return source, entries, expired, draw(st.sampled_from([LIMIT, LIMIT, 120, 60]))


def naive(source: Source, batch: Entry, known: list[Entry]) -> Verdict:
    mine = batch.inputs[0]
    ours = [one for one in known if one.steps == batch.steps]
    alike = [one.inputs[0] for one in ours if one.inputs[1:] == batch.inputs[1:]]
    ranges = [source.held(one) for one in alike if isinstance(one, RangeInput)]
    if mine in alike or (isinstance(mine, RangeInput) and source.held(mine) <= set().union(*ranges)):
        return Verdict.SAME
    if any(one.inputs == batch.inputs for one in known):
        return Verdict.STEPS
    for one in known:
        other = one.inputs[0]
        if isinstance(mine, StateInput) and isinstance(other, StateInput):
            continue
        if source.held(mine) & source.held(other):
            return Verdict.OVERLAPS
    return Verdict.NEW


@settings(max_examples=300, deadline=None)
@given(stories())
def test_nothing_is_appended_twice_and_nothing_skipped_that_is_not_there(
    story: tuple[Source, list[Entry], list[set[int]], int],
) -> None:
    source, batches, expired, limit = story
    appended, known = Appended(), []
    for batch, gone in zip(batches, expired, strict=True):
        source.expired = gone
        appended = Appended.parse(json.loads(json.dumps(appended.as_json())))
        found, truth = judge(appended, batch, source.look), naive(source, batch, known)
        if found is Verdict.SAME:
            assert truth is Verdict.SAME
        if found is Verdict.NEW and appended.complete:
            assert truth is Verdict.NEW
        if not gone and limit == LIMIT:
            assert found is truth
        if found is Verdict.NEW:
            appended = appended.add(batch, limit)
            known.append(batch)


def judge(appended: Appended, entry: Entry, *looks: SnapshotLookup, why: str | None = None) -> Verdict:
    return appended.judge(entry, [*looks, *[lambda _: None] * 3], lambda: why).verdict


@pytest.fixture
def source() -> Source:
    return Source(parents={i: i - 1 or None for i in range(1, 9)})


def test_windows_one_after_the_other_become_one_range(source: Source) -> None:
    appended = Appended()
    for i in range(1, 8):
        appended = appended.add(Entry("x", (source.range(i, i + 1),), i), limit=120)
    assert len(appended.entries) <= 4
    assert appended.complete
    assert judge(appended, Entry("x", (source.range(3, 6),)), source.look) is Verdict.SAME
    assert judge(appended, Entry("x", (source.range(2, 8),)), source.look) is Verdict.SAME
    assert judge(appended, Entry("x", (source.range(None, 3),)), source.look) is Verdict.OVERLAPS
    assert judge(appended, Entry("y", (source.range(3, 6),)), source.look) is Verdict.OVERLAPS


def test_the_next_window_is_new_though_all_before_it_has_expired(source: Source) -> None:
    for numbered in (True, False):
        source.numbered = numbered
        source.expired = set()
        appended = Appended().add(Entry("x", (source.range(1, 3),)))
        source.expired = {1, 2}
        assert judge(appended, Entry("x", (source.range(3, 5),)), source.look) is Verdict.NEW
        source.expired = {1, 2, 3}
        hidden = judge(appended, Entry("x", (source.range(4, 5),)), source.look)
        assert hidden is (Verdict.NEW if numbered else Verdict.UNKNOWN)


def test_a_joined_table_may_stay_or_move_while_ranges_go_on(source: Source) -> None:
    dim, moved = StateInput("v", SnapshotPoint(70)), StateInput("v", SnapshotPoint(71))
    appended = Appended().add(Entry("x", (source.range(1, 2), dim)))
    assert judge(appended, Entry("x", (source.range(2, 3), dim)), source.look) is Verdict.NEW
    assert judge(appended, Entry("x", (source.range(2, 3), moved)), source.look) is Verdict.NEW
    assert judge(appended, Entry("x", (source.range(1, 2), dim)), source.look) is Verdict.SAME
    assert judge(appended, Entry("x", (source.range(1, 2), moved)), source.look) is Verdict.OVERLAPS


def test_of_two_ranges_each_pair_is_an_input(source: Source) -> None:
    def pair(i: int, j: int) -> Entry:
        return Entry("x", (source.range(i, i + 1), RangeInput("v", SnapshotPoint(j, j), SnapshotPoint(j + 1, j + 1))))

    appended = Appended().add(pair(1, 1)).add(pair(2, 2))
    assert judge(appended, pair(2, 2), source.look, source.look) is Verdict.SAME
    assert judge(appended, pair(1, 2), source.look, source.look) is Verdict.OVERLAPS
    assert judge(appended, pair(3, 3), source.look, source.look) is Verdict.NEW


def test_what_is_kept_is_bounded_and_says_when_it_is_not_all() -> None:
    appended = Appended()
    for i in range(400):
        appended = appended.add(Entry("x", (DigestInput(f"{i:016x}"),), 2**62 + i))
    assert len(json.dumps(appended.as_json(), separators=(",", ":"))) <= LIMIT
    assert not appended.complete
    assert len(appended.entries) > 150
    assert judge(appended, Entry("x", (DigestInput(f"{399:016x}"),))) is Verdict.SAME
    assert judge(Appended.parse(appended.as_json()), Entry("x", (DigestInput("0" * 16),))) is Verdict.NEW


def test_ranges_beside_changing_inputs_are_joined_before_any_is_forgotten() -> None:
    appended = Appended()
    ids = [2**62 + i for i in range(500)]
    for i, (a, b) in enumerate(pairwise(ids)):
        inputs = RangeInput(T, SnapshotPoint(a, i), SnapshotPoint(b, i + 1)), StateInput("v", SnapshotPoint(a, i))
        appended = appended.add(Entry("x", inputs, a))
    assert appended.complete
    again = Entry(
        "x",
        (RangeInput(T, SnapshotPoint(ids[3], 3), SnapshotPoint(ids[4], 4)), StateInput("v", SnapshotPoint(ids[3], 3))),
    )
    parents = {b: RetainedSnapshot(a, i + 1) for i, (a, b) in enumerate(pairwise(ids))}
    assert judge(appended, again, parents.get) is Verdict.OVERLAPS


def test_inputs_are_read_from_the_positions_that_ledgers_have() -> None:
    looks = [lambda snapshot: RetainedSnapshot(None, snapshot * 10)] * 4
    table = {"source": "local.a.s", "uuid": "u"}
    kinds = {
        (StateInput("u", SnapshotPoint(7)),): {**table, "snapshot": 7},
        (StateInput("u", None),): {**table, "snapshot": None},
        (RangeInput("u", SnapshotPoint(5), SnapshotPoint(7)),): {**table, "snapshot": 7, "after": 5},
        (RangeInput("u", None, SnapshotPoint(7)),): {**table, "snapshot": 7, "after": None},
    }
    for inputs, entry in kinds.items():
        found = entry_of({"sources": [entry]}, "x", looks, 3)
        assert found == Entry("x", inputs, 3)
    memory = entry_of({"sources": [{"source": "Memory", "digest": "a"}]}, "x", looks)
    assert memory is not None
    assert isinstance(memory.inputs[0], DigestInput)
    followed = {**table, "branch": None, "from": "current", "changes": False, "after": 5, "to": 7, "place": {}}
    assert entry_of({"sources": [{**followed, "state": None}]}, "x", looks) == Entry(
        None, (RangeInput("u", SnapshotPoint(5), SnapshotPoint(7)),)
    )
    assert entry_of({"sources": [{**followed, "state": 7}]}, "x", looks) == Entry(
        None, (RangeInput("u", None, SnapshotPoint(7)),)
    )
    assert entry_of(None, "x", looks) is None
    assert entry_of({"sources": []}, "x", looks) is None


def test_what_a_rollback_leaves_open_is_refused(source: Source) -> None:
    appended = Appended(
        (without_steps(Entry("x", (source.range(1, 3),), 5)), without_steps(Entry("x", (DigestInput("d"),))))
    )
    assert judge(appended, Entry("x", (source.range(1, 3),)), source.look) is Verdict.STEPS
    assert judge(appended, Entry("x", (source.range(2, 4),)), source.look) is Verdict.OVERLAPS
    assert judge(appended, Entry("x", (DigestInput("d"),))) is Verdict.STEPS


# steps that combine rows


def test_only_an_equal_window_of_steps_that_combine_rows_is_the_same(source: Source) -> None:
    appended = Appended().add(Entry("x", (source.range(1, 2),), 8)).add(Entry("x", (source.range(2, 4),), 9))
    whole, part = Entry("x", (source.range(1, 4),)), Entry("x", (source.range(2, 3),))
    for one in (whole, part):
        assert judge(appended, one, source.look) is Verdict.SAME
        assert judge(appended, one, source.look, why="Aggregate") is Verdict.REGROUPS
    found = appended.judge(whole, [source.look], lambda: "Aggregate")
    assert ([entry.by for entry in found.entries], found.why) == ([9, 8], "Aggregate")
    for equal in ((1, 2), (2, 4)):
        assert judge(appended, Entry("x", (source.range(*equal),)), source.look, why="Aggregate") is Verdict.SAME
    assert judge(appended, Entry("x", (source.range(3, 5),)), source.look, why="Aggregate") is Verdict.OVERLAPS
    assert judge(appended, Entry("x", (source.range(4, 5),)), source.look, why="Aggregate") is Verdict.NEW


@pytest.mark.parametrize("limit", [LIMIT, 400])
def test_windows_of_steps_that_combine_rows_are_not_joined_to_one_that_was_never_read(limit: int) -> None:
    count = 3 * JOINED_LAST
    source = Source(parents={i: i - 1 or None for i in range(1, count + 2)})
    appended = Appended()
    for i in range(1, count):
        appended = appended.add(Entry("x", (source.range(i, i + 1),), i), limit, lambda: "Aggregate")
        appended = Appended.parse(json.loads(json.dumps(appended.as_json())))
    assert appended.complete
    for start in range(1, count):
        for end in range(start + 1, count + 1):
            found = judge(appended, Entry("x", (source.range(start, end),)), source.look, why="Aggregate")
            assert found is not Verdict.NEW
            assert (found is Verdict.SAME) <= (end == start + 1)
            if limit == LIMIT:
                assert (found is Verdict.SAME) == (end == start + 1)
