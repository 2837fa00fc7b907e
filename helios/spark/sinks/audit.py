"""The audited sink (write-audit-publish): stages a batch on a branch, audits it there, and publishes it to main."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typing_extensions import override

from helios.errors import RunError
from helios.model.retry import CommitRetries
from helios.spark.iceberg import changed_files
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.filters import ALIAS
from helios.spark.iceberg.history import History
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.applied_batches import record_applied_batches
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Commit, CommitOptions, Conflict
from helios.spark.sinks.protocol import Absent, Outcome, Partial, Staged
from helios.spark.sinks.table import TableSink
from helios.spark.steps.build import Built
from helios.table.positions import Batch
from helios.table.refs import ATTEMPT


def audit_branch(pipeline: str) -> str:
    """The branch on which a pipeline's batch waits until it is published."""
    return f"helios_audit_{pipeline}"


def rename_audit(table: JavaTable, was: str, pipeline: str) -> None:
    """Renames the audit branch of a renamed pipeline; the batch that waits there stays on the branch."""
    table.refresh()
    if table.refs().containsKey(audit_branch(was)) and not table.refs().containsKey(audit_branch(pipeline)):
        table.manageSnapshots().renameBranch(audit_branch(was), audit_branch(pipeline)).commit()


class AuditedSink(TableSink):
    """A table sink that publishes to main only batches that passed their audit."""

    @override
    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up in main; returns `Partial` for a batch that is only on the audit branch."""
        outcome = super().find(batch)
        if isinstance(outcome, Absent):
            ref = self.table.refs().get(self._branch)
            staged = self.table.snapshot(ref.snapshotId()) if ref is not None else None
            if staged is not None and self._is_own(staged.summary(), batch):
                # A user may have published the batch by hand, with a fast-forward or a cherry-pick.
                names = (self.ledger.pipeline,) if self.context.is_replay else self.context.plan.write.pipeline_names
                return super().find(batch) if record_applied_batches(self.ledger, names) else Partial((self._branch,))
        return outcome

    @property
    def _branch(self) -> str:
        return audit_branch(self.context.plan.pipeline)

    def _is_own(self, stamps: JavaMap[str, str], batch: Batch) -> bool:
        same = stamps.get("helios.batch") == str(batch.number)
        return same and stamps.get("helios.checkpoint") == self.ledger.checkpoint

    @override
    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        record = self.ledger.load()
        if record is not None and record.aside:
            self.upsert_state.forget(record.batch)  # this batch was discarded: main has none of its rows
        if not self.context.options().retries_conflicts and not self._main_has_same_rows(self.ledger.head_at_look_up):
            # The batch is refused before `stage` adds columns to the table.
            raise self._unseen_error(batch, "main moved before the batch was staged")
        with super().stage(batch, rows) as staged:
            yield staged

    @override
    def _commit(self, staged: Staged) -> Commit | None:
        batch, options = staged.batch, self.options(staged)
        started, retries = time.monotonic(), options.retries()
        while True:
            seen = self.ledger.head_at_look_up
            result = self._publish_once(staged, options, retries, seen)
            if result is None or (isinstance(result, Commit) and result.already_committed):
                return result
            if isinstance(result, Commit):
                seconds = max(0.0, time.monotonic() - started - result.write_seconds)
                return replace(result, retries=retries.used, commit_seconds=seconds)
            commit = self.ledger.find(replace(batch, maybe_written=True))  # main may have the batch by now
            if commit is not None:
                return commit
            if not options.retries_conflicts and not self._main_has_same_rows(seen):
                raise self._unseen_error(batch, "main moved before the batch was published")
            if not retries.wait():
                raise self._unpublished_error(batch, options, result.error) from result.error

    def _unpublished_error(self, batch: Batch, options: CommitOptions, error: Py4JJavaError | None) -> RunError:
        self.context.observer.commit_failed()
        why = f": {java_message(error)}" if error is not None else ""
        return RunError(
            f"batch {batch.number} of {self.context.plan.pipeline} could not be published: main of {self.name.text} "
            f"changed during each of {options.retry.retries + 1} tries; main has no row of the batch{why}.",
            fix="run again when the table is quieter.",
        )

    def _publish_once(
        self, staged: Staged, options: CommitOptions, retries: CommitRetries, seen: JavaSnapshot | None
    ) -> Commit | Conflict | None:
        """One attempt: stages the batch on the audit branch, audits it there and publishes it."""
        batch, spark = staged.batch, staged.rows.session
        assert staged.write is not None
        main = self.ledger
        staging = Ledger(self.table, main.pipeline, main.checkpoint, main.steps, self._branch, guard=main.guard)
        with self.failures_observed():
            options.verify()
        self._reset_branch()
        if not options.retries_conflicts and not self._main_has_same_rows(seen):
            raise self._unseen_error(batch, "main moved before the batch was staged")
        # This `find` only notes the head of the branch, against which `try_commit` validates the commit.
        staging.find(replace(batch, maybe_written=True))
        with self.failures_observed():
            result = staging.try_commit(spark, staged.write, batch, options, retries, recorded=False)
        if result is None or isinstance(result, Conflict) or result.already_committed or result.snapshot is None:
            return result
        snapshot = self.table.snapshot(result.snapshot)
        if result.files or (snapshot is not None and changes_files(snapshot)):  # an empty batch needs no audit
            self._audit(spark, result.snapshot, batch.number)
        return result if self._publish(result.snapshot, batch) else Conflict(None, result.write_seconds)

    def _unseen_error(self, batch: Batch, why: str) -> RunError:
        self.context.observer.commit_failed()
        return self.ledger.unseen_error(batch.number, why)

    def _reset_branch(self) -> None:
        """Points the audit branch at the head of main."""
        branch = self._branch
        self.table.refresh()
        head = self.ledger.head()
        refs = self.table.manageSnapshots()
        exists = self.table.refs().containsKey(branch)
        if head is not None:
            point = refs.replaceBranch if exists else refs.createBranch
            point(branch, head.snapshotId()).commit()
        else:  # Iceberg creates a branch of an empty table with an empty snapshot
            if exists:
                refs.removeBranch(branch).commit()
            self.table.manageSnapshots().createBranch(branch).commit()
        self.table.refresh()

    def _audit(self, spark: SparkSession, snapshot: int, number: int) -> None:
        """Checks the audit conditions over the rows that a batch added.

        Raises:
            RunError: A condition is not met; main is unchanged.
        """
        sink = self.context.plan.write.iceberg
        rows = self._added_rows(spark, snapshot)
        named = [F.expr(condition).alias(f"c{i}") for i, (_, condition) in enumerate(sink.audits)]
        row = rows.agg(*named).collect()[0]
        failed = [
            f"{name} ({condition})" for i, (name, condition) in enumerate(sink.audits) if row[f"c{i}"] is not True
        ]
        if failed:
            self.context.observer.data_left(
                [f"batch {number} failed its audit, and waits on the branch {self._branch}"]
            )
            raise RunError(
                f"batch {number} of {self.context.plan.pipeline} did not pass its audit: {', '.join(failed)}. Its rows "
                f"are on the branch {self._branch} of {self.name.text}; main is unchanged.",
                where=sink.origin,
                fix="fix the source, and run again to repeat the batch and its audit; or set the batch aside with "
                f"`helios quarantine {self.name.text} --batch {number}`.",
            )

    def _added_rows(self, spark: SparkSession, snapshot: int) -> DataFrame:
        """The rows in the data files that a snapshot added."""
        self.table.refresh()
        added_by = self.table.snapshot(snapshot)
        assert added_by is not None
        files = [str(f.location()) for f in changed_files.added_data(self.table, added_by)]
        rows = spark.read.option("versionAsOf", snapshot).table(self.name.sql).alias(ALIAS)
        return rows.where(F.col("_file").isin(files))

    def _main_has_same_rows(self, seen: JavaSnapshot | None) -> bool:
        """True if main still has the same rows as at `seen`, the head of main when the batch was looked up."""
        if seen is None:
            return self.ledger.head() is None
        return self.ledger.only_compacted(seen)

    def _branch_has_only(self, snapshot: int) -> bool:
        """True if main and the branch differ only by the snapshots of this attempt; False after another driver's."""
        ref = self.table.refs().get(self._branch)
        head, staged = self.ledger.head(), self.table.snapshot(snapshot)
        if ref is None or staged is None or ref.snapshotId() != snapshot:
            return False
        attempt = staged.summary().get(ATTEMPT)
        base = next((s for s in History(self.table, staged) if s.summary().get(ATTEMPT) != attempt), None)
        # A branch of an empty table starts with an empty snapshot.
        return base is not None and (head is None or base.snapshotId() == head.snapshotId())

    def _publish(self, snapshot: int, batch: Batch) -> bool:
        """Fast-forwards main and writes the record, in one transaction; False if main or the branch has moved."""
        self.context.verify()
        # The transaction begins before the checks. The checks see earlier commits, and later ones make the commit fail.
        transaction = self.table.newTransaction()
        if self.ledger.find(replace(batch, maybe_written=True)) is not None:
            return False  # the batch was discarded meanwhile, or another driver has published it
        if not self._branch_has_only(snapshot):
            return False
        try:
            transaction.manageSnapshots().fastForwardBranch("main", self._branch).commit()
            published = self.table.snapshot(snapshot)
            assert published is not None  # the branch has it
            record = self.ledger.record_of(batch, snapshot, int(published.sequenceNumber()))
            transaction.updateProperties().set(self.ledger.key, record.as_json()).commit()
            transaction.commitTransaction()
        except IllegalArgumentException:
            return False  # Iceberg raises this if main is no longer an ancestor of the branch
        except Py4JJavaError as error:
            if java_class(error) in CONFLICTS:
                return False
            return self.ledger.resolve_failure(error, batch) is not None
        self.table.refresh()
        self.ledger.guard.note_commit(batch.number, snapshot)
        return True
