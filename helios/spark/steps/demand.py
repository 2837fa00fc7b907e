"""Conditions that every row must meet: the first row that does not stops its batch."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def demanded(df: DataFrame, met: Column, message: Column) -> DataFrame:
    """The rows; a row that does not meet the condition stops its batch.

    Spark merges neighbouring filters, moves parts of them into scans and joins, and tests for nulls first. A later
    `where`, window or join could then drop a row before the condition is tested. Spark moves no filter across a
    nondeterministic condition.

    Args:
        df: The rows.
        met: True if a row meets the condition; never null.
        message: The message of the error for a row that does not.
    """
    always = F.spark_partition_id() >= 0  # for Spark, this is nondeterministic
    return df.where(F.when(met, always).otherwise(F.raise_error(message).cast("boolean")))
