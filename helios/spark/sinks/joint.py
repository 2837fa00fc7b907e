"""Commits a batch to all its tables in one commit of the catalog."""

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
from helios.spark.iceberg.catalog_commit import OutcomeUnknown, TableCommit, commit_tables
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
        outcome = self.sink.find(replace(self.batch, maybe_written=True))
        return outcome.commit if isinstance(outcome, Found) else None


MakeLastChange = Callable[[dict[str, int]], tuple[Change, CommitOptions]]
"""Makes the last change of a commit, and its options, from the snapshots of the other changes, keyed by table name."""


@dataclass(frozen=True)
class _WrittenChange:
    """A change that is written into a transaction, with its snapshots, newest first, and the files that Spark wrote."""

    change: Change
    pending: Transaction
    snapshots: Sequence[JavaSnapshot]
    files: AddedFiles
    seconds: float

    @property
    def snapshot(self) -> int:
        return int(self.snapshots[0].snapshotId())

    def is_committed(self) -> bool:
        """True if the table has the change now."""
        commit = self.change.find()
        return commit is not None and commit.snapshot == self.snapshot

    def note_commit(self) -> Commit:
        """Notes in the checkpoint that the table has the change; returns the commit."""
        self.change.sink.ledger.guard.note_commit(self.change.batch.number, self.snapshot)
        return replace(commit_of(self.snapshots, self.pending.rows), write_seconds=self.seconds)


class JointCommit:
    """Commits the changes of a batch to all its tables, or to none of them.

    A catalog server may apply a request, and then refuse the same request when the client repeats it. A server that
    breaks the protocol may apply only a part of a request. So after a failure, the batch is looked up in each table,
    and only the missing changes are written again.
    """

    def __init__(self, spark: SparkSession, batch: Batch, options: CommitOptions, last: MakeLastChange) -> None:
        self._spark = spark
        self._batch = batch
        self._options = options
        self._last = last

    def commit(self, changes: Sequence[Change], *, begun: bool = False) -> list[Commit]:
        """Commits changes that no table has yet; returns an empty list if they change nothing.

        Args:
            begun: Whether a part of the batch is already committed. The last change is then written even alone.

        Raises:
            RunError: The commit failed, conflicted with other writers in each try, or its outcome is unknown.
        """
        retries, started = self._options.retries(), time.monotonic()
        done: list[Commit] = []
        while True:
            self._options.verify()
            written: list[_WrittenChange] = []
            conflict = "another commit came before"
            try:
                self._write_all(changes, written, even_alone=begun or bool(done))
                parts = [TableCommit(part.change.sink.name, part.pending.hold()) for part in written]
            except BaseException as error:
                for part in written:
                    part.files.delete()
                if not isinstance(error, Py4JJavaError) or java_class(error) not in CONFLICTS:
                    raise
                conflict, written = java_message(error), []
            else:
                if not written or self._commit_tables(parts, written):
                    return [*done, *self._note_commits(written, retries, started)]
            changes, commits = self._look_up_changes(changes, written)
            done += commits
            if not retries.wait():
                raise self._conflict_error(changes, conflict, begun=begun or bool(done))

    def _write_all(self, changes: Sequence[Change], written: list[_WrittenChange], *, even_alone: bool) -> None:
        """Writes changes into transactions; the last change only with others or if `even_alone`. Fills `written`."""
        for change in changes:
            written += self._write(change, self._options)
        if written or even_alone:
            snapshots = {part.change.sink.name.text: part.snapshot for part in written}
            written += self._write(*self._last(snapshots))

    def _write(self, change: Change, options: CommitOptions) -> list[_WrittenChange]:
        """Writes a change, its stamps and its record into a transaction; empty if the change touches no file."""
        ledger, batch = change.sink.ledger, change.batch
        pending, began = ledger.begin(self._spark, batch, options, CommitRetries(NEVER)), time.monotonic()
        change.write(pending)
        seconds, snapshots = time.monotonic() - began, pending.snapshots
        if not snapshots or ledger.discard_empty(snapshots, options):
            return []
        newest, files = int(snapshots[0].snapshotId()), AddedFiles(ledger.table, snapshots)
        pending.set_record(ledger.key, lambda number: ledger.record_of(batch, newest, number).as_json(), snapshots)
        return [_WrittenChange(change, pending, snapshots, files, seconds)]

    def _commit_tables(self, parts: Sequence[TableCommit], written: Sequence[_WrittenChange]) -> bool:
        """Commits the transactions; False if another commit came first.

        Raises:
            RunError: The outcome is unknown. No file is deleted then.
        """
        try:
            return commit_tables(self._spark, parts) or all(part.is_committed() for part in written)
        except OutcomeUnknown as error:
            for pause in LOOKUP_PAUSES:
                time.sleep(pause)
                with suppress(Py4JError):  # the catalog is still unreachable
                    if all(part.is_committed() for part in written):
                        return True
            names = ", ".join(part.change.sink.name.text for part in written)
            raise RunError(
                f"the outcome of batch {self._batch.number} is unknown: {error}. Not all of {names} have the batch.",
                fix="run again: the batch is looked up before it is written.",
            ) from error

    def _look_up_changes(
        self, changes: Sequence[Change], written: Sequence[_WrittenChange]
    ) -> tuple[list[Change], list[Commit]]:
        """Looks the changes up after a failed attempt; deletes the files of those that their tables lack.

        Returns:
            The changes that their tables lack, and the commits of the others.

        Raises:
            HeliosError: Another driver has written.
        """
        tried = {part.change.sink.name: part for part in written}
        missing: list[Change] = []
        done: list[Commit] = []
        last = [part.change for part in written[-1:]]  # the control table's change, which is not one of `changes`
        for change in (*changes, *last):
            commit, attempt = change.find(), tried.get(change.sink.name)
            landed = attempt is not None and commit is not None and commit.snapshot == attempt.snapshot
            # A commit whose snapshot is unknown may be that of this attempt: the table then uses the attempt's files.
            if attempt is not None and not landed and (commit is None or commit.snapshot is not None):
                attempt.files.delete()
            if change not in changes:
                continue
            if commit is None:
                missing.append(change)
            else:
                done.append(attempt.note_commit() if attempt is not None and landed else commit)
        return missing, done

    def _conflict_error(self, changes: Sequence[Change], conflict: str, *, begun: bool) -> RunError:
        names = ", ".join(change.sink.name.text for change in changes) or "the control table"
        written = "a part of it was written, which the next start completes" if begun else "nothing was written"
        return RunError(
            f"batch {self._batch.number} conflicted with other writers of {names} in each of "
            f"{self._options.retry.retries + 1} tries; {written}: {conflict}.",
            fix="run again when the tables are quieter, or allow more tries with .retry(retries=).",
        )

    def _note_commits(self, written: Sequence[_WrittenChange], retries: CommitRetries, started: float) -> list[Commit]:
        commits = [part.note_commit() for part in written]
        if not commits:
            return []
        # The last change has no rows of the batch, so its commit carries the time and the retries of all changes.
        seconds = max(0.0, time.monotonic() - started - sum(part.seconds for part in written))
        return [*commits[:-1], Commit(commits[-1].snapshot, retries=retries.used, commit_seconds=seconds)]
