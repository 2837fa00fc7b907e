"""Repairs the rows of an upsert that a filter selects.

The backfill reads the source once, from the pipeline's first start on, and keeps the newest row of each key. It repairs
each key with a row that meets the filter: in the target, or among the computed rows. Such a key gets its newest row,
or is deleted if the script computes no row for it. So a row that moves into or out of the filter or a slice is stored
exactly once.

An ordered upsert drops a row that is older than the stored row of its key. A batch that began before a slice was
repaired may have compared its rows with wrong stored rows, and dropped too many. The target does not show this. So the
last slice, `CATCH_UP`, waits until that batch has ended. It then reads the rows that arrived since the first slice, and
upserts them into the repaired keys.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.errors import InputError, LeaseError, NotFound
from helios.plan.backfills import Cut
from helios.spark.backfill.keyed_repair import Changes, UpsertRepair
from helios.spark.backfill.keyed_rows import BATCH, BEFORE_BATCHES, TIED, latest, stored_rows
from helios.spark.backfill.live import LivePosition
from helios.spark.backfill.notes import Notes
from helios.spark.backfill.repair import MAX_UNPERSISTED
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import CATCH_UP, Slice, commits_since, slice_of, slices_of
from helios.spark.backfill.writers import TargetRows
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg import tables
from helios.spark.iceberg.history import History
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.sinks import merge
from helios.spark.sinks.options import Conflict
from helios.table.commits import SLICE
from helios.table.refs import REPLAY

CHECK_SECONDS = 0.5
"""Seconds between two checks whether a running batch has ended."""
LEAVE_OUT_FIX = (
    "leave those keys out with --where (`helios why` shows who wrote them), or refill the target with "
    "`helios run --full-refresh`."
)


@dataclass(kw_only=True)
class UpsertFilterRepair(UpsertRepair):
    """Repairs the keys whose rows meet a filter, slice by slice.

    Attributes:
        cut: How the rows are cut into slices; None for one slice.
        notes: The notes of the backfill; before the backfill begins, those of an earlier, stopped backfill.
        note: Called with a line for the user when the backfill waits for a batch.
        stopping: Returns True to end the backfill after the running slice.
        computed: The newest row of each key, as the script computes it, in DataFrames for consecutive spans. The first
            span ends where the pipeline was when the backfill began. Each later span has what the pipeline has read
            since. If there are more than `MAX_UNPERSISTED` DataFrames, they are merged into one.
        read_to: The position at which the last span ends; None before anything is read.
    """

    where: str
    cut: Cut | None
    target_rows: TargetRows
    notes: Notes
    note: Callable[[str], None]
    stopping: Callable[[], bool]
    computed: list[DataFrame] = field(default_factory=list)
    read_to: LivePosition | None = None

    def begin(self, stack: ExitStack) -> Callable[[], None]:
        """Reads the source up to the pipeline's position. If the mode has deletes, keeps the pipeline from running.

        Returns:
            A function that checks that the pipeline is still stopped, where it has to be: raises a `LeaseError` if it
            may be running again.

        Raises:
            LeaseError: The mode has deletes, and the pipeline is running.
            NotFound: The pipeline has read nothing.
        """
        verify: Callable[[], None] = lambda: None  # noqa: E731
        if self.mode.delete_when is not None:
            verify = self.keep_stopped(stack, "its deletes of missing keys")
        self.rows.refuse_columns()
        committed = self.live.committed()  # read before the target is refreshed, so that the target has these batches
        self.target.refresh()
        live_position = self.live.position(self.target, committed)
        self.refuse_remembered_keys(self.where, live_position)
        self.rows.evolve()
        rows = self.rows.newest_between(None, live_position.ends, BEFORE_BATCHES)
        if rows is None:
            raise NotFound(
                f"{self.plan.pipeline} has read nothing yet: there is nothing to repair.", where=self.plan.origin
            )
        self.computed[:] = [self.computed_once(rows)]
        self.read_to = live_position
        self.scope_of(self.computed[0].where(~F.col(TIED)))  # called for its checks: it rejects a row with a null key
        return verify

    @property
    def slices(self) -> list[Slice]:
        return [*self._filter_slices(), *([self._catch_up_slice()] if self.mode.order_by is not None else [])]

    def _catch_up_slice(self) -> Slice:
        """The catch-up slice, whose condition names the target's snapshot at the start of the backfill.

        If an earlier backfill was stopped before its catch-up slice, that slice is returned: it covers both backfills.
        """
        stopped = self.notes.load()
        for slice in stopped.slices if stopped is not None else ():
            if slice.name == CATCH_UP:
                return slice
        head = self._head()
        return Slice(CATCH_UP, f"since {head.snapshotId() if head is not None else None}")

    def _filter_slices(self) -> list[Slice]:
        if self.cut is None:  # a single slice does not depend on the values of the rows
            return [slice_of(self.where, None, None)]
        [rows] = self.computed
        after = rows.where(~F.col(DELETED)).where(self.where)
        before = self.target_rows.rows(self.where, self._head())
        counts = slices_of(self.where, self.cut, before if before is not None else after.limit(0), after)
        return [count.slice for count in counts]

    def _head(self) -> JavaSnapshot | None:
        return tables.head(self.target, self.plan.write.sink.branch_name)

    def preview(self) -> tuple[list[Repaired], int | None]:
        """Counts the changes of each slice. The size of the files is None: a repair looks up keys in all files."""
        slices: list[Repaired] = []
        with ExitStack() as stack:
            self.begin(stack)
            assert self.read_to is not None
            for slice in self._filter_slices():
                changes = self._changes(slice, self._head(), self.read_to)
                slices.append(Repaired(slice=slice.name, before=changes.before, after=changes.after))
        return slices, None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        with ExitStack() as stack:
            if slice.name == CATCH_UP:
                verify_pipeline_stopped = self._wait_for_batch(stack)
                if verify_pipeline_stopped is None:
                    return Conflict(None, 0)  # the user has stopped the backfill, so there is no other attempt

                def verify() -> None:
                    self.verify()
                    verify_pipeline_stopped()

                def catch_up(live_position: LivePosition) -> Changes | None:
                    return self._catch_up_changes(slice, live_position)

                return replace(self, verify=verify).commit_changes(number, slice, SLICE, catch_up)

            def changes(live_position: LivePosition) -> Changes:
                return self._changes(slice, self.head_at_look_up, live_position)

            return self.commit_changes(number, slice, SLICE, changes)

    # the slices of the filter

    def _changes(self, slice: Slice, head: JavaSnapshot | None, live_position: LivePosition) -> Changes:
        newest_rows, keys = self._read_up_to(live_position), [quoted(key) for key in self.mode.keys]
        # The keys of the slice: of its rows as the script computes them, and of its rows in the target.
        rows_of_slice = [rows.where(~F.col(DELETED)).where(slice.condition) for rows in newest_rows]
        present_of_slice = self.target_rows.rows(slice.condition, head)
        if present_of_slice is not None:
            self._refuse_null_keys(slice, present_of_slice)
            rows_of_slice.append(present_of_slice)
        keys_of_slice = reduce(DataFrame.unionByName, [rows.select(*keys) for rows in rows_of_slice]).distinct()
        scope = self.scope_of(self.computed_once(keys_of_slice))
        for commit in self.commits_in_scope(self.target_rows.commits_of_others(head), scope):
            raise self.error(slice.name, _changed_by(commit), LEAVE_OUT_FIX)
        computed = reduce(DataFrame.unionByName, map(scope.narrow, newest_rows))
        wanted = self.computed_once(latest(computed, self.mode.keys))
        self._refuse_ties(slice, wanted)
        present = self.computed_once(self.snapshots.at(head, scope))
        self.refuse_duplicate_keys(slice.name, present)
        return self.changes_between(present, wanted.where(~F.col(DELETED)))

    def _read_up_to(self, live_position: LivePosition) -> list[DataFrame]:
        """Extends `computed` up to a position, and returns it, oldest span first."""
        computed, read_to = self.computed, self.read_to
        assert read_to is not None
        new = None
        if read_to.ends != live_position.ends:
            new = self.rows.newest_between(read_to.ends, live_position.ends, BEFORE_BATCHES + len(computed))
        if new is not None:
            computed.append(self.computed_once(new))
        if len(computed) > MAX_UNPERSISTED:
            rows = latest(reduce(DataFrame.unionByName, computed), self.mode.keys)
            computed[:] = [self.computed_once(rows.withColumn(BATCH, F.lit(BEFORE_BATCHES)))]
        self.read_to = live_position
        return computed

    def _refuse_ties(self, slice: Slice, rows: DataFrame) -> None:
        tied = rows.where(TIED).select(*map(quoted, self.mode.keys)).head()
        if tied is None:
            return
        order = f"the same {self.mode.order_by}" if self.mode.order_by is not None else "no order"
        raise self.error(
            slice.name,
            f"the source has several rows of {merge.shown(tied.asDict())} with {order}, and does not tell in which "
            "order they came",
            "name the commits, as `helios history` shows them, with --commits A..B, or refill the target with "
            "`helios run --full-refresh`.",
        )

    def _refuse_null_keys(self, slice: Slice, rows: DataFrame) -> None:
        null_key = " OR ".join(f"{quoted(key)} IS NULL" for key in self.mode.keys)
        if not rows.where(null_key).isEmpty():
            raise self.error(
                slice.name,
                f"it holds rows without a key ({null_key}), which another writer has added",
                f'leave them out: --where "({self.where}) AND NOT ({null_key})".',
            )

    # the catch-up slice

    def _wait_for_batch(self, stack: ExitStack) -> Callable[[], None] | None:
        """Waits until the running batch has ended. If no process runs it any more, keeps the pipeline from running.

        Returns:
            A function that checks that the pipeline is still stopped, where it has to be: raises a `LeaseError` if it
            may be running again.
            None if the user has stopped the backfill.
        """
        planned = max(self.live.checkpoint.batches("offsets"), default=-1)
        noted = False
        while self.live.committed() < planned:
            self.verify()
            try:
                return self.keep_stopped(stack, "its late rows")
            except LeaseError:
                if self.stopping():
                    return None
                if not noted:
                    self.note(f"waits for batch {planned} of {self.plan.pipeline}, which may have dropped late rows")
                noted = True
                time.sleep(CHECK_SECONDS)
        return lambda: None

    def _catch_up_changes(self, slice: Slice, live_position: LivePosition) -> Changes | None:
        """The changes by rows that arrived since the first slice and are newer than the repaired rows of their keys."""
        own_commits = list(self._own_commits(slice))
        if not own_commits:
            return None
        entries = json.loads(own_commits[-1].summary().get("helios.position") or "{}").get("sources") or ()
        first_ends = tuple(entry.get("place") for entry in entries)
        rows = self.rows.newest_between(first_ends, live_position.ends, BEFORE_BATCHES + 1)
        if rows is None:
            return None
        changed_keys = reduce(DataFrame.unionByName, map(self.snapshots.keys_changed_by, own_commits))
        repaired_keys = self.computed_once(changed_keys.distinct())
        arrived = self.computed_once(self.scope_of(repaired_keys).narrow(rows))
        self._refuse_ties(slice, arrived)
        present = self.computed_once(self.snapshots.at(self.head_at_look_up, self.scope_of(arrived)))
        known = stored_rows(present, self.mode, BEFORE_BATCHES).withColumn(TIED, F.lit(False))
        wanted = latest(known.unionByName(arrived), self.mode.keys).where(~F.col(DELETED))
        return self.changes_between(present, wanted)

    def _own_commits(self, slice: Slice) -> Iterator[JavaSnapshot]:
        """The commits of the pipeline's backfills since this one began, newest first.

        Raises:
            InputError: Some of them may have expired. The next run then starts over.
        """
        history = History(self.target, self.head_at_look_up)
        yield from commits_since(slice, history, self.names)
        if history.is_cut:
            self.notes.end()
            raise InputError(
                f"the slices of {self.table} are repaired, but late rows of a batch that ran meanwhile may be missing: "
                "commits of this backfill may have expired, so the keys that it has repaired are not known.",
                where=self.plan.origin,
                fix="start the backfill again: it starts over. Keep snapshots longer than a backfill takes.",
            )

    @property
    def head_at_look_up(self) -> JavaSnapshot | None:
        """The target's newest snapshot when the ledger was last read."""
        assert self.ledger is not None
        return self.ledger.head_at_look_up


def _changed_by(snapshot: JavaSnapshot) -> str:
    writer = str(snapshot.summary().get("helios.pipeline") or "another writer")
    if writer.endswith(REPLAY):
        return f"snapshot {snapshot.snapshotId()} has replayed rejected rows of these keys after later batches"
    return f"snapshot {snapshot.snapshotId()}, of {writer}, has changed some of these keys"
