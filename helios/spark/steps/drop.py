"""`drop`: columns are left out."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.drop import Drop


def lower(df: DataFrame, step: Drop, scope: Scope) -> DataFrame:
    return df.drop(*step.columns)
