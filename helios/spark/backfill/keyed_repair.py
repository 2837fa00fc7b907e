"""What repairs of an upsert share: they compare the rows of some keys with those that the keys shall have."""

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
from helios.spark.backfill.keyed_rows import SIGN, BatchRows, TargetStates
from helios.spark.backfill.live import LivePipeline, Standing
from helios.spark.backfill.repair import COMMITS
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
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

LARGEST = "__helios_largest"


@dataclass(frozen=True)
class Changes:
    """What is to be written.

    Attributes:
        rows: The new rows of keys, and the old rows of keys that go, marked by `DELETED`.
        before: How many rows of the target go.
        after: How many come.
    """

    rows: DataFrame
    before: int
    after: int


@dataclass(kw_only=True)
class KeyedRepair:
    """Repairs rows of an upsert by their keys.

    Attributes:
        plan: The pipeline.
        spark: The session.
        target: Iceberg's table object.
        ledger: The record of the backfill; None for a dry run.
        live: The pipeline that may be running.
        rows: The rows that the script gives.
        names: The names of the pipeline.
        verify: Raises when another process has taken the backfill over.
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
        """The mode of the repair, whose rows are the newest ones already."""
        return replace(self.mode, order_by=None, delete_when=None)

    @property
    def states(self) -> TargetStates:
        return TargetStates(spark=self.spark, table=self.target, keys=self.mode.keys)

    def committed(
        self, number: int, slice: Slice, stamp: str, found: Callable[[Standing], Changes | None]
    ) -> Repaired | Conflict:
        """Commits the changes of a slice.

        Args:
            number: The number of the slice.
            slice: The slice.
            stamp: The name of the snapshot's property that holds the slice's condition.
            found: Gives the changes for where the pipeline stands; None for no change.
        """
        ledger = self.ledger
        assert ledger is not None
        self.verify()
        done = self.live.committed()  # before the table, which then has these batches
        ledger.find(Batch(number, (), replayed=True))
        at = self.live.standing(ledger.table, done)
        changes = found(at)
        options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint).options()
        options = replace(options, stamps={**options.stamps, stamp: slice.condition}, verify=self.verify)
        before, after = (changes.before, changes.after) if changes is not None else (0, 0)
        write = self._write(changes.rows if changes is not None and (before or after) else None)
        batch = Batch(number, at.spans, replayed=True)
        made = ledger.try_commit(self.spark, write, batch, options, CommitRetries(COMMITS))
        if isinstance(made, Conflict):
            return made
        freshness.verify(self.plan.write.table, self.target)
        snapshot = made.snapshot if made is not None else None
        return Repaired(slice=slice.name, before=before, after=after, snapshot=snapshot)

    def _write(self, changes: DataFrame | None) -> Callable[[Transaction], None]:
        mode, names = self.unordered, self.names

        def conflict(snapshot: JavaSnapshot) -> str:
            """Iceberg compares the keys with those of the pipeline's batches; other writers are looked at anew."""
            if snapshot.summary().get("helios.pipeline") in names or not changes_rows(snapshot):
                return ""
            return f"snapshot {snapshot.snapshotId()} has changed rows"

        def write(pending: Transaction) -> None:
            pending.watch.conflict = conflict
            if changes is None:
                return
            scope = merge.validate_keys(changes, mode, self.table, self.plan.declared.sink.origin)
            columns = [name for name in changes.columns if name != DELETED]
            text = merge.merge_text(mode.keys, columns, columns, newer="TRUE", deletes=True)
            pending.sql(text, changes, scope)

        return write

    def between(self, now: DataFrame, wanted: DataFrame) -> Changes:
        """The changes that make rows of the target, of some keys, those that they shall be."""
        different = self.kept(self.states.difference(now, wanted))
        before, after = (different.where(F.col(SIGN) == sign).count() for sign in (-1, 1))
        keys = map(quoted, self.mode.keys)
        comes = F.max(SIGN).over(Window.partitionBy(*keys))  # a row that another one replaces is no delete
        changes = different.withColumn(LARGEST, comes).where(F.col(SIGN) == F.col(LARGEST))
        changes = changes.withColumn(DELETED, F.col(SIGN) < 0).drop(SIGN, LARGEST)
        return Changes(self.kept(changes), before, after)

    def scope(self, keys: DataFrame) -> MergeScope:
        return merge.validate_keys(keys, self.unordered, self.table, self.plan.declared.sink.origin)

    def kept(self, rows: DataFrame) -> DataFrame:
        """Rows that are computed once, without their plan: the plans of many slices would grow into each other."""
        return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)

    def stopped(self, stack: ExitStack, why: str) -> Callable[[], None]:
        """Keeps the pipeline from running.

        Args:
            stack: What ends with the repair.
            why: What a running pipeline does that the repair would not see, for the message.

        Returns:
            Raises a `LeaseError` if the pipeline runs all the same, as after a long pause of this process.

        Raises:
            LeaseError: It is running.
        """
        lease = Lease(Checkpoint(self.spark, self.live.checkpoint.location))
        try:
            lease.acquire()
        except LeaseError as error:
            raise LeaseError(
                f"{self.plan.pipeline} is running, and {why} leave no trace by which the repair would see them: "
                f"{error.what}",
                where=self.plan.origin,
                fix="stop the pipeline, repair, and start it again.",
            ) from error
        stack.callback(lease.release)
        return lease.verify

    # what is refused

    def error(self, slice: str, why: str, fix: str = REFILL) -> InputError:
        return InputError(
            f"{slice} of {self.table} cannot be repaired: {why}; nothing was written.",
            where=self.plan.declared.sink.origin,
            fix=fix,
        )

    def refuse_memory(self, slice: str, at: Standing) -> None:
        """Rejects a pipeline that knows more of its keys than the target shows.

        Raises:
            InputError: It, or another one, remembers keys beside the table.
        """
        context = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint)
        if self.mode.order_by is not None and upsert_state(context, at.record).has_keys:
            why = "the pipeline remembers deleted keys or orders beside the table, which is not repaired"
            raise self.error(slice, why)
        own = {f"{name}{end}" for name in self.names for end in ("", REPLAY, BACKFILL)}
        branch = self.plan.write.sink.branch_name
        others = [
            name
            for name, record in known_records(self.target).items()
            if name not in own and record.upserts and record.branch == branch
        ]
        if others and self.mode.order_by is not None:
            raise self.error(
                slice,
                f"{others[0]} upserts into it, too, and its late rows are not known",
                "write all of its pipelines into a new table, which then takes the old one's place.",
            )

    def refuse_twice(self, slice: str, rows: DataFrame) -> None:
        """Rejects keys that the target holds more than once.

        Raises:
            InputError: There is such a key.
        """
        keyed = rows.groupBy(*map(quoted, self.mode.keys)).agg(F.count(F.lit(1)).alias(merge.RANK))
        twice = keyed.where(F.col(merge.RANK) > 1).drop(merge.RANK).head()
        if twice is not None:
            why = f"it holds {merge.shown(twice.asDict())} more than once"
            raise self.error(slice, why, "leave one row of each key.")

    def of_others(self, others: Sequence[JavaSnapshot], scope: MergeScope) -> Iterator[JavaSnapshot]:
        """The commits of other writers that changed keys of a scope."""
        for one in others:
            if not scope.narrow(self.states.changed_by(one)).isEmpty():
                yield one
