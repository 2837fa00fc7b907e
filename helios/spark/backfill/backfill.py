"""A backfill computes rows of a pipeline's target again, with the current script, and replaces the stored rows.

The pipeline may run meanwhile.

A backfill commits under the name `<pipeline>.backfill`, and holds its own lease. It writes each slice in one commit.
The commit replaces the rows of the slice with the rows that the current script computes from what the pipeline has read
so far. The backfill's own ledger record has the number of the last finished slice, so another process can resume it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from helios.catalog.names import TableName
from helios.errors import HeliosError, InputError, NotFound
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
from helios.spark.backfill.keyed_repair import UpsertRepair
from helios.spark.backfill.keyed_rows import BatchRows
from helios.spark.backfill.keyed_slices import UpsertFilterRepair
from helios.spark.backfill.live import LivePipeline, LivePosition
from helios.spark.backfill.notes import Notes, State
from helios.spark.backfill.other_source import other_rows
from helios.spark.backfill.recompute import ReadOnlyCheckpoint, Recompute
from helios.spark.backfill.redo import CommitRepair
from helios.spark.backfill.rejects import Rejects
from helios.spark.backfill.repair import ComputedRows, FilterRepair, SliceRepairer, repair_slice
from helios.spark.backfill.result import Backfilled, Repaired, SliceProgress
from helios.spark.backfill.slices import CATCH_UP, CountedSlice, Slice, slice_of, slices_of
from helios.spark.backfill.started import BackfillStart, backfill_lease, computed_from
from helios.spark.backfill.upserts import UpsertCommitRepair
from helios.spark.backfill.writers import TargetRows
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
from helios.table.refs import BACKFILL, MAIN, OWN_SUFFIXES, REPLAY

ZONE = "spark.sql.session.timeZone"


class Backfill:
    """The backfill of one pipeline.

    Args:
        plan: The pipeline, compiled from the current script.
        ask: The request: the rows to repair, and the options.
        other: The table, or the path of the folder, that is read instead of the source; None to read the source.
        tell: Called with the progress after each slice.
        note: Called with a line for the user, such as that a slice is repeated or that the backfill starts over.
        stopping: Returns True to end the backfill after the running slice.

    Raises:
        HeliosError: The pipeline cannot be backfilled; the message says why.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        ask: Ask,
        *,
        other: TableName | str | None = None,
        tell: Callable[[SliceProgress], None] = lambda progress: None,
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
        """Repairs the slices, one after the other. A dry run only counts their rows.

        Raises:
            HeliosError: A slice cannot be repaired. The slices before it are repaired, and the next run resumes with
                this slice.
        """
        try:
            with scan_task_scope():
                is_plain_filter = self._ask.commits is None and self._plan.write.mode.upsert is None
                if dry_run:
                    return self._preview_filter_repair() if is_plain_filter else self._preview_key_or_commit_repair()
                with backfill_lease(self._plan, self._notes) as lease:
                    return self._run_filter_repair(lease) if is_plain_filter else self._run_key_or_commit_repair(lease)
        except HeliosError:
            raise
        except Exception as error:
            raise cast_error(error, self._ask.where) or user_error(error, self._plan) from error

    # what to repair

    def _live_position(self) -> LivePosition:
        committed = self._live.committed()  # read before the table is refreshed, so that the table has these batches
        self._table.refresh()
        live_position = self._live.position(self._table, committed)
        # If a rollback has removed a batch from the table, the backfill would restore the rows of that batch.
        guard = RollbackGuard(self._table, self._plan.pipeline, live_position.record.checkpoint, lenient=True)
        guard.refuse(live_position.record, self._head())
        return live_position

    def _read_filter(self) -> list[str]:
        """Checks that the filter fits the target, sets `_cut`, and returns the columns that the filter names."""
        plan, table = self._plan, self._table
        columns = {f.name: f.dataType.simpleString() for f in tables.spark_schema(self._spark, table).fields}
        filter_columns = columns_named(self._ask.where, columns, plan.write.table.text)
        self._ask = replace(self._ask, where=with_table_spelling(self._ask.where, columns))
        refuse_filter(self._spark, table, plan.write.table, self._ask.where)
        self._cut = cut_of(self._ask.by, filter_columns, columns, plan.write.table.text)
        cut_columns = [self._cut.column] if self._cut is not None else []
        refuse_zone(str(self._spark.conf.get(ZONE)), dict.fromkeys([*filter_columns, *cut_columns]), columns)
        return filter_columns

    def _prepare(self) -> tuple[LivePosition, DataFrame]:
        """Returns how far the pipeline has read, and the rows that the current script computes up to there."""
        plan, table = self._plan, self._table
        filter_columns = self._read_filter()
        cut = self._cut.column if self._cut is not None else None
        live_position = self._live_position()
        record = live_position.record
        names = names_of(table, plan.write.pipeline_names, record)
        trusts_expired = self._ask.trusts_expired
        self._target_rows = TargetRows.of(plan, self._spark, table, names, OWN_SUFFIXES, trusts_expired=trusts_expired)
        self._edges = Edges(
            plan=plan,
            spark=self._spark,
            table=table,
            target=self._target_rows,
            checkpoints=(self._checkpoint, self._notes.checkpoint),
            own=frozenset(f"{name}{suffix}" for name in names for suffix in OWN_SUFFIXES),
            where=self._ask.where,
            columns=filter_columns,
            cut=cut,
            trusts_expired=trusts_expired,
            rows_stay=self._ask.rows_stay,
        )
        other = None
        if self._other is not None:
            other = other_rows(self._spark, plan, self._other, live_position)
            self._recompute.resume(self._checkpoint.start() or (), reads_other=True)
        else:
            self._recompute.resume(self._live.starts(live_position, table))
        self._refuse_state()
        built = self._recompute.rows(None, live_position.ends, other)
        if built is None:
            raise NotFound(f"{plan.pipeline} has read nothing yet: there is nothing to repair.", where=plan.origin)
        self._rejects.refuse_difference(built.rejected)
        return live_position, built.df

    def _refuse_state(self) -> None:
        if keeps_state(self._recompute.analyzed()):
            raise InputError(
                f"{self._plan.pipeline} cannot be backfilled: a callable keeps state between batches.",
                where=self._plan.origin,
            )

    def _preview_filter_repair(self) -> Backfilled:
        """Counts the rows of each slice before and after a repair. It writes nothing, not even a new column."""
        live_position, rows = self._prepare()
        schema = tables.spark_schema(self._spark, self._table)
        stored_names = {name.lower() for name in schema.names}
        rows = align(rows.select(*[quoted(name) for name in rows.columns if name.lower() in stored_names]), schema)
        self._checked_edges(rows, live_position)
        counted = self._counted_slices(rows.where(self._ask.where))
        head = self._head()
        for count in counted:
            self._target_rows.refuse_foreign(count.slice, head)
        slices = tuple(Repaired(slice=count.slice.name, before=count.before, after=count.after) for count in counted)
        size = self._target_rows.bytes(self._ask.where, head)
        return replace(self._result(slices), dry_run=True, bytes=size)

    def _checked_edges(self, rows: DataFrame, live_position: LivePosition) -> Edges:
        """Refuses the filter if rows may have moved into or out of it since they were written.

        Returns:
            The object that makes this check.
        """
        assert self._edges is not None
        self._edges.refuse(rows, live_position, self._head())
        return self._edges

    def _counted_slices(self, rows: DataFrame) -> list[CountedSlice]:
        before = self._target_rows.rows(self._ask.where, self._head())
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

    # the repair of the rows of a filter

    def _run_filter_repair(self, lease: Lease) -> Backfilled:
        live_position, rows = self._prepare()
        plan = self._plan
        rows = SchemaAligner(self._spark, plan, plan.write.table, self._table)(rows, ())
        edges = self._checked_edges(rows, live_position)
        rows = rows.where(self._ask.where)
        if self._cut is not None:  # each slice reads only a part of the rows
            column = quoted(self._cut.column)
            rows = rows.repartitionByRange(column).sortWithinPartitions(column).persist(StorageLevel.DISK_ONLY)
        try:
            start = self._backfill_start()
            state, ledger = start.resumed() or start.begin(self._slices_to_repair(rows))
            repair = FilterRepair(
                plan=plan,
                spark=self._spark,
                ledger=ledger,
                live=self._live,
                recompute=self._recompute,
                rejects=self._rejects,
                target=self._target_rows,
                computed=ComputedRows(rows, live_position),
                edges=edges,
                where=self._ask.where,
                from_name=self._ask.other,
                verify=lease.verify,
            )
            return self._repair_slices(repair, state, ledger)
        finally:
            rows.unpersist()

    def _slices_to_repair(self, rows: DataFrame) -> list[Slice]:
        if self._cut is None:  # a single slice does not depend on the values of the rows
            return [slice_of(self._ask.where, None, None)]
        return [count.slice for count in self._counted_slices(rows)]

    def _repair_slices(self, repair: SliceRepairer, state: State, ledger: Ledger) -> Backfilled:
        """Repairs the slices after the last one that the backfill has committed."""
        record = ledger.load()
        first = record.batch + 1 if record is not None else 0
        done: list[Repaired] = []
        began, count = time.monotonic(), len(state.slices)
        count_without_catch_up = sum(slice.name != CATCH_UP for slice in state.slices)
        for number in range(first, count):
            slice = state.slices[number]
            repaired = None if self._stopping() else repair_slice(repair, number, slice, self._note, self._stopping)
            if repaired is None:
                return replace(self._result(tuple(done)), resumed=first, left=count - number)
            if slice.name == CATCH_UP and repaired.snapshot is None:
                continue
            done.append(repaired)
            seconds_left = (time.monotonic() - began) / len(done) * (count - number - 1)
            slices = max(count_without_catch_up, number + 1)
            self._tell(SliceProgress(last_slice=repaired, number=number + 1, slices=slices, seconds_left=seconds_left))
        self._notes.end()
        return replace(self._result(tuple(done)), resumed=first)

    # the repair of commits, and of the rows of an upsert

    def _key_or_commit_repair(self, *, evolves: bool) -> CommitRepair | UpsertCommitRepair | UpsertFilterRepair:
        plan, by_filter = self._plan, self._ask.commits is None
        if by_filter:
            self._read_filter()
        live_position = self._live_position()
        names = frozenset(names_of(self._table, plan.write.pipeline_names, live_position.record))
        retained, requested = ([], []) if by_filter else self._requested_commits(names, live_position)
        from_first_start = by_filter or requested[0].before is None
        starts = self._live.starts(live_position, self._table) if from_first_start else self._checkpoint.start()
        self._recompute.resume(starts or ())
        self._refuse_state()
        if plan.write.mode.upsert is not None:
            shared = vars(self._shared_upsert_arguments(names, evolves=evolves))
            if not by_filter:
                return UpsertCommitRepair(**shared, requested=requested)
            # Commits of replays count as the pipeline's own, because the script computes the replayed rows, too.
            # Without an order, they count as another writer's, because it is unknown after which batches their rows
            # came.
            suffixes = OWN_SUFFIXES if plan.write.mode.order_by is not None else (BACKFILL,)
            trusts = self._ask.trusts_expired
            return UpsertFilterRepair(
                **shared,
                where=self._ask.where,
                cut=self._cut,
                target_rows=TargetRows.of(plan, self._spark, self._table, names, suffixes, trusts_expired=trusts),
                notes=self._notes,
                note=self._note,
                stopping=self._stopping,
            )
        history = History(self._table, self._head())
        has_commits = bool(list(history))  # the iteration sets `history.is_cut`
        first = next(commit for commit in reversed(retained) if commit.pipeline in names).snapshot
        replay_names = {f"{name}{REPLAY}" for name in names}
        return CommitRepair(
            plan=plan,
            spark=self._spark,
            target=self._table,
            ledger=None,
            recompute=self._recompute,
            rejects=self._rejects,
            commits={str(commit.snapshot): commit for commit in requested},
            replays=[commit for commit in retained if commit.pipeline in replay_names],
            first=first if has_commits and not history.is_cut else None,
            verify=lambda: None,
            names=names,
        )

    def _requested_commits(self, names: frozenset[str], position: LivePosition) -> tuple[list[Commit], list[Commit]]:
        """The retained commits of the target, newest first, and those that `--commits` selects, oldest first."""
        write = self._plan.write
        loaded = write.table.catalog.load(write.table.name_in_catalog)
        retained = commits(loaded, branch=write.sink.branch_name or MAIN)
        requested = commits_in_range(retained, str(self._ask.commits), names, write.table.text)
        own = [commit for commit in retained if commit.pipeline in names]
        return retained, [self._live.with_start(commit, own, position, self._table) for commit in requested]

    def _shared_upsert_arguments(self, names: frozenset[str], *, evolves: bool) -> UpsertRepair:
        plan, spark, table, recompute = self._plan, self._spark, self._table, self._recompute
        rejects = self._rejects
        rows = BatchRows(plan=plan, spark=spark, table=table, recompute=recompute, rejects=rejects, evolves=evolves)
        return UpsertRepair(
            plan=plan,
            spark=spark,
            target=table,
            ledger=None,
            live=self._live,
            rows=rows,
            names=names,
            verify=lambda: None,
        )

    def _preview_key_or_commit_repair(self) -> Backfilled:
        slices, size = self._key_or_commit_repair(evolves=False).preview()
        return replace(self._result(tuple(slices)), dry_run=True, bytes=size)

    def _run_key_or_commit_repair(self, lease: Lease) -> Backfilled:
        repair = self._key_or_commit_repair(evolves=True)
        with ExitStack() as stack:
            verify_pipeline_stopped = repair.begin(stack)

            def verify() -> None:
                lease.verify()
                verify_pipeline_stopped()

            start = self._backfill_start()
            state, ledger = start.resumed() or start.begin(repair.slices)
            return self._repair_slices(replace(repair, ledger=ledger, verify=verify), state, ledger)

    def _backfill_start(self) -> BackfillStart:
        """The object that begins or resumes this backfill. Call this after the filter and the sources were read."""
        edges = self._edges
        # Some filters can be repaired only while the pipeline commits no batch with other steps. A backfill with such a
        # filter is resumed only if the pipeline's last batch is still the same.
        batch = [f"batch {edges.batch_at_start}"] if edges is not None and edges.needs_same_steps else []
        return BackfillStart(
            plan=self._plan,
            table=self._table,
            notes=self._notes,
            request=asdict(self._ask),
            computed_from=computed_from(self._plan, [self._live.identity.id, *self._recompute.states(), *batch]),
            say=self._note,
            names=names_of(self._table, self._plan.write.pipeline_names, self._live_position().record),
        )
