"""The repair of commits of an upsert: their keys get what the script makes of all that came since.

All of the commits are one slice. Of each key that they changed, or that the script gives of their batches, the state
before them is taken, and their batches and all later ones are read once more on top of it. So a key that the mended
script no longer gives is put back, and a row that came later stays. What the pipeline has no way to see again (deletes
that it remembers, rows of other writers, rows that were late in a batch that is under way) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from helios.errors import InputError, LeaseError
from helios.model.modes import Upsert
from helios.model.retry import CommitRetries
from helios.plan.nodes import Plan
from helios.spark.backfill.batches import REFILL, PastBatches, past_batches
from helios.spark.backfill.keyed_rows import BEFORE, SIGN, BatchRows, TargetStates, marked, newest
from helios.spark.backfill.live import LivePipeline, Standing
from helios.spark.backfill.repair import COMMITS
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg import freshness, tables
from helios.spark.iceberg.history import History
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
from helios.table.commits import REDONE, Commit
from helios.table.positions import Batch, Span
from helios.table.refs import BACKFILL, REPLAY

LARGEST = "__helios_largest"
MOST_BATCHES = 300
"""The most batches that are read once more: each is a part of one query."""


@dataclass(kw_only=True)
class RedoUpserts:
    """Repairs commits of an upsert, all in one.

    Attributes:
        plan: The pipeline.
        spark: The session.
        target: Iceberg's table object.
        ledger: The record of the backfill; None for a dry run.
        live: The pipeline that may be running.
        rows: The rows that the script gives.
        asked: The commits, oldest first.
        names: The names of the pipeline.
        verify: Raises when another process has taken the backfill over.
    """

    plan: Plan
    spark: SparkSession
    target: JavaTable
    ledger: Ledger | None
    live: LivePipeline
    rows: BatchRows
    asked: Sequence[Commit]
    names: frozenset[str]
    verify: Callable[[], None]

    @property
    def table(self) -> str:
        return self.plan.write.table.text

    @property
    def slices(self) -> list[Slice]:
        """The commits as one slice, whose condition is the first and the last snapshot."""
        first, last = self.asked[0], self.asked[-1]
        name = f"batch {first.batch} (snapshot {first.snapshot})"
        if first is not last:
            name = f"batches {first.batch} to {last.batch} ({len(self.asked)} commits)"
        return [Slice(name, f"{first.snapshot}..{last.snapshot}")]

    @property
    def unordered(self) -> Upsert:
        """The mode of the repair, whose rows are the newest ones already."""
        return replace(self.rows.mode, order_by=None, delete_when=None)

    @property
    def leaves_traces(self) -> bool:
        """Whether each row of a batch changes the target: a late row and a delete of a missing key do not."""
        return self.rows.mode.order_by is None and self.rows.mode.delete_when is None

    def alone(self, stack: ExitStack) -> Callable[[], None]:
        """Keeps the pipeline from running where a batch beside the repair may have rows that leave no trace.

        Returns:
            Raises a `LeaseError` if the pipeline runs all the same, as after a long pause of this process.

        Raises:
            LeaseError: It is running.
        """
        if self.leaves_traces:
            return lambda: None
        lease = Lease(Checkpoint(self.spark, self.live.checkpoint.location))
        try:
            lease.acquire()
        except LeaseError as error:
            raise LeaseError(
                f"{self.plan.pipeline} is running, and its late rows and its deletes of missing keys leave no trace by "
                f"which the repair would see them: {error.what}",
                where=self.plan.origin,
                fix="stop the pipeline, repair, and start it again.",
            ) from error
        stack.callback(lease.release)
        return lease.verify

    def preview(self) -> tuple[list[Repaired], int | None]:
        """The slice as it would be repaired now; the bytes are not known, since keys are looked up in all files."""
        committed = self.live.committed()  # before the table, which then has these batches
        self.target.refresh()
        at = self.live.standing(self.target, committed)
        with ExitStack() as stack:
            head = tables.head(self.target, self.plan.write.sink.branch_name)
            _, before, after = self._changes(head, at, stack)
        return [Repaired(slice=self.slices[0].name, before=before, after=after)], None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        ledger = self.ledger
        assert ledger is not None
        self.verify()
        committed = self.live.committed()  # before the table, which then has these batches
        ledger.find(Batch(number, (), replayed=True))
        at = self.live.standing(ledger.table, committed)
        with ExitStack() as stack:
            changes, before, after = self._changes(ledger.seen, at, stack)
            spans = tuple(Span(entry["source"], None, entry.get("place"), entry) for entry in at.entries)
            options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint).options()
            options = replace(options, stamps={**options.stamps, REDONE: slice.condition}, verify=self.verify)
            write = self._write(changes if before or after else None)
            batch = Batch(number, spans, replayed=True)
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

    # what is to be changed

    def _changes(self, head: JavaSnapshot | None, at: Standing, stack: ExitStack) -> tuple[DataFrame, int, int]:
        """The rows to be written, with `DELETED` for keys that go; how many rows go, and how many come."""
        self.rows.refuse_columns()
        self._refuse_memory(at)
        keys, mode = self.rows.mode.keys, self.rows.mode
        states = TargetStates(spark=self.spark, table=self.target, keys=keys)
        past = past_batches(
            self.plan, self.live.checkpoint, sorted(self.names), (self.asked[0].snapshot, self.asked[-1].snapshot), at
        )
        self._refuse_batches(past)
        begin = self._begin(past)
        others, repairs = self._others(past, begin, head)
        self.rows.evolve()
        asked = self.rows.of(past, [one for one in past.batches if one.owner <= past.last])
        touched = self._changed(states, past, repairs, whole=not others)
        if asked is not None:
            asked = self._kept(asked, stack)
            touched = touched.unionByName(asked.select(*map(quoted, keys))).distinct()
        touched = self._kept(touched, stack)
        scope = merge.validate_keys(touched, self.unordered, self.table, self.plan.declared.sink.origin)
        self._refuse_others(states, others, scope)
        parts = [marked(states.at(begin, scope), mode, BEFORE), *([asked] if asked is not None else [])]
        later = self.rows.of(past, [one for one in past.batches if one.owner > past.last])
        parts += [scope.narrow(later)] if later is not None else []
        every = reduce(DataFrame.unionByName, parts)
        now = self._kept(states.at(head, scope), stack)
        self._refuse_twice(parts[0], now)
        different = self._kept(states.difference(now, newest(every, keys)), stack)
        before, after = (different.where(F.col(SIGN) == sign).count() for sign in (-1, 1))
        comes = F.max(SIGN).over(Window.partitionBy(*map(quoted, keys)))  # a row that another one replaces is no delete
        changes = different.withColumn(LARGEST, comes).where(F.col(SIGN) == F.col(LARGEST))
        changes = changes.withColumn(DELETED, F.col(SIGN) < 0).drop(SIGN, LARGEST)
        return self._kept(changes, stack), before, after

    def _changed(
        self, states: TargetStates, past: PastBatches, repairs: Sequence[JavaSnapshot], *, whole: bool
    ) -> DataFrame:
        """The keys that the commits changed, or earlier repairs of them, maybe by a script that was wrong, too.

        Args:
            states: The rows of the target.
            past: The batches.
            repairs: The snapshots of the earlier repairs.
            whole: Whether no other writer has committed since, so that two states tell what all of the commits changed.
        """
        made = past.made[past.first : past.last + 1]
        ends = [(made[0], made[-1])] if whole else [(one, one) for one in made]
        pairs = [(first.parent, last.snapshots[-1]) for first, last in ends]
        pairs += [(one.parentId(), int(one.snapshotId())) for one in repairs]
        parts: list[DataFrame] = []
        for parent, snapshot in pairs:
            after = self.target.snapshot(snapshot)
            assert after is not None  # all snapshots since the first commit are in the history
            before = self.target.snapshot(int(parent)) if parent is not None else None
            parts.append(states.changed_keys(before, after))
        return reduce(DataFrame.unionByName, parts).distinct()

    def _kept(self, rows: DataFrame, stack: ExitStack) -> DataFrame:
        """Rows that are computed once."""
        kept = rows.persist(StorageLevel.DISK_ONLY)
        stack.callback(kept.unpersist)
        return kept

    # what is refused

    def _error(self, why: str, fix: str = REFILL) -> InputError:
        return InputError(
            f"{self.slices[0].name} of {self.table} cannot be repaired: {why}; nothing was written.",
            where=self.plan.declared.sink.origin,
            fix=fix,
        )

    def _refuse_memory(self, at: Standing) -> None:
        context = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint)
        if self.rows.mode.order_by is not None and upsert_state(context, at.record).remembers:
            raise self._error("the pipeline remembers deleted keys or orders beside the table, which is not repaired")
        own = {f"{name}{end}" for name in self.names for end in ("", REPLAY, BACKFILL)}
        others = [name for name, record in known_records(self.target).items() if name not in own and record.upserts]
        if others:
            raise self._error(f"{others[0]} upserts into it, too, and its late rows are not known")

    def _refuse_twice(self, *states: DataFrame) -> None:
        keys = [quoted(key) for key in self.rows.mode.keys]
        for rows in states:
            twice = rows.groupBy(*keys).count().where("count > 1").drop("count").head()
            if twice is not None:
                raise self._error(
                    f"it holds {merge.shown(twice.asDict())} more than once", "leave one row of each key."
                )

    def _refuse_batches(self, past: PastBatches) -> None:
        if len(past.batches) > MOST_BATCHES:
            raise self._error(
                f"{len(past.batches):,} batches have come since, and at most {MOST_BATCHES} are read once more"
            )
        if not past.whole:
            raise self._error("the checkpoint has forgotten where batches ended that wrote nothing")

    def _begin(self, past: PastBatches) -> JavaSnapshot | None:
        """The state before the commits."""
        first = past.made[past.first]
        begin = self.target.snapshot(first.parent) if first.parent is not None else None
        if not first.base or (first.parent is not None and begin is None):
            raise self._error(
                f"snapshot {first.parent}, the state before it, has expired",
                "keep snapshots longer to repair commits; refill the target with `helios run --full-refresh`.",
            )
        return begin

    def _others(
        self, past: PastBatches, begin: JavaSnapshot | None, head: JavaSnapshot | None
    ) -> tuple[list[JavaSnapshot], list[JavaSnapshot]]:
        """The commits of other writers since a state, and the earlier repairs of the commits that are asked for."""
        others: list[JavaSnapshot] = []
        repairs: list[JavaSnapshot] = []
        for one in self._since(begin, head):
            writer = str(one.summary().get("helios.pipeline"))
            if writer in self.names:
                continue
            if writer.removesuffix(REPLAY) in self.names:
                raise self._error(f"snapshot {one.snapshotId()} has replayed rows of the quarantine since")
            if writer.removesuffix(BACKFILL) not in self.names:
                others.append(one)
            elif self._repairs_asked(past, str(one.summary().get(REDONE))):
                repairs.append(one)
        return others, repairs

    def _since(self, begin: JavaSnapshot | None, head: JavaSnapshot | None) -> Iterator[JavaSnapshot]:
        for one in History(self.target, head):
            if begin is not None and one.snapshotId() == begin.snapshotId():
                return
            if changes_rows(one):
                yield one
        if begin is not None:
            raise self._error("the state before it is not one of the table's history any more")

    def _repairs_asked(self, past: PastBatches, redone: str) -> bool:
        """True if commits that are asked for were repaired by an earlier backfill.

        Raises:
            InputError: It has repaired commits before them: the state before them is not repaired.
        """
        first = redone.partition("..")[0]
        index = {str(snapshot): place for place, one in enumerate(past.made) for snapshot in one.snapshots}
        if first in index and index[first] >= past.first:
            return index[first] <= past.last
        last = past.made[past.last].snapshots[-1]
        raise self._error(
            f"earlier commits, {redone}, were repaired since, and the state before it has their wrong rows",
            f"repair them together: --commits {first}..{last}." if first in index else REFILL,
        )

    def _refuse_others(self, states: TargetStates, others: Sequence[JavaSnapshot], scope: MergeScope) -> None:
        for one in others:
            parent = one.parentId()
            before = self.target.snapshot(int(parent)) if parent is not None else None
            if not scope.narrow(states.changed_keys(before, one)).isEmpty():
                writer = one.summary().get("helios.pipeline")
                raise self._error(
                    f"snapshot {one.snapshotId()}, of {writer or 'another writer'}, has changed the same keys since",
                    "repair later commits, or refill the target with `helios run --full-refresh`.",
                )
