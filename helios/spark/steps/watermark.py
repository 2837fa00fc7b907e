"""`watermark`: Spark's own in a stream, a mark in a batch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.dedupe import marked
from helios.spark.steps.steps import Scope
from helios.steps.watermark import Watermark


def lower(df: DataFrame, step: Watermark, scope: Scope) -> DataFrame:
    delay = round(step.delay * 1000)
    return df.withWatermark(step.column, f"{delay} milliseconds") if df.isStreaming else marked(df, step.column, delay)
