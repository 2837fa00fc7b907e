"""Batches that somebody brought into a target by hand, so that the pipeline's record does not name them.

A fast-forward to an audit branch, a cherry-pick of its snapshot, or a table that is rolled forward again behind a
rollback that was given up: the rows are there, and would come once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from helios.errors import LedgerError
from helios.spark.iceberg.history import History
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.appended import AppendLedger
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of
from helios.table.ledger import Record
from helios.table.positions import position_in, same_entries

PICKED = "source-snapshot-id"
"""The stamp with which Iceberg names the snapshot that was cherry-picked."""


class Accepted(NamedTuple):
    """A batch that was brought into a branch.

    Attributes:
        snapshot: The snapshot of the branch that has it.
        stamps: Those of the batch.
    """

    snapshot: JavaSnapshot
    stamps: JavaMap[str, str]

    def is_after(self, record: Record) -> bool:
        """Whether it is a batch of the record's checkpoint behind the record, or the one that was set aside."""
        return self.stamps.get("helios.checkpoint") == record.checkpoint and self.number > record.landed

    @property
    def number(self) -> int:
        """The batch's number."""
        return int(self.stamps.get("helios.batch") or -1)


def record_accepted(ledger: Ledger, names: Iterable[str], record: Record | None, *, resumes: bool = False) -> bool:
    """Has the record name the batches that were brought into the branch by hand; False where there are none.

    Args:
        ledger: The record's.
        names: The names of the pipeline.
        record: The record, as it was loaded; None without one.
        resumes: Whether a new checkpoint begins behind them.

    Raises:
        LedgerError: A batch of another checkpoint was, which the checkpoint would write again.
    """
    if record is None:
        return False
    found = _found(ledger.table, ledger.head(), names_of(ledger.table, names, record), record)
    known = _with(ledger, record, found, resumes=resumes) if found else record
    if known == record:
        return False
    ledger.claim(known)
    ledger.table.refresh()
    return True


def _with(ledger: Ledger, record: Record, found: list[Accepted], *, resumes: bool) -> Record:
    """A record with batches; the newest comes first."""
    kept = ledger.with_batches(record, reversed(found)) if isinstance(ledger, AppendLedger) else record
    for one in found:
        position = position_in(one.stamps.get("helios.position")) or {"sources": []}
        follows = any("place" in entry for entry in position["sources"])
        if one.is_after(record) or (resumes and follows):
            return replace(
                kept,
                batch=one.number,
                position=position,
                snapshot=int(one.snapshot.snapshotId()),
                sequence=int(one.snapshot.sequenceNumber()),
                steps=one.stamps.get("helios.steps") or "",
                aside=False,
            )
        known = same_entries(position["sources"], (record.position or {}).get("sources") or ())
        if follows and not known and one.stamps.get("helios.checkpoint") != record.checkpoint:
            raise _foreign_error(ledger, one)
    return kept


def _found(table: JavaTable, head: JavaSnapshot | None, names: Collection[str], record: Record) -> list[Accepted]:
    """The batches of a branch that are newer than its pipeline's record; the newest comes first."""
    found = []
    for snapshot in History(table, head):
        if snapshot.snapshotId() == record.snapshot or 0 < snapshot.sequenceNumber() <= record.sequence:
            break
        made = _made(table, snapshot)
        stamps = made.summary() if made is not None else None
        # A batch that is older than the record and picked again has been given up before.
        newer = made is not None and (made.sequenceNumber() > record.sequence or not made.sequenceNumber())
        if stamps is not None and newer and stamps.get("helios.pipeline") in names and stamps.get("helios.batch"):
            found.append(Accepted(snapshot, stamps))
    else:  # format 1 has no sequence numbers, and nothing says where the record stands
        found = [] if head is not None and not head.sequenceNumber() and record.snapshot is not None else found
    return found


def _made(table: JavaTable, snapshot: JavaSnapshot) -> JavaSnapshot | None:
    """The snapshot that has the stamps of a batch: of a cherry-pick, its source; None where that has expired."""
    stamps = snapshot.summary()
    picked = stamps.get(PICKED) if stamps is not None else None
    return table.snapshot(int(picked)) if picked is not None else snapshot


def _foreign_error(ledger: Ledger, one: Accepted) -> LedgerError:
    return LedgerError(
        f"{ledger.table.name()} holds batch {one.number} of {ledger.pipeline} (snapshot "
        f"{one.snapshot.snapshotId()}), which was written before this checkpoint began and was brought back by hand: "
        "its rows would come again; nothing was written.",
        fix="go on behind it with `helios run --new-checkpoint`, or roll the table back to the snapshot before it.",
    )
