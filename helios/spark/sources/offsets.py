"""Where a reader of a table stands in its history, and what lies ahead of it.

A followed table is a row of units: the state that the reader begins with, then what each append adds. A place is behind
so many files of one unit. Two places tell what one batch reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from helios.errors import LedgerError, RunError
from helios.plan.nodes import ReadPlan
from helios.spark.iceberg.history import History

REWRITES = ("overwrite", "delete")
"""The operations of commits that may take rows away."""

NO_SNAPSHOT = -1
"""The snapshot id of a place in a table without snapshots."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a reader stands.

    Attributes:
        snapshot: The last snapshot of which it has read anything; None in a table without snapshots.
        files: How many files of that snapshot's unit are behind it; None when all are.
        state: Whether that unit is the state at the snapshot, rather than what the snapshot added.
        after: The snapshot before that unit, when the unit is an append that is partly read.
        rows: The first row id of format v3 that no row had then; None where the table has none.
        live: How many rows the table had then; None where that is not known.
        since: Of a state that is read anew, the row id from which on its rows are new; None when all count.
    """

    snapshot: int | None = None
    files: int | None = None
    state: bool = False
    after: int | None = None
    rows: int | None = None
    live: int | None = None
    since: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As Spark's offset log keeps it; `snapshot_id` is what Iceberg's own streaming offset calls it too."""
        told = {k: v for k, v in asdict(self).items() if k != "snapshot" and v is not None and v is not False}
        return {"snapshot_id": NO_SNAPSHOT if self.snapshot is None else self.snapshot, **told}

    def text(self) -> str:
        return json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Place:
        known = {key: entry[key] for key in ("files", "state", "after", "rows", "live", "since") if key in entry}
        snapshot = int(entry["snapshot_id"])
        return cls(snapshot=None if snapshot == NO_SNAPSHOT else snapshot, **known)


