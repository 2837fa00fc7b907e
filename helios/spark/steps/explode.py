"""`explode`: makes a row for each element of an array."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.spark.jvm.sql import quoted
from helios.spark.steps.steps import Scope
from helios.steps.explode import Explode


def apply_step(df: DataFrame, step: Explode, scope: Scope) -> DataFrame:
    array = F.col(quoted(step.column))
    return df.withColumn(step.as_, F.explode_outer(array) if step.keep_empty else F.explode(array))
