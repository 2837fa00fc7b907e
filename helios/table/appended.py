"""What batch pipelines have appended to a table, so that no input is appended twice; without a JVM.

A batch has one input per source: the state of a table at a snapshot, the range of snapshots `(after, to]`, or a digest
of files or rows. Ranges are sets of snapshots, so two of them may overlap, and a state holds what the ranges up to its
snapshot have added. States and digests are only equal or not: a later state is another input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

LIMIT = 8_192
"""The most characters that the inputs of one pipeline take in a table's property: some 150 batches that do not join."""

APART = 16
"""As many of the newest batches keep ranges of their own, as a rollback may take some of them back."""


class Node(NamedTuple):
    """A retained snapshot of a source: its parent (None for the first one), and its sequence number (None for v1)."""

    parent: int | None
    sequence: int | None


Look: TypeAlias = Callable[[int], "Node | None"]
"""Looks a snapshot of a source up; None when it has expired."""


@dataclass(frozen=True)
class Point:
    """A snapshot of a source."""

    snapshot: int
    sequence: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class State:
    """The state of a table; `at` is None for an empty one."""

    table: str
    at: Point | None


@dataclass(frozen=True)
class Range:
    """What a table's snapshots in `(after, to]` added; `after` is None for all up to `to`."""

    table: str
    after: Point | None
    to: Point


@dataclass(frozen=True)
class Digest:
    """Files, rows in memory, or any other input that is only equal to another one or not."""

    value: str


Input: TypeAlias = State | Range | Digest

SEVERAL = Digest("")
"""Stands for the other inputs of ranges that were joined."""


@dataclass(frozen=True)
class Entry:
    """What one batch, or several joined ones, has appended.

    Attributes:
        steps: The fingerprint of the steps; None for several, or where a rollback leaves open whether it is there.
        inputs: One per source.
        by: The snapshot of the target that the newest of them made.
    """

    steps: str | None
    inputs: tuple[Input, ...]
    by: int | None = None


class Verdict(Enum):
    """What is known of the inputs of a batch."""

    NEW = "new"
    SAME = "same"  # appended before, by the same steps
    STEPS = "steps"  # appended before, by other steps
    OVERLAPS = "overlaps"
    UNKNOWN = "unknown"  # an expired snapshot hides whether two ranges overlap


@dataclass(frozen=True)
class Finding:
    """A verdict and what it is based on.

    Attributes:
        verdict: The verdict.
        entry: What was appended before; None if there is none.
        source: Of two ranges that overlap, the number of the source.
    """

    verdict: Verdict
    entry: Entry | None = None
    source: int = 0


@dataclass(frozen=True)
class Appended:
    """The inputs that a pipeline has appended, oldest first.

    Attributes:
        entries: The batches.
        complete: Whether these are all; False when the oldest were forgotten, or their stamps have expired.
    """

    entries: tuple[Entry, ...] = ()
    complete: bool = True

    def judge(self, batch: Entry, looks: Sequence[Look]) -> Finding:
        """Compares a batch with all that was appended.

        Args:
            batch: The batch.
            looks: Looks the snapshots of each source up.
        """
        ours = [one for one in self.entries if one.steps == batch.steps]
        found = next((one for one in ours if one.inputs == batch.inputs), None) or _covering(batch, ours, looks)
        if found is not None:
            return Finding(Verdict.SAME, found)
        found = next((one for one in self.entries if one.inputs == batch.inputs), None)
        if found is not None:
            return Finding(Verdict.STEPS, found)
        hidden = None
        for one in self.entries:
            for index, pair in enumerate(zip(batch.inputs, one.inputs, strict=False)):
                met = _meet(*pair, looks[index])
                if met:
                    return Finding(Verdict.OVERLAPS, one, index)
                if met is None:
                    hidden = Finding(Verdict.UNKNOWN, one, index)
        return hidden or Finding(Verdict.NEW)

    def add(self, batch: Entry, limit: int = LIMIT) -> Appended:
        """With one more batch, joined and forgotten as far as the limit asks."""
        kept = [one for one in self.entries if (one.steps, one.inputs) != (batch.steps, batch.inputs)]
        entries = [*_joined(kept[:-APART], exact=True), *kept[-APART:], batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], exact=True), batch]
        if _size(entries) > limit:
            entries = [*_joined(entries[:-1], exact=False), batch]
        complete = self.complete
        while _size(entries) > limit and len(entries) > 1:
            entries, complete = entries[1:], False
        return Appended(tuple(entries), complete)

    def as_json(self) -> dict[str, Any]:
        """As the record of the pipeline keeps it: fingerprints and tables once, and a list per batch."""
        steps = list(dict.fromkeys(one.steps for one in self.entries))
        inputs = [given for one in self.entries for given in one.inputs]
        tables = list(dict.fromkeys(given.table for given in inputs if not isinstance(given, Digest)))
        batches = [[steps.index(e.steps), e.by, *(_packed(i, tables) for i in e.inputs)] for e in self.entries]
        return {"steps": steps, "tables": tables, "batches": batches} | ({} if self.complete else {"complete": False})

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
            Entry(steps[of], tuple(_unpacked(given, tables) for given in inputs), by)
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
    sources = [one for one in (position or {}).get("sources") or () if isinstance(one, Mapping)]
    if not sources:
        return None
    known = [*looks, *[_nothing] * len(sources)]
    inputs = tuple(_input(one, look) for one, look in zip(sources, known, strict=False))
    # What a followed source had delivered is compared, but is no batch that one could give again.
    return Entry(None if any("place" in one for one in sources) else steps, inputs, by)