@dataclass(frozen=True, kw_only=True)
class Range:
    """What one batch reads: the state at `state`, then the commits in `(after, to]`.

    Attributes:
        state: The snapshot whose state comes first; None where none does.
        after: The last snapshot that is behind; None when there is none.
        to: The last snapshot that is read; None when nothing is.
        skipped: How many files of the first unit earlier batches have read.
        taken: Up to which file the last unit is read; None when it is read whole.
        since: Of the state, the row id from which on rows are read.
    """

    state: int | None = None
    after: int | None = None
    to: int | None = None
    skipped: int = 0
    taken: int | None = None
    since: int | None = None

    @property
    def whole(self) -> bool:
        """Whether it consists of whole units."""
        return not self.skipped and self.taken is None

    def as_json(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        parts = {} if self.whole else {"skipped": self.skipped, "taken": self.taken}
        since = {} if self.since is None else {"since": self.since}
        return {"state": self.state, "after": self.after, "to": self.to, **parts, **since}


def between(before: Place, end: Place) -> Range:
    """What lies between two places."""
    if end.snapshot is None or end == before:
        return Range()
    begun = before.files is not None
    if end.state and not (before.state and begun and before.snapshot == end.snapshot):
        # The state is read anew: what lay between is lost.
        return Range(state=end.snapshot, after=end.snapshot, to=end.snapshot, taken=end.files, since=end.since)
    if begun and before.state:
        return Range(
            state=before.snapshot,
            after=before.snapshot,
            to=end.snapshot,
            skipped=before.files or 0,
            taken=end.files,
            since=before.since,
        )
    after = before.after if begun else before.snapshot
    return Range(after=after, to=end.snapshot, skipped=before.files or 0, taken=end.files)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A state, or what one snapshot added.

    Attributes:
        snapshot: Its snapshot.
        state: Whether it is the state at the snapshot.
        after: The snapshot before it.
        files: How many data files it has.
        rows: How many rows they have, deleted ones included.
        at: When the snapshot was made, in milliseconds since 1970.
    """

    snapshot: int
    state: bool
    after: int | None
    files: int
    rows: int
    at: int


class Expired(LedgerError):
    """A snapshot that is yet to be read has expired."""


def expired(snapshot: int, source: str, *, again: bool = True) -> Expired:
    """The refusal to go on where history is lost; `again` says whether a state may be read instead."""
    state = ', or declare .on_expired("rebootstrap") where the target can take a state again' if again else ""
    return Expired(
        f"snapshot {snapshot} of {source} has expired before it was read.",
        fix="what it added can no longer be told apart: empty the target and begin anew with `helios run "
        f"--full-refresh`{state}; and keep snapshots longer than the pipeline may stand still.",
    )


def cut_off(table: Any, oldest: Any, after: int) -> bool:
    """Whether a history may have lost a snapshot behind its oldest one, which names no parent.

    PyIceberg's expiry forgets the parents of what it keeps.
    """
    return table.snapshot(after) is None and int(oldest.sequenceNumber()) != 1


def head(table: Any, branch: str | None) -> Any | None:
    """The newest snapshot of main or of a branch; None for an empty one.

    Raises:
        RunError: There is no such branch any more.
    """
    if branch is None:
        return table.currentSnapshot()
    ref = table.refs().get(branch)
    if ref is None:
        raise RunError(
            f"{table.name()} has no branch {branch!r} any more.",
            fix="make the branch again where it was, or follow another one under a new name.",
        )
    return table.snapshot(ref.snapshotId())


def ahead(table: Any, read: ReadPlan, place: Place, newest: Any) -> list[Unit]:
    """The units between a place and a snapshot, oldest first; the first one may be partly read.

    Raises:
        Expired: A snapshot ahead has expired.
        LedgerError: The source was rolled back.
        RunError: A commit ahead rewrote or deleted rows.
    """
    begun = place.files is not None
    after = place.after if begun and not place.state else place.snapshot
    units = list(appends(table, read, after, int(newest.snapshotId())))
    if begun and place.state and place.snapshot is not None:
        units.append(state(table, read, place.snapshot))
    return units[::-1]


def state(table: Any, read: ReadPlan, snapshot: int) -> Unit:
    """The state at a snapshot.

    Raises:
        Expired: The snapshot has expired.
    """
    made = table.snapshot(snapshot)
    if made is None:
        raise expired(snapshot, read.name, again=can_begin_again(read))
    return _unit(made, state=True)


def commits(table: Any, read: ReadPlan, after: int | None, to: int | None) -> Iterator[Any]:
    """Iceberg's snapshots of `(after, to]`, newest first; `after` itself may have expired.

    Raises:
        Expired: One of them has expired.
        LedgerError: The source was rolled back.
    """
    if to is None or to == after:
        return
    history = History(table, table.snapshot(to))
    oldest = None
    for oldest in history:
        if oldest.snapshotId() == after:
            return
        yield oldest
    lost = to if oldest is None else history.expired
    if lost == after:
        return
    again = can_begin_again(read)
    if lost is not None:
        if after is not None and table.snapshot(after) is not None and _younger(table, after, to):
            raise rolled_back(after, read)
        raise expired(lost, read.name, again=again)
    assert after is not None
    raise expired(after, read.name, again=again) if cut_off(table, oldest, after) else rolled_back(after, read)


def appends(table: Any, read: ReadPlan, after: int | None, to: int | None) -> Iterator[Unit]:
    """The commits in `(after, to]` that add to what is read, newest first.

    Raises:
        Expired: One of the commits has expired.
        LedgerError: The source was rolled back.
        RunError: A commit in between rewrote or deleted rows.
    """
    for snapshot in commits(table, read, after, to):
        operation = str(snapshot.operation())
        if operation in REWRITES and overwrites(read) == "fail":
            raise RunError(
                f"snapshot {snapshot.snapshotId()} of {read.name} is {'an' if operation == 'overwrite' else 'a'} "
                f"{operation} commit: an incremental read carries appended rows only.",
                where=read.source.origin,
                fix="follow its row-level changes with .changes(keys=[...]), or leave such commits out with "
                '.on_overwrite("skip").',
            )
        if operation == "append" or (operation in REWRITES and follows_changes(read)):
            yield _unit(snapshot, state=False)


def overwrites(read: ReadPlan) -> str:
    """What is done with commits that rewrite or delete rows, where rows are read rather than changes."""
    source: Any = read.source
    return "read" if follows_changes(read) else str(source.overwrites)


def can_begin_again(read: ReadPlan) -> bool:
    """Whether `.on_expired("rebootstrap")` could be declared, and is not."""
    source: Any = read.source
    return not follows_changes(read) and source.expired == "fail"


def follows_changes(read: ReadPlan) -> bool:
    """Whether row-level changes are read, to which every commit adds but a compaction."""
    source: Any = read.source
    return source.changed is not None


def rolled_back(snapshot: int, read: ReadPlan) -> LedgerError:
    place = "where the pipeline stood" if read.source.streaming else "after which it is to be read"
    return LedgerError(
        f"{read.name} was rolled back or replaced: snapshot {snapshot}, {place}, is no longer in its history.",
        where=read.source.origin,
        fix="roll the source forward again, fill the target anew with `helios run --full-refresh`, or begin under a "
        "new name.",
    )


def _younger(table: Any, snapshot: int, than: int | None) -> bool:
    """Whether a snapshot came after another one, which therefore cannot descend from it."""
    other = table.snapshot(than) if than is not None else None
    return other is not None and table.snapshot(snapshot).timestampMillis() > other.timestampMillis()


TOUCHED = ("added-data-files", "deleted-data-files", "added-delete-files")
"""What the summary of a commit says of its files; an append has but the first."""


def _unit(snapshot: Any, *, state: bool) -> Unit:
    summary = snapshot.summary()
    files = sum(int(summary.get(key) or 0) for key in (("total-data-files",) if state else TOUCHED))
    rows = int(summary.get("total-records" if state else "added-records") or 0)
    parent = snapshot.parentId()
    return Unit(
        snapshot=int(snapshot.snapshotId()),
        state=state,
        after=int(parent) if parent is not None else None,
        files=files,
        rows=rows,
        at=int(snapshot.timestampMillis()),
    )


def step(
    place: Place,
    units: list[Unit],
    newest: Any,
    *,
    max_rows: int | None,
    max_files: int | None,
    rows_of: Callable[[Unit], list[int]],
) -> Place:
    """How far the next batch goes: as far as it may, by whole files, and by one file at least.

    Args:
        place: Where the reader stands.
        units: What is ahead of it.
        newest: The newest snapshot of the branch.
        max_rows: About how many rows the batch may have.
        max_files: How many files it may have.
        rows_of: The rows of each file of a unit, in the order in which they are read.
    """
    files, rows = max_files or float("inf"), float(max_rows or float("inf"))
    taken = 0  # files of this batch so far
    for unit in units:
        first = unit.snapshot == place.snapshot and place.files is not None
        skipped = (place.files or 0) if first else 0
        since = place.since if first else None
        if not skipped and unit.files <= files and unit.rows <= rows:
            files, rows, taken = files - unit.files, rows - unit.rows, taken + unit.files
            continue
        counts = rows_of(unit)
        upto = skipped
        while upto < len(counts) and (taken == 0 or (files >= 1 and rows >= counts[upto])):
            files, rows, taken, upto = files - 1, rows - counts[upto], taken + 1, upto + 1
        if upto < len(counts):
            if upto == 0:  # the batch ends before this unit
                return Place(snapshot=unit.after)
            after = None if unit.state else unit.after
            return Place(snapshot=unit.snapshot, files=upto, state=unit.state, after=after, since=since)
    return Place(snapshot=int(newest.snapshotId()))


def lineage(snapshot: Any) -> tuple[int | None, int | None]:
    """The first row id that no row has at a snapshot of format v3, and how many rows it has; None where unknown."""
    first, added = snapshot.firstRowId(), snapshot.addedRows()
    if first is None or added is None:
        return None, None
    summary = snapshot.summary()
    counts = [summary.get(key) for key in ("total-records", "total-position-deletes", "total-equality-deletes")]
    records, positions, equalities = (int(count) if count is not None else None for count in counts)
    live = records - (positions or 0) if records is not None and not equalities else None
    return int(first) + int(added), live


def anew(place: Place, newest: Any, lost: Expired, *, replaces: bool, kept: Callable[[int], int]) -> Place:
    """The place of a reader that reads the current state anew, since what was ahead of it has expired.

    Args:
        place: Where it stood.
        newest: The newest snapshot of the branch.
        lost: What has expired.
        replaces: Whether the target takes rows again that it has.
        kept: How many rows of the state have a row id below another one.

    Raises:
        Expired: Nobody can tell which rows of the state are new.
    """
    if replaces:
        return Place(snapshot=int(newest.snapshotId()), files=0, state=True)
    if place.rows is None or place.live is None:
        raise Expired(f"{lost.what[:-1]}, and no row lineage tells what was delivered.", fix=lost.fix)
    if kept(place.rows) != place.live:
        raise Expired(
            f"{lost.what[:-1]}, and rows that were delivered have been deleted or rewritten since: their lineage does "
            "not tell what is new.",
            fix=lost.fix,
        )
    return Place(snapshot=int(newest.snapshotId()), files=0, state=True, since=place.rows)


def lag(units: list[Unit]) -> tuple[int, float]:
    """How many snapshots a reader has yet to deliver, and the age of the oldest of them in seconds."""
    waiting = [unit for unit in units if unit.files]
    oldest = min((unit.at for unit in waiting), default=None)
    return len(waiting), max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
