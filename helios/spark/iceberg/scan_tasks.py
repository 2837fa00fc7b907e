"""Reads of chosen files: scan tasks of Iceberg, passed to Spark as a table.

Iceberg's compaction reads its files this way: it stages tasks under an id, and a scan of that id reads exactly these
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
    """Unstages the tasks of the block's `read_tasks` when the block ends; their rows must be read before."""
    staged: list[tuple[JavaTable, str]] = []
    token = _STAGED.set(staged)
    try:
        yield
    finally:
        _STAGED.reset(token)
        for table, name in staged:
            _manager().removeTasks(table, name)


def read_tasks(
    spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], *, vector: int | None = None
) -> DataFrame:
    """The rows of scan tasks.

    Args:
        spark: The session.
        table: Iceberg's table object; its current schema defines the columns.
        tasks: Tasks of its files, at least one.
        vector: Rows of a vectorized read batch; None for Iceberg's default.

    Returns:
        The table's columns. `_file` and `_pos` can be selected too, and with format v3 `_row_id` and
        `_last_updated_sequence_number`, which may be among the columns already.
    """
    name = _stage(table, tasks)
    staged = _STAGED.get()
    if staged is not None:
        staged.append((table, name))
    relation, options = _staged_table(spark, table, name, tasks, vector)
    jvm = classes()
    plan = spark_version(spark).relation(relation, options)
    if "_row_id" in list(relation.schema().fieldNames()):
        # Spark hides all metadata columns of a table that has one of them as a column.
        none = jvm.scala.Option.empty()
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
        columns = attributes(relation.schema().add("_file", "string").add("_pos", "bigint").add("_deleted", "boolean"))
        plan = plan.copy(relation, columns, none, none, plan.options(), none)
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
    vector: int | None = None,
) -> tuple[JavaArray[JavaInputPartition], JavaReaderFactory]:
    """Spark's input partitions of scan tasks, and the factory of their readers.

    Args:
        spark: The session.
        table: Iceberg's table object.
        tasks: Tasks of its files, at least one.
        columns: The columns to be read.
        vector: Rows of a vectorized read batch; None for Iceberg's default.
    """
    name = _stage(table, tasks)
    try:
        relation, options = _staged_table(spark, table, name, tasks, vector)
        builder = relation.newScanBuilder(options)
        builder.pruneColumns(columns)
        batch = builder.build().toBatch()
        return batch.planInputPartitions(), batch.createReaderFactory()
    finally:
        _manager().removeTasks(table, name)


def _stage(table: JavaTable, tasks: JavaList[JavaFileScanTask]) -> str:
    name = uuid.uuid4().hex
    _manager().stageTasks(table, name, tasks)
    return name


def _manager() -> JavaScanTaskSetManager:
    manager: JavaScanTaskSetManager = classes().org.apache.iceberg.spark.ScanTaskSetManager.get()
    return manager


def _staged_table(
    spark: SparkSession, table: JavaTable, name: str, tasks: JavaList[JavaFileScanTask], vector: int | None
) -> tuple[JavaConnectorTable, JavaObject]:
    """The table that reads staged tasks, and its read options."""
    jvm = classes()
    options: JavaMap[str, str] = jvm.java.util.HashMap()
    options.put("split-size", str(_split_size(spark, table, tasks)))
    if vector is not None:
        options.put("batch-size", str(vector))
    relation = spark_version(spark).staged_table(table, name, options)
    return relation, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)


def _split_size(spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask]) -> int:
    """The bytes that a task of Spark reads, chosen so that every core has work, as in Iceberg's other scans."""
    jvm = classes()
    size = int(jvm.org.apache.iceberg.BaseCombinedScanTask(tasks).sizeBytes())
    cores = max(spark.sparkContext.defaultParallelism, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    target = int(table.properties().getOrDefault("read.split.target-size", str(128 << 20)))
    return int(jvm.org.apache.iceberg.util.TableScanUtil.adjustSplitSize(size, cores, target))
