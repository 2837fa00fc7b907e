"""Positions of sources, the spans between them, and batches: one vocabulary for the plan, the ledger and the run.

A position is JSON, as a source writes it into Spark's offset log. The ledger and the snapshot summary keep what a batch
read as `{"sources": [entry, ...], "pins": {...}}`, one entry per source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from helios.sources.common.kind import SourceKind
from helios.sources.common.position import SourcePosition
from helios.sources.kinds import position_of

Position: TypeAlias = Mapping[str, Any]
"""JSON values: the position of one source, or the input of a batch from all its sources (`Batch.position`)."""


SNAPSHOT = "snapshot"
"""The key of a pinned position: the one snapshot at which a table that is not followed is read; null if it is empty."""


@dataclass(frozen=True)
class Span:
    """The input of one batch from one source: the part in `(start, end]`.

    Attributes:
        source: The source's name in the ledger.
        start: The position at which earlier batches ended; None if there were no earlier batches, if the source is not
            followed, or if only `entry` is used.
        end: The position at which this batch ends; None if nothing is read yet.
        entry: The span as the ledger keeps it.
        from_beginning: Whether a backfill has read the source from its beginning up to `end`, to repair a slice.
    """

    source: str
    start: Position | None
    end: Position | None
    entry: Mapping[str, Any]
    from_beginning: bool = False


@dataclass(frozen=True)
class Batch:
    """One batch of a pipeline.

    Attributes:
        number: Its number in the checkpoint.
        spans: Its input from each source; in a streaming pipeline, from each followed source.
        pins: The snapshots at which joined tables are read, by the source's number in the plan; None in a batch
            pipeline.
        maybe_written: Whether an earlier process may have written the batch already.
    """

    number: int
    spans: tuple[Span, ...]
    pins: Mapping[str, Any] | None = None
    maybe_written: bool = False

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """The entries of its spans, which distinguish two batches with the same number."""
        return [span.entry for span in self.spans]

    @property
    def position(self) -> dict[str, Any]:
        """The batch as the ledger, and `helios.position` in the snapshot summary, keep it."""
        return {"sources": self.sources} | ({"pins": dict(self.pins)} if self.pins is not None else {})


@dataclass(frozen=True)
class Lag:
    """The backlog of a pipeline: how far it is behind its sources.

    Attributes:
        snapshots: The number of unread snapshots.
        seconds: The age of the oldest unread snapshot, file or record.
        files: The number of unread files of a folder; None without a folder.
        bytes: The total size of these files; None without a folder.
        records: The number of unread records of topics; None for other sources.
    """

    snapshots: int
    seconds: float
    files: int | None = None
    bytes: int | None = None
    records: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A source's entry in a recorded position.

    Attributes:
        source: The source's name.
        branch: The branch that was read; None for main.
        changes: Whether row-level changes were read.
        kind: The kind of the source; None if the entry has no position of a known kind.
        position: The position at which the batch ended; None if the entry has no position of a known kind.
        unknown_kind: Whether the entry has a position, but no known kind recognizes it.
    """

    source: str
    branch: str | None = None
    changes: bool = False
    kind: SourceKind | None = None
    position: SourcePosition | None = None
    unknown_kind: bool = False


def same_input(position: Position | None, batch: Batch) -> bool:
    """True if a recorded position has the same input as a batch. Tables are compared by UUID, as names may change."""
    return position is not None and same_entries(position.get("sources") or (), batch.sources)


def parse_position(text: str | None) -> Position | None:
    """Parses a position; None if the text is not one.

    Examples:
        >>> parse_position('{"sources": []}'), parse_position(None), parse_position("{"), parse_position("5")
        ({'sources': []}, None, None, None)
    """
    try:
        position = json.loads(text) if text else None
    except ValueError:
        return None
    entries = position.get("sources") if isinstance(position, dict) else None
    return position if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else None


def same_position(position: Position | None, batch: Batch) -> bool:
    """True if a recorded position is that of a batch: the same input, and the same snapshots of joined tables."""
    pins = dict(batch.pins) if batch.pins is not None else None
    return same_input(position, batch) and position is not None and position.get("pins") == pins


def same_entries(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """True if two batches have the same input, by the entries of their sources.

    Examples:
        >>> same_entries([{"source": "a.s", "uuid": "u", "to": 7}], [{"source": "a.renamed", "uuid": "u", "to": 7}])
        True
    """
    return list(map(_unnamed, one)) == list(map(_unnamed, other))


def same_source(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two entries have the same source, by its name or by the UUID of a table."""
    return one["source"] == other["source"] or (one.get("uuid") is not None and one.get("uuid") == other.get("uuid"))


def _unnamed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**entry, "source": None} if entry.get("uuid") is not None else entry


def recorded_entries(position: Position | None) -> Iterator[Recorded]:
    """The entries of a recorded position.

    Examples:
        >>> [entry] = recorded_entries({"sources": [{"source": "local.a.s", "to": 7}]})
        >>> entry.source, entry.position.snapshot
        ('local.a.s', 7)
    """
    for entry in (position or {}).get("sources") or ():
        if isinstance(entry, dict) and isinstance(entry.get("source"), str):
            branch = entry.get("branch")
            end = _end_of(entry)
            kind, found = position_of(end) or (None, None)
            yield Recorded(
                source=entry["source"],
                branch=str(branch) if branch else None,
                changes=bool(entry.get("changes")),
                kind=kind,
                position=found,
                unknown_kind=end is not None and kind is None,
            )


def _end_of(entry: Mapping[str, Any]) -> object:
    """The position at which the batch ended, as the entry has it; None if the entry has none."""
    if SNAPSHOT in entry and entry[SNAPSHOT] is None:
        return {"snapshot_id": -1}  # an empty table
    ends = (entry.get(key) for key in ("place", "to", SNAPSHOT))
    return next((end for end in ends if end is not None), None)
