"""The inputs that batch pipelines have appended to a table, so that none is appended twice; without a JVM.

A batch has one input per source: the state of a table at a snapshot, the range of snapshots `(after, to]`, or a digest
of files or rows. Ranges are sets of snapshots, so two ranges may overlap, and a state overlaps the ranges up to its
snapshot. Two states or two digests never overlap: they are either equal, or different inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from helios.table.inputs import (
    NOT_KEPT,
    DigestInput,
    Input,
    RangeInput,
    RetainedSnapshot,
    SnapshotLookup,
    have_common_snapshot,
    packed,
    recorded_input,
    snapshots_in,
    unpacked,
)
from helios.table.positions import same_entries, same_source

WhyNotRowByRow: TypeAlias = Callable[[], "str | None"]
"""Returns why steps give other rows for one batch than for several batches with the same input; None if they do not."""


def _no_reason() -> None:
    return None


LIMIT = 8_192
"""The maximum number of characters of a pipeline's inputs in a table property: enough for about 150 batches."""

JOINED_LAST = 16
"""The number of newest batches that are joined only if nothing else helps, because a rollback may remove them."""


@dataclass(frozen=True)
class Entry:
    """The inputs that one batch, or several joined batches, have appended.

    Attributes:
        steps: The fingerprint of the steps. None if no later batch may count as the same. The reason is one of these:
            joined batches have different steps, or steps that do not go row by row; a rollback may have removed the
            batch; the batch was one of a followed source.
        inputs: The input from each source.
        by: The snapshot of the target that committed the newest of the batches.
    """

    steps: str | None
    inputs: tuple[Input, ...]
    by: int | None = None


class Verdict(Enum):
    """The verdict on the inputs of a batch."""

    NEW = "new"
    SAME = "same"  # appended before, by the same steps
    STEPS = "steps"  # appended before, by other steps
    OVERLAPS = "overlaps"
    REGROUPS = "regroups"  # appended before in other ranges, by steps whose rows depend on the ranges
    UNKNOWN = "unknown"  # an expired snapshot hides whether two ranges overlap


