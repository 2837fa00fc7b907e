"""Finds batches that a user applied to a target by hand, and adds them to the pipeline's record.

The user fast-forwarded main to an audit branch, cherry-picked its snapshot, or undid a rollback. The rows are in the
table, but the record lacks the batch, so the pipeline would write the rows again. Snapshots that have expired since are
found in earlier metadata files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from helios.errors import LedgerError
from helios.spark.iceberg.ancestry import read_metadata
from helios.spark.iceberg.history import History, is_first_snapshot
from helios.spark.jvm.classes import listed
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.appended import AppendLedger
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of
from helios.spark.sinks.shared_keys import KEYS_STAMP
from helios.table.ancestry import MAX_FILES
from helios.table.ledger import Record
from helios.table.positions import parse_position, same_entries

PICKED_FROM = "source-snapshot-id"
"""The summary entry in which Iceberg stores the id of the snapshot that was cherry-picked."""

SnapshotLookup: TypeAlias = "Callable[[int], JavaSnapshot | None]"
"""Finds a snapshot by its id in one version of a table's metadata."""


class AppliedBatch(NamedTuple):
    """A batch that a user applied to a branch by hand.

    Attributes:
        snapshot: The snapshot in the branch's history that has the batch.
        stamps: The batch's stamps: the summary entries that Helios wrote. Those of a cherry-picked batch are in the
            snapshot that was picked.
    """

    snapshot: JavaSnapshot
    stamps: JavaMap[str, str]

    def is_after(self, record: Record) -> bool:
        """True if the batch has the record's checkpoint and is later than the record's last batch in the table."""
        return self.stamps.get("helios.checkpoint") == record.checkpoint and self.number > record.landed

    @property
    def number(self) -> int:
        return int(self.stamps.get("helios.batch") or -1)


def record_applied_batches(ledger: Ledger, names: Iterable[str]) -> bool:
    """Adds to the record the batches that were applied to the branch by hand; returns False if there are none.

    Args:
        names: The present and former names of the pipeline.

    Raises:
        LedgerError: A batch of another checkpoint was applied, and this checkpoint would write its rows again.
    """
    record = ledger.load()
    if record is None:
        return False
    extended = with_applied_batches(ledger, names, record)
    if extended == record:
        return False
    ledger.claim(extended)
    ledger.table.refresh()
    return True


def with_applied_batches(ledger: Ledger, names: Iterable[str], record: Record, *, resumes: bool = False) -> Record:
    """The record, extended by the batches that were applied to the branch by hand.

    Args:
        names: The present and former names of the pipeline.
        resumes: Whether a new checkpoint continues after these batches.

    Raises:
        LedgerError: A batch of another checkpoint was applied, and this checkpoint would write its rows again.
    """
    batches = _newer_batches(ledger, names_of(ledger.table, names, record), record)
    if not batches:
        return record
    extended = ledger.with_batches(record, reversed(batches)) if isinstance(ledger, AppendLedger) else record
    for applied in batches:
        position = parse_position(applied.stamps.get("helios.position")) or {"sources": []}
        follows_sources = any("place" in entry for entry in position["sources"])
        is_foreign = applied.stamps.get("helios.checkpoint") != record.checkpoint
        if applied.is_after(record) or (resumes and follows_sources):
            keys = _keys_folder(applied) if is_foreign else None
            return replace(
                extended,
                batch=applied.number,
                position=position,
                snapshot=int(applied.snapshot.snapshotId()),
                sequence=int(applied.snapshot.sequenceNumber()),
                steps=applied.stamps.get("helios.steps") or "",
                aside=False,
                keys=keys if keys is not None else extended.keys,
            )
        known = same_entries(position["sources"], (record.position or {}).get("sources") or ())
        if follows_sources and is_foreign and not known:
            raise _foreign_error(ledger, applied)
    return extended


def _keys_folder(applied: AppliedBatch) -> str | None:
    """The folder of the upsert state to which a batch added keys; None if it added none."""
    folder = applied.stamps.get(KEYS_STAMP)
    return (folder or "").rpartition("/delta/")[0] or None


