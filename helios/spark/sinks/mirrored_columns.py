"""The columns of a mirror's table beside those of its table of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import InputError, Origin
from helios.plan.evolution.fields import METADATA_COLUMNS
from helios.sources.changes.spark.tables import SourceTable
from helios.spark.checkpoint.mirrored import NewestSchema
from helios.spark.iceberg import tables
from helios.spark.jvm.classes import listed

ANOTHER = "have Debezium take a new snapshot under another topic.prefix, and mirror it into another namespace"
"""The fix that gives tables equal to the database's, whatever the log leaves out."""


def reserved(columns: Iterable[str]) -> str | None:
    """A column whose name Iceberg or Helios keeps for itself; None without one."""
    return next(
        (column for column in columns if column.lower() in METADATA_COLUMNS or column.lower().startswith("__helios_")),
        None,
    )


def refuse_taken_away(
    spark: SparkSession,
    name: TableName,
    source: SourceTable,
    newest: NewestSchema | None,
    *,
    where: Origin | None,
    keeps: Callable[[str], None] | None,
) -> None:
    """Refuses a table of a mirror in which somebody has renamed or dropped a column: it would be made again, empty.

    Args:
        spark: The session.
        name: The table.
        source: The table of the database that it is of.
        newest: Its newest columns.
        where: The line of the mirror.
        keeps: Tells it, where the mirror goes on all the same.

    Raises:
        InputError: There is such a column.
    """
    table = tables.load_table(spark, name) if newest is not None else None
    if newest is None or table is None:
        return
    now = {str(field.name()).lower() for field in listed(table.schema().columns())}
    had = {str(field.name()).lower() for schema in table.schemas().values() for field in listed(schema.columns())}
    lost = next((column for column in newest.columns if column.lower() in had - now), None)
    if lost is None:
        return
    what = (
        f"{name.text} has no column {lost} any more, which {source} had with its last changes: somebody has renamed or"
    )
    if keeps is not None:
        keeps(f"{what} dropped it; rows that do not change have null there")
    else:
        raise InputError(
            f"{what} dropped it, and rows that do not change would have null there; nothing was written.",
            where=where,
            fix=f"rename it back: ALTER TABLE ... RENAME COLUMN; where it was dropped, {ANOTHER}.",
        )


def with_kept(spark: SparkSession, name: TableName, rows: DataFrame, newest: NewestSchema | None) -> DataFrame:
    """Rows with null in the columns that their table has, and that of the database has no more.

    Args:
        spark: The session.
        name: The table.
        rows: Its rows.
        newest: The newest columns of its table of the database.
    """
    kept = {column.lower() for column in newest.kept} if newest is not None else set()
    left = kept - {column.lower() for column in rows.columns}
    table = tables.load_table(spark, name) if left else None
    fields = tables.spark_schema(spark, table).fields if table is not None else []
    lost = {field.name: F.lit(None).cast(field.dataType) for field in fields if field.name.lower() in left}
    return rows.withColumns(lost) if lost else rows