@dataclass(frozen=True)
class Finding:
    """A verdict, with the entries on which it is based.

    Attributes:
        entry: An entry on which the verdict is based; None for `NEW`.
        source: The number of the source whose ranges overlap.
        entries: For `REGROUPS`, the entries that together cover the batch's range, newest first.
        why: For `REGROUPS`, why the rows depend on the ranges.
    """

    verdict: Verdict
    entry: Entry | None = None
    source: int = 0
    entries: tuple[Entry, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Appended:
    """The inputs that a pipeline has appended, oldest first.

    `complete` is False if the oldest entries were dropped, or if their stamps have expired.
    """

    entries: tuple[Entry, ...] = ()
    complete: bool = True

    def judge(
        self, batch: Entry, lookups: Sequence[SnapshotLookup], why_not_row_by_row: WhyNotRowByRow = _no_reason
    ) -> Finding:
        """Compares a batch with the appended inputs.

        Args:
            lookups: For each source, the function that looks up its snapshots.
            why_not_row_by_row: Returns why the batch's steps do not go row by row. Called only if the verdict needs it.
        """
        same_steps = [entry for entry in self.entries if entry.steps == batch.steps]
        equal = next((entry for entry in same_steps if entry.inputs == batch.inputs), None)
        if equal is not None:
            return Finding(Verdict.SAME, equal)
        covering = _covering(batch, same_steps, lookups)
        if covering:
            why = why_not_row_by_row()
            if why is None:
                return Finding(Verdict.SAME, covering[0])
            source = next(
                index for index, source_input in enumerate(batch.inputs) if isinstance(source_input, RangeInput)
            )
            return Finding(Verdict.REGROUPS, covering[0], source, tuple(covering), why)
        same_inputs = next((entry for entry in self.entries if entry.inputs == batch.inputs), None)
        if same_inputs is not None:
            return Finding(Verdict.STEPS, same_inputs)
        unknown = None
        for entry in self.entries:
            for source, pair in enumerate(zip(batch.inputs, entry.inputs, strict=False)):
                overlaps = have_common_snapshot(*pair, lookups[source])
                if overlaps:
                    return Finding(Verdict.OVERLAPS, entry, source)
                if overlaps is None:
                    unknown = Finding(Verdict.UNKNOWN, entry, source)
        return unknown or Finding(Verdict.NEW)

    def add(self, batch: Entry, limit: int = LIMIT, why_not_row_by_row: WhyNotRowByRow = _no_reason) -> Appended:
        """Returns these inputs with one more batch. To stay below the limit, joins entries, or drops the oldest ones.

        Args:
            limit: The maximum length of all entries as JSON.
            why_not_row_by_row: As for `judge`. If it returns a reason, the entry of a joined range has no steps.
        """

        def goes_row_by_row(steps: str | None) -> bool:
            return steps is None or (steps == batch.steps and why_not_row_by_row() is None)

        others = [entry for entry in self.entries if (entry.steps, entry.inputs) != (batch.steps, batch.inputs)]
        entries = [*_joined(others[:-JOINED_LAST], goes_row_by_row, exact=True), *others[-JOINED_LAST:], batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], goes_row_by_row, exact=True), batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], goes_row_by_row, exact=False), batch]
        complete = self.complete
        while _size(entries) > limit and len(entries) > 1:
            entries, complete = entries[1:], False
        return Appended(tuple(entries), complete)

    def as_json(self) -> dict[str, Any]:
        """The JSON value for the pipeline's record: each fingerprint and each table once, and a list for each batch."""
        steps = list(dict.fromkeys(entry.steps for entry in self.entries))
        inputs = [source_input for entry in self.entries for source_input in entry.inputs]
        tables = list(
            dict.fromkeys(source_input.table for source_input in inputs if not isinstance(source_input, DigestInput))
        )
        batches = [
            [steps.index(entry.steps), entry.by, *(packed(source_input, tables) for source_input in entry.inputs)]
            for entry in self.entries
        ]
        mark = {} if self.complete else {"complete": False}
        return {"steps": steps, "tables": tables, "batches": batches} | mark

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Appended:
        """Parses the value that `as_json` returns.

        A damaged value raises a `KeyError`, `IndexError`, `TypeError` or `ValueError`.
        """
        steps, tables = fields["steps"], fields["tables"]
        entries = tuple(
            Entry(steps[number], tuple(unpacked(source_input, tables) for source_input in inputs), by)
            for number, by, *inputs in fields["batches"]
        )
        return cls(entries, bool(fields.get("complete", True)))


def entry_of(
    position: Mapping[str, Any] | None, steps: str, lookups: Sequence[SnapshotLookup], by: int | None = None
) -> Entry | None:
    """Returns the entry of a batch, given its recorded position; None if the position has no sources.

    Examples:
        >>> read = {"source": "local.a.s", "uuid": "u", "snapshot": 7, "after": 5}
        >>> [covered] = entry_of({"sources": [read]}, "abc", [lambda snapshot: None]).inputs
        >>> covered.table, covered.after.snapshot, covered.to.snapshot
        ('u', 5, 7)
    """
    sources = [source for source in (position or {}).get("sources") or () if isinstance(source, Mapping)]
    if not sources:
        return None
    padded = [*lookups, *[_unknown] * len(sources)]
    inputs = tuple(recorded_input(source, look) for source, look in zip(sources, padded, strict=False))
    # A batch of a followed source cannot be repeated. Without steps, it never counts as the same.
    return Entry(None if any("place" in source for source in sources) else steps, inputs, by)


