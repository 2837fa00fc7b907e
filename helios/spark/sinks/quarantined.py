"""SQL conditions for the rows of a quarantine, and updates of the pipeline name in these rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.spark.iceberg import tables
from helios.spark.jvm.sql import literal
from helios.table.ledger import Record

ROLLED_BACK = " (rolled back)"
"""The suffix of the pipeline's name in the rows of batches that a rollback of the target has removed."""


def batch_condition(record: Record) -> str:
    """The SQL condition for the rows of a record's batch; rows of other pipelines may match, too."""
    return f"batch = {record.batch} AND position = {literal(json.dumps(record.position))}"


def positions_condition(positions: Sequence[str]) -> str:
    """The SQL condition for the rows of batches with these positions, given as the table stores them."""
    return f"position IN ({', '.join(map(literal, positions))})"


def rename_rows(spark: SparkSession, quarantine: TableName, was: str, pipeline: str) -> None:
    """Writes the new name of a renamed pipeline into the rows that the pipeline has rejected."""
    if tables.load_table(spark, quarantine) is None:
        return
    former = f"pipeline IN ({literal(was)}, {literal(was + ROLLED_BACK)})"
    _rename(spark, quarantine, f"concat({literal(pipeline)}, substr(pipeline, {len(was) + 1}))", former)


def detach_rows(spark: SparkSession, quarantine: TableName, own: str, positions: Sequence[str], start_ms: int) -> None:
    """Adds `ROLLED_BACK` to the pipeline name in rows of some batches and in all later rows; no replay then has them.

    Args:
        own: The SQL condition for the rows of the pipeline.
        positions: The positions of the batches, as the table stores them.
        start_ms: The time at which the first of the batches was committed, in milliseconds since 1970. Later rows may
            be of batches without a commit in the target, because all their rows were rejected.
    """
    of_batches = positions_condition(positions) if positions else "false"
    # A row without a batch was rejected again by a replay, and keeps the pipeline's name.
    later = f"(batch IS NOT NULL AND at > timestamp_millis({start_ms}))"
    _rename(spark, quarantine, f"concat(pipeline, {literal(ROLLED_BACK)})", f"{own} AND ({of_batches} OR {later})")


def _rename(spark: SparkSession, quarantine: TableName, pipeline: str, condition: str) -> None:
    """Sets the column `pipeline` of the matching rows to an SQL expression; commits nothing if no row matches."""
    if not spark.table(quarantine.sql).where(condition).isEmpty():
        spark.sql(f"UPDATE {quarantine.sql} SET pipeline = {pipeline} WHERE {condition}")
