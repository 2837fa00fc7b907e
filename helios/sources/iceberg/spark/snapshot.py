"""Loads the table of an Iceberg source, and reads its columns and its rows at one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from helios.errors import NotFound
from helios.model.columns import CHANGE_COLUMNS
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.spark import offsets
from helios.sources.iceberg.spark.snapshot_reader import verify_state
from helios.spark.iceberg import overflow, partitions, scan_metrics, tables
from helios.spark.iceberg.filters import ALIAS, without_pushdown
from helios.spark.iceberg.foreign_files import has_mapping
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.schema import names_by_id
from helios.spark.iceberg.tables import load_table, spark_schema
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaTable

ROW_ID = "_row_id"
"""The metadata column with the row id, in format v3."""

LAST_CHANGE = "_last_updated_sequence_number"
"""The metadata column with the sequence number of the commit that last changed or added a row, in format v3."""

CHANGE_SCHEMA = StructType(
    [StructField(name, kind()) for name, kind in zip(CHANGE_COLUMNS, (StringType, LongType, LongType), strict=True)]
)

AddPosition: TypeAlias = "Callable[[DataFrame, Sequence[str]], DataFrame]"
"""A function that adds the hidden position to rows, and selects the named columns."""


def source_table(spark: SparkSession, read: ReadPlan) -> JavaTable:
    """Iceberg's table object of a source.

    Raises:
        NotFound: The table does not exist.
    """
    assert read.table is not None
    table = load_table(spark, read.table)
    if table is None:
        raise NotFound(f"table {read.name} does not exist.", where=read.source.origin)
    return table


def has_snapshot(spark: SparkSession, read: ReadPlan, snapshot: int | None) -> bool:
    """True if a table still has a snapshot; also for None, the pin of an empty table."""
    return snapshot is None or source_table(spark, read).snapshot(snapshot) is not None


def head(spark: SparkSession, read: ReadPlan) -> int | None:
    """The newest snapshot of the branch that is read; None for an empty table."""
    snapshot = tables.head(source_table(spark, read), read.branch)
    return int(snapshot.snapshotId()) if snapshot is not None else None


def columns(spark: SparkSession, read: ReadPlan) -> StructType:
    """The columns of an Iceberg source before `select` narrows them."""
    schema = spark_schema(spark, source_table(spark, read))
    source = read.source
    if isinstance(source, IcebergSource) and source.changed is not None:
        return StructType([*schema.fields, *CHANGE_SCHEMA.fields])
    return schema


def read_state(
    spark: SparkSession,
    read: ReadPlan,
    snapshot: int | None,
    add_position: AddPosition | None = None,
    since: int | None = None,
) -> DataFrame:
    """The rows of an Iceberg table at a snapshot, with the table's current columns; no rows if the snapshot is None.

    Spark alone would read an older snapshot with its older schema, and the pipeline's steps might not fit it. So the
    rows are read with the current schema, which is matched to the files by field ids.

    Args:
        add_position: Adds the hidden position to the rows; None for rows without positions.
        since: The first row id that is read; None for all rows.

    Raises:
        RunError: A file does not match what the table declares.
    """
    assert read.table is not None
    if snapshot is None:
        return spark_reader(spark, read).table(read.table.sql).alias(ALIAS).limit(0)
    table = source_table(spark, read)
    verify_state(spark, read, table, snapshot)
    retained = table.snapshot(snapshot)
    schema_id = retained.schemaId() if retained is not None else None
    snapshot_schema = table.schemas().get(schema_id) if schema_id is not None else None
    df = spark_reader(spark, read).option("versionAsOf", snapshot).table(read.table.sql).alias(ALIAS)
    df = df.where(F.col(ROW_ID) >= since) if since is not None else df
    if snapshot_schema is None or snapshot_schema.schemaId() == table.schema().schemaId():
        rows = add_position(df, df.columns) if add_position else df.select("*")
        if has_mapping(table):
            return without_pushdown(rows, frozenset(names_by_id(table.schema()).values()))
        return without_pushdown(rows, overflow.unordered_columns(table, [retained] if retained is not None else []))
    tasks = plan_tasks(spark, table.newScan().useSnapshot(snapshot))
    names = spark_schema(spark, table).names
    if not tasks.size():
        return read_state(spark, read, None).select(*map(quoted, names))
    scan_metrics.record(
        scan_metrics.ScanMetrics(
            matched=int(tasks.size()), matched_partitions=(lambda: partitions.count(table, tasks),)
        )
    )
    df = read_tasks(spark, table, tasks, vector_rows=vectorized_rows(read))
    df = df.where(F.col(ROW_ID) >= since) if since is not None else df
    return add_position(df, names) if add_position else df.select(*map(quoted, names))


def count_state(spark: SparkSession, read: ReadPlan, snapshot: int) -> None:
    """Records the scan metrics of a state: its files and partitions.

    Raises:
        Expired: The snapshot has expired.
    """
    table = source_table(spark, read)
    files = offsets.state_delta(table, read, snapshot).files
    scan = table.newScan().useSnapshot(snapshot)
    scan_metrics.record(
        scan_metrics.ScanMetrics(
            total=files, total_partitions=(lambda: partitions.count(table, plan_tasks(spark, scan)),)
        )
    )


def spark_reader(spark: SparkSession, read: ReadPlan) -> DataFrameReader:
    """Spark's reader with the options of the source."""
    vector = vectorized_rows(read)
    return spark.read.option("batch-size", vector) if vector is not None else spark.read


def vectorized_rows(read: ReadPlan) -> int | None:
    """The number of rows in a vectorized read batch; None for Iceberg's default."""
    return read.source.vector if isinstance(read.source, IcebergSource) else None
