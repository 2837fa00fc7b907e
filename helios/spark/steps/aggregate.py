"""`aggregate`: groups, and windows of event time."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.plan.typing.aggregates import alias_of
from helios.spark.jvm.sql import quoted
from helios.spark.steps.dedupe import dated
from helios.spark.steps.steps import Scope
from helios.steps.aggregate import Aggregate


def lower(df: DataFrame, step: Aggregate, scope: Scope) -> DataFrame:
    if step.window is not None:
        df = dated(df, _window_time(df, step), step.window.column, step)  # Spark drops rows without a time
    df, keys = _grouped_by(df, step)
    aggregates = [F.expr(e).alias(name) for name, e in step.columns]
    if step.window is None:
        return df.groupBy(*keys).agg(*aggregates)
    slide = step.window.slide
    size_text = f"{round(step.window.size * 1000)} milliseconds"
    slide_text = f"{round(slide * 1000)} milliseconds" if slide else None
    time = _window_time(df, step)
    window = F.session_window(time, size_text) if step.session else F.window(time, size_text, slide_text)
    grouped = df.groupBy(window, *keys).agg(*aggregates)
    made, *rest = grouped.columns
    return grouped.select(f"{made}.start", f"{made}.end", *map(quoted, rest)).toDF("window_start", "window_end", *rest)


def _window_time(df: DataFrame, step: Aggregate) -> Column:
    """The time of a window: a column by its quoted name; a field of a struct, say, as Spark parses it."""
    assert step.window is not None
    column = step.window.column
    return F.col(quoted(column)) if column in df.columns else F.col(column)


def _grouped_by(df: DataFrame, step: Aggregate) -> tuple[DataFrame, list[Column]]:
    """The groups of an aggregate; one that an aggregate function names becomes a column: Spark resolves no alias there.

    `aggregate("id % 100 AS g", top="max(g)")`
    """
    keys = []
    for text in step.by:
        name = alias_of(text)
        taken = name is None or name.lower() in map(str.lower, df.columns)
        if taken or not any(re.search(rf"\b{re.escape(str(name))}\b", used, re.IGNORECASE) for _, used in step.columns):
            keys.append(F.expr(text))
            continue
        df = df.withColumn(str(name), F.expr(text))
        keys.append(F.col(quoted(str(name))))
    return df, keys
