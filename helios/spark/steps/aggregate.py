"""`aggregate`: groups rows by columns and by windows of event time."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.plan.typing.aggregates import alias_of
from helios.spark.jvm.sql import quoted
from helios.spark.steps.dedupe import require_time
from helios.spark.steps.steps import Scope
from helios.steps.aggregate import Aggregate

WINDOW = "__helios_window"
"""The hidden column with the start and the end of a window."""


def apply_step(df: DataFrame, step: Aggregate, scope: Scope) -> DataFrame:
    if step.window is not None:
        df = require_time(df, window_time(df, step), step.window.column, step)  # Spark drops rows without a time
    df, keys = _grouped_by(df, step)
    aggregates = [F.expr(e).alias(name) for name, e in step.columns]
    if step.window is None:
        return df.groupBy(*keys).agg(*aggregates)
    slide = step.window.slide
    size_text = f"{round(step.window.size * 1000)} milliseconds"
    slide_text = f"{round(slide * 1000)} milliseconds" if slide else None
    time = window_time(df, step)
    window = F.session_window(time, size_text) if step.session else F.window(time, size_text, slide_text)
    grouped = df.groupBy(window, *keys).agg(*aggregates)
    rest = grouped.columns[1:]
    # By position, because a group column or an aggregate may have the same name as the window has in Spark.
    named = grouped.toDF(WINDOW, *rest)
    selected = named.select(f"{WINDOW}.start", f"{WINDOW}.end", *map(quoted, rest))
    return selected.toDF("window_start", "window_end", *rest)


def window_time(df: DataFrame, step: Aggregate) -> Column:
    """The time that a window groups by: a column of the rows, or else a field of a struct, such as `event.ts`."""
    assert step.window is not None
    column = step.window.column
    return F.col(quoted(column)) if column in df.columns else F.col(column)


def _grouped_by(df: DataFrame, step: Aggregate) -> tuple[DataFrame, list[Column]]:
    """The rows and the group columns of an aggregate.

    Spark resolves no alias of a group column in an aggregate function. So if a function uses such an alias, as in
    `aggregate("id % 100 AS g", top="max(g)")`, the group column becomes a column of the rows first.
    """
    keys = []
    for text in step.by:
        name = alias_of(text)
        if name is None or name.lower() in map(str.lower, df.columns) or not _uses(step, name):
            keys.append(F.expr(text))
            continue
        df = df.withColumn(name, F.expr(text))
        keys.append(F.col(quoted(name)))
    return df, keys


def _uses(step: Aggregate, name: str) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", function, re.IGNORECASE) for _, function in step.columns)
