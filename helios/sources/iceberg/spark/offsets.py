"""Finds the snapshots after an offset in the history of a table, and the end of the next batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from helios.errors import LedgerError, RunError
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.offsets import TOUCHED_FILES, IcebergOffset
from helios.spark.iceberg.history import History, is_first_snapshot
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.table.positions import Lag
from helios.table.refs import ATTEMPT

REWRITES = ("overwrite", "delete")
"""The operations of commits that may remove rows."""


@dataclass(frozen=True, kw_only=True)
class SnapshotDelta:
    """The data files that one snapshot added, or the whole table state at a snapshot.

    Attributes:
        state: Whether this is the whole state at the snapshot.
        after: The parent snapshot; in a sum of deltas (`combined`), the snapshot before all of these deltas.
        files: The number of data files in the state, or of the files that the snapshot touched (`TOUCHED_FILES`).
        rows: The number of rows in the files, including deleted rows.
        bytes: The size of the files; None if the snapshot's summary has no size.
        commit_time: The commit time of the snapshot, in milliseconds since 1970.
    """

    snapshot: int
    state: bool
    after: int | None
    files: int
    rows: int
    bytes: int | None
    commit_time: int


class Expired(LedgerError):
    """A snapshot has expired before it was read."""


def expired_error(snapshot: int, source: str, *, suggests_rebootstrap: bool = True, before: bool = False) -> Expired:
    """The error for an expired snapshot.

    Args:
        suggests_rebootstrap: Whether the fix also suggests `.on_expired("rebootstrap")`.
        before: Whether the snapshots before `snapshot` have expired, rather than `snapshot` itself.
    """
    rebootstrap = ', or declare .on_expired("rebootstrap") if the target can take the same rows again'
    alternative = rebootstrap if suggests_rebootstrap else ""
    what = f"snapshot {snapshot} of {source} has expired before it was read."
    if before:
        what = f"snapshots of {source} before {snapshot} have expired before they were read."
    return Expired(
        what,
        fix="rows that an expired snapshot added can no longer be identified: empty and refill the target with "
        f"`helios run --full-refresh`{alternative}; and keep snapshots longer than the pipeline may be down.",
    )


def history_truncated(table: JavaTable, oldest: JavaSnapshot, after: int) -> bool:
    """True if snapshots before the oldest one of a history, which has no parent id, may have expired.

    PyIceberg's expiry removes parent ids, so a snapshot without a parent id is not always the first one.
    """
    return table.snapshot(after) is None and not is_first_snapshot(oldest)


def deltas_after(table: JavaTable, read: ReadPlan, offset: IcebergOffset, newest: JavaSnapshot) -> list[SnapshotDelta]:
    """The deltas between an offset and a snapshot, oldest first. A part of the first delta may have been read before.

    Raises:
        Expired: A snapshot between them has expired.
        LedgerError: The source was rolled back.
        RunError: A commit between them rewrote or deleted rows.
    """
    after = offset.after if offset.partial and not offset.state else offset.snapshot
    deltas = list(commit_deltas(table, read, after, int(newest.snapshotId()), first_sequence=offset.sequence))
    if offset.partial and offset.snapshot is not None:
        if offset.state:
            deltas.append(state_delta(table, read, offset.snapshot))
        elif not deltas or deltas[-1].snapshot != offset.snapshot:  # the history no longer has the partly read append
            raise rolled_back_error(offset.snapshot, read)
    return deltas[::-1]


def state_delta(table: JavaTable, read: ReadPlan, snapshot: int) -> SnapshotDelta:
    """The delta for the whole state at a snapshot. Raises `Expired` if the snapshot has expired."""
    retained = table.snapshot(snapshot)
    if retained is None:
        raise expired_error(snapshot, read.name, suggests_rebootstrap=may_rebootstrap(read))
    return _delta_of(retained, state=True)


def commits_between(
    table: JavaTable, read: ReadPlan, after: int | None, to: int | None, *, first_sequence: int | None = None
) -> Iterator[JavaSnapshot]:
    """Iceberg's snapshots in `(after, to]`, newest first; `after` itself may have expired.

    Args:
        after: The last snapshot that was read; None to return all snapshots up to `to`.
        first_sequence: Used only without `after`: the table's last sequence number when the pipeline began to follow
            the table; None if unknown.

    Raises:
        Expired: A snapshot in the range has expired.
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
    # The expired snapshot at which the history ends; None if the history ends at a snapshot without a parent.
    lost = to if oldest is None else history.expired
    suggests = may_rebootstrap(read)
    if lost == after:  # every commit after `after` was found
        has_gap = oldest is not None and first_sequence is not None and _has_gap(table, first_sequence, oldest)
        if after is None and oldest is not None and (history.is_cut or has_gap):
            raise expired_error(int(oldest.snapshotId()), read.name, suggests_rebootstrap=suggests, before=True)
        return
    rolled_back = after is not None and table.snapshot(after) is not None and _is_newer(table, after, to)
    if lost is not None and not rolled_back:
        raise expired_error(lost, read.name, suggests_rebootstrap=suggests)
    assert after is not None
    assert oldest is not None
    if history.is_cut and not rolled_back:
        raise expired_error(int(oldest.snapshotId()), read.name, suggests_rebootstrap=suggests, before=True)
    if history_truncated(table, oldest, after):
        raise expired_error(after, read.name, suggests_rebootstrap=suggests)
    raise rolled_back_error(after, read)


