"""The parts that the two repairs of an upsert share: the repair by commits, and the repair by a filter.

A repair selects some keys. It compares the rows that the target has for these keys with the rows that the current
script computes for them, and commits the difference with a MERGE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from helios.errors import InputError, LeaseError
from helios.model.modes import Upsert
from helios.model.retry import CommitRetries
from helios.plan.nodes import Plan
from helios.spark.backfill.batches import REFILL
from helios.spark.backfill.keyed_rows import SIGN, BatchRows, TargetSnapshots
from helios.spark.backfill.live import LivePipeline, LivePosition
from helios.spark.backfill.repair import COMMIT_RETRY
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import ROWS, Slice
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg import freshness
from helios.spark.iceberg.merge_scope import MergeScope
from helios.spark.iceberg.transaction import Transaction
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.run.upsert_keys import upsert_state
from helios.spark.sinks import merge
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Conflict
from helios.spark.sinks.stored_records import known_records
from helios.table.positions import Batch
from helios.table.refs import BACKFILL, REPLAY

LARGEST_SIGN = "__helios_largest"


@dataclass(frozen=True)
class Changes:
    """The changes that a repair writes into the target.

    Attributes:
        rows: The new row of each key that gets one, and the old row of each deleted key, for which `DELETED` is true.
        before: The number of rows that are removed from the target.
        after: The number of rows that are added to the target.
    """

    rows: DataFrame
    before: int
    after: int


@dataclass(kw_only=True)
class UpsertRepair:
    """Repairs rows of an upsert by their keys.

    Attributes:
        ledger: The ledger of the backfill; None for a dry run.
        live: The pipeline, which may be running.
        rows: Computes rows with the current script.
        names: The present and former names of the pipeline.
        verify: Raises if another process has taken over the backfill, or if the pipeline may be running although the
            repair keeps it stopped.
    """

    plan: Plan
    spark: SparkSession
    target: JavaTable
    ledger: Ledger | None
    live: LivePipeline
    rows: BatchRows
    names: frozenset[str]
    verify: Callable[[], None]

    @property
    def table(self) -> str:
        return self.plan.write.table.text

    @property
    def mode(self) -> Upsert:
        return self.rows.mode

    @property
    def unordered(self) -> Upsert:
        """The mode without order and deletes: each key has one row already, and deleted keys are marked."""
        return replace(self.mode, order_by=None, delete_when=None)

    @property
    def snapshots(self) -> TargetSnapshots:
        return TargetSnapshots(spark=self.spark, table=self.target, keys=self.mode.keys)

    def commit_changes(
        self, number: int, slice: Slice, stamp: str, compute: Callable[[LivePosition], Changes | None]
    ) -> Repaired | Conflict:
        """Computes the changes of a slice, and commits them.

        Args:
            stamp: The property of the snapshot summary that gets the slice's condition.
            compute: Returns the changes, given how far the pipeline has read; None for no change.
        """
        ledger = self.ledger
        assert ledger is not None
        self.verify()
        committed = self.live.committed()  # read before the target is refreshed, so that the target has these batches
        # Refreshes the target, and sets the head against which `try_commit` validates the commit.
        ledger.find(Batch(number, (), maybe_written=True))
        live_position = self.live.position(ledger.table, committed)
        changes = compute(live_position)
        options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint).options()
        options = replace(options, stamps={**options.stamps, stamp: slice.condition}, verify=self.verify)
        before, after = (changes.before, changes.after) if changes is not None else (0, 0)
        write = self._write(changes.rows if changes is not None and (before or after) else None)
        batch = Batch(number, live_position.spans, maybe_written=True)
        commit = ledger.try_commit(self.spark, write, batch, options, CommitRetries(COMMIT_RETRY))
        if isinstance(commit, Conflict):
            return commit
        freshness.verify(self.plan.write.table, self.target)
        snapshot = commit.snapshot if commit is not None else None
        return Repaired(slice=slice.name, before=before, after=after, snapshot=snapshot)

    def _write(self, changes: DataFrame | None) -> Callable[[Transaction], None]:
        mode, names = self.unordered, self.names

        def conflict(snapshot: JavaSnapshot) -> str:
            """The reason why a concurrent commit conflicts; empty if it does not.

            Iceberg itself checks the pipeline's own commits for the keys of the MERGE. After a commit of another
            writer, the repair must check again whether that writer has changed the keys.
            """
            if snapshot.summary().get("helios.pipeline") in names or not changes_rows(snapshot):
                return ""
            return f"snapshot {snapshot.snapshotId()} has changed rows"

        def write(pending: Transaction) -> None:
            pending.watch.conflict_reason = conflict
            if changes is None:
                return
            scope = merge.validate_keys(changes, mode, self.table, self.plan.declared.sink.origin)
            columns = [name for name in changes.columns if name != DELETED]
            text = merge.merge_text(mode.keys, columns, columns, newer="TRUE", deletes=True)
            pending.sql(text, changes, scope)

        return write

    def changes_between(self, present: DataFrame, wanted: DataFrame) -> Changes:
        """The changes that turn the target's present rows of some keys into the wanted rows of these keys."""
        different = self.computed_once(self.snapshots.difference(present, wanted))
        before, after = (different.where(F.col(SIGN) == sign).count() for sign in (-1, 1))
        # A key with a new row is updated, so only its new row is kept. A key with only an old row is deleted.
        largest_sign = F.max(SIGN).over(Window.partitionBy(*map(quoted, self.mode.keys)))
        changes = different.withColumn(LARGEST_SIGN, largest_sign).where(F.col(SIGN) == F.col(LARGEST_SIGN))
        changes = changes.withColumn(DELETED, F.col(SIGN) < 0).drop(SIGN, LARGEST_SIGN)
        return Changes(self.computed_once(changes), before, after)

    def scope_of(self, keys: DataFrame) -> MergeScope:
        return merge.validate_keys(keys, self.unordered, self.table, self.plan.declared.sink.origin)

    def computed_once(self, rows: DataFrame) -> DataFrame:
        """Computes rows and stores them on disk, without their query plan: otherwise the plan grows with each slice."""
        return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)

    def keep_stopped(self, stack: ExitStack, unseen: str) -> Callable[[], None]:
        """Takes the lease of the pipeline, so that it cannot run during the repair.

        Args:
            stack: Releases the lease when it is closed.
            unseen: What a running pipeline would do without a trace in the target, for the message.

        Returns:
            A function that raises a `LeaseError` if the lease was lost, for instance in a long pause of this process.

        Raises:
            LeaseError: The pipeline is running.
        """
        lease = Lease(Checkpoint(self.spark, self.live.checkpoint.location))
        try:
            lease.acquire()
        except LeaseError as error:
            raise LeaseError(
                f"{self.plan.pipeline} is running, and {unseen} leave no trace in the table: {error.what}",
                where=self.plan.origin,
                fix="stop the pipeline, repair, and start it again.",
            ) from error
        stack.callback(lease.release)
        return lease.verify

    # checks

    def error(self, slice: str, why: str, fix: str = REFILL) -> InputError:
        return InputError(
            f"{slice} of {self.table} cannot be repaired: {why}; nothing was written.",
            where=self.plan.declared.sink.origin,
            fix=fix,
        )

    def refuse_remembered_keys(self, slice: str, live_position: LivePosition) -> None:
        """Refuses an ordered upsert if the target alone does not show which rows are late.

        Raises:
            InputError: The pipeline remembers keys outside of the target, or another pipeline upserts into the target.
        """
        context = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint)
        if self.mode.order_by is not None and upsert_state(context, live_position.record).has_keys:
            raise self.error(slice, "the pipeline remembers keys outside of the table, and these are not repaired")
        own_names = {f"{name}{suffix}" for name in self.names for suffix in ("", REPLAY, BACKFILL)}
        branch = self.plan.write.sink.branch_name
        others = [
            name
            for name, record in known_records(self.target).items()
            if name not in own_names and record.upserts and record.branch == branch
        ]
        if others and self.mode.order_by is not None:
            raise self.error(
                slice,
                f"{others[0]} upserts into the table, too, and its late rows are not known",
                "let all pipelines of the table write into a new table, and replace the old table by that one.",
            )

    def refuse_duplicate_keys(self, slice: str, rows: DataFrame) -> None:
        """Raises an `InputError` if several rows from the target have the same key."""
        counts = rows.groupBy(*map(quoted, self.mode.keys)).agg(F.count(F.lit(1)).alias(ROWS))
        duplicate = counts.where(F.col(ROWS) > 1).drop(ROWS).head()
        if duplicate is not None:
            why = f"it holds {merge.shown(duplicate.asDict())} more than once"
            raise self.error(slice, why, "delete all rows of such a key but one.")

    def commits_in_scope(self, commits: Sequence[JavaSnapshot], scope: MergeScope) -> Iterator[JavaSnapshot]:
        """Yields the commits that changed rows of keys in a scope."""
        for commit in commits:
            if not scope.narrow(self.snapshots.keys_changed_by(commit)).isEmpty():
                yield commit