def _nothing(snapshot: int) -> Node | None:
    return None


def _input(entry: Mapping[str, Any], look: Look) -> Input:
    def point(snapshot: int) -> Point:
        node = look(snapshot)
        return Point(snapshot, node.sequence if node is not None else None)

    table = str(entry.get("uuid") or entry.get("source"))
    to, after = entry.get("snapshot", entry.get("to")), entry.get("after")
    if isinstance(to, int) and ("after" in entry or "to" in entry):
        start = point(after) if isinstance(after, int) and entry.get("state") is None else None
        return Range(table, start, point(to))
    if "snapshot" in entry:
        return State(table, point(to) if isinstance(to, int) else None)
    return Digest(hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:16])


# sets of snapshots


def _meet(one: Input, other: Input, look: Look) -> bool | None:
    """Whether a range and another range or state have a snapshot in common; None where expiry hides it."""
    if isinstance(one, Digest) or isinstance(other, Digest) or one.table != other.table:
        return False
    if isinstance(one, State) and isinstance(other, State):
        return False
    a, b = _as_range(one), _as_range(other)
    if a is None or b is None or _before(a, b) or _before(b, a):
        return False
    # Whatever lies before the beginning of one is not in both.
    stops = {point.snapshot for point in (a.after, b.after) if point is not None}
    mine, all_mine = _walk(a, look, stops)
    theirs, all_theirs = _walk(b, look, stops)
    if mine & theirs:
        return True
    nothing = (all_mine and not mine) or (all_theirs and not theirs)
    return False if nothing or (all_mine and all_theirs) else None


def _as_range(given: State | Range) -> Range | None:
    if isinstance(given, Range):
        return given
    return Range(given.table, None, given.at) if given.at is not None else None


def _before(a: Range, b: Range) -> bool:
    """Whether a range surely ends where another one begins, or earlier: sequence numbers grow along a history."""
    if b.after is None:
        return False
    numbers = a.to.sequence, b.after.sequence
    return b.after == a.to or (numbers[0] is not None and numbers[1] is not None and numbers[0] <= numbers[1])


def _walk(span: Range, look: Look, stops: set[int]) -> tuple[set[int], bool]:
    """The retained snapshots of a range back to one of some others, and whether the walk got so far."""
    found: set[int] = set()
    snapshot: int | None = span.to.snapshot
    while snapshot is not None and snapshot not in stops:
        node = look(snapshot)
        if node is None:
            return found, False
        found.add(snapshot)
        snapshot = node.parent
    return found, True


