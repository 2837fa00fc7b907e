"""Compares the rows of two snapshots as multisets. Data files that both snapshots have are not read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from helios.catalog.names import TableName
from helios.errors import RunError
from helios.spark.iceberg import foreign_files
from helios.spark.iceberg.multiset import is_one_pair, net
from helios.spark.iceberg.plain_values import plain_values
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks, scan_task_scope
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.files import JavaFileScanTask, JavaTaskComparer
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.table.states import RowDiff

SIGN = "__helios_sign"
"""The column with a row's sign: -1 for a row of the earlier state, and 1 for a row of the later state.

After equal rows are grouped, the column has the sum of their signs.
"""
PAIRED = "__helios_paired"
"""The column that is true for the two images of a changed row."""
BEFORE, AFTER = "__helios_before", "__helios_after"
"""The columns with the two images of a changed row, as structs."""
OTHER_TASKS = Path(__file__).with_name("OtherTasks.java")


@dataclass(frozen=True)
class Side:
    """One of the two states that are compared. `snapshot` is None for a state without rows."""

    name: TableName
    snapshot: int | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How rows are compared.

    Attributes:
        columns: The columns of each table, as the JSON of Iceberg's fields; both sides have the same names and order.
        keys: The columns that identify a row; without keys, no row counts as changed.
        same_table: Whether both are states of the same table.
        samples: The maximum number of rows that are shown of each kind: added, removed and changed.
    """

    columns: tuple[Sequence[Mapping[str, object]], Sequence[Mapping[str, object]]]
    keys: Sequence[str] = ()
    same_table: bool = True
    samples: int = 10


def compare_rows(spark: SparkSession, before: Side, after: Side, how: Comparison) -> RowDiff:
    """Compares the rows of two states.

    If both are states of the same table, files that both states have with the same deletes are not read. The catalogs
    of both tables must be declared in the session.

    Raises:
        RunError: A file contradicts the schema of its table, or a snapshot has expired meanwhile.
    """
    tables = [_load(spark, side) for side in (before, after)]
    tasks = [_scan_tasks(spark, table, side) for table, side in zip(tables, (before, after), strict=True)]
    if how.same_table:
        comparer = cast("JavaTaskComparer", instance(spark, OTHER_TASKS))
        tasks = list(comparer.call(tasks[0], tasks[1]).toArray())
    files = sum(int(side_tasks.size()) for side_tasks in tasks)
    if not files or not how.columns[0]:
        return RowDiff(files=files)
    for table, side, side_tasks in zip(tables, (before, after), tasks, strict=True):
        foreign_files.verify(spark, table, side_tasks, foreign_files.Reading(side.name.text))
    with scan_task_scope():
        rows_by_side = [
            _rows(spark, table, side_tasks, columns)
            for table, side_tasks, columns in zip(tables, tasks, how.columns, strict=True)
        ]
        frames = [rows.withColumn(SIGN, F.lit(sign)) for rows, sign in zip(rows_by_side, (-1, 1), strict=True) if rows]
        return _difference(frames, how, files)


def _load(spark: SparkSession, side: Side) -> JavaTable:
    table = load_table(spark, side.name)
    if table is None or (side.snapshot is not None and table.snapshot(side.snapshot) is None):
        gone = "the table" if table is None else f"snapshot {side.snapshot}"
        raise RunError(f"{side.name.text} was changed meanwhile: {gone} is gone.", fix="run again.")
    return table


def _scan_tasks(spark: SparkSession, table: JavaTable, side: Side) -> JavaList[JavaFileScanTask]:
    if side.snapshot is None:
        empty: JavaList[JavaFileScanTask] = classes().java.util.ArrayList()
        return empty
    return plan_tasks(spark, foreign_files.with_counts(table, table.newScan()).useSnapshot(side.snapshot))


# reading


def _rows(
    spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], columns: Sequence[Mapping[str, object]]
) -> DataFrame | None:
    """The rows of the tasks' files, with these columns; None without tasks."""
    if not tasks.size():
        return None
    names = [quoted(str(column["name"])) for column in columns]
    return read_tasks(spark, _with_columns(table, columns), tasks).select(*names)


def _with_columns(table: JavaTable, columns: Sequence[Mapping[str, object]]) -> JavaTable:
    """A table object with these columns, followed by all other present and former columns of the table.

    The other columns are needed because equality deletes may refer to them.
    """
    core = classes().org.apache.iceberg
    former_schemas = [table.schemas().get(id) for id in sorted(table.schemas().keySet().toArray())]
    all_fields: dict[int, dict[str, object]] = {}
    for schema in (*former_schemas, table.schema()):
        all_fields |= {field["id"]: field for field in json.loads(core.SchemaParser.toJson(schema))["fields"]}
    selected_ids = {column["id"] for column in columns}
    fields = [
        *columns,
        *({**field, "name": f"__helios_{id}"} for id, field in all_fields.items() if id not in selected_ids),
    ]
    optional_fields = [{**field, "required": False} for field in fields]
    schema = core.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": optional_fields}))
    base = table.operations().current()
    metadata = core.TableMetadata.buildFrom(base).setCurrentSchema(schema, base.lastColumnId()).build()
    altered: JavaTable = core.BaseTable(core.StaticTableOperations(metadata, table.io()), table.name())
    return altered


