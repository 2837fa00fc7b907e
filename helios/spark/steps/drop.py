"""`drop`: leaves columns out."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.drop import Drop


def apply_step(df: DataFrame, step: Drop, scope: Scope) -> DataFrame:
    return df.drop(*step.columns)