def _has_gap(table: JavaTable, sequence: int, oldest: JavaSnapshot) -> bool:
    """True if commits may be missing between a sequence number and a snapshot without a parent.

    The commits of other branches have sequence numbers, too. Format v1 has no sequence numbers: there, only
    `History.is_cut` tells.
    """
    first = int(oldest.sequenceNumber())
    retained = {int(commit.sequenceNumber()) for commit in cast("JavaList[JavaSnapshot]", table.snapshots()).toArray()}
    return any(number not in retained for number in range(sequence + 1, first))


def commit_deltas(
    table: JavaTable, read: ReadPlan, after: int | None, to: int | None, *, first_sequence: int | None = None
) -> Iterator[SnapshotDelta]:
    """The deltas of the commits in `(after, to]` that the source reads, newest first; see `commits_between`.

    Raises:
        Expired: A commit in the range has expired.
        LedgerError: The source was rolled back.
        RunError: A commit in the range rewrote or deleted rows.
    """
    policy = overwrite_policy(read)
    for snapshot in commits_between(table, read, after, to, first_sequence=first_sequence):
        operation = str(snapshot.operation())
        if operation in REWRITES and policy != "read":
            _refuse_rewrite(snapshot, read, policy)
        if operation == "append" and policy == "skip" and _replaces(table, snapshot):
            continue
        if operation == "append" or (operation in REWRITES and follows_changes(read)):
            yield _delta_of(snapshot, state=False)


def _refuse_rewrite(snapshot: JavaSnapshot, read: ReadPlan, policy: str) -> None:
    """Refuses a commit that removes rows, unless the policy skips such commits.

    Raises:
        RunError: The policy is "fail", or the commit emptied the table for a full refresh, which writes all rows again.
    """
    operation, summary, id = str(snapshot.operation()), snapshot.summary(), snapshot.snapshotId()
    pipeline = summary.get("helios.pipeline")
    if pipeline is not None and summary.get("helios.batch") is None:
        raise RunError(
            f"snapshot {id} of {read.name} has emptied the table, for a full refresh of {pipeline}: later "
            "snapshots have its rows again, and the rows would be read twice.",
            where=read.source.origin,
            fix="refill this target, too: `helios run --full-refresh`.",
        )
    if policy == "fail":
        raise RunError(
            f"snapshot {id} of {read.name} is {'an' if operation == 'overwrite' else 'a'} {operation} commit: an "
            "incremental read reads appended rows only.",
            where=read.source.origin,
            fix='skip such commits, including the rows that they added, with .on_overwrite("skip"); or read the table '
            "again with `helios run --full-refresh`; to follow overwrites as well, first declare .changes(keys=[...]).",
        )


