"""Write-audit-publish: a batch is written to a branch, looked at there, and then becomes main."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import RunError
from helios.spark.iceberg.commit import CommitRetries
from helios.spark.iceberg.history import History
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.ledger import ATTEMPT
from helios.spark.sinks.options import Commit, CommitOptions, Conflict
from helios.spark.sinks.protocol import Absent, Outcome, Partial, Staged
from helios.spark.sinks.table import TableSink
from helios.spark.steps.build import Built
from helios.table.positions import Batch


def audit_branch(pipeline: str) -> str:
    """The branch of a pipeline's batches that are not published yet."""
    return f"helios_audit_{pipeline}"


class AuditedSink(TableSink):
    """A table whose main shows only batches that passed their audit."""

    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up in main; one that waits on the audit branch is there in part."""
        outcome = super().find(batch)
        if isinstance(outcome, Absent):
            staged = self.table.refs().get(self._branch)
            made = self.table.snapshot(staged.snapshotId()) if staged is not None else None
            stamps = made.summary() if made is not None else None
            if stamps is not None and stamps.get("helios.batch") == str(batch.number) and self._mine(stamps):
                return Partial((self._branch,))
        return outcome

    @property
    def _branch(self) -> str:
        return audit_branch(self.context.plan.pipeline)

    def _mine(self, stamps: JavaMap[str, str]) -> bool:
        return stamps.get("helios.checkpoint") == self.ledger.checkpoint

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        record = self.ledger.load()
        if record is not None and record.aside:
            self.upsert_state.forget(record.batch)  # of whose rows main never got one
        if not self.context.options().yields and not self._stands(self.ledger.seen):
            raise self._unseen(batch, "main moved before the batch was staged")  # before the table gets its columns
        with super().stage(batch, rows) as staged:
            yield staged

    def _commit(self, staged: Staged) -> Commit | None:
        batch, options = staged.batch, self.context.options()
        started, retries = time.monotonic(), options.retries()
        while True:
            seen = self.ledger.seen
            made = self._publish_once(staged, options, retries, seen)
            if made is None or (isinstance(made, Commit) and made.again):
                return made
            if isinstance(made, Commit):
                seconds = max(0.0, time.monotonic() - started - made.write_seconds)
                return replace(made, retries=retries.used, commit_seconds=seconds)
            found = self.ledger.find(replace(batch, replayed=True))
            if found is not None:
                return found
            if not options.yields and not self._stands(seen):
                raise self._unseen(batch, "main moved before the batch was published")
            if not retries.wait():
                raise self._unpublished(batch, options, made.error) from made.error

    def _unpublished(self, batch: Batch, options: CommitOptions, error: Py4JJavaError | None) -> RunError:
        self.context.observer.commit_failed()
        why = f": {java_message(error)}" if error is not None else ""
        return RunError(
            f"batch {batch.number} of {self.context.plan.pipeline} could not be published: main of {self.name.text} "
            f"moved under each of {options.retry.retries + 1} tries; main holds nothing of it{why}.",
            fix="run again when the table is quieter.",
        )

    def _publish_once(
        self, staged: Staged, options: CommitOptions, retries: CommitRetries, seen: JavaSnapshot | None
    ) -> Commit | Conflict | None:
        """One try: stages the batch on the audit branch, audits it there and publishes it."""
        batch, spark = staged.batch, staged.rows.df.sparkSession
        assert staged.write is not None
        staging = self.context.ledger(self.table, self._branch)
        with self._failures_observed():
            options.verify()
        self._branch_off()
        if not options.yields and not self._stands(seen):
            raise self._unseen(batch, "main moved before the batch was staged")
        staging.find(replace(batch, replayed=True))
        with self._failures_observed():
            made = staging.try_commit(spark, staged.write, batch, options, retries, recorded=False)
        if made is None or isinstance(made, Conflict) or made.again or made.snapshot is None:
            return made
        self._audit(spark, made.snapshot, batch.number)
        return made if self._publish(made.snapshot, batch) else Conflict(None, made.write_seconds)

    def _unseen(self, batch: Batch, why: str) -> RunError:
        self.context.observer.commit_failed()
        return self.ledger.unseen(batch.number, why)

    def _branch_off(self) -> None:
        """Sets the branch to where main is."""
        branch = self._branch
        self.table.refresh()
        head = self.ledger.head()
        refs = self.table.manageSnapshots()
        there = self.table.refs().containsKey(branch)
        if head is not None:
            (refs.replaceBranch if there else refs.createBranch)(branch, head.snapshotId()).commit()
        else:  # of an empty table a branch begins with an empty snapshot of its own
            if there:
                refs.removeBranch(branch).commit()
            self.table.manageSnapshots().createBranch(branch).commit()
        self.table.refresh()

    def _audit(self, spark: SparkSession, snapshot: int, number: int) -> None:
        """Checks the aggregates over the rows that a batch added.

        Raises:
            RunError: One does not hold; main is as it was.
        """
        sink = self.context.plan.write.sink
        rows = self._added(spark, snapshot)
        named = [F.expr(condition).alias(f"c{i}") for i, (_, condition) in enumerate(sink.audits)]
        row = rows.agg(*named).collect()[0]
        failed = [
            f"{name} ({condition})" for i, (name, condition) in enumerate(sink.audits) if row[f"c{i}"] is not True
        ]
        if failed:
            raise RunError(
                f"batch {number} of {self.context.plan.pipeline} did not pass its audit: {', '.join(failed)}. Its rows "
                f"are on the branch {self._branch} of {self.name.text}; main is as it was.",
                where=sink.origin,
                fix="mend the source and run again, which audits again; or set the batch aside with "
                f"`helios quarantine {self.name.text} --batch {number}`.",
            )

    def _added(self, spark: SparkSession, snapshot: int) -> DataFrame:
        """The rows in the data files that a snapshot added."""
        self.table.refresh()
        made = self.table.snapshot(snapshot)
        assert made is not None
        files = [str(f.location()) for f in made.addedDataFiles(self.table.io())]
        rows = spark.read.option("versionAsOf", snapshot).table(self.name.sql)
        return rows.where(F.col("_file").isin(files))

    def _stands(self, seen: JavaSnapshot | None) -> bool:
        """Whether main holds the rows that it held when the batch was looked up."""
        head = self.ledger.head()
        return head is None if seen is None else self.ledger.only_compacted(seen)

    def _alone(self, snapshot: int) -> bool:
        """Whether main and the branch differ by this batch's own snapshots, and not by those of a zombie."""
        ref = self.table.refs().get(self._branch)
        head, one = self.ledger.head(), self.table.snapshot(snapshot)
        if ref is None or one is None or ref.snapshotId() != snapshot:
            return False
        attempt = one.summary().get(ATTEMPT)
        below = next((s for s in History(self.table, one) if s.summary().get(ATTEMPT) != attempt), None)
        # A branch of an empty table begins with an empty snapshot of its own.
        return below is not None and (head is None or below.snapshotId() == head.snapshotId())

    def _publish(self, snapshot: int, batch: Batch) -> bool:
        """Fast-forwards main and writes the record, in one transaction; False when main or the branch has moved."""
        self.context.verify()
        # First of all: what is committed after this makes the transaction fail, what came before it is looked at.
        transaction = self.table.newTransaction()
        if self.ledger.find(replace(batch, replayed=True)) is not None:
            return False  # the batch was discarded meanwhile, or its replacement has published it
        if not self._alone(snapshot):
            return False
        try:
            transaction.manageSnapshots().fastForwardBranch("main", self._branch).commit()
            record = self.ledger.record_of(batch, snapshot)
            transaction.updateProperties().set(self.ledger.key, record.as_json()).commit()
            transaction.commitTransaction()
        except IllegalArgumentException:
            return False  # so says Iceberg when main is no ancestor of the branch any more
        except Py4JJavaError as error:
            if java_class(error) in CONFLICTS:
                return False
            return self.ledger.look_again(error, batch) is not None
        self.table.refresh()
        return True
