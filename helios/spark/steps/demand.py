"""Conditions that every row must meet: the first row that does not stops its batch."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def demanded(df: DataFrame, met: Column, message: Column) -> DataFrame:
    """The rows, of which each must meet a condition.

    Spark makes one filter of neighbouring ones, has the scan and the joins take parts of it, and looks for nulls first:
    a `where`, a window or a join behind the condition would drop a row before the condition sees it. It moves nothing
    across a condition that it takes for nondeterministic.

    Args:
        df: The rows.
        met: Whether a row meets it, never null.
        message: What the error says of a row that does not.
    """
    always = F.spark_partition_id() >= 0
    return df.where(F.when(met, always).otherwise(F.raise_error(message).cast("boolean")))
