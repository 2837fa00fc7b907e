"""Reads the rows of Iceberg tables, at a pinned snapshot or for a snapshot range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.model.columns import CHANGE_COLUMNS, POSITION
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.history import MAIN, resolve_snapshots
from helios.sources.iceberg.offsets import SnapshotRange
from helios.sources.iceberg.spark.changelog import read_changes, state_as_changes
from helios.sources.iceberg.spark.snapshot import (
    ROW_ID,
    AddPosition,
    count_state,
    head,
    read_state,
    source_table,
    vectorized_rows,
)
from helios.sources.iceberg.spark.snapshot_reader import SnapshotReader, deterministic_conditions
from helios.spark.iceberg import scan_metrics
from helios.spark.iceberg.scan_tasks import read_tasks
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.inline import inline
from helios.spark.jvm.sql import quoted, refusal
from helios.spark.jvm.types.files import JavaFileScanTask
from helios.spark.jvm.types.java import JavaCollection


def _source(read: ReadPlan) -> IcebergSource:
    assert isinstance(read.source, IcebergSource)
    return read.source


def narrowed(df: DataFrame, read: ReadPlan) -> DataFrame:
    """Applies a source's own predicates and columns, which Spark pushes into the scan.

    Raises:
        InputError: Spark refuses a predicate or a column.
    """
    source = _source(read)
    try:
        for condition in source.conditions:
            df = df.where(condition)
        if not source.columns:
            return df
        hidden = [c for c in (POSITION, *(CHANGE_COLUMNS if source.reads_changes else ())) if c in df.columns]
        return df.select(*map(quoted, source.columns), *hidden)
    except AnalysisException as error:
        raise refusal(source.label(), error, source.origin) from error


def with_resolved_snapshots(read: ReadPlan) -> ReadPlan:
    """The read plan with the ids of the snapshots that the source names by an id, a time, a branch or a tag.

    The compiler finds the ids if the table exists when the pipeline is compiled. Otherwise they are found here.

    Raises:
        InputError: A snapshot that the source names does not exist.
    """
    source = _source(read)
    assert read.table is not None
    if (source.at is None and source.between_points is None) or read.state is not None or read.span is not None:
        return read
    resolved = resolve_snapshots(source, read.table.catalog.load(read.table.name_in_catalog))
    return replace(read, branch=resolved.branch, state=resolved.state, span=resolved.span)


def pin(spark: SparkSession, read: ReadPlan) -> int | None:
    """The snapshot at which a source is read once, by default the newest of its branch; None for an empty table."""
    read = with_resolved_snapshots(read)
    if read.span is not None:
        return read.span[1]
    at = _source(read).at
    names_branch = at is not None and at.call == "at_ref" and str(at.point) == (read.branch or MAIN)
    if read.state is not None and not names_branch:  # for a tag, `branch` is a branch that has the tag
        return read.state
    return head(spark, read)


def read_at(
    spark: SparkSession,
    read: ReadPlan,
    snapshot: int | None,
    *,
    positioned: bool = False,
) -> DataFrame:
    """The rows of a source that is read once, at its pin. Row-level changes have change columns and no positions.

    Args:
        positioned: Whether each row carries its position in the hidden column `POSITION`.

    Raises:
        RunError: A file does not match what the table declares.
    """
    read = with_resolved_snapshots(read)
    if read.span is not None and snapshot is not None:
        read = replace(read, span=(read.span[0], snapshot))
    source = _source(read)
    if read.span is None:
        if source.reads_changes and snapshot is not None:
            return narrowed(state_as_changes(spark, read, read_state(spark, read, snapshot), snapshot), read)
        if snapshot is not None:
            count_state(spark, read, snapshot)  # comes first: its error for an expired snapshot has a fix
            add_position = _positions(_state_sequences(spark, read, snapshot)) if positioned else None
            return narrowed(read_state(spark, read, snapshot, add_position), read)
        return narrowed(read_state(spark, read, None), read)
    after, to = read.span
    if source.changed is not None:
        return narrowed(read_changes(spark, read, after, to, source.changed.keys), read)
    rows = _rows(
        spark,
        SnapshotReader(spark=spark, read=read, predicates=deterministic_conditions(source)),
        SnapshotRange(after=after, to=to),
        positioned=positioned,
    )
    return narrowed(rows if rows is not None else read_state(spark, read, None), read)


def read_range(
    spark: SparkSession, reader: SnapshotReader, span: SnapshotRange, *, positioned: bool = False
) -> DataFrame | None:
    """The rows of a range; None if the range adds no rows.

    Args:
        positioned: Whether each row carries its position in the hidden column `POSITION`.

    Raises:
        LedgerError: A snapshot of the range has expired, or the source was rolled back.
        RunError: A commit of the range rewrote or deleted rows.
    """
    if span.to is None:
        return None
    read, source = reader.read, _source(reader.read)
    if source.changed is not None:
        df = _changes(spark, read, span, source.changed.keys)
    else:
        df = _rows(spark, reader, span, positioned=positioned)
    return narrowed(df, read) if df is not None else None


def _changes(spark: SparkSession, read: ReadPlan, span: SnapshotRange, keys: tuple[str, ...]) -> DataFrame | None:
    """The row-level changes of a range; None if there are none."""
    parts = []
    if span.state is not None:
        parts.append(state_as_changes(spark, read, read_state(spark, read, span.state), span.state))
    if span.to is not None and span.to != span.after:
        parts.append(read_changes(spark, read, span.after, span.to, keys))
    return reduce(DataFrame.unionByName, parts) if parts else None


def _rows(
    spark: SparkSession, reader: SnapshotReader, span: SnapshotRange, *, positioned: bool = False
) -> DataFrame | None:
    """The rows of a range. Spark's table reader reads a whole state, and scan tasks read all other files."""
    read = reader.read
    table = source_table(spark, read)
    parts = []
    if span.state is not None and span.reads_whole_state:
        count_state(spark, read, span.state)
        add_position = _positions(_state_sequences(spark, read, span.state)) if positioned else None
        parts.append(read_state(spark, read, span.state, add_position, span.since))
        span = replace(span, state=None, since=None)
    tasks, metrics = reader.tasks(table, span)
    scan_metrics.record(metrics)
    if tasks.size():
        rows = read_tasks(spark, table, tasks, vector_rows=vectorized_rows(read))
        first_row_id = span.since
        rows = rows.where(F.col(ROW_ID) >= first_row_id) if first_row_id is not None else rows
        names = spark_schema(spark, table).names
        if positioned:
            parts.append(_positions(_task_sequences(spark, tasks))(rows, names))
        else:
            parts.append(rows.select(*map(quoted, names)))
    return reduce(DataFrame.unionByName, parts) if parts else None


