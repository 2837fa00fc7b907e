"""The columns of a mirror's table beside those of its table of the database."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.plan.evolution.fields import METADATA_COLUMNS
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


def taken_away(spark: SparkSession, name: TableName, newest: NewestSchema | None) -> str | None:
    """A column that somebody has renamed or dropped in a mirror's table, where the next batch would add it anew, empty.

    Args:
        spark: The session.
        name: The table.
        newest: The newest columns of its table of the database.
    """
    table = tables.load_table(spark, name) if newest is not None else None
    if newest is None or table is None:
        return None
    now = {str(field.name()).lower() for field in listed(table.schema().columns())}
    had = {str(field.name()).lower() for schema in table.schemas().values() for field in listed(schema.columns())}
    return next((column for column in newest.columns if column.lower() in had - now), None)


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
