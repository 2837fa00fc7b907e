"""Batches that somebody brought into a target by hand, so that the pipeline's record does not name them.

A fast-forward to an audit branch, a cherry-pick of its snapshot, or a table that is rolled forward again behind a
rollback that was given up: the rows are there, and would come once more. Where snapshots have expired since, earlier
metadata files still name them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from helios.errors import LedgerError
from helios.spark.iceberg.ancestry import read_metadata
from helios.spark.iceberg.history import History
from helios.spark.jvm.classes import listed
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.appended import AppendLedger
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of
from helios.spark.sinks.shared_keys import STAMP
from helios.table.ancestry import MOST_FILES
from helios.table.ledger import Record
from helios.table.positions import position_in, same_entries

PICKED = "source-snapshot-id"
"""The stamp with which Iceberg names the snapshot that was cherry-picked."""

LookUp: TypeAlias = "Callable[[int], JavaSnapshot | None]"
"""The snapshots of one version of a table's metadata."""


class Accepted(NamedTuple):
    """A batch that was brought into a branch.

    Attributes:
        snapshot: The snapshot of the branch that has it.
        stamps: Those of the batch.
    """

    snapshot: JavaSnapshot
    stamps: JavaMap[str, str]

    def is_after(self, record: Record) -> bool:
        """True if it is a batch of the record's checkpoint that comes after the record, or the discarded one."""
        return self.stamps.get("helios.checkpoint") == record.checkpoint and self.number > record.landed

    @property
    def number(self) -> int:
        """The batch's number."""
        return int(self.stamps.get("helios.batch") or -1)


def record_accepted(ledger: Ledger, names: Iterable[str]) -> bool:
    """Has the record name the batches that were brought into the branch by hand; False where there are none.

    Args:
        ledger: The record's.
        names: The names of the pipeline.

    Raises:
        LedgerError: A batch of another checkpoint was, which the checkpoint would write again.
    """
    record = ledger.load()
    known = with_accepted(ledger, names, record) if record is not None else None
    if known is None or known == record:
        return False
    ledger.claim(known)
    ledger.table.refresh()
    return True


def with_accepted(ledger: Ledger, names: Iterable[str], record: Record, *, resumes: bool = False) -> Record:
    """A record with the batches that were brought into the branch by hand.

    Args:
        ledger: The record's.
        names: The names of the pipeline.
        record: The record, as it was loaded.
        resumes: Whether a new checkpoint begins behind them.

    Raises:
        LedgerError: A batch of another checkpoint was, which the checkpoint would write again.
    """
    batches = _found(ledger, names_of(ledger.table, names, record), record)
    if not batches:
        return record
    kept = ledger.with_batches(record, reversed(batches)) if isinstance(ledger, AppendLedger) else record
    for applied in batches:
        position = position_in(applied.stamps.get("helios.position")) or {"sources": []}
        follows = any("place" in entry for entry in position["sources"])
        other = applied.stamps.get("helios.checkpoint") != record.checkpoint
        if applied.is_after(record) or (resumes and follows):
            return replace(
                kept,
                batch=applied.number,
                position=position,
                snapshot=int(applied.snapshot.snapshotId()),
                sequence=int(applied.snapshot.sequenceNumber()),
                steps=applied.stamps.get("helios.steps") or "",
                aside=False,
                keys=_keys(applied) if other and _keys(applied) is not None else kept.keys,
            )
        known = same_entries(position["sources"], (record.position or {}).get("sources") or ())
        if follows and not known and other:
            raise _foreign_error(ledger, applied)
    return kept


def _keys(applied: Accepted) -> str | None:
    """The folder of what the batch's checkpoint remembers of keys, where the batch added to it."""
    folder = applied.stamps.get(STAMP)
    return folder.rpartition("/delta/")[0] or None if folder is not None else None


def _found(ledger: Ledger, names: Collection[str], record: Record) -> list[Accepted]:
    """The batches of a branch that are newer than its pipeline's record; the newest comes first."""
    batches, head = [], ledger.head()
    for snapshot, look_up in _history(ledger.table, head, expired=record.audited):
        if snapshot.snapshotId() == record.snapshot or 0 < snapshot.sequenceNumber() <= record.sequence:
            break
        made = _made(snapshot, look_up)
        stamps = made.summary() if made is not None else None
        # A batch that is older than the record and picked again has been given up before.
        newer = made is not None and (made.sequenceNumber() > record.sequence or not made.sequenceNumber())
        if stamps is not None and newer and stamps.get("helios.pipeline") in names and stamps.get("helios.batch"):
            batches.append(Accepted(snapshot, stamps))
    else:  # format 1 has no sequence numbers, and nothing says where the record stands
        batches = [] if head is not None and not head.sequenceNumber() and record.snapshot is not None else batches
    return batches


def _made(snapshot: JavaSnapshot, look_up: LookUp) -> JavaSnapshot | None:
    """The snapshot that has the stamps of a batch: of a cherry-pick, its source; None where nothing has it any more."""
    stamps = snapshot.summary()
    picked = stamps.get(PICKED) if stamps is not None else None
    return look_up(int(picked)) if picked is not None else snapshot


def _history(table: JavaTable, head: JavaSnapshot | None, *, expired: bool) -> Iterator[tuple[JavaSnapshot, LookUp]]:
    """The snapshots of a branch, newest first, each with those of the metadata that has it.

    Args:
        table: The table.
        head: The newest snapshot.
        expired: Whether to go on through earlier metadata files where snapshots have expired.
    """
    history, last = History(table, head), head
    earlier = _Earlier(table)
    for snapshot in history:
        last = snapshot
        yield snapshot, (earlier.snapshot if expired else table.snapshot)
    while expired and last is not None and last.sequenceNumber() > 1:
        # PyIceberg's expiry takes the parent away, too.
        parent = last.parentId() or earlier.parent(int(last.snapshotId()))
        last = earlier.snapshot(int(parent)) if parent is not None else None
        if last is not None:
            yield last, earlier.snapshot


class _Earlier:
    """The snapshots of a table and of its earlier metadata files, which are read when one is asked for."""

    def __init__(self, table: JavaTable) -> None:
        self._table = table
        self._looks: list[LookUp] = [table.snapshot]
        files = [str(entry.file()) for entry in listed(table.operations().current().previousFiles())]
        self._files = files[-MOST_FILES:]

    def snapshot(self, id: int) -> JavaSnapshot | None:
        """A snapshot; None where no file has it."""
        return next((found for look in self._each() if (found := look(id)) is not None), None)

    def parent(self, id: int) -> int | None:
        """The parent of a snapshot, where a file still says it."""
        made = (look(id) for look in self._each())
        return next(
            (parent for snapshot in made if snapshot is not None and (parent := snapshot.parentId()) is not None), None
        )

    def _each(self) -> Iterator[LookUp]:
        yield from self._looks
        while self._files:
            metadata = read_metadata(self._table, self._files.pop())
            if metadata is not None:
                self._looks.append(metadata.snapshot)
                yield metadata.snapshot


def _foreign_error(ledger: Ledger, applied: Accepted) -> LedgerError:
    return LedgerError(
        f"{ledger.table.name()} holds batch {applied.number} of {ledger.pipeline} (snapshot "
        f"{applied.snapshot.snapshotId()}), which was written before this checkpoint began and was brought back by "
        "hand: its rows would be written again; nothing was written.",
        fix="continue after it with `helios run --new-checkpoint`, or roll the table back to the snapshot before it.",
    )
