"""`union`: adds the rows of another flow, by column names."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.union import Union


def apply_step(df: DataFrame, step: Union, scope: Scope) -> DataFrame:
    return df.unionByName(scope.read(step.other))