def first_changed_state(
    position: Mapping[str, Any] | None, batch: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The first source whose state has changed: its recorded entry, and its entry in a batch; None if there is none.

    A table is identified by its UUID, as its name may change.

    Examples:
        >>> before, now = ({"sources": [{"source": "a.s", "snapshot": snapshot}]} for snapshot in (5, 7))
        >>> first_changed_state(before, now)
        ({'source': 'a.s', 'snapshot': 5}, {'source': 'a.s', 'snapshot': 7})
    """
    before = [
        source
        for source in (position or {}).get("sources") or ()
        if isinstance(source, Mapping) and "after" not in source
    ]
    now = [entry for entry in batch["sources"] if "after" not in entry]
    pairs = ((earlier, entry) for entry in now for earlier in before if same_source(earlier, entry))
    return next(((earlier, entry) for earlier, entry in pairs if not same_entries([earlier], [entry])), None)


def _unknown(snapshot: int) -> RetainedSnapshot | None:
    return None


def _covering(batch: Entry, entries: Sequence[Entry], lookups: Sequence[SnapshotLookup]) -> list[Entry]:
    """The entries that together cover all snapshots of a batch's range, and whose other inputs are equal; newest first.

    Empty if they do not cover all snapshots, or if the batch does not have exactly one range.
    """
    ranges = [index for index, source_input in enumerate(batch.inputs) if isinstance(source_input, RangeInput)]
    if len(ranges) != 1:
        return []  # with two ranges, each pair of snapshots would have to be covered
    [at] = ranges
    span = batch.inputs[at]
    assert isinstance(span, RangeInput)
    missing, all_retained = snapshots_in(span, lookups[at])
    if not all_retained or not missing:
        return []
    covering = []
    for entry in reversed(entries):
        if len(entry.inputs) == len(batch.inputs) and _other_inputs(entry, at) == _other_inputs(batch, at):
            source_input = entry.inputs[at]
            if isinstance(source_input, RangeInput) and source_input.table == span.table:
                snapshots, _ = snapshots_in(source_input, lookups[at])
                if missing & snapshots:
                    covering.append(entry)
                missing -= snapshots
    return covering if not missing else []


def _other_inputs(entry: Entry, at: int) -> tuple[Input, ...]:
    """The inputs of an entry, with a placeholder at one index."""
    return (*entry.inputs[:at], NOT_KEPT, *entry.inputs[at + 1 :])


# the compact form


def _joined(entries: Sequence[Entry], goes_row_by_row: Callable[[str | None], bool], *, exact: bool) -> list[Entry]:
    """Joins the adjacent ranges of entries.

    Args:
        goes_row_by_row: Whether steps give the same rows for two ranges as for the joined range.
        exact: Whether only entries with the same steps and equal other inputs are joined. If not, others are joined,
            too; their joined entry has no steps, and a batch that overlaps it is refused.
    """
    kept: list[Entry] = []
    for entry in entries:
        latest = entry
        # The joined range may have neighbours itself.
        while (pair := _first_join(kept, latest, goes_row_by_row, exact=exact)) is not None:
            neighbour, latest = pair
            kept = [other for other in kept if other is not neighbour]
        kept.append(latest)
    return kept


def _first_join(
    entries: Sequence[Entry], entry: Entry, goes_row_by_row: Callable[[str | None], bool], *, exact: bool
) -> tuple[Entry, Entry] | None:
    """The first of `entries` that can be joined with `entry`, and the joined entry; None if there is none."""
    for other in entries:
        joined = _join(other, entry, goes_row_by_row, exact=exact)
        if joined is not None:
            return other, joined
    return None


def _join(entry: Entry, other: Entry, goes_row_by_row: Callable[[str | None], bool], *, exact: bool) -> Entry | None:
    ranges = [index for index, source_input in enumerate(entry.inputs) if isinstance(source_input, RangeInput)]
    if len(ranges) != 1 or len(entry.inputs) != len(other.inputs):
        return None
    [at] = ranges
    a, b = entry.inputs[at], other.inputs[at]
    if not isinstance(a, RangeInput) or not isinstance(b, RangeInput) or a.table != b.table:
        return None
    if a.to == b.after:
        span = RangeInput(a.table, a.after, b.to)
    elif b.to == a.after:
        span = RangeInput(a.table, b.after, a.to)
    else:
        return None
    same_others = _other_inputs(entry, at) == _other_inputs(other, at)
    alike = entry.steps == other.steps and same_others and goes_row_by_row(entry.steps)
    if exact and not alike:
        return None
    rest = entry.inputs if alike else (NOT_KEPT,) * len(entry.inputs)
    return Entry(entry.steps if alike else None, (*rest[:at], span, *rest[at + 1 :]), other.by)


def _size(entries: Sequence[Entry]) -> int:
    return len(json.dumps(Appended(tuple(entries), complete=False).as_json(), separators=(",", ":")))


def without_steps(entry: Entry) -> Entry:
    """Returns an entry without its steps, because a rollback may have removed it from the target.

    A batch that overlaps such an entry is refused.
    """
    return replace(entry, steps=None)
