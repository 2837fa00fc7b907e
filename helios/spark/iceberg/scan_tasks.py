"""Reading chosen files: tasks that a scan of Iceberg has planned, handed to Spark as a table.

Iceberg's compaction reads its files so: it stages tasks under an id, and a scan of that id reads exactly those, with
their deletes, in the table's current columns, and in columnar batches.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from helios.spark.iceberg.transaction import minor
from helios.spark.jvm.classes import classes

_OPEN: ContextVar[list[tuple[SparkSession, Any, str]] | None] = ContextVar("helios_staged", default=None)


@contextmanager
def scan_task_scope() -> Iterator[None]:
    """Lets go of what is staged inside, once its rows have been read."""
    opened: list[tuple[SparkSession, Any, str]] = []
    token = _OPEN.set(opened)
    try:
        yield
    finally:
        _OPEN.reset(token)
        for spark, table, name in opened:
            _manager(spark).removeTasks(table, name)


def read_tasks(spark: SparkSession, table: Any, tasks: Any, *, vector: int | None = None) -> DataFrame:
    """The rows of tasks.

    Args:
        spark: The session.
        table: Iceberg's table object; its current schema tells the columns.
        tasks: A Java list of its `FileScanTask`s, not empty.
        vector: Rows of a vectorized read batch; None for Iceberg's own.

    Returns:
        The table's columns; `_file` and `_pos` can be asked for, and of format v3 `_row_id` and
        `_last_updated_sequence_number`, which may show among them.
    """
    name = _stage(spark, table, tasks)
    opened = _OPEN.get()
    if opened is not None:
        opened.append((spark, table, name))
    relation, options = _relation(spark, table, name, tasks, vector)
    jvm = classes()
    none = jvm.scala.Option.empty()
    create = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create
    plan = create(relation, none, none, options, *([none] if minor(spark) == "4.1" else []))
    if "_row_id" in list(relation.schema().fieldNames()):
        # Spark hides all metadata columns of a table that has one of them as a column.
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
        shown = attributes(relation.schema().add("_file", "string").add("_pos", "bigint").add("_deleted", "boolean"))
        plan = plan.copy(relation, shown, none, none, plan.options(), none)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def plan_tasks(spark: SparkSession, scan: Any) -> Any:
    """A task for each file of a scan of Iceberg's, as a Java list."""
    jvm = classes()
    tasks = scan.planFiles()
    try:
        return jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks)
    finally:
        tasks.close()


def plan_input_partitions(
    spark: SparkSession, table: Any, tasks: Any, columns: Any, *, vector: int | None = None
) -> tuple[Any, Any]:
    """The same for a source of Spark's: its input partitions, and what makes their readers.

    Args:
        spark: The session.
        table: Iceberg's table object.
        tasks: As for `staged`.
        columns: The Java `StructType` of the columns to be read.
        vector: As for `staged`.
    """
    name = _stage(spark, table, tasks)
    try:
        relation, options = _relation(spark, table, name, tasks, vector)
        builder = relation.newScanBuilder(options)
        builder.pruneColumns(columns)
        batch = builder.build().toBatch()
        return batch.planInputPartitions(), batch.createReaderFactory()
    finally:
        _manager(spark).removeTasks(table, name)


def _stage(spark: SparkSession, table: Any, tasks: Any) -> str:
    name = uuid.uuid4().hex
    _manager(spark).stageTasks(table, name, tasks)
    return name


def _manager(spark: SparkSession) -> Any:
    jvm = classes()
    return jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()


def _relation(spark: SparkSession, table: Any, name: str, tasks: Any, vector: int | None) -> tuple[Any, Any]:
    jvm = classes()
    options = jvm.java.util.HashMap()
    options.put("split-size", str(_split_size(spark, table, tasks)))
    if vector is not None:
        options.put("batch-size", str(vector))
    relation = TABLE[minor(spark)](jvm, table, name, options)
    return relation, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)


def _split_size(spark: SparkSession, table: Any, tasks: Any) -> int:
    """Bytes of a task of Spark's, so that every core has work; Iceberg sees to that where it reads a table itself."""
    jvm = classes()
    size = int(jvm.org.apache.iceberg.BaseCombinedScanTask(tasks).sizeBytes())
    cores = max(spark.sparkContext.defaultParallelism, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    asked = int(table.properties().getOrDefault("read.split.target-size", str(128 << 20)))
    return int(jvm.org.apache.iceberg.util.TableScanUtil.adjustSplitSize(size, cores, asked))


def _table_40(jvm: Any, table: Any, name: str, options: Any) -> Any:
    options.put("scan-task-set-id", name)
    return jvm.org.apache.iceberg.spark.source.SparkTable(table, False)


def _table_41(jvm: Any, table: Any, name: str, options: Any) -> Any:
    return jvm.org.apache.iceberg.spark.source.SparkRewriteTable(table, name)


TABLE: dict[str, Callable[[Any, Any, str, Any], Any]] = {"4.0": _table_40, "4.1": _table_41}
"""How Iceberg for each Spark version shows staged tasks as a table."""
