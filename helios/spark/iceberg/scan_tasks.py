"""Reads chosen files with Spark: Iceberg's scan tasks are staged, and Spark reads them as a table.

Iceberg's compaction reads its files in this way: it stages tasks under an id, and a scan of that id reads exactly these
tasks. The scan applies deletes, and returns the table's current columns in columnar batches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import DataFrame, SparkSession

from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaFileScanTask, JavaScan, JavaScanTaskSetManager
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaArray, JavaList, JavaMap, JavaObject
from helios.spark.jvm.types.spark import JavaConnectorTable, JavaInputPartition, JavaReaderFactory, JavaStructType
from helios.spark.jvm.version import spark_version

_STAGED: ContextVar[list[tuple[JavaTable, str]] | None] = ContextVar("helios_staged_tasks", default=None)


@contextmanager
def scan_task_scope() -> Iterator[None]:
    """At the end of the block, unstages the tasks that `read_tasks` has staged in it. Rows must be read before that."""
    staged: list[tuple[JavaTable, str]] = []
    token = _STAGED.set(staged)
    try:
        yield
    finally:
        _STAGED.reset(token)
        for table, task_set in staged:
            _manager().removeTasks(table, task_set)


def read_tasks(
    spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], *, vector_rows: int | None = None
) -> DataFrame:
    """The rows of scan tasks.

    Args:
        table: Iceberg's table object; its current schema defines the columns.
        tasks: Tasks of its files, at least one.
        vector_rows: The number of rows in a batch of a vectorized read; None for Iceberg's default.

    Returns:
        The table's columns. `_file` and `_pos` can be selected too, and with format v3 `_row_id` and
        `_last_updated_sequence_number`, which may be among the columns already.
    """
    task_set = _stage(table, tasks)
    staged = _STAGED.get()
    if staged is not None:
        staged.append((table, task_set))
    connector_table, options = _staged_table(spark, table, task_set, tasks, vector_rows)
    jvm = classes()
    plan = spark_version(spark).relation(connector_table, options)
    schema = connector_table.schema()
    if "_row_id" in list(schema.fieldNames()):
        # If a column of a table has the name of a metadata column, Spark hides all metadata columns of the table.
        none = jvm.scala.Option.empty()
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
        columns = attributes(schema.add("_file", "string").add("_pos", "bigint").add("_deleted", "boolean"))
        plan = plan.copy(connector_table, columns, none, none, plan.options(), none)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def plan_tasks(spark: SparkSession, scan: JavaScan) -> JavaList[JavaFileScanTask]:
    """A task for each file of a scan."""
    planned = scan.planFiles()
    try:
        lists = classes().org.apache.iceberg.relocated.com.google.common.collect.Lists
        tasks: JavaList[JavaFileScanTask] = lists.newArrayList(planned)
        return tasks
    finally:
        planned.close()


def plan_input_partitions(
    spark: SparkSession,
    table: JavaTable,
    tasks: JavaList[JavaFileScanTask],
    columns: JavaStructType,
    *,
    vector_rows: int | None = None,
) -> tuple[JavaArray[JavaInputPartition], JavaReaderFactory]:
    """Spark's input partitions for scan tasks, and the factory that creates their readers.

    Args:
        tasks: Tasks of the table's files, at least one.
        vector_rows: The number of rows in a batch of a vectorized read; None for Iceberg's default.
    """
    task_set = _stage(table, tasks)
    try:
        connector_table, options = _staged_table(spark, table, task_set, tasks, vector_rows)
        builder = connector_table.newScanBuilder(options)
        builder.pruneColumns(columns)
        batch = builder.build().toBatch()
        return batch.planInputPartitions(), batch.createReaderFactory()
    finally:
        _manager().removeTasks(table, task_set)


def _stage(table: JavaTable, tasks: JavaList[JavaFileScanTask]) -> str:
    """Stages scan tasks, and returns the id of the task set."""
    task_set = uuid.uuid4().hex
    _manager().stageTasks(table, task_set, tasks)
    return task_set


def _manager() -> JavaScanTaskSetManager:
    manager: JavaScanTaskSetManager = classes().org.apache.iceberg.spark.ScanTaskSetManager.get()
    return manager


def _staged_table(
    spark: SparkSession, table: JavaTable, task_set: str, tasks: JavaList[JavaFileScanTask], vector_rows: int | None
) -> tuple[JavaConnectorTable, JavaObject]:
    """The connector table that reads staged tasks, and its read options."""
    jvm = classes()
    options: JavaMap[str, str] = jvm.java.util.HashMap()
    options.put("split-size", str(_split_size(spark, table, tasks)))
    if vector_rows is not None:
        options.put("batch-size", str(vector_rows))
    connector_table = spark_version(spark).staged_table(table, task_set, options)
    return connector_table, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)


def _split_size(spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask]) -> int:
    """The bytes that one Spark task reads; they are chosen as in Iceberg's other scans, so that every core has work."""
    jvm = classes()
    size = int(jvm.org.apache.iceberg.BaseCombinedScanTask(tasks).sizeBytes())
    cores = max(spark.sparkContext.defaultParallelism, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    target = int(table.properties().getOrDefault("read.split.target-size", str(128 << 20)))
    return int(jvm.org.apache.iceberg.util.TableScanUtil.adjustSplitSize(size, cores, target))
