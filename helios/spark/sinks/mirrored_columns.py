"""The columns of a mirrored table that differ from those of its table in the database."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.plan.evolution.fields import METADATA_COLUMNS
from helios.spark.checkpoint.mirrored import NewestSchema
from helios.spark.iceberg import tables
from helios.spark.jvm.classes import listed

NEW_MIRROR = "have Debezium take a new snapshot under another topic.prefix, and mirror it into another namespace"
"""The fix after which the mirrored tables equal those of the database, even if the log lacks changes."""


def reserved_column(columns: Iterable[str]) -> str | None:
    """The first column whose name Iceberg or Helios reserves; None if there is none."""
    return next(
        (column for column in columns if column.lower() in METADATA_COLUMNS or column.lower().startswith("__helios_")),
        None,
    )


def missing_column(spark: SparkSession, name: TableName, newest: NewestSchema | None) -> str | None:
    """A column that a user has renamed or dropped in a mirrored table; None if there is none.

    The next batch would add the column again, with nulls in existing rows.
    """
    table = tables.load_table(spark, name) if newest is not None else None
    if newest is None or table is None:
        return None
    present = {str(field.name()).lower() for field in listed(table.schema().columns())}
    earlier = {str(field.name()).lower() for schema in table.schemas().values() for field in listed(schema.columns())}
    return next((column for column in newest.columns if column.lower() in earlier - present), None)


def with_kept_columns(spark: SparkSession, name: TableName, rows: DataFrame, newest: NewestSchema | None) -> DataFrame:
    """The rows, with nulls in the columns that the database has dropped and that the mirrored table keeps."""
    kept = {column.lower() for column in newest.kept} if newest is not None else set()
    missing = kept - {column.lower() for column in rows.columns}
    table = tables.load_table(spark, name) if missing else None
    fields = tables.spark_schema(spark, table).fields if table is not None else []
    nulls = {field.name: F.lit(None).cast(field.dataType) for field in fields if field.name.lower() in missing}
    return rows.withColumns(nulls) if nulls else rows