# comparing


def _difference(frames: Sequence[DataFrame], how: Comparison, files: int) -> RowDiff:
    frames = _aligned(frames)
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionAll(frame)
    fields = [field for field in rows.schema.fields if field.name != SIGN]
    different = net(rows, fields, (), SIGN).withColumn(PAIRED, _paired(how.keys)).persist()
    try:
        return _summary(different, fields, how, files)
    finally:
        different.unpersist()


def _summary(different: DataFrame, fields: Sequence[StructField], how: Comparison, files: int) -> RowDiff:
    is_added, is_removed = ~F.col(PAIRED) & (F.col(SIGN) > 0), ~F.col(PAIRED) & (F.col(SIGN) < 0)
    count = F.abs(F.col(SIGN))
    totals = different.agg(
        *(F.coalesce(F.sum(F.when(condition, count)), F.lit(0)) for condition in (is_added, is_removed)),
        F.count_if(F.col(PAIRED) & (F.col(SIGN) > 0)),
    ).collect()[0]
    added, removed, changed = (int(total) for total in totals)
    order = _order(fields, how.keys)

    def sample(condition: Column) -> list[dict[str, object]]:
        rows = different.where(condition).orderBy(*order).limit(how.samples).collect()
        repeated = [plain_values(row, fields) for row in rows for _ in range(min(abs(row[SIGN]), how.samples))]
        return repeated[: how.samples]

    return RowDiff(
        added=added,
        removed=removed,
        changed=changed,
        sample_added=sample(is_added) if added and how.samples else (),
        sample_removed=sample(is_removed) if removed and how.samples else (),
        sample_changed=_changed(different, fields, how) if changed and how.samples else (),
        files=files,
    )


def _changed(
    different: DataFrame, fields: Sequence[StructField], how: Comparison
) -> list[tuple[Mapping[str, object], Mapping[str, object]]]:
    keys = [quoted(key) for key in how.keys]
    columns = F.struct(*(F.col(quoted(field.name)) for field in fields))
    after = different.where(F.col(PAIRED) & (F.col(SIGN) > 0)).orderBy(*keys).limit(how.samples)
    before = different.where(F.col(PAIRED) & (F.col(SIGN) < 0))
    pairs = after.select(*keys, columns.alias(AFTER)).join(before.select(*keys, columns.alias(BEFORE)), list(how.keys))
    rows = pairs.orderBy(*keys).collect()
    return [(plain_values(row[BEFORE], fields), plain_values(row[AFTER], fields)) for row in rows]


def _paired(keys: Sequence[str]) -> Column:
    """A condition for the two images of a changed row, whose key was removed once and added once."""
    if not keys:
        return F.lit(False)
    identified = F.lit(True)
    for key in keys:
        identified = identified & F.col(quoted(key)).isNotNull()  # a key with a null identifies no row
    return identified & is_one_pair(keys, SIGN)


def _aligned(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """The rows of both states, with types that are wide enough for both."""
    if len(frames) == 1:
        return list(frames)
    schemas = [frame.schema for frame in frames]
    types = {before.name: _wider(before.dataType, after.dataType) for before, after in zip(*schemas, strict=True)}
    return [
        frame.select(*(F.col(quoted(name)).cast(data_type).alias(name) for name, data_type in types.items()))
        if any(field.dataType != types[field.name] for field in frame.schema.fields)
        else frame
        for frame in frames
    ]


def _wider(first: DataType, second: DataType) -> DataType:
    """The wider of two types. Callers ensure that one of the types can hold all values of the other."""
    if first == second:
        return first
    first_precision, second_precision = (getattr(data_type, "precision", 0) for data_type in (first, second))
    wide = {"bigint", "double"}
    return first if first_precision > second_precision or first.simpleString() in wide else second


def _order(fields: Sequence[StructField], keys: Sequence[str]) -> list[Column]:
    """The order of samples: by the keys, then by all other columns that Spark can sort by."""
    others = (field.name for field in fields if field.name not in keys and _has_order(field.dataType))
    return [F.col(quoted(name)).asc_nulls_first() for name in (*keys, *others)]


def _has_order(data_type: DataType) -> bool:
    """True if Spark can sort by values of this type."""
    if isinstance(data_type, StructType):
        return all(_has_order(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _has_order(data_type.elementType)
    return not isinstance(data_type, (MapType, VariantType))
