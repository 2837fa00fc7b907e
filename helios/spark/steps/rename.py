"""`rename`: gives columns other names."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.rename import Rename


def apply_step(df: DataFrame, step: Rename, scope: Scope) -> DataFrame:
    return df.withColumnsRenamed(dict(step.names))
