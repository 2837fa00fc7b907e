"""`select`: projects the rows to expressions, and keeps the hidden columns."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import HIDDEN, Scope
from helios.steps.select import Select


def apply_step(df: DataFrame, step: Select, scope: Scope) -> DataFrame:
    hidden = [name for name in HIDDEN if name in df.columns]
    return df.selectExpr(*step.expressions, *hidden)