def _replaces(table: JavaTable, snapshot: JavaSnapshot) -> bool:
    """True if an earlier snapshot of the same transaction removed rows, so that the appended rows replace them."""
    attempt = snapshot.summary().get(ATTEMPT)
    while attempt is not None and (parent_id := snapshot.parentId()) is not None:
        parent = table.snapshot(parent_id)
        if parent is None or parent.summary().get(ATTEMPT) != attempt:
            return False
        if str(parent.operation()) in REWRITES:
            return True
        snapshot = parent
    return False


def overwrite_policy(read: ReadPlan) -> str:
    """The policy for commits that rewrite or delete rows; "read" if the source follows row-level changes."""
    source = read.source
    assert isinstance(source, IcebergSource)
    return "read" if follows_changes(read) else str(source.overwrites)


def may_rebootstrap(read: ReadPlan) -> bool:
    """True if the source could declare `.on_expired("rebootstrap")`, but does not."""
    source = read.source
    assert isinstance(source, IcebergSource)
    return source.streaming and not follows_changes(read) and source.expired == "fail"


def follows_changes(read: ReadPlan) -> bool:
    """True if the source reads row-level changes. Every commit has such changes, except a compaction."""
    source = read.source
    assert isinstance(source, IcebergSource)
    return source.changed is not None


def rolled_back_error(snapshot: int, read: ReadPlan) -> LedgerError:
    """The error for a snapshot that is no longer in the history of its table."""
    where = "where the pipeline stopped" if read.source.streaming else "after which it is to be read"
    return LedgerError(
        f"{read.name} was rolled back or replaced: snapshot {snapshot}, {where}, is no longer in its history.",
        where=read.source.origin,
        fix="roll the source forward again, refill the target with `helios run --full-refresh`, or start under a new "
        "name.",
    )


def _is_newer(table: JavaTable, snapshot: int, than: int | None) -> bool:
    """True if `snapshot` was committed after `than`, so that `than` cannot be a descendant of `snapshot`."""
    other = table.snapshot(than) if than is not None else None
    newer = table.snapshot(snapshot)
    return newer is not None and other is not None and newer.timestampMillis() > other.timestampMillis()


def _delta_of(snapshot: JavaSnapshot, *, state: bool) -> SnapshotDelta:
    summary = snapshot.summary()
    files = sum(int(summary.get(key) or 0) for key in (("total-data-files",) if state else TOUCHED_FILES))
    rows = int(summary.get("total-records" if state else "added-records") or 0)
    size = summary.get("total-files-size" if state else "added-files-size")
    parent = snapshot.parentId()
    return SnapshotDelta(
        snapshot=int(snapshot.snapshotId()),
        state=state,
        after=int(parent) if parent is not None else None,
        files=files,
        rows=rows,
        bytes=int(size) if size is not None else None,
        commit_time=int(snapshot.timestampMillis()),
    )


def combined(deltas: Sequence[SnapshotDelta], after: int | None) -> SnapshotDelta:
    """The sum of deltas (sorted newest first), for a single scan of all snapshots after `after`."""
    sizes = [delta.bytes for delta in deltas if delta.bytes is not None]
    return replace(
        deltas[0],
        after=after,
        files=sum(delta.files for delta in deltas),
        rows=sum(delta.rows for delta in deltas),
        bytes=sum(sizes) if len(sizes) == len(deltas) else None,
    )