def _covering(batch: Entry, entries: Sequence[Entry], looks: Sequence[Look]) -> Entry | None:
    """The newest of the entries that together hold the only range of a batch, beside the same other inputs."""
    ranges = [index for index, given in enumerate(batch.inputs) if isinstance(given, Range)]
    if len(ranges) != 1:
        return None  # of two ranges each pair counts
    [at] = ranges
    mine, every = _walk(span := _range(batch, at), looks[at], _start(span))
    if not every or not mine:
        return None
    newest = None
    for one in reversed(entries):
        if len(one.inputs) == len(batch.inputs) and _around(one, at) == _around(batch, at):
            given = one.inputs[at]
            if isinstance(given, Range) and given.table == span.table:
                theirs, _ = _walk(given, looks[at], _start(given))
                newest = newest or (one if mine & theirs else None)
                mine -= theirs
    return newest if not mine else None


def _range(entry: Entry, at: int) -> Range:
    found = entry.inputs[at]
    assert isinstance(found, Range)
    return found


def _start(span: Range) -> set[int]:
    return {span.after.snapshot} if span.after is not None else set()


def _around(entry: Entry, at: int) -> tuple[Input, ...]:
    """The inputs of an entry but one."""
    return (*entry.inputs[:at], SEVERAL, *entry.inputs[at + 1 :])


# the compact form


def _joined(entries: Sequence[Entry], *, exact: bool) -> list[Entry]:
    """Entries whose ranges end where another one's begin, as one.

    Args:
        entries: The entries.
        exact: Whether to join only what the same steps made beside the same other inputs; otherwise it is no longer
            known which did, and a batch over it is refused.
    """
    kept: list[Entry] = []
    for entry in entries:
        made: Entry | None = entry
        while made is not None:  # what was joined may reach others
            latest = made
            near = [(one, _join(one, latest, exact=exact)) for one in kept] if _ranged(latest) else []
            used, made = next((pair for pair in near if pair[1] is not None), (None, None))
            kept = [one for one in kept if one is not used]
        kept.append(latest)
    return kept


def _ranged(entry: Entry) -> bool:
    return any(isinstance(given, Range) for given in entry.inputs)


def _join(one: Entry, other: Entry, *, exact: bool) -> Entry | None:
    ranges = [index for index, given in enumerate(one.inputs) if isinstance(given, Range)]
    if len(ranges) != 1 or len(one.inputs) != len(other.inputs):
        return None
    [at] = ranges
    a, b = one.inputs[at], other.inputs[at]
    if not isinstance(a, Range) or not isinstance(b, Range) or a.table != b.table:
        return None
    alike = one.steps == other.steps and _around(one, at) == _around(other, at)
    if exact and not alike:
        return None
    if a.to == b.after:
        span = Range(a.table, a.after, b.to)
    elif b.to == a.after:
        span = Range(a.table, b.after, a.to)
    else:
        return None
    rest = one.inputs if alike else (SEVERAL,) * len(one.inputs)
    return Entry(one.steps if alike else None, (*rest[:at], span, *rest[at + 1 :]), other.by)


def _size(entries: Sequence[Entry]) -> int:
    return len(json.dumps(Appended(tuple(entries)).as_json(), separators=(",", ":")))


def _packed(given: Input, tables: list[str]) -> Any:
    if isinstance(given, Digest):
        return given.value
    if isinstance(given, State):
        return [tables.index(given.table), *_point(given.at)]
    return [tables.index(given.table), *_point(given.after), *_point(given.to)]


def _point(point: Point | None) -> tuple[int | None, int | None]:
    return (point.snapshot, point.sequence) if point is not None else (None, None)


def _unpacked(given: Any, tables: list[str]) -> Input:
    if isinstance(given, str):
        return Digest(given)
    of, *numbers = given
    points = [None if id is None else Point(id, number) for id, number in zip(numbers[::2], numbers[1::2], strict=True)]
    if len(points) == 1:
        return State(tables[of], points[0])
    after, to = points
    if to is None:
        raise ValueError("a range without an end")
    return Range(tables[of], after, to)


def unsure(entry: Entry) -> Entry:
    """An entry of which a rollback leaves open whether the target holds it: a batch over it is refused."""
    return replace(entry, steps=None)
