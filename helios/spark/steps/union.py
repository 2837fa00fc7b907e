"""`union`: the rows of both flows, by column name."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.union import Union


def lower(df: DataFrame, step: Union, scope: Scope) -> DataFrame:
    return df.unionByName(scope.read(step.other))
