"""The inputs that batch pipelines have appended to a table, so that none is appended twice; without a JVM.

A batch has one input per source: the state of a table at a snapshot, the range of snapshots `(after, to]`, or a digest
of files or rows. Ranges are sets of snapshots, so two of them may overlap, and a state holds what the ranges up to its
snapshot have added. States and digests are only equal or not: a later state is another input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from helios.table.inputs import (
    SEVERAL,
    Digest,
    Input,
    Look,
    Node,
    Range,
    meet,
    packed,
    recorded_input,
    unpacked,
    within,
)
from helios.table.positions import same_entries, same_source

Combines: TypeAlias = Callable[[], "str | None"]
"""Why the rows that the steps make of several batches are others than those of one; None where they go row by row."""


def _go_row_by_row() -> None:
    return None


LIMIT = 8_192
"""The most characters that the inputs of one pipeline take in a table's property: some 150 batches that do not join."""

APART = 16
"""As many of the newest batches keep ranges of their own, as a rollback may take some of them back."""


@dataclass(frozen=True)
class Entry:
    """The inputs that one batch, or several joined ones, have appended.

    Attributes:
        steps: The fingerprint of the steps; None for several, or where a rollback leaves open whether it is there.
        inputs: One per source.
        by: The snapshot of the target that the newest of them made.
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
    REGROUPS = "regroups"  # appended before in other ranges, by steps that make other rows of these together
    UNKNOWN = "unknown"  # an expired snapshot hides whether two ranges overlap


@dataclass(frozen=True)
class Finding:
    """A verdict and what it is based on.

    Attributes:
        verdict: The verdict.
        entry: What was appended before, the newest of several; None if there is none.
        source: Of two ranges that overlap, the number of the source.
        entries: All that together hold the batch's range, newest first.
        why: Why a range that others hold is no part of them.
    """

    verdict: Verdict
    entry: Entry | None = None
    source: int = 0
    entries: tuple[Entry, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Appended:
    """The inputs that a pipeline has appended, oldest first.

    Attributes:
        entries: The batches.
        complete: Whether these are all; False when the oldest were forgotten, or their stamps have expired.
    """

    entries: tuple[Entry, ...] = ()
    complete: bool = True

    def judge(self, batch: Entry, looks: Sequence[Look], combines: Combines = _go_row_by_row) -> Finding:
        """Compares a batch with all that was appended.

        Args:
            batch: The batch.
            looks: Looks the snapshots of each source up.
            combines: Why the batch's steps do not go row by row; asked only where it matters.
        """
        ours = [entry for entry in self.entries if entry.steps == batch.steps]
        equal = next((entry for entry in ours if entry.inputs == batch.inputs), None)
        holding = [equal] if equal is not None else _covering(batch, ours, looks)
        if holding:
            why = None if equal is not None else combines()
            if why is None:
                return Finding(Verdict.SAME, holding[0])
            at = next(index for index, given in enumerate(batch.inputs) if isinstance(given, Range))
            return Finding(Verdict.REGROUPS, holding[0], at, tuple(holding), why)
        found = next((entry for entry in self.entries if entry.inputs == batch.inputs), None)
        if found is not None:
            return Finding(Verdict.STEPS, found)
        hidden = None
        for entry in self.entries:
            for index, pair in enumerate(zip(batch.inputs, entry.inputs, strict=False)):
                met = meet(*pair, looks[index])
                if met:
                    return Finding(Verdict.OVERLAPS, entry, index)
                if met is None:
                    hidden = Finding(Verdict.UNKNOWN, entry, index)
        return hidden or Finding(Verdict.NEW)

    def add(self, batch: Entry, limit: int = LIMIT, combines: Combines = _go_row_by_row) -> Appended:
        """With one more batch, joined and forgotten as far as the limit asks.

        Args:
            batch: The batch.
            limit: The most characters that the batches take.
            combines: As for `judge`; two ranges of such steps are never told as one that these steps read.
        """

        def keeps(steps: str | None) -> bool:
            return steps is None or (steps == batch.steps and combines() is None)

        kept = [entry for entry in self.entries if (entry.steps, entry.inputs) != (batch.steps, batch.inputs)]
        entries = [*_joined(kept[:-APART], keeps, exact=True), *kept[-APART:], batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], keeps, exact=True), batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], keeps, exact=False), batch]
        complete = self.complete
        while _size(entries) > limit and len(entries) > 1:
            entries, complete = entries[1:], False
        return Appended(tuple(entries), complete)

    def as_json(self) -> dict[str, Any]:
        """As the record of the pipeline keeps it: fingerprints and tables once, and a list per batch."""
        steps = list(dict.fromkeys(entry.steps for entry in self.entries))
        inputs = [given for entry in self.entries for given in entry.inputs]
        tables = list(dict.fromkeys(given.table for given in inputs if not isinstance(given, Digest)))
        batches = [[steps.index(e.steps), e.by, *(packed(i, tables) for i in e.inputs)] for e in self.entries]
        mark = {} if self.complete else {"complete": False}
        return {"steps": steps, "tables": tables, "batches": batches} | mark

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Appended:
        """From what `as_json` gave.

        Raises:
            KeyError: It is damaged, as with the other errors.
            IndexError: It names a table or steps that it lacks.
            TypeError: A value is of another type.
            ValueError: A list has another length.
        """
        steps, tables = fields["steps"], fields["tables"]
        entries = tuple(
            Entry(steps[of], tuple(unpacked(given, tables) for given in inputs), by)
            for of, by, *inputs in fields["batches"]
        )
        return cls(entries, bool(fields.get("complete", True)))


def entry_of(
    position: Mapping[str, Any] | None, steps: str, looks: Sequence[Look], by: int | None = None
) -> Entry | None:
    """The inputs of a batch, from its recorded position; None where it has none.

    Examples:
        >>> read = {"source": "local.a.s", "uuid": "u", "snapshot": 7, "after": 5}
        >>> entry_of({"sources": [read]}, "abc", [lambda snapshot: None]).inputs
        (Range(table='u', after=Point(snapshot=5, sequence=None), to=Point(snapshot=7, sequence=None)),)
    """
    sources = [source for source in (position or {}).get("sources") or () if isinstance(source, Mapping)]
    if not sources:
        return None
    known = [*looks, *[_nothing] * len(sources)]
    inputs = tuple(recorded_input(source, look) for source, look in zip(sources, known, strict=False))
    # What a followed source had delivered is compared, but is no batch that one could give again.
    return Entry(None if any("place" in source for source in sources) else steps, inputs, by)


def earlier_state(
    position: Mapping[str, Any] | None, batch: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The state that a recorded position has read of a source, as it was then, and the batch's; None where none is.

    A table is known by its UUID, as its name may change.

    Examples:
        >>> before, now = ({"sources": [{"source": "a.s", "snapshot": snapshot}]} for snapshot in (5, 7))
        >>> earlier_state(before, now)
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


def _nothing(snapshot: int) -> Node | None:
    return None


def _covering(batch: Entry, entries: Sequence[Entry], looks: Sequence[Look]) -> list[Entry]:
    """The entries that together hold the only range of a batch, beside the same other inputs; newest first."""
    ranges = [index for index, given in enumerate(batch.inputs) if isinstance(given, Range)]
    if len(ranges) != 1:
        return []  # of two ranges each pair counts
    [at] = ranges
    span = batch.inputs[at]
    assert isinstance(span, Range)
    mine, every = within(span, looks[at])
    if not every or not mine:
        return []
    found = []
    for entry in reversed(entries):
        if len(entry.inputs) == len(batch.inputs) and _around(entry, at) == _around(batch, at):
            given = entry.inputs[at]
            if isinstance(given, Range) and given.table == span.table:
                theirs, _ = within(given, looks[at])
                found += [entry] if mine & theirs else []
                mine -= theirs
    return found if not mine else []


def _around(entry: Entry, at: int) -> tuple[Input, ...]:
    """The inputs of an entry but one."""
    return (*entry.inputs[:at], SEVERAL, *entry.inputs[at + 1 :])


# the compact form


def _joined(entries: Sequence[Entry], keeps: Callable[[str | None], bool], *, exact: bool) -> list[Entry]:
    """Entries whose ranges end where another one's begin, as one.

    Args:
        entries: The entries.
        keeps: Whether two ranges of some steps are together what these steps would have made of both.
        exact: Whether to join only what the same steps made beside the same other inputs; otherwise it is no longer
            known which did, and a batch over it is refused.
    """
    kept: list[Entry] = []
    for entry in entries:
        made: Entry | None = entry
        while made is not None:  # what was joined may reach others
            latest = made
            near = [(entry, _join(entry, latest, keeps, exact=exact)) for entry in kept] if _ranged(latest) else []
            used, made = next((pair for pair in near if pair[1] is not None), (None, None))
            kept = [entry for entry in kept if entry is not used]
        kept.append(latest)
    return kept


def _ranged(entry: Entry) -> bool:
    return any(isinstance(given, Range) for given in entry.inputs)


def _join(entry: Entry, other: Entry, keeps: Callable[[str | None], bool], *, exact: bool) -> Entry | None:
    ranges = [index for index, given in enumerate(entry.inputs) if isinstance(given, Range)]
    if len(ranges) != 1 or len(entry.inputs) != len(other.inputs):
        return None
    [at] = ranges
    a, b = entry.inputs[at], other.inputs[at]
    if not isinstance(a, Range) or not isinstance(b, Range) or a.table != b.table:
        return None
    if a.to == b.after:
        span = Range(a.table, a.after, b.to)
    elif b.to == a.after:
        span = Range(a.table, b.after, a.to)
    else:
        return None
    alike = entry.steps == other.steps and _around(entry, at) == _around(other, at) and keeps(entry.steps)
    if exact and not alike:
        return None
    rest = entry.inputs if alike else (SEVERAL,) * len(entry.inputs)
    return Entry(entry.steps if alike else None, (*rest[:at], span, *rest[at + 1 :]), other.by)


def _size(entries: Sequence[Entry]) -> int:
    return len(json.dumps(Appended(tuple(entries), complete=False).as_json(), separators=(",", ":")))


def unsure(entry: Entry) -> Entry:
    """An entry of which a rollback leaves open whether the target holds it: a batch over it is refused."""
    return replace(entry, steps=None)
