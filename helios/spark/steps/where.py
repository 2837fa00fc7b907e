"""`where`: keeps the rows that meet a condition."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.model.columns import IS_DELETE
from helios.spark.steps.steps import Scope
from helios.steps.where import Where


def apply_step(df: DataFrame, step: Where, scope: Scope) -> DataFrame:
    if IS_DELETE not in df.columns:
        return df.where(step.condition)
    # The rows are changes. One for which the condition is false or null becomes a delete of its key, which removes the
    # former row.
    met = F.coalesce(F.expr(step.condition), F.lit(False))
    return df.withColumn(IS_DELETE, F.col(IS_DELETE) | ~met)
