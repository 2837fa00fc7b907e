"""The ledger: a pipeline's record in its target table, by which each batch is written exactly once.

Every batch is one Iceberg transaction. It changes the data, adds entries to the snapshot's summary (the stamps), and
sets the record, which is a table property. The three are committed together or not at all. So the record alone proves
whether a batch is committed, even after expiry and compaction. The transaction validates the snapshots since the
look-up, also in Iceberg's own retries (`SnapshotUpdate.validateWith`). So a late commit of a replaced driver fails.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from helios.errors import LeaseError, LedgerError, RunError
from helios.model.retry import LOOKUP_PAUSES, CommitRetries
from helios.plan.nodes import VERSION
from helios.spark.iceberg.added_files import AddedFiles, changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.transaction import Transaction
from helios.spark.iceberg.validators import COMPACTION, AncestryValidator, Watch
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaSnapshotUtil, JavaTable
from helios.spark.jvm.types.updates import JavaSnapshotUpdate
from helios.spark.sinks.options import Commit, CommitOptions, Conflict, commit_of
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.spark.sinks.stored_records import record_from_stamps
from helios.table.ledger import Record, parse_record
from helios.table.positions import Batch, Span, same_input
from helios.table.refs import ATTEMPT, LEDGER
from helios.version import VERSION as HELIOS


class Ledger:
    """Reads and writes the record of one pipeline in one target table, and commits batches with it.

    Args:
        checkpoint: The id of the pipeline's checkpoint.
        steps: The fingerprint of the pipeline's steps.
        branch: The branch that is written; None for main.
        guard: Checks that the target still has the last batch. By default, it knows this batch only from the record.
        upserts: The terms of the upserts, as `helios.plan.other_upserts.upsert_terms` returns them.
        keys_folder: The folder of the upsert state; None if the state is in the checkpoint, and for a replay.
    """

    def __init__(
        self,
        table: JavaTable,
        pipeline: str,
        checkpoint: str,
        steps: str,
        branch: str | None = None,
        *,
        guard: RollbackGuard | None = None,
        upserts: Mapping[str, object] | None = None,
        keys_folder: str | None = None,
    ) -> None:
        self.table, self.branch = table, branch
        self.pipeline, self.checkpoint, self.steps = pipeline, checkpoint, steps
        self.key = LEDGER + pipeline
        self.guard = guard or RollbackGuard(table, pipeline, checkpoint)
        self._head_at_look_up: JavaSnapshot | None = None  # the newest snapshot when a batch was last looked up
        self._upserts, self._keys_folder = upserts, keys_folder
        self._last: Record | None = None  # the record when it was last loaded

    def head(self) -> JavaSnapshot | None:
        """The newest snapshot of the branch; None for an empty one."""
        util: JavaSnapshotUtil = classes().org.apache.iceberg.util.SnapshotUtil
        return util.latestSnapshot(self.table, self.branch) if self.branch else self.table.currentSnapshot()

    @property
    def head_at_look_up(self) -> JavaSnapshot | None:
        """The newest snapshot when a batch was last looked up; None for an empty branch."""
        return self._head_at_look_up

    @property
    def record_at_look_up(self) -> Record | None:
        """The record when it was last loaded, without another request; None if there is none."""
        return self._last

    # the record

    def load(self) -> Record | None:
        """The pipeline's record from the table properties, or from the newest stamped ancestor if the property is lost.

        Raises:
            LedgerError: The record is damaged, or newer than this code.
        """
        self.table.refresh()
        text = self.table.properties().get(self.key)
        if text is not None:
            self._last = parse_record(text, self.key, self.table.name())
        else:
            self._last = record_from_stamps(self.table, self.head(), self.pipeline, self.branch)
        return self._last

    def claim(self, record: Record, forget: str | None = None) -> None:
        """Writes a record but no batch, for example to claim the target; removes the record of the name `forget`."""
        update = self.table.updateProperties().set(self.key, replace(record, branch=self.branch).as_json())
        if forget is not None:
            update = update.remove(LEDGER + forget)
        update.commit()

    def last(self) -> Record | None:
        """The pipeline's record, as `load` returns it; refuses a target that was rolled back."""
        record = self.load()
        self.refuse_rollback(record)
        return record

    # looking up a batch

    def number(self, spans: Sequence[Span]) -> int:
        """The number of a batch pipeline's next batch. Here it is always new; `AppendLedger` compares the inputs."""
        record = self.last()
        return record.batch + 1 if record is not None else 0

    def decide(self, batch: Batch) -> Commit | None:
        """The commit that makes writing a batch unnecessary; None if the batch must be written."""
        return self.find(batch)

    @property
    def note(self) -> str:
        """The note on the commit of the batch that `decide` looked up; empty for none."""
        return ""

    def find(self, batch: Batch) -> Commit | None:
        """Looks a batch up in the target; returns its commit, or None if the target lacks the batch.

        Raises:
            LedgerError: The target was rolled back, its record is lost, or the checkpoint is behind the target.
            LeaseError: The pipeline has run on another checkpoint since this ledger's checkpoint was made.
        """
        record = self.load()
        self._head_at_look_up = self.head()
        if record is None:
            self.refuse_rollback(None)
            if batch.maybe_written:
                raise LedgerError(
                    f"{self.table.name()} has lost the record {self.key}, and its retained history cannot prove that "
                    f"batch {batch.number} is absent; nothing was written.",
                    fix=f"restore the table property {self.key} from an older metadata file, or refill the target with "
                    "`helios run --full-refresh`.",
                )
            return None
        if record.checkpoint != self.checkpoint:
            raise LeaseError(
                f"pipeline {self.pipeline} has been driven from another checkpoint ({record.checkpoint}) since "
                f"the checkpoint of this run ({self.checkpoint}) was made; nothing was written.",
                fix="stop one of the two drivers, and give each pipeline one checkpoint.",
            )
        self.refuse_rollback(record)
        if record.batch < batch.number:
            return None
        same = record.batch == batch.number and same_input(record.position, batch)
        if not same and (record.batch == batch.number or not batch.maybe_written):
            raise self.behind_error(record)
        return Commit(snapshot=record.snapshot if record.batch == batch.number else None, already_committed=True)

    def refuse_rollback(self, record: Record | None) -> None:
        """Raises LedgerError if the target no longer holds the last batch, or if nothing proves that it does."""
        missing = self.branch is not None and not self.table.refs().containsKey(self.branch)
        # A missing branch will be created from main.
        self.guard.refuse(record, self.table.currentSnapshot() if missing else self.head())

    def refuse_behind(self, planned: int) -> None:
        """Raises if the checkpoint's offset log lacks a batch that the target has.

        Args:
            planned: The last batch in the log; -1 for none. A batch is logged before it is written.
        """
        record = self.load()
        if record is not None and record.checkpoint == self.checkpoint and record.batch > planned:
            raise self.behind_error(record)

    def behind_error(self, record: Record) -> LedgerError:
        """The error for a checkpoint that is older than its target."""
        return LedgerError(
            f"the checkpoint is behind its target: {self.table.name()} holds a batch {record.batch} of {self.pipeline} "
            "that the checkpoint lacks; nothing was written. A checkpoint restored from a backup looks like this.",
            fix="restore the newest checkpoint, or resume at the target's position with `helios run --new-checkpoint`.",
        )

    # committing

    def commit(
        self, spark: SparkSession, write: Callable[[Transaction], None], batch: Batch, options: CommitOptions
    ) -> Commit | None:
        """Commits a batch that `find` did not find, atomically with its stamps and its record.

        Args:
            write: Writes the batch into a transaction on the table; called again for each retry.

        Returns:
            The commit; None if the batch changes nothing.

        Raises:
            LeaseError: Another driver has committed for this pipeline since the look-up.
            RunError: The commit failed, or its outcome is unknown.
        """
        started, writing = time.monotonic(), 0.0
        retries = options.retries()
        while True:
            options.verify()
            result = self.try_commit(spark, write, batch, options, retries)
            if result is None or (isinstance(result, Commit) and result.already_committed):
                return result
            writing += result.write_seconds
            if isinstance(result, Commit):
                self.guard.note_commit(batch.number, result.snapshot)
                seconds = max(0.0, time.monotonic() - started - writing)
                return replace(result, retries=retries.used, write_seconds=writing, commit_seconds=seconds)
            if not retries.wait():
                raise self._conflict_error(batch, options, result.error) from result.error

    def try_commit(
        self,
        spark: SparkSession,
        write: Callable[[Transaction], None],
        batch: Batch,
        options: CommitOptions,
        retries: CommitRetries,
        *,
        recorded: bool = True,
    ) -> Commit | Conflict | None:
        """One attempt of `commit`.

        Args:
            retries: The remaining retries. A conflict over metadata alone is retried in this call, with the same files.
            recorded: Whether to write the record; False if the batch is staged for an audit.
        """
        seen = self._head_at_look_up
        pending = self.begin(spark, batch, options, retries)
        began = time.monotonic()
        try:
            write(pending)
        except Py4JJavaError as error:
            if java_class(error) not in CONFLICTS:
                raise
            commit = self.find(replace(batch, maybe_written=True))
            return commit or self._conflict(error, batch, options, seen, time.monotonic() - began)
        seconds = time.monotonic() - began
        snapshots = pending.final_snapshots(even_empty=options.commits_empty)
        if not snapshots or self.discard_empty(snapshots, options):
            return None
        newest, files = int(snapshots[0].snapshotId()), AddedFiles(self.table, snapshots)
        try:
            if recorded:
                pending.set_record(self.key, lambda number: self.record_of(batch, newest, number).as_json(), snapshots)
            pending.commit()
        except Py4JJavaError as error:
            commit = self.resolve_failure(error, batch)
            committed = commit is not None and commit.snapshot == newest
            if not committed and java_class(error) in CONFLICTS and (commit is None or commit.snapshot is not None):
                files.delete()  # after any other failure, a snapshot may use these files
            if commit is None:
                return self._conflict(error, batch, options, seen, seconds)
            if not committed:
                return commit
        self.table.refresh()
        return replace(commit_of(snapshots, pending.rows), write_seconds=seconds)

    def _conflict(
        self, error: Py4JJavaError, batch: Batch, options: CommitOptions, seen: JavaSnapshot | None, seconds: float
    ) -> Conflict:
        """A conflict that may be retried. Raises RunError if the batch would overwrite unseen rows."""
        if not options.retries_conflicts and not self.only_compacted(seen):
            raise self.unseen_error(batch.number, java_message(error)) from error
        return Conflict(error, seconds)

    def _conflict_error(self, batch: Batch, options: CommitOptions, conflict: Py4JJavaError | None) -> RunError:
        why = f": {java_message(conflict)}" if conflict is not None else ""
        return RunError(
            f"batch {batch.number} of {self.pipeline} conflicted with other writers of {self.table.name()} in each of "
            f"{options.retry.retries + 1} tries; nothing was written{why}",
            fix="run again when the table is quieter, or allow more tries with .retry(retries=).",
        )

    def begin(
        self, spark: SparkSession, batch: Batch, options: CommitOptions, retries: CommitRetries | None = None
    ) -> Transaction:
        """Begins a transaction; its operations are stamped, and validated against the head at the look-up."""
        summary = {
            **options.stamps,
            "helios.v": str(VERSION),
            "helios.pipeline": self.pipeline,
            "helios.batch": str(batch.number),
            "helios.position": json.dumps(batch.position, separators=(",", ":")),
            **options.source_stamp(batch),
            "helios.checkpoint": self.checkpoint,
            "helios.steps": self.steps,
            "helios.version": HELIOS,
            ATTEMPT: uuid.uuid4().hex,
        }
        head = self._head_at_look_up.snapshotId() if self._head_at_look_up is not None else None
        watch = Watch()  # instead of a reference from the validator to the transaction, which would be a cycle

        def prepare() -> Callable[[JavaSnapshotUpdate], None]:
            validators = [AncestryValidator(self.pipeline, self.checkpoint, head, options.exclusive, watch)]

            def stamp(operation: JavaSnapshotUpdate) -> None:
                for key, value in summary.items():
                    operation.set(key, value)
                if validators:  # a second operation has the first one as its parent, and needs no validation
                    operation.validateWith(validators.pop())

            return stamp

        transaction = Transaction(spark, self.table, prepare, self.branch, options.properties, retries=retries)
        transaction.watch = watch
        return transaction

    def record_of(self, batch: Batch, snapshot: int, sequence: int) -> Record:
        """The record of a batch, with its snapshot and the snapshot's sequence number."""
        return Record(
            checkpoint=self.checkpoint,
            batch=batch.number,
            position=batch.position,
            snapshot=snapshot,
            sequence=sequence,
            steps=self.steps,
            branch=self.branch,
            start=self._last.start if self._last is not None else None,
            upserts=self._upserts,
            beside=self._last.beside if self._last is not None else (),
            formerly=self._last.formerly if self._last is not None else (),
            quarantines=self._last.quarantines if self._last is not None else (),
            keys=self._keys_folder,
            audited=self._last is not None and self._last.audited,
            rolled_back=self._last is not None and self._last.rolled_back,
        )

    def unseen_error(self, batch: int, why: str) -> RunError:
        """The error for an overwrite that would erase rows of other writers."""
        return RunError(
            f"batch {batch} of {self.pipeline} would overwrite rows in {self.table.name()} that it has not seen: "
            f"{why}; nothing was written.",
            fix="check what was written meanwhile; run again to replace these rows too.",
        )

    def only_compacted(self, seen: JavaSnapshot | None) -> bool:
        """True if all commits since a snapshot are compactions or change no files."""
        self.table.refresh()
        since = History(self.table, self.head()).since(seen) if seen is not None else None
        return since is not None and all(str(s.operation()) == COMPACTION or not changes_files(s) for s in since)

    def discard_empty(self, snapshots: Sequence[JavaSnapshot], options: CommitOptions) -> bool:
        """Deletes the manifest lists of snapshots that change no file; False if the snapshots must be committed."""
        if options.commits_empty or any(map(changes_files, snapshots)):
            return False
        for snapshot in snapshots:
            self.table.io().deleteFile(snapshot.manifestListLocation())
        return True

    def resolve_failure(self, error: Py4JJavaError, batch: Batch) -> Commit | None:
        """The commit if the target has the batch in spite of the error; None if it may be retried; else raises."""
        batch = replace(batch, maybe_written=True)
        kind, message = java_class(error), java_message(error)
        if kind in CONFLICTS:
            # Another driver of this pipeline has committed, another writer has committed conflicting rows, or the
            # history has expired. A repeated request also fails in this way if the first request succeeded.
            commit = self.find(batch)
            return Commit(snapshot=commit.snapshot, already_committed=True) if commit else None
        if kind in ("NoSuchTableException", "NotFoundException", "ForbiddenException"):
            raise RunError(
                f"batch {batch.number} of {self.pipeline} was refused by {self.table.name()}: {message}; nothing was "
                "written.",
                fix="remove the cause, then run again: no row is written twice.",
            ) from error
        for pause in LOOKUP_PAUSES:
            time.sleep(pause)
            try:
                commit = self.find(batch)
            except Py4JError:
                continue  # the catalog is still unavailable
            if commit is not None:
                snapshot = self.table.snapshot(commit.snapshot) if commit.snapshot is not None else None
                return commit_of([snapshot]) if snapshot is not None else commit
        raise RunError(
            f"the outcome of batch {batch.number} of {self.pipeline} is unknown: {kind}: {message}. The batch is not "
            f"in {self.table.name()} now.",
            fix="run again: the batch is looked up before it is written.",
        ) from error
