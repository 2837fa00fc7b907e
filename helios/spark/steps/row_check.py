"""Conditions that every row must meet: a row that does not meet its condition fails the batch."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def check_rows(df: DataFrame, met: Column, message: Column) -> DataFrame:
    """The same rows, with a filter that raises an error in Spark for a row that does not meet a condition.

    The condition of the filter is nondeterministic for Spark, so that every row is checked. Otherwise Spark would merge
    neighbouring filters, move parts of them into scans and joins, and test for nulls first. A later `where`, window or
    join could then drop a row before it is checked. Spark moves no filter across a nondeterministic condition.

    Args:
        met: True if a row meets the condition; never null.
    """
    always_true = F.spark_partition_id() >= 0  # Spark regards this as nondeterministic
    return df.where(F.when(met, always_true).otherwise(F.raise_error(message).cast("boolean")))
