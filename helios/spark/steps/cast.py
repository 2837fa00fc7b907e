"""`cast`: converts columns to other types."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.jvm.sql import quoted
from helios.spark.steps.steps import Scope
from helios.steps.cast import Cast


def apply_step(df: DataFrame, step: Cast, scope: Scope) -> DataFrame:
    return df.withColumns({name: df[quoted(name)].cast(spark_type) for name, spark_type in step.types})
