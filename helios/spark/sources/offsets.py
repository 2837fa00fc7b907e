"""The snapshots ahead of an offset in a table's history, and how far the next batch goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helios.errors import LedgerError, RunError
from helios.model.source import IcebergSource
from helios.plan.nodes import ReadPlan
from helios.spark.iceberg.history import History
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.table.offsets import IcebergOffset
from helios.table.positions import Lag

REWRITES = ("overwrite", "delete")
"""The operations of commits that may take rows away."""


@dataclass(frozen=True, kw_only=True)
class SnapshotDelta:
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


def cut_off(table: JavaTable, oldest: JavaSnapshot, after: int) -> bool:
    """Whether a history may have lost a snapshot behind its oldest one, which names no parent.

    PyIceberg's expiry forgets the parents of what it keeps.
    """
    return table.snapshot(after) is None and int(oldest.sequenceNumber()) != 1


def head(table: JavaTable, branch: str | None) -> JavaSnapshot | None:
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


def ahead(table: JavaTable, read: ReadPlan, offset: IcebergOffset, newest: JavaSnapshot) -> list[SnapshotDelta]:
    """The units between an offset and a snapshot, oldest first; the first one may be partly read.

    Raises:
        Expired: A snapshot ahead has expired.
        LedgerError: The source was rolled back.
        RunError: A commit ahead rewrote or deleted rows.
    """
    begun = offset.files is not None
    after = offset.after if begun and not offset.state else offset.snapshot
    units = list(appends(table, read, after, int(newest.snapshotId())))
    if begun and offset.state and offset.snapshot is not None:
        units.append(state(table, read, offset.snapshot))
    return units[::-1]


def state(table: JavaTable, read: ReadPlan, snapshot: int) -> SnapshotDelta:
    """The state at a snapshot.

    Raises:
        Expired: The snapshot has expired.
    """
    made = table.snapshot(snapshot)
    if made is None:
        raise expired(snapshot, read.name, again=can_begin_again(read))
    return _unit(made, state=True)


def commits(table: JavaTable, read: ReadPlan, after: int | None, to: int | None) -> Iterator[JavaSnapshot]:
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
    assert oldest is not None
    raise expired(after, read.name, again=again) if cut_off(table, oldest, after) else rolled_back(after, read)


def appends(table: JavaTable, read: ReadPlan, after: int | None, to: int | None) -> Iterator[SnapshotDelta]:
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
    source = read.source
    assert isinstance(source, IcebergSource)
    return "read" if follows_changes(read) else str(source.overwrites)


def can_begin_again(read: ReadPlan) -> bool:
    """Whether `.on_expired("rebootstrap")` could be declared, and is not."""
    source = read.source
    assert isinstance(source, IcebergSource)
    return not follows_changes(read) and source.expired == "fail"


def follows_changes(read: ReadPlan) -> bool:
    """Whether row-level changes are read, to which every commit adds but a compaction."""
    source = read.source
    assert isinstance(source, IcebergSource)
    return source.changed is not None


def rolled_back(snapshot: int, read: ReadPlan) -> LedgerError:
    where = "where the pipeline stood" if read.source.streaming else "after which it is to be read"
    return LedgerError(
        f"{read.name} was rolled back or replaced: snapshot {snapshot}, {where}, is no longer in its history.",
        where=read.source.origin,
        fix="roll the source forward again, fill the target anew with `helios run --full-refresh`, or begin under a "
        "new name.",
    )


def _younger(table: JavaTable, snapshot: int, than: int | None) -> bool:
    """Whether a snapshot came after another one, which therefore cannot descend from it."""
    other = table.snapshot(than) if than is not None else None
    one = table.snapshot(snapshot)
    return one is not None and other is not None and one.timestampMillis() > other.timestampMillis()


TOUCHED = ("added-data-files", "deleted-data-files", "added-delete-files")
"""What the summary of a commit says of its files; an append has but the first."""


def _unit(snapshot: JavaSnapshot, *, state: bool) -> SnapshotDelta:
    summary = snapshot.summary()
    files = sum(int(summary.get(key) or 0) for key in (("total-data-files",) if state else TOUCHED))
    rows = int(summary.get("total-records" if state else "added-records") or 0)
    parent = snapshot.parentId()
    return SnapshotDelta(
        snapshot=int(snapshot.snapshotId()),
        state=state,
        after=int(parent) if parent is not None else None,
        files=files,
        rows=rows,
        at=int(snapshot.timestampMillis()),
    )


def advance(
    offset: IcebergOffset,
    units: list[SnapshotDelta],
    newest: JavaSnapshot,
    *,
    max_rows: int | None,
    max_files: int | None,
    rows_of: Callable[[SnapshotDelta], list[int]],
) -> IcebergOffset:
    """How far the next batch goes: as far as it may, by whole files, and by one file at least.

    Args:
        offset: The end of the last batch.
        units: What is ahead of it.
        newest: The newest snapshot of the branch.
        max_rows: About how many rows the batch may have.
        max_files: How many files it may have.
        rows_of: The rows of each file of a unit, in the order in which they are read.
    """
    files, rows = max_files or float("inf"), float(max_rows or float("inf"))
    taken = 0  # files of this batch so far
    for unit in units:
        first = unit.snapshot == offset.snapshot and offset.files is not None
        skipped = (offset.files or 0) if first else 0
        since = offset.since if first else None
        if not skipped and unit.files <= files and unit.rows <= rows:
            files, rows, taken = files - unit.files, rows - unit.rows, taken + unit.files
            continue
        counts = rows_of(unit)
        upto = skipped
        while upto < len(counts) and (taken == 0 or (files >= 1 and rows >= counts[upto])):
            files, rows, taken, upto = files - 1, rows - counts[upto], taken + 1, upto + 1
        if upto < len(counts):
            if upto == 0:  # the batch ends before this unit
                return IcebergOffset(snapshot=unit.after)
            after = None if unit.state else unit.after
            return IcebergOffset(snapshot=unit.snapshot, files=upto, state=unit.state, after=after, since=since)
    return IcebergOffset(snapshot=int(newest.snapshotId()))


def lineage(snapshot: JavaSnapshot) -> tuple[int | None, int | None]:
    """The first row id that no row has at a snapshot of format v3, and how many rows it has; None where unknown."""
    first, added = snapshot.firstRowId(), snapshot.addedRows()
    if first is None or added is None:
        return None, None
    summary = snapshot.summary()
    counts = [summary.get(key) for key in ("total-records", "total-position-deletes", "total-equality-deletes")]
    records, positions, equalities = (int(count) if count is not None else None for count in counts)
    live = records - (positions or 0) if records is not None and not equalities else None
    return int(first) + int(added), live


def rebootstrap(
    offset: IcebergOffset, newest: JavaSnapshot, lost: Expired, *, replaces: bool, kept: Callable[[int], int]
) -> IcebergOffset:
    """The offset of a reader that reads the current state again, since what was ahead of it has expired.

    Args:
        offset: The end of its last batch.
        newest: The newest snapshot of the branch.
        lost: What has expired.
        replaces: Whether the target takes rows again that it has.
        kept: How many rows of the state have a row id below another one.

    Raises:
        Expired: Nobody can tell which rows of the state are new.
    """
    if replaces:
        return IcebergOffset(snapshot=int(newest.snapshotId()), files=0, state=True)
    if offset.rows is None or offset.live is None:
        raise Expired(f"{lost.what[:-1]}, and no row lineage tells what was delivered.", fix=lost.fix)
    if kept(offset.rows) != offset.live:
        raise Expired(
            f"{lost.what[:-1]}, and rows that were delivered have been deleted or rewritten since: their lineage does "
            "not tell what is new.",
            fix=lost.fix,
        )
    return IcebergOffset(snapshot=int(newest.snapshotId()), files=0, state=True, since=offset.rows)


def lag(units: list[SnapshotDelta]) -> Lag:
    """How many snapshots a reader has yet to deliver, and the age of the oldest of them."""
    waiting = [unit for unit in units if unit.files]
    oldest = min((unit.at for unit in waiting), default=None)
    return Lag(len(waiting), max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0)
