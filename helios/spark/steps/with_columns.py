"""`with_columns`: columns are added or replaced."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.spark.steps.steps import Scope
from helios.steps.with_columns import WithColumns


def lower(df: DataFrame, step: WithColumns, scope: Scope) -> DataFrame:
    return df.withColumns({name: F.expr(expression) for name, expression in step.columns})
