"""The rows of a quarantine: conditions for them, and the pipeline that they belong to."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.spark.iceberg import tables
from helios.spark.jvm.sql import literal
from helios.table.ledger import Record

ROLLED_BACK = " (rolled back)"
"""The suffix of the pipeline's name for the rows of batches that a rollback of its target has removed."""


def of_batch(record: Record) -> str:
    """The SQL condition for the rows of a record's batch, of any pipeline."""
    return f"batch = {record.batch} AND position = {literal(json.dumps(record.position))}"


def at_any(positions: Sequence[str]) -> str:
    """The SQL condition for the rows of batches with these positions, given as the table stores them."""
    return f"position IN ({', '.join(map(literal, positions))})"


def rename_rows(spark: SparkSession, quarantine: TableName, was: str, pipeline: str) -> None:
    """Gives the rows that a renamed pipeline has rejected its new name.

    Args:
        spark: The session.
        quarantine: The quarantine.
        was: The former name.
        pipeline: The new name.
    """
    if tables.load_table(spark, quarantine) is None:
        return
    former = f"pipeline IN ({literal(was)}, {literal(was + ROLLED_BACK)})"
    _rename(spark, quarantine, f"concat({literal(pipeline)}, substr(pipeline, {len(was) + 1}))", former)


def detach_rows(spark: SparkSession, quarantine: TableName, rows: str, positions: Sequence[str], since: int) -> None:
    """Renames the pipeline of the rows of batches, and of all later rows, so that no replay writes them.

    Args:
        spark: The session.
        quarantine: The quarantine.
        rows: The SQL condition for the rows of the pipeline.
        positions: The positions of the batches, as the table stores them.
        since: The time at which the first of the batches landed, in milliseconds since 1970. Later rows may be
            those of batches that never landed, because all their rows were rejected.
    """
    of_batches = at_any(positions) if positions else "false"
    # Rows that a replay has rejected again have no batch.
    later = f"(batch IS NOT NULL AND at > timestamp_millis({since}))"
    _rename(spark, quarantine, f"concat(pipeline, {literal(ROLLED_BACK)})", f"{rows} AND ({of_batches} OR {later})")


def _rename(spark: SparkSession, quarantine: TableName, pipeline: str, rows: str) -> None:
    """Sets the column `pipeline` of rows to an SQL expression; commits nothing if no row matches."""
    if not spark.table(quarantine.sql).where(rows).isEmpty():
        spark.sql(f"UPDATE {quarantine.sql} SET pipeline = {pipeline} WHERE {rows}")