def _newer_batches(ledger: Ledger, names: Collection[str], record: Record) -> list[AppliedBatch]:
    """The pipeline's batches in a branch that are newer than the record; the newest comes first."""
    batches, head = [], ledger.head()
    for snapshot, lookup in _history(ledger.table, head, expired=record.audited):
        if snapshot.snapshotId() == record.snapshot or 0 < snapshot.sequenceNumber() <= record.sequence:
            break
        stamped = _stamped_snapshot(snapshot, lookup)
        stamps = stamped.summary() if stamped is not None else None
        # A cherry-picked batch is newer only if the picked snapshot is newer. Else it was discarded before the pick.
        newer = stamped is not None and (stamped.sequenceNumber() > record.sequence or not stamped.sequenceNumber())
        if stamps is not None and newer and stamps.get("helios.pipeline") in names and stamps.get("helios.batch"):
            batches.append(AppliedBatch(snapshot, stamps))
    else:  # the loop has not met the record's snapshot: the history does not reach back to it
        if head is not None and not head.sequenceNumber() and record.snapshot is not None:
            return []  # format v1 has no sequence numbers: no batch is known to be newer than the record
    return batches


def _stamped_snapshot(snapshot: JavaSnapshot, lookup: SnapshotLookup) -> JavaSnapshot | None:
    """The snapshot with a batch's stamps: for a cherry-pick, the picked snapshot; None if that is lost."""
    stamps = snapshot.summary()
    picked = stamps.get(PICKED_FROM) if stamps is not None else None
    return lookup(int(picked)) if picked is not None else snapshot


def _history(
    table: JavaTable, head: JavaSnapshot | None, *, expired: bool
) -> Iterator[tuple[JavaSnapshot, SnapshotLookup]]:
    """The snapshots of a branch, newest first, each with a function to find the snapshot that was picked for it.

    Args:
        expired: Whether to read expired snapshots from earlier metadata files.
    """
    history, last = History(table, head), head
    earlier = _EarlierMetadata(table)
    for snapshot in history:
        last = snapshot
        yield snapshot, (earlier.snapshot if expired else table.snapshot)
    while expired and last is not None and not is_first_snapshot(last):
        # When PyIceberg expires a parent, it also removes the parent's id from the child.
        parent = last.parentId() or earlier.parent(int(last.snapshotId()))
        last = earlier.snapshot(int(parent)) if parent is not None else None
        if last is not None:
            yield last, earlier.snapshot


class _EarlierMetadata:
    """The snapshots in a table's current metadata and in its earlier metadata files, which are read on demand."""

    def __init__(self, table: JavaTable) -> None:
        self._table = table
        self._lookups: list[SnapshotLookup] = [table.snapshot]
        files = [str(entry.file()) for entry in listed(table.operations().current().previousFiles())]
        self._files = files[-MAX_FILES:]

    def snapshot(self, id: int) -> JavaSnapshot | None:
        """A snapshot; None if no metadata file has it."""
        snapshots = (lookup(id) for lookup in self._every_lookup())
        return next((snapshot for snapshot in snapshots if snapshot is not None), None)

    def parent(self, id: int) -> int | None:
        """The id of a snapshot's parent; None if no metadata file has it."""
        snapshots = (lookup(id) for lookup in self._every_lookup())
        parents = (snapshot.parentId() for snapshot in snapshots if snapshot is not None)
        return next((parent for parent in parents if parent is not None), None)

    def _every_lookup(self) -> Iterator[SnapshotLookup]:
        """The lookups in the table and in each earlier metadata file, newest first."""
        yield from self._lookups
        while self._files:
            metadata = read_metadata(self._table, self._files.pop())
            if metadata is not None:
                self._lookups.append(metadata.snapshot)
                yield metadata.snapshot


def _foreign_error(ledger: Ledger, applied: AppliedBatch) -> LedgerError:
    return LedgerError(
        f"{ledger.table.name()} holds batch {applied.number} of {ledger.pipeline} (snapshot "
        f"{applied.snapshot.snapshotId()}), which was written before this checkpoint began and was brought back by "
        "hand: its rows would be written again; nothing was written.",
        fix="continue after it with `helios run --new-checkpoint`, or roll the table back to the snapshot before it.",
    )
