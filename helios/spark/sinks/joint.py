"""One commit of the catalog for all tables of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from helios.errors import RunError
from helios.model.retry import LOOKUP_PAUSES, NEVER, CommitRetries
from helios.spark.iceberg.added_files import AddedFiles
from helios.spark.iceberg.moves import Move, OutcomeUnknown, move
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.sinks.options import Commit, CommitOptions, commit_of
from helios.spark.sinks.protocol import Found, Write
from helios.spark.sinks.table import TableSink
from helios.table.positions import Batch


@dataclass(frozen=True)
class Change:
    """The write of a batch into one table."""

    sink: TableSink
    batch: Batch
    write: Write

    def find(self) -> Commit | None:
        """The batch's commit in the table as it is now; None if the table lacks the batch.

        Raises:
            HeliosError: Another driver has written to the table.
        """
        outcome = self.sink.find(replace(self.batch, replayed=True))
        return outcome.commit if isinstance(outcome, Found) else None


MakeLastChange = Callable[[dict[str, int]], tuple[Change, CommitOptions]]
"""Makes the last change of a commit, and its options, from the snapshots of the other changes, keyed by table name."""


@dataclass(frozen=True)
class _Applied:
    """A change that Spark has written into a transaction, with the snapshots and files that this has added."""

    change: Change
    pending: Transaction
    snapshots: Sequence[JavaSnapshot]
    files: AddedFiles
    seconds: float

    @property
    def snapshot(self) -> int:
        return int(self.snapshots[0].snapshotId())

    def landed(self) -> bool:
        """True if the table has the change now."""
        commit = self.change.find()
        return commit is not None and commit.snapshot == self.snapshot

    def note_landed(self) -> Commit:
        """Notes in the checkpoint that the table has the change; returns the commit."""
        self.change.sink.ledger.guard.landed(self.change.batch.number, self.snapshot)
        return replace(commit_of(self.snapshots, self.pending.rows), write_seconds=self.seconds)


class JointCommit:
    """The commit of a batch's tables, all or none.

    A server may apply a request and then refuse it as a repetition; one that breaks the protocol may apply a part of
    it. So after a failure the batch is looked up in each table, and only missing changes are written again.

    Args:
        spark: The session of the batch.
        batch: The batch.
        options: How the batch is committed.
        last: Makes the change that is written last.
    """

    def __init__(self, spark: SparkSession, batch: Batch, options: CommitOptions, last: MakeLastChange) -> None:
        self._spark = spark
        self._batch = batch
        self._options = options
        self._last = last

    def commit(self, changes: Sequence[Change], *, begun: bool = False) -> list[Commit]:
        """Commits changes that no table has yet; returns an empty list if they change nothing.

        Args:
            changes: The changes.
            begun: Whether a part of the batch is already committed: the last change is then written even alone.

        Raises:
            RunError: The commit failed, conflicted with other writers in each try, or its outcome is unknown.
        """
        retries, started = self._options.retries(), time.monotonic()
        done: list[Commit] = []
        while True:
            self._options.verify()
            applied: list[_Applied] = []
            conflict = "another commit came before"
            try:
                self._apply(changes, applied, even_alone=begun or bool(done))
                moves = [Move(part.change.sink.name, part.pending.hold()) for part in applied]
            except BaseException as error:
                for part in applied:
                    part.files.delete()
                if not isinstance(error, Py4JJavaError) or java_class(error) not in CONFLICTS:
                    raise
                conflict, applied = java_message(error), []
            else:
                if not applied or self._move(moves, applied):
                    return [*done, *self._committed(applied, retries, started)]
            changes, commits = self._after_refusal(changes, applied)
            done += commits
            if not retries.wait():
                raise self._conflict_error(changes, conflict, begun=begun or bool(done))

    def _apply(self, changes: Sequence[Change], applied: list[_Applied], *, even_alone: bool) -> None:
        """Writes changes into transactions and adds them to `applied`; then the last change, always if `even_alone`."""
        for change in changes:
            applied += self._write(change, self._options)
        if applied or even_alone:
            snapshots = {part.change.sink.name.text: part.snapshot for part in applied}
            applied += self._write(*self._last(snapshots))

    def _write(self, change: Change, options: CommitOptions) -> list[_Applied]:
        """Writes a change, its stamps and its record into a transaction; empty if the change touches no file."""
        ledger, batch = change.sink.ledger, change.batch
        pending, began = ledger.begin(self._spark, batch, options, CommitRetries(NEVER)), time.monotonic()
        change.write(pending)
        seconds, snapshots = time.monotonic() - began, pending.snapshots
        if not snapshots or ledger.discard_empty(snapshots, options):
            return []
        newest, files = int(snapshots[0].snapshotId()), AddedFiles(ledger.table, snapshots)
        pending.record(ledger.key, lambda sequence: ledger.record_of(batch, newest, sequence).as_json(), snapshots)
        return [_Applied(change, pending, snapshots, files, seconds)]

    def _move(self, moves: Sequence[Move], applied: Sequence[_Applied]) -> bool:
        """Commits the transactions; False if another commit came first.

        Raises:
            RunError: The outcome is unknown. No file is deleted then.
        """
        try:
            return move(self._spark, moves) or all(part.landed() for part in applied)
        except OutcomeUnknown as error:
            for pause in LOOKUP_PAUSES:
                time.sleep(pause)
                with suppress(Py4JError):  # the catalog is still unreachable
                    if all(part.landed() for part in applied):
                        return True
            names = ", ".join(part.change.sink.name.text for part in applied)
            raise RunError(
                f"the outcome of batch {self._batch.number} is unknown: {error}. Not all of {names} have it now.",
                fix="run again: the batch is looked up before it is written.",
            ) from error

    def _after_refusal(
        self, changes: Sequence[Change], applied: Sequence[_Applied]
    ) -> tuple[list[Change], list[Commit]]:
        """After a refused try: the changes that their tables lack, and the commits of those that their tables have.

        Raises:
            HeliosError: Another driver has written.
        """
        tried = {part.change.sink.name: part for part in applied}
        missing: list[Change] = []
        done: list[Commit] = []
        last = [part.change for part in applied[-1:]]  # the control table's change, which is not one of `changes`
        for change in (*changes, *last):
            commit, attempt = change.find(), tried.get(change.sink.name)
            landed = attempt is not None and commit is not None and commit.snapshot == attempt.snapshot
            # A commit whose snapshot is unknown may be this attempt's, and use its files.
            if attempt is not None and not landed and (commit is None or commit.snapshot is not None):
                attempt.files.delete()
            if change not in changes:
                continue
            if commit is None:
                missing.append(change)
            else:
                done.append(attempt.note_landed() if attempt is not None and landed else commit)
        return missing, done

    def _conflict_error(self, changes: Sequence[Change], conflict: str, *, begun: bool) -> RunError:
        names = ", ".join(change.sink.name.text for change in changes) or "its control table"
        written = "a part of it was written, which the next start completes" if begun else "nothing was written"
        return RunError(
            f"batch {self._batch.number} conflicted with other writers of {names} in each of "
            f"{self._options.retry.retries + 1} tries; {written}: {conflict}.",
            fix="run again when the tables are quieter, or allow more tries with .retry(retries=).",
        )

    def _committed(self, applied: Sequence[_Applied], retries: CommitRetries, started: float) -> list[Commit]:
        commits = [part.note_landed() for part in applied]
        if not commits:
            return []
        # The last change has no rows of the batch, so its commit carries the time and the retries of all changes.
        seconds = max(0.0, time.monotonic() - started - sum(part.seconds for part in applied))
        return [*commits[:-1], Commit(commits[-1].snapshot, retries=retries.used, commit_seconds=seconds)]
