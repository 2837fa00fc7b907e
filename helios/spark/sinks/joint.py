"""One commit of the catalog for all tables of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.errors import RunError
from helios.spark.iceberg.added_files import AddedFiles
from helios.spark.iceberg.commit import CommitRetries
from helios.spark.iceberg.moves import Move, move
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.sinks.options import Commit, CommitOptions, counted
from helios.spark.sinks.protocol import Write
from helios.spark.sinks.table import TableSink
from helios.table.positions import Batch


@dataclass(frozen=True)
class Change:
    """What a batch writes into one table."""

    sink: TableSink
    batch: Batch
    write: Write


Last = Callable[[dict[str, int]], tuple[Change, CommitOptions]]
"""Gives what is written last, from the snapshots that the other changes make, by the names of their tables."""


@dataclass(frozen=True)
class _Applied:
    """A change that Spark has written into a transaction."""

    change: Change
    pending: Transaction
    made: Sequence[JavaSnapshot]
    files: AddedFiles
    seconds: float

    @property
    def snapshot(self) -> int:
        return int(self.made[0].snapshotId())


class JointCommit:
    """The commit of a batch's tables, all or none.

    Args:
        spark: The session of the batch.
        options: How it is committed.
        last: What is written last.
    """

    def __init__(self, spark: SparkSession, options: CommitOptions, last: Last) -> None:
        self._spark = spark
        self._options = options
        self._last = last

    def commit(self, changes: Sequence[Change]) -> list[Commit]:
        """Commits changes that none of the tables has; none where they change nothing.

        Raises:
            RunError: The commit failed, or conflicted with other writers in each try.
        """
        retries, started = self._options.retries(), time.monotonic()
        while True:
            self._options.verify()
            applied: list[_Applied] = []
            conflict = "another commit came before"
            try:
                self._apply(changes, applied)
                moves = [Move(one.change.sink.name, one.pending.hold()) for one in applied]
            except BaseException as error:
                _discard(applied)
                if not isinstance(error, Py4JJavaError) or java_class(error) not in CONFLICTS:
                    raise
                conflict = java_message(error)
            else:
                if not moves or move(moves):
                    return self._committed(applied, retries, started)
                _discard(applied)
            for change in changes:
                change.sink.find(replace(change.batch, replayed=True))  # raises if another driver has written
            if not retries.wait():
                names = ", ".join(change.sink.name.text for change in changes)
                raise RunError(
                    f"batch {changes[0].batch.number} conflicted with other writers of {names} in each of "
                    f"{self._options.retry.retries + 1} tries; nothing was written: {conflict}.",
                    fix="run again when the tables are quieter, or allow more tries with .retry(retries=).",
                )

    def _apply(self, changes: Sequence[Change], applied: list[_Applied]) -> None:
        """Writes changes into transactions, and the last one if there are any."""
        for change in changes:
            applied += self._applied(change, self._options)
        if applied:
            applied += self._applied(*self._last({one.change.sink.name.text: one.snapshot for one in applied}))

    def _applied(self, change: Change, options: CommitOptions) -> list[_Applied]:
        """A change as a transaction with its stamps and its record; none where it changes no file."""
        ledger, batch = change.sink.ledger, change.batch
        pending, began = ledger.begin(self._spark, batch, options, CommitRetries(0)), time.monotonic()
        change.write(pending)
        seconds, made = time.monotonic() - began, pending.snapshots
        if not made or ledger.discard_empty(made, options):
            return []
        newest, files = int(made[0].snapshotId()), AddedFiles(ledger.table, made)
        pending.record(ledger.key, lambda sequence: ledger.record_of(batch, newest, sequence).as_json(), made)
        return [_Applied(change, pending, made, files, seconds)]

    def _committed(self, applied: Sequence[_Applied], retries: CommitRetries, started: float) -> list[Commit]:
        commits: list[Commit] = []
        for one in applied:
            one.change.sink.ledger.guard.landed(one.change.batch.number, one.snapshot)
            commits.append(replace(counted(one.made, one.pending.rows), write_seconds=one.seconds))
        if not commits:
            return []
        # The last is no row of the batch: its commit stands for the time and the tries of all.
        passed = max(0.0, time.monotonic() - started - sum(one.seconds for one in applied))
        return [*commits[:-1], Commit(commits[-1].snapshot, retries=retries.used, commit_seconds=passed)]


def _discard(applied: Sequence[_Applied]) -> None:
    """Deletes the files of transactions that are not committed."""
    for one in applied:
        one.files.delete()
