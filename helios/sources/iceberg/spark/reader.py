"""Reads Iceberg tables: once at a snapshot, or batch by batch, with offsets in the snapshot history.

Iceberg's own stream is not used: it reads row by row, takes no filter, always reads main, and fails or skips rows if
snapshots have expired. Here, Spark keeps the offsets, and Iceberg's batch scans plan the files of each batch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.catalog.spec import Catalog
from helios.errors import HeliosError, RunError
from helios.native.program import NotNative
from helios.plan.nodes import ReadPath, ReadPlan
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.micro_batch import MicroBatchStream
from helios.sources.common.spark.past import table_commits
from helios.sources.common.spark.spans import SpanSource
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.offsets import IcebergOffset, SnapshotRange, range_between
from helios.sources.iceberg.spark import offsets, starting_offsets
from helios.sources.iceberg.spark import rows as table_rows
from helios.sources.iceberg.spark.offsets import SnapshotDelta
from helios.sources.iceberg.spark.snapshot import (
    LAST_CHANGE,
    ROW_ID,
    columns,
    has_snapshot,
    source_table,
    vectorized_rows,
)
from helios.sources.iceberg.spark.snapshot_reader import SnapshotReader
from helios.spark.checkpoint.files import StartEntry
from helios.spark.iceberg import tables
from helios.spark.iceberg.scan_metrics import ScanMetrics, record
from helios.spark.iceberg.scan_tasks import plan_input_partitions
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaArray
from helios.spark.jvm.types.spark import JavaInputPartition, JavaReaderFactory, JavaStructType
from helios.spark.native.inputs import TableFiles
from helios.table.commit_times import CommitTimes
from helios.table.positions import SNAPSHOT, Lag, Position, Span


class IcebergReader(SpanSource):
    """Reads an Iceberg table, once or batch by batch."""

    pinned = True

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        plan = context.plan
        trigger = plan.trigger
        self._spark = context.spark
        self._max_rows = trigger.max_rows if trigger else None
        self._max_files = trigger.max_files if trigger else None
        self._frozen = False
        self._end_snapshot: int | None = None
        self._scanned = ScanMetrics()
        self._snapshot_reader = SnapshotReader(
            spark=context.spark, read=self.read_plan, predicates=plan.pushed_predicates(index) if plan.streaming else ()
        )
        self._starting_offset = IcebergOffset()
        self._stream_table: JavaTable | None = None
        self._last_loaded: JavaTable | None = None

    @property
    def _source(self) -> IcebergSource:
        assert isinstance(self.read_plan.source, IcebergSource)
        return self.read_plan.source

    @property
    def _accepts_replays(self) -> bool:
        """True if rows may be delivered again; False in a stateful pipeline, whose state would count the rows twice."""
        plan = self.context.plan
        return plan.path is ReadPath.RANGES and plan.write.mode.traits.idempotent

    @property
    def _needs_new_files(self) -> bool:
        """True for a stateful pipeline: a new snapshot without new files does not start a batch."""
        return self.context.plan.path is ReadPath.STATEFUL

    def _table(self) -> JavaTable:
        self._last_loaded = source_table(self._spark, self.read_plan)
        return self._last_loaded

    @property
    def last_loaded(self) -> JavaTable:
        """The table object that was loaded last. It has all snapshots that a batch reads."""
        return self._last_loaded or self._table()

    # the starting offset

    @property
    @override
    def declared(self) -> str:
        return starting_offsets.declared(self._source)

    @override
    def begin(self) -> StartEntry:
        self._set_read_plan(replace(self.read_plan, uuid=str(self._table().uuid())))
        read, self._starting_offset = starting_offsets.begin(self._spark, self.read_plan)
        self._set_read_plan(read)
        place = self._starting_offset.as_json()
        return StartEntry(declared=self.declared, branch=read.branch, uuid=read.uuid, place=place)

    @override
    def resume(self, entry: StartEntry) -> None:
        self._set_read_plan(replace(self.read_plan, uuid=str(self._table().uuid())))
        super().resume(entry)
        starting_offsets.refuse_replaced(self.read_plan, entry)
        self._set_read_plan(replace(self.read_plan, branch=entry["branch"]))
        self._starting_offset = IcebergOffset.parse(entry["place"])

    def _set_read_plan(self, read: ReadPlan) -> None:
        self.read_plan = read
        self._snapshot_reader.read = read

    @override
    def start(self) -> Position:
        return self._starting_offset.as_json()

    # the end of a batch

    @override
    def freeze(self) -> None:
        newest = tables.head(self._table(), self.read_plan.branch)
        self._end_snapshot, self._frozen = (int(newest.snapshotId()) if newest is not None else None), True

    @override
    def latest(self, after: Position) -> Position:
        """The end of the batch after a position.

        Raises:
            HeliosError: The snapshots after the position cannot be read.
        """
        offset = IcebergOffset.parse(after)
        end = self._latest(offset)
        return after if end == offset else end.as_json()

    def _latest(self, offset: IcebergOffset) -> IcebergOffset:
        table, read = self._table(), self.read_plan
        newest = table.snapshot(self._end_snapshot) if self._end_snapshot is not None else None
        # If the snapshot at which the run should end has expired, a later snapshot has its rows.
        newest = newest or tables.head(table, read.branch)
        if newest is None or (self._frozen and self._end_snapshot is None):
            return offset
        rebootstrapped = False
        try:
            deltas = offsets.deltas_after(table, read, offset, newest)
        except offsets.Expired as expired:
            if not self._rebootstraps():
                raise
            offset, rebootstrapped = self._rebootstrapped(offset, newest, expired), True
            deltas = offsets.deltas_after(table, read, offset, newest)
        self._report_lag(table, offset, deltas)
        if self._needs_new_files and not any(delta.files for delta in deltas):
            return offset
        end = self._end(table, offset, deltas, newest)
        if end.files is None and end.snapshot is not None:
            snapshot = table.snapshot(end.snapshot)
            rows, live, sequence = offsets.lineage_of(snapshot) if snapshot is not None else (None, None, None)
            end = replace(end, rows=rows, live=live, sequence=sequence)
            if rebootstrapped:  # the offset records that the batch reads a state
                end = replace(end, state=True, since=offset.since)
        return end

    def _end(
        self, table: JavaTable, offset: IcebergOffset, deltas: list[SnapshotDelta], newest: JavaSnapshot
    ) -> IcebergOffset:
        """The end of the batch, by the limits of the trigger."""
        if self._max_rows is None and self._max_files is None:
            return IcebergOffset(snapshot=int(newest.snapshotId()))
        return offsets.advance(
            offset,
            deltas,
            newest,
            max_rows=self._max_rows,
            max_files=self._max_files,
            rows_of=lambda delta: self._snapshot_reader.rows_of(table, delta),
        )

    def _rebootstraps(self) -> bool:
        """True if the source reads the current state when snapshots have expired; never in a stateful pipeline."""
        return self._source.expired == "rebootstrap" and not self._needs_new_files

    def _rebootstrapped(self, offset: IcebergOffset, newest: JavaSnapshot, expired: offsets.Expired) -> IcebergOffset:
        """The offset from which the current state is read again."""
        snapshot = int(newest.snapshotId())
        return offsets.rebootstrap(
            offset,
            newest,
            expired,
            replays=self._accepts_replays,
            unchanged=lambda row, sequence: self._unchanged_below(snapshot, row, sequence),
        )

    def _unchanged_below(self, snapshot: int, row: int, sequence: int) -> int:
        """The number of rows of a state that have a row id below `row`, and that did not change after `sequence`."""
        assert self.read_plan.table is not None
        state = self._spark.read.option("versionAsOf", snapshot).table(self.read_plan.table.sql)
        return state.where((F.col(ROW_ID) < row) & (F.col(LAST_CHANGE) <= sequence)).count()

    @override
    def lost(self, span: Span) -> bool:
        if not self._rebootstraps():
            return False
        try:
            self._snapshot_reader.slices(self._table(), self._range(span))
        except offsets.Expired:
            return True
        return False

    # lag

    def _report_lag(self, table: JavaTable, offset: IcebergOffset, deltas: list[SnapshotDelta]) -> None:
        """Reports the lag. For a run that ends at a fixed snapshot, the lag includes later snapshots."""
        if self._end_snapshot is None:
            self.context.observer.lagging(self.index, offsets.lag(deltas))
            return
        with suppress(HeliosError):  # the next run reports that later snapshots cannot be read
            self.context.observer.lagging(self.index, self._lag(table, offset))

    @override
    def lag(self, at: Position) -> Lag:
        return self._lag(self._table(), IcebergOffset.parse(at))

    def _lag(self, table: JavaTable, offset: IcebergOffset) -> Lag:
        newest = tables.head(table, self.read_plan.branch)
        return offsets.lag(offsets.deltas_after(table, self.read_plan, offset, newest) if newest is not None else [])

    # spans

    def _range(self, span: Span) -> SnapshotRange:
        return range_between(self._offset(span.start), self._offset(span.end))

    def _offset(self, position: Position | None) -> IcebergOffset:
        return IcebergOffset.parse(position) if position is not None else self._starting_offset

    @override
    def span(self, start: Position | None, end: Position | None) -> Span:
        read = self.read_plan
        planned = Span(read.name, start, end, {})
        entry = {
            "source": read.name,
            "uuid": read.uuid,
            "branch": read.branch,
            "from": self.declared,
            "changes": self._source.reads_changes,
            **self._range(planned).as_json(),
            "place": end,
        }
        return replace(planned, entry=entry)

    @override
    def current(self) -> Span:
        self._set_read_plan(table_rows.with_resolved_snapshots(self.read_plan))
        read = self.read_plan
        snapshot = table_rows.pin(self._spark, read)
        uuid = str(source_table(self._spark, read).uuid())
        history = {"after": read.span[0]} if read.span is not None else {}
        entry = {"source": read.name, "uuid": uuid, SNAPSHOT: snapshot, **history}
        return Span(read.name, None, {SNAPSHOT: snapshot}, entry)

    @override
    def pin(self) -> int | None:
        return table_rows.pin(self._spark, self.read_plan)

    @override
    def exists(self, pin: int | None) -> bool:
        return has_snapshot(self._spark, self.read_plan, pin)

    def commits(self, pin: int | None) -> CommitTimes:
        """The commit times of main, up to a pin."""
        return table_commits(self._table(), self.read_plan.name, pin)

    @override
    def at_pin(self, pin: int | None) -> Span:
        return Span(self.read_plan.name, None, {SNAPSHOT: pin}, {"source": self.read_plan.name, SNAPSHOT: pin})

    # rows

    @override
    def schema(self) -> StructType:
        return columns(self._spark, self.read_plan)

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        read = self.read_plan
        if span is None:
            return table_rows.read_at(spark, read, table_rows.pin(spark, read), positioned=positioned)
        if span.end is not None and SNAPSHOT in span.end:
            return table_rows.read_at(spark, read, span.end[SNAPSHOT], positioned=positioned)
        return table_rows.read_range(spark, self._snapshot_reader, self._range(span), positioned=positioned)

    @override
    def size(self, span: Span) -> int | None:
        """An upper bound of the bytes in the files of a span, from the summaries of its snapshots; None if unknown."""
        if span.end is not None and SNAPSHOT in span.end:
            return None
        deltas = [delta for delta, _, _ in self._snapshot_reader.slices(self._table(), self._range(span))]
        # The size of a state is not used: its summary has the sum over all commits, some of which may have no size.
        sizes = [delta.bytes for delta in deltas if delta.bytes is not None and not delta.state]
        return sum(sizes) if len(sizes) == len(deltas) else None

    def files(self, span: Span) -> TableFiles:
        """The data files of a span, to be read without Spark.

        Raises:
            NotNative: The rows of the span are not simply the rows of its files.
        """
        table = self._table()
        if span.end is not None and SNAPSHOT in span.end:
            read = table_rows.with_resolved_snapshots(self.read_plan)
            if read.span is not None:
                raise NotNative("it reads a part of the history")
            return self._state_files(table, span.end[SNAPSHOT])
        snapshots = self._range(span)
        if snapshots.since is not None:
            raise NotNative("it reads only the new rows of a state")
        # As in `table_rows.read_range`: a whole state comes first, then the other files, whose metrics are separate.
        splits = snapshots.reads_whole_state
        state = self._state_files(table, snapshots.state) if splits else None
        tasks, metrics = self._snapshot_reader.tasks(table, replace(snapshots, state=None) if splits else snapshots)
        if state is not None:
            all_tasks = classes().java.util.ArrayList(state.tasks)  # a copy, since `state` still needs its own tasks
            all_tasks.addAll(tasks)
            tasks = all_tasks

        def count(counted_by_spark: bool) -> None:
            if not counted_by_spark:
                record(metrics)
            if state is not None:
                state.report_read(counted_by_spark)

        return TableFiles(self._spark, table, self._catalog, self.schema(), tasks, count)

    @property
    def _catalog(self) -> Catalog:
        assert self.read_plan.table is not None
        return self.read_plan.table.catalog

    def _state_files(self, table: JavaTable, snapshot: int | None) -> TableFiles:
        """The data files of a state. If Spark also plans the state, Spark records the total number of files."""
        state = SnapshotRange(state=snapshot, after=snapshot, to=snapshot)
        reader = replace(
            self._snapshot_reader, read=self.read_plan, predicates=self.context.plan.pushed_predicates(self.index)
        )
        tasks, metrics = reader.tasks(table, state if snapshot is not None else SnapshotRange())

        def count(counted_by_spark: bool) -> None:
            record(replace(metrics, total=0, total_partitions=()) if counted_by_spark else metrics)

        return TableFiles(self._spark, table, self._catalog, self.schema(), tasks, count)

    @override
    def empty(self, spark: SparkSession) -> DataFrame:
        return table_rows.narrowed(spark.createDataFrame([], columns(spark, self.read_plan)), self.read_plan)

    # Spark's own stream

    @override
    def stream(self) -> DataFrame:
        self._stream_table = self._table()  # a running stream keeps the columns that it started with
        return table_rows.narrowed(MicroBatchStream(self, self.partitions).df(), self.read_plan)

    def partitions(
        self, start: Position, end: Position, columns: JavaStructType
    ) -> tuple[JavaArray[JavaInputPartition], JavaReaderFactory | None]:
        span = range_between(IcebergOffset.parse(start), IcebergOffset.parse(end))
        assert self._stream_table is not None  # stream() comes first
        tasks, self._scanned = self._snapshot_reader.tasks(self._table(), span)
        if not tasks.size():
            return (), None
        return plan_input_partitions(
            self._spark, self._stream_table, tasks, columns, vector_rows=vectorized_rows(self.read_plan)
        )

    @override
    def verify_stream(self) -> None:
        assert self._stream_table is not None
        if self._table().schema().schemaId() != self._stream_table.schema().schemaId():
            raise RunError(
                f"the columns of {self.read_plan.name} have changed since the run began, and the running stream would "
                "silently skip the new ones.",
                where=self.context.plan.origin,
                fix="run again: a new run reads the current columns.",
            )

    @override
    def scanned(self) -> ScanMetrics:
        metrics, self._scanned = self._scanned, ScanMetrics()
        return metrics
