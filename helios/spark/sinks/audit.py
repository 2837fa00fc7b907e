"""Write-audit-publish: a batch is written to a branch, looked at there, and then becomes main."""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import RunError
from helios.spark.iceberg.history import History
from helios.spark.jvm.errors import CONFLICTS, java_class
from helios.spark.sinks import modes
from helios.spark.sinks.ledger import ATTEMPT
from helios.spark.sinks.options import Commit
from helios.spark.sinks.table import TableTarget, Work


def audit_branch(pipeline: str) -> str:
    """The branch of a pipeline's batches that are not published yet."""
    return f"helios_audit_{pipeline}"


class AuditedTarget(TableTarget):
    """A table whose main shows only batches that passed their audit."""

    def _commit(self, work: Work) -> Commit | None:
        terms = self.site.terms()
        record = self.ledger.load()
        if record is not None and record.aside:
            self.memory.forget(record.batch)  # of whose rows main never got one
        staging = self.site.ledger(self.table, audit_branch(self.site.plan.pipeline))
        for tried in range(terms.retry.retries + 1):
            if tried:
                terms.retried()
                time.sleep(terms.retry.backoff * 2 ** (tried - 1))
            seen = self.ledger.seen
            self._branch_off(str(staging.branch))
            if not terms.yields and not self._stands(seen):
                raise self._unseen(work, "main moved before the batch was staged")
            staging.find(work.number, work.position, planned=True)
            with modes.writer(self._batch(work)) as write:
                staged = self._commit_with(staging, write, work, recorded=False)
            if staged is None or staged.again or staged.snapshot is None:
                return staged
            self._audit(work.df.sparkSession, staged.snapshot, work.number)
            if self._publish(str(staging.branch), staged, work):
                return staged
            found = self.find(work.number, work.position, planned=True)
            if found is not None:
                return found
            if not terms.yields and not self._stands(seen):
                raise self._unseen(work, "main moved before the batch was published")
        self.site.gave_up()
        raise RunError(
            f"batch {work.number} of {self.site.plan.pipeline} could not be published: main of {self.name.text} moved "
            f"under each of {terms.retry.retries + 1} tries; main holds nothing of it.",
            fix="run again when the table is quieter.",
        )

    def _unseen(self, work: Work, why: str) -> RunError:
        self.site.gave_up()
        return self.ledger.unseen(work.number, why)

    def _branch_off(self, branch: str) -> None:
        """Sets the branch to where main is."""
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
        sink = self.site.plan.write.sink
        rows = self._added(spark, snapshot)
        named = [F.expr(condition).alias(f"c{i}") for i, (_, condition) in enumerate(sink.audits)]
        row = rows.agg(*named).collect()[0]
        failed = [
            f"{name} ({condition})" for i, (name, condition) in enumerate(sink.audits) if row[f"c{i}"] is not True
        ]
        if failed:
            raise RunError(
                f"batch {number} of {self.site.plan.pipeline} did not pass its audit: {', '.join(failed)}. Its rows "
                f"are on the branch {audit_branch(self.site.plan.pipeline)} of {self.name.text}; main is as it was.",
                where=sink.origin,
                fix="mend the source and run again, which audits again; or set the batch aside with "
                f"`helios quarantine {self.name.text} --batch {number}`.",
            )

    def _added(self, spark: SparkSession, snapshot: int) -> DataFrame:
        """The rows in the data files that a snapshot added."""
        self.table.refresh()
        files = [str(f.location()) for f in self.table.snapshot(snapshot).addedDataFiles(self.table.io())]
        rows = spark.read.option("versionAsOf", snapshot).table(self.name.sql)
        return rows.where(F.col("_file").isin(files))

    def _stands(self, seen: Any | None) -> bool:
        """Whether main holds the rows that it held when the batch was looked up."""
        head = self.ledger.head()
        return head is None if seen is None else self.ledger.only_compacted(seen)

    def _alone(self, branch: str, snapshot: int) -> bool:
        """Whether main and the branch differ by this batch's own snapshots, and not by those of a zombie."""
        ref = self.table.refs().get(branch)
        head, one = self.ledger.head(), self.table.snapshot(snapshot)
        if ref is None or one is None or ref.snapshotId() != snapshot:
            return False
        attempt = one.summary().get(ATTEMPT)
        below = next((s for s in History(self.table, one) if s.summary().get(ATTEMPT) != attempt), None)
        # A branch of an empty table begins with an empty snapshot of its own.
        return below is not None and (head is None or below.snapshotId() == head.snapshotId())

    def _publish(self, branch: str, staged: Commit, work: Work) -> bool:
        """Fast-forwards main and writes the record, in one transaction; False when main or the branch has moved."""
        self.site.verify()
        # First of all: what is committed after this makes the transaction fail, what came before it is looked at.
        transaction = self.table.newTransaction()
        if self.find(work.number, work.position, planned=True) is not None:
            return False  # the batch was set aside meanwhile, or its replacement has published it
        if not self._alone(branch, int(staged.snapshot or 0)):
            return False
        try:
            transaction.manageSnapshots().fastForwardBranch("main", branch).commit()
            record = self.ledger.record_of(work.number, work.position, int(staged.snapshot or 0))
            transaction.updateProperties().set(self.ledger.key, record.as_json()).commit()
            transaction.commitTransaction()
        except IllegalArgumentException:
            return False  # so says Iceberg when main is no ancestor of the branch any more
        except Py4JJavaError as error:
            if java_class(error) in CONFLICTS:
                return False
            found = self.ledger.look_again(error, work.number, work.position)
            return found is not None
        self.table.refresh()
        return True
