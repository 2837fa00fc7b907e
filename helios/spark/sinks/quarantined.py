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
    """The SQL condition for the rows of the batch of a record, of whichever pipeline."""
    return f"batch = {record.batch} AND position = {literal(json.dumps(record.position))}"


def at_any(positions: Sequence[str]) -> str:
    """The SQL condition for the rows of some positions, as the table has them."""
    return f"position IN ({', '.join(map(literal, positions))})"


def rename_rows(spark: SparkSession, quarantine: TableName, was: str, pipeline: str) -> None:
    """Gives a pipeline that was renamed the rows that it has set aside under its former name.

    Args:
        spark: The session.
        quarantine: The quarantine.
        was: The former name.
        pipeline: The name of today.
    """
    if tables.load_table(spark, quarantine) is None:
        return
    former = f"pipeline IN ({literal(was)}, {literal(was + ROLLED_BACK)})"
    _rename(spark, quarantine, f"concat({literal(pipeline)}, substr(pipeline, {len(was) + 1}))", former)


def give_up(spark: SparkSession, quarantine: TableName, rows: str, positions: Sequence[str], since: int) -> None:
    """Takes rows of batches, and of later ones, away from their pipeline, so that no replay brings them.

    Args:
        spark: The session.
        quarantine: The quarantine.
        rows: The SQL condition for the rows of the pipeline.
        positions: What the batches read, as the table has it.
        since: When the first of the batches landed, in milliseconds since 1970: one that was rejected whole came later.
    """
    theirs = at_any(positions) if positions else "false"
    # Rows that a replay has rejected again have no batch.
    later = f"(batch IS NOT NULL AND at > timestamp_millis({since}))"
    _rename(spark, quarantine, f"concat(pipeline, {literal(ROLLED_BACK)})", f"{rows} AND ({theirs} OR {later})")


def _rename(spark: SparkSession, quarantine: TableName, pipeline: str, rows: str) -> None:
    """Writes another pipeline to rows; commits nothing where there are none."""
    if not spark.table(quarantine.sql).where(rows).isEmpty():
        spark.sql(f"UPDATE {quarantine.sql} SET pipeline = {pipeline} WHERE {rows}")
