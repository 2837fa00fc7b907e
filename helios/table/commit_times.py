"""The commit times of the states of a table's main branch, as far as the table's metadata retains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REWRITE = "replace"
"""The operation of commits that rewrite files and change no row."""


@dataclass(frozen=True)
class CommitTimes:
    """The times at which the states of a table became current.

    Attributes:
        starts: The time at which each state became current, in microseconds since 1970, ascending.
        snapshots: The snapshot of each state; the last one of several snapshots with the same rows.
        complete: Whether the table was empty before the first state; otherwise earlier history has expired.
    """

    table: str
    starts: tuple[int, ...]
    snapshots: tuple[int, ...]
    complete: bool


def commit_times(metadata: Mapping[str, Any], name: str, pin: int | None) -> CommitTimes:
    """Returns the commit times of the states of a table's main, up to a snapshot.

    The times come from the table's snapshot log, which includes rollbacks. The clocks of writers may differ. If an
    entry has an earlier time than entries before it, it replaces these entries.

    Args:
        metadata: The table's metadata, as in its metadata file.
        pin: The snapshot up to which the times are read; None for an empty table.

    Examples:
        >>> snapshots = [{"snapshot-id": 7, "sequence-number": 1}, {"snapshot-id": 8, "parent-snapshot-id": 7}]
        >>> log = [{"timestamp-ms": 1000, "snapshot-id": 7}, {"timestamp-ms": 2000, "snapshot-id": 8}]
        >>> commit_times({"snapshots": snapshots, "snapshot-log": log}, "a.t", 8)
        CommitTimes(table='a.t', starts=(1000000, 2000000), snapshots=(7, 8), complete=True)
    """
    known = {int(snapshot["snapshot-id"]): snapshot for snapshot in metadata.get("snapshots") or ()}
    log = [(int(e["timestamp-ms"]), int(e["snapshot-id"])) for e in metadata.get("snapshot-log") or ()]
    ends = [index for index, (_, snapshot) in enumerate(log) if snapshot == pin]
    if not ends:
        return CommitTimes(name, (), (), complete=pin is None)
    states, complete = _retained(known, log[: ends[-1] + 1])
    ascending: list[tuple[int, int]] = []
    for at, snapshot in reversed(states):
        if not ascending or at < ascending[-1][0]:
            ascending.append((at, snapshot))
    ascending.reverse()
    return CommitTimes(
        name, tuple(at * 1000 for at, _ in ascending), tuple(snapshot for _, snapshot in ascending), complete
    )


def _retained(
    known: Mapping[int, Mapping[str, Any]], log: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], bool]:
    """The entries of a log after its last gap, and whether they begin with the table's first snapshot.

    A snapshot that only rewrites files takes the place of the one before it.
    """
    states: list[tuple[int, int]] = []
    seen: set[int] = set()
    complete = False
    for at, id in log:
        if id not in known:
            states, seen, complete = [], set(), False
            continue
        if id not in seen and not _follows(known, id, seen):
            states, seen, complete = [], set(), _is_first(known, id)
        operation = (known[id].get("summary") or {}).get("operation")
        if states and operation == REWRITE and _parent(known, id) == states[-1][1]:
            states[-1] = (states[-1][0], id)
        else:
            states.append((at, id))
        seen.add(id)
    return states, complete


def _parent(known: Mapping[int, Mapping[str, Any]], id: int) -> int | None:
    parent = known[id].get("parent-snapshot-id")
    return int(parent) if parent is not None else None


def _follows(known: Mapping[int, Mapping[str, Any]], id: int, seen: set[int]) -> bool:
    """True if a snapshot descends from one of the seen ones, through snapshots that are all retained."""
    current: int | None = id
    while current is not None and current in known:
        current = _parent(known, current)
        if current in seen:
            return True
    return False


def _is_first(known: Mapping[int, Mapping[str, Any]], id: int) -> bool:
    """True if the oldest retained ancestor of a snapshot is the table's first snapshot.

    A missing parent id does not prove that: PyIceberg's expiry removes parent ids.
    """
    while (parent := _parent(known, id)) is not None:
        if parent not in known:
            return False
        id = parent
    number = int(known[id].get("sequence-number") or 0)
    if number:
        return number == 1
    summary = known[id].get("summary") or {}  # format v1 has no sequence numbers
    return summary.get("total-data-files") == summary.get("added-data-files")
