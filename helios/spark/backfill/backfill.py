"""Backfills: repairs the history of a target with the script as it is now, beside the running pipeline.

A backfill commits as its own driver, `<pipeline>.backfill`, under a lease of its own. Each slice is one commit, which
replaces its rows by those that the script gives of what the sources held up to the position of the live record. The
record's number is that of the last slice, so that another process goes on after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from helios.catalog.names import TableName
from helios.errors import HeliosError, InputError, LeaseError, NotFound
from helios.plan.backfills import (
    Ask,
    columns_named,
    commits_in_range,
    cut_of,
    refuse_backfill,
    refuse_other_source,
    refuse_zone,
    with_table_spelling,
)
from helios.plan.nodes import Plan
from helios.spark.backfill.edges import Edges, cast_error, refuse_filter
from helios.spark.backfill.keyed_repair import KeyedRepair
from helios.spark.backfill.keyed_rows import BatchRows
from helios.spark.backfill.keyed_slices import RepairKeys
from helios.spark.backfill.live import LivePipeline, Standing
from helios.spark.backfill.notes import Notes, State
from helios.spark.backfill.other_source import other_rows
from helios.spark.backfill.recompute import ReadOnlyCheckpoint, Recompute
from helios.spark.backfill.redo import Redo
from helios.spark.backfill.rejects import Rejects
from helios.spark.backfill.repair import Base, Repair, SliceRepairer, repair_slice
from helios.spark.backfill.result import Backfilled, Progress, Repaired
from helios.spark.backfill.slices import MEANWHILE, Counted, Slice, slice_of, slices_of
from helios.spark.backfill.started import Started, made_by
from helios.spark.backfill.upserts import RedoUpserts
from helios.spark.backfill.writers import Target
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg import tables
from helios.spark.iceberg.failures import user_error
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.iceberg.schema import align
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.run.query import keeps_state
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.table.commits import Commit, commits
from helios.table.refs import BACKFILL, MAIN, OWN_ENDS, REPLAY

ZONE = "spark.sql.session.timeZone"


class Backfill:
    """The backfill of one pipeline.

    Args:
        plan: The pipeline, compiled from the current script.
        spark: The session.
        ask: What is to be repaired.
        other: The table, or the path of the folder, that is read in place of the source.
        tell: Called after each slice.
        note: Called with a line about what is done again, or anew.
        stopping: Whether the backfill ends after the running slice.

    Raises:
        HeliosError: The pipeline cannot be backfilled; names the reason.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        ask: Ask,
        *,
        other: TableName | str | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
        note: Callable[[str], None] = lambda text: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        refuse_backfill(plan)
        if other is not None:
            refuse_other_source(plan)
        self._plan, self._spark, self._ask, self._tell, self._other = plan, spark, ask, tell, other
        self._note, self._stopping = note, stopping
        self._edges: Edges | None = None
        table = tables.load_table(spark, plan.write.table)
        if table is None:
            raise NotFound(f"table {plan.write.table.text} does not exist.", where=plan.declared.sink.origin)
        self._table: JavaTable = table
        self._checkpoint = ReadOnlyCheckpoint(spark, plan.checkpoint)
        self._live = LivePipeline(plan, spark, self._checkpoint)
        self._recompute = Recompute(plan, spark, self._checkpoint)
        self._rejects = Rejects(plan, spark, self._checkpoint)
        self._notes = Notes(spark, self._checkpoint)

    def run(self, *, dry_run: bool = False) -> Backfilled:
        """Repairs the slices, one after the other.

        Args:
            dry_run: Whether slices and rows are only counted.

        Raises:
            HeliosError: A slice cannot be repaired. The slices before it are repaired; the next run goes on with it.
        """
        try:
            with scan_task_scope():
                replaces = self._ask.commits is None and self._plan.write.mode.upsert is None
                if dry_run:
                    return self._counted() if replaces else self._previewed()
                lease = Lease(self._notes.checkpoint)
                try:
                    lease.acquire()
                except LeaseError as error:
                    raise LeaseError(
                        f"a backfill of {self._plan.pipeline} is running already: {error.what}",
                        where=self._plan.origin,
                        fix="wait for its end, or stop it; it goes on when it is started again as it was.",
                    ) from error
                try:
                    return self._run(lease) if replaces else self._redone(lease)
                finally:
                    lease.release()
        except HeliosError:
            raise
        except Exception as error:
            raise cast_error(error, self._ask.where) or user_error(error, self._plan) from error

    # what is to be done

    def _look(self) -> Standing:
        committed = self._live.committed()  # before the table, which then has these batches
        self._table.refresh()
        standing = self._live.standing(self._table, committed)
        # Rows of a batch that the table has lost would come back.
        guard = RollbackGuard(self._table, self._plan.pipeline, standing.record.checkpoint, lenient=True)
        guard.refuse(standing.record, self._head())
        return standing

    def _read_filter(self) -> list[str]:
        """The columns that the filter names, which fits the target; sets how the rows are cut."""
        plan, table = self._plan, self._table
        columns = {f.name: f.dataType.simpleString() for f in tables.spark_schema(self._spark, table).fields}
        named = columns_named(self._ask.where, columns, plan.write.table.text)
        self._ask = replace(self._ask, where=with_table_spelling(self._ask.where, columns))
        refuse_filter(self._spark, table, plan.write.table, self._ask.where)
        self._cut = cut_of(self._ask.by, named, columns, plan.write.table.text)
        cut = self._cut.column if self._cut is not None else None
        refuse_zone(str(self._spark.conf.get(ZONE)), named if cut is None else {*named, cut}, columns)
        return named

    def _prepare(self) -> tuple[Standing, DataFrame]:
        """How far the pipeline has come, and the rows that the script gives of it, as the target stores them."""
        plan, table = self._plan, self._table
        named = self._read_filter()
        cut = self._cut.column if self._cut is not None else None
        standing = self._look()
        record = standing.record
        own = names_of(table, plan.write.pipelines, record)
        self._target = Target.of(plan, self._spark, table, own, OWN_ENDS, trusts_expired=self._ask.trusts_expired)
        self._edges = Edges(
            plan=plan,
            spark=self._spark,
            table=table,
            target=self._target,
            checkpoints=(self._checkpoint, self._notes.checkpoint),
            own=frozenset(f"{name}{end}" for name in own for end in OWN_ENDS),
            where=self._ask.where,
            columns=named,
            cut=cut,
            trusts_expired=self._ask.trusts_expired,
            trusted=self._ask.rows_stay,
        )
        other = None
        if self._other is not None:
            other = other_rows(self._spark, plan, self._other, standing)
            self._recompute.resume(self._checkpoint.start() or (), instead=True)
        else:
            self._recompute.resume(self._live.starts(standing, table))
        self._refuse_state()
        built = self._recompute.rows(None, standing.ends, other)
        if built is None:
            raise NotFound(f"{plan.pipeline} has read nothing yet: there is nothing to repair.", where=plan.origin)
        self._rejects.refuse_other(built.rejected)
        return standing, built.df

    def _refuse_state(self) -> None:
        if keeps_state(self._recompute.analyzed()):
            raise InputError(
                f"{self._plan.pipeline} cannot be backfilled: a callable keeps state between batches.",
                where=self._plan.origin,
            )

    def _counted(self) -> Backfilled:
        """The slices as they would be repaired now; nothing is written, not even a new column."""
        standing, rows = self._prepare()
        schema = tables.spark_schema(self._spark, self._table)
        known = {name.lower() for name in schema.names}
        rows = align(rows.select(*[quoted(name) for name in rows.columns if name.lower() in known]), schema)
        self._refuse_moves(rows, standing)
        counted = self._slices(rows.where(self._ask.where))
        head = self._head()
        for one in counted:
            self._target.refuse_others(one.slice, head)
        slices = tuple(Repaired(slice=one.slice.name, before=one.before, after=one.after) for one in counted)
        size = self._target.bytes(self._ask.where, head)
        return replace(self._result(slices), dry_run=True, bytes=size)

    def _refuse_moves(self, rows: DataFrame, standing: Standing) -> Edges:
        assert self._edges is not None
        self._edges.refuse(rows, standing, self._head())
        return self._edges

    def _slices(self, rows: DataFrame) -> list[Counted]:
        before = self._target.rows(self._ask.where, self._head())
        before = before if before is not None else rows.limit(0)
        return slices_of(self._ask.where, self._cut, before, rows)

    def _head(self) -> JavaSnapshot | None:
        return tables.head(self._table, self._plan.write.sink.branch_name)

    def _result(self, slices: tuple[Repaired, ...]) -> Backfilled:
        plan = self._plan
        return Backfilled(
            pipeline=plan.pipeline,
            table=plan.write.table.text,
            where=self._ask.commits or self._ask.where,
            dry_run=False,
            slices=slices,
        )

    # repairing

    def _run(self, lease: Lease) -> Backfilled:
        standing, rows = self._prepare()
        plan = self._plan
        rows = SchemaAligner(self._spark, plan, plan.write.table, self._table)(rows, ())
        edges = self._refuse_moves(rows, standing)
        rows = rows.where(self._ask.where)
        if self._cut is not None:  # each slice reads a part of them
            column = quoted(self._cut.column)
            rows = rows.repartitionByRange(column).sortWithinPartitions(column).persist(StorageLevel.DISK_ONLY)
        try:
            started = self._started()
            state, ledger = started.resumed() or started.begin(self._cut_up(rows))
            repair = Repair(
                plan=plan,
                spark=self._spark,
                ledger=ledger,
                live=self._live,
                recompute=self._recompute,
                rejects=self._rejects,
                target=self._target,
                base=Base(rows, standing),
                edges=edges,
                where=self._ask.where,
                instead=self._ask.other,
                verify=lease.verify,
            )
            return self._repaired(repair, state, ledger)
        finally:
            rows.unpersist()

    def _cut_up(self, rows: DataFrame) -> list[Slice]:
        if self._cut is None:  # which needs no values
            return [slice_of(self._ask.where, None, None)]
        return [one.slice for one in self._slices(rows)]

    def _repaired(self, slices: SliceRepairer, state: State, ledger: Ledger) -> Backfilled:
        """Does the slices that are left."""
        record = ledger.load()
        first = record.batch + 1 if record is not None else 0
        done: list[Repaired] = []
        began, count = time.monotonic(), len(state.slices)
        asked = sum(slice.name != MEANWHILE for slice in state.slices)
        for number in range(first, count):
            slice = state.slices[number]
            one = None if self._stopping() else repair_slice(slices, number, slice, self._note, self._stopping)
            if one is None:
                return replace(self._result(tuple(done)), resumed=first, left=count - number)
            if slice.name == MEANWHILE and one.snapshot is None:
                continue
            done.append(one)
            each = (time.monotonic() - began) / len(done)
            left = each * (count - number - 1)
            self._tell(Progress(done=one, number=number + 1, slices=max(asked, number + 1), seconds=left))
        self._notes.end()
        return replace(self._result(tuple(done)), resumed=first)

    # commits, and keys

    def _redo(self, *, evolves: bool) -> Redo | RedoUpserts | RepairKeys:
        plan, by_filter = self._plan, self._ask.commits is None
        if by_filter:
            self._read_filter()
        standing = self._look()
        own = frozenset(names_of(self._table, plan.write.pipelines, standing.record))
        made, asked = ([], []) if by_filter else self._asked(own, standing)
        first_start = by_filter or asked[0].before is None
        starts = self._live.starts(standing, self._table) if first_start else self._checkpoint.start()
        self._recompute.resume(starts or ())
        self._refuse_state()
        if plan.write.mode.upsert is not None:
            shared = vars(self._shared(own, evolves=evolves))
            if not by_filter:
                return RedoUpserts(**shared, asked=asked)
            # The script gives replayed rows, too; without an order, nothing tells after which batches they came.
            ends = OWN_ENDS if plan.write.mode.order_by is not None else (BACKFILL,)
            trusts = self._ask.trusts_expired
            return RepairKeys(
                **shared,
                where=self._ask.where,
                cut=self._cut,
                writers=Target.of(plan, self._spark, self._table, own, ends, trusts_expired=trusts),
                notes=self._notes,
                note=self._note,
                stopping=self._stopping,
            )
        whole = History(self._table, self._head())
        first = next(one for one in reversed(made) if one.pipeline in own).snapshot
        return Redo(
            plan=plan,
            spark=self._spark,
            target=self._table,
            ledger=None,
            recompute=self._recompute,
            rejects=self._rejects,
            commits={str(one.snapshot): one for one in asked},
            replays=[one for one in made if one.pipeline in {f"{name}{REPLAY}" for name in own}],
            first=first if list(whole) and whole.expired is None else None,
            verify=lambda: None,
        )

    def _asked(self, own: frozenset[str], standing: Standing) -> tuple[list[Commit], list[Commit]]:
        """The commits of the target, newest first, and those that are asked for, oldest first."""
        write = self._plan.write
        loaded = write.table.catalog.load(write.table.within)
        made = commits(loaded, branch=write.sink.branch_name or MAIN)
        asked = commits_in_range(made, str(self._ask.commits), own, write.table.text)
        ours = [one for one in made if one.pipeline in own]
        return made, [self._live.with_begin(one, ours, standing, self._table) for one in asked]

    def _shared(self, own: frozenset[str], *, evolves: bool) -> KeyedRepair:
        """What all repairs by keys take."""
        plan, spark, table, recompute = self._plan, self._spark, self._table, self._recompute
        rejects = self._rejects
        rows = BatchRows(plan=plan, spark=spark, table=table, recompute=recompute, rejects=rejects, evolves=evolves)
        return KeyedRepair(
            plan=plan,
            spark=spark,
            target=table,
            ledger=None,
            live=self._live,
            rows=rows,
            names=own,
            verify=lambda: None,
        )

    def _previewed(self) -> Backfilled:
        found, size = self._redo(evolves=False).preview()
        return replace(self._result(tuple(found)), dry_run=True, bytes=size)

    def _redone(self, lease: Lease) -> Backfilled:
        redo = self._redo(evolves=True)
        with ExitStack() as stack:
            verify_begun = redo.begin(stack)

            def verify() -> None:
                lease.verify()
                verify_begun()

            started = self._started()
            state, ledger = started.resumed() or started.begin(redo.slices)
            return self._repaired(replace(redo, ledger=ledger, verify=verify), state, ledger)

    def _started(self) -> Started:
        """What begins this backfill, or goes on with it; once what it reads is known."""
        edges = self._edges
        batch = [f"batch {edges.batch_at_start}"] if edges is not None and edges.bars_batches else []
        return Started(
            plan=self._plan,
            table=self._table,
            notes=self._notes,
            ask=asdict(self._ask),
            made_by=made_by(self._plan, [self._live.identity.id, *self._recompute.states(), *batch]),
            note=self._note,
        )
