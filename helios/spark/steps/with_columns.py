"""`with_columns`: adds or replaces columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.spark.steps.steps import Scope
from helios.steps.with_columns import WithColumns


def apply_step(df: DataFrame, step: WithColumns, scope: Scope) -> DataFrame:
    return df.withColumns({name: F.expr(expression) for name, expression in step.columns})
