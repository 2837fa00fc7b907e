"""`watermark`: Spark's own watermark in a stream; in a batch, only a mark on the column."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.steps.dedupe import mark_watermark
from helios.spark.steps.steps import Scope
from helios.steps.watermark import Watermark


def apply_step(df: DataFrame, step: Watermark, scope: Scope) -> DataFrame:
    delay = round(step.delay * 1000)
    return (
        df.withWatermark(step.column, f"{delay} milliseconds")
        if df.isStreaming
        else mark_watermark(df, step.column, delay)
    )