def _state_sequences(spark: SparkSession, read: ReadPlan, snapshot: int) -> DataFrame:
    """The path and the data sequence number of each file of a state."""
    assert read.table is not None
    entries = spark.read.option("versionAsOf", snapshot).table(f"{read.table.sql}.entries").where("status < 2")  # live
    return entries.select("data_file.file_path", "sequence_number")


def _task_sequences(spark: SparkSession, tasks: JavaCollection[JavaFileScanTask]) -> DataFrame:
    """The path and the data sequence number of each file of scan tasks; the number is 0 in format v1."""
    files = [task.file() for task in tasks]
    paths = [str(file.location()) for file in files]
    numbers = [int(file.dataSequenceNumber() or 0) for file in files]
    schema = "file_path string, sequence_number bigint"
    return inline(spark, schema, {"file_path": paths, "sequence_number": numbers})


def _positions(files: DataFrame) -> AddPosition:
    """Returns a function that adds the hidden position to rows.

    The position has the sequence number of the commit, the file, and the row's position in the file. `files` has the
    path and the data sequence number of each file.
    """
    sequences = F.broadcast(files.toDF("__helios_file", "__helios_seq"))

    def add(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        selected = map(quoted, columns)
        located = rows.select(*selected, F.col("_file").alias("__helios_at"), F.col("_pos").alias("__helios_pos"))
        joined = located.join(sequences, F.col("__helios_at") == F.col("__helios_file"), "left")
        position = F.struct("__helios_seq", "__helios_at", "__helios_pos").alias(POSITION)
        names = located.columns[: len(columns)]  # without the file and the position
        return joined.select(*map(quoted, names), position)

    return add
