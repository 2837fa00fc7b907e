"""`rename`: columns under other names."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.rename import Rename


def lower(df: DataFrame, step: Rename, scope: Scope) -> DataFrame:
    return df.withColumnsRenamed(dict(step.names))