def advance(
    offset: IcebergOffset,
    deltas: list[SnapshotDelta],
    newest: JavaSnapshot,
    *,
    max_rows: int | None,
    max_files: int | None,
    rows_of: Callable[[SnapshotDelta], list[int]],
) -> IcebergOffset:
    """The end of the next batch. A batch reads as many whole files as the limits allow, and at least one.

    Args:
        offset: The end of the last batch.
        deltas: The deltas after the offset, oldest first.
        newest: The newest snapshot of the branch.
        max_rows: The approximate limit of rows per batch.
        rows_of: The row count of each file of a delta, in reading order.
    """
    files_left, rows_left = max_files or float("inf"), float(max_rows or float("inf"))
    taken = 0  # the number of files in the batch so far
    for delta in deltas:
        partly_read = delta.snapshot == offset.snapshot and offset.files is not None
        skipped = (offset.files or 0) if partly_read else 0
        since = offset.since if partly_read else None
        if not skipped and delta.files <= files_left and delta.rows <= rows_left:
            files_left, rows_left, taken = files_left - delta.files, rows_left - delta.rows, taken + delta.files
            continue
        counts = rows_of(delta)
        upto = skipped
        while upto < len(counts) and (taken == 0 or (files_left >= 1 and rows_left >= counts[upto])):
            files_left, rows_left, taken, upto = files_left - 1, rows_left - counts[upto], taken + 1, upto + 1
        if upto < len(counts):
            if upto == 0:  # the batch ends before this delta
                return IcebergOffset(snapshot=delta.after)
            after = None if delta.state else delta.after
            return IcebergOffset(snapshot=delta.snapshot, files=upto, state=delta.state, after=after, since=since)
    return IcebergOffset(snapshot=int(newest.snapshotId()))


def lineage_of(snapshot: JavaSnapshot) -> tuple[int | None, int | None, int | None]:
    """The next unassigned row id, the number of live rows and the sequence number of a snapshot of format v3.

    A value that is unknown is None. Before format v3, all three values are None.
    """
    first, added = snapshot.firstRowId(), snapshot.addedRows()
    if first is None or added is None:
        return None, None, None
    summary = snapshot.summary()
    counts = [summary.get(key) for key in ("total-records", "total-position-deletes", "total-equality-deletes")]
    records, positions, equalities = (int(count) if count is not None else None for count in counts)
    live = records - (positions or 0) if records is not None and not equalities else None
    return int(first) + int(added), live, int(snapshot.sequenceNumber())


def rebootstrap(
    offset: IcebergOffset, newest: JavaSnapshot, error: Expired, *, replays: bool, unchanged: Callable[[int, int], int]
) -> IcebergOffset:
    """The offset from which a reader reads the current state again, because snapshots after its offset have expired.

    Args:
        offset: The end of the reader's last batch.
        replays: Whether the target accepts rows that it already has.
        unchanged: A function of a row id and a sequence number. It counts the rows of the state that have a smaller row
            id, and that no commit with a greater sequence number has changed.

    Raises:
        Expired: The new rows of the state cannot be determined.
    """
    if replays:
        return IcebergOffset(snapshot=int(newest.snapshotId()), files=0, state=True)
    if offset.rows is None or offset.live is None:
        raise Expired(f"{error.what[:-1]}, and there is no row lineage to find the new rows.", fix=error.fix)
    if offset.sequence is None:
        raise Expired(
            f"{error.what[:-1]}, and the checkpoint is of a Helios version that did not record which rows changed.",
            fix=error.fix,
        )
    if unchanged(offset.rows, offset.sequence) != offset.live:
        raise Expired(
            f"{error.what[:-1]}, and delivered rows have been deleted or changed since. New rows do not show that.",
            fix=error.fix,
        )
    return IcebergOffset(snapshot=int(newest.snapshotId()), files=0, state=True, since=offset.rows)


def lag(deltas: list[SnapshotDelta]) -> Lag:
    """The number of snapshots that are not delivered yet, and the age of the oldest one."""
    undelivered = [delta for delta in deltas if delta.files]
    oldest = min((delta.commit_time for delta in undelivered), default=None)
    return Lag(len(undelivered), max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0)
