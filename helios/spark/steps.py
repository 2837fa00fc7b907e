"""The lowering of each declared step to DataFrame calls."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.errors import DeclarationError, HeliosError, InputError, Origin
from helios.model import steps as s
from helios.model.flow import Call, Flow, Step

Read: TypeAlias = Callable[[Flow], DataFrame]
"""How a step gets the rows of another flow: a join's or union's other side."""

# `sql()` calls its input by one name; a view of that name lives only while the query is analyzed.
_VIEW = threading.Lock()


def apply(df: DataFrame, steps: Iterable[Step], read: Read) -> DataFrame:
    """Applies steps in order.

    Raises:
        InputError: Spark refuses an expression, or a callable fails or returns something that is no DataFrame.
    """
    for step in steps:
        try:
            df = LOWERED[type(step)](df, step, read)
        except AnalysisException as error:
            raise refusal(step.text(), error, step.origin) from error
    return df


def refusal(what: str, error: AnalysisException, where: Origin | None) -> InputError:
    """Spark's refusal of something declared, without its query context and stack."""
    text = (error.getMessage() or str(error)).split("; line ")[0].splitlines()[0]
    return InputError(f"{what}: {text}", where=where)


def _call(df: DataFrame, step: Call, read: Read) -> DataFrame:
    try:
        result = step.function(df)
    except (HeliosError, AnalysisException):
        raise
    except Exception as error:
        raise InputError(
            f"{step.name} raised {type(error).__name__}: {error}", where=_raised_at(error) or step.origin
        ) from error
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{step.name} returned {type(result).__name__}, not a DataFrame.",
            where=step.origin,
            fix="return the transformed DataFrame.",
        )
    return result


def _raised_at(error: BaseException) -> Origin | None:
    """The deepest line of the user's own code in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "site-packages" not in f.filename and f"helios{os.sep}spark" not in f.filename]
    return Origin(mine[-1].filename, mine[-1].lineno or 0) if mine else None


def _where(df: DataFrame, step: s.Where, read: Read) -> DataFrame:
    return df.where(step.condition)


def _select(df: DataFrame, step: s.Select, read: Read) -> DataFrame:
    return df.selectExpr(*step.expressions)


def _with_columns(df: DataFrame, step: s.WithColumns, read: Read) -> DataFrame:
    return df.withColumns({name: F.expr(expression) for name, expression in step.columns})


def _rename(df: DataFrame, step: s.Rename, read: Read) -> DataFrame:
    return df.withColumnsRenamed(dict(step.names))


def _drop(df: DataFrame, step: s.Drop, read: Read) -> DataFrame:
    return df.drop(*step.columns)


def _cast(df: DataFrame, step: s.Cast, read: Read) -> DataFrame:
    return df.withColumns({name: df[quoted(name)].cast(spark_type) for name, spark_type in step.types})


def _sql(df: DataFrame, step: s.Sql, read: Read) -> DataFrame:
    session = df.sparkSession
    with _VIEW:
        df.createOrReplaceTempView("input")
        try:
            return session.sql(step.query)
        finally:
            session.catalog.dropTempView("input")


def _watermark(df: DataFrame, step: s.Watermark, read: Read) -> DataFrame:
    return df.withWatermark(step.column, f"{round(step.delay * 1000)} milliseconds")


def _aggregate(df: DataFrame, step: s.Aggregate, read: Read) -> DataFrame:
    keys = [F.expr(e) for e in step.by]
    aggregates = [F.expr(e).alias(name) for name, e in step.columns]
    if step.window is None:
        return df.groupBy(*keys).agg(*aggregates)
    column, size, slide = step.window
    size_text = f"{round(size * 1000)} milliseconds"
    slide_text = f"{round(slide * 1000)} milliseconds" if slide else None
    # A plain column by its quoted name, anything else (a field of a struct) as Spark parses it.
    time = F.col(quoted(column)) if column in df.columns else F.col(column)
    window = F.window(time, size_text, slide_text)
    grouped = df.groupBy(window, *keys).agg(*aggregates)
    return grouped.select("window.start", "window.end", *[quoted(c) for c in grouped.columns if c != "window"]).toDF(
        "window_start", "window_end", *[c for c in grouped.columns if c != "window"]
    )


def _dedupe(df: DataFrame, step: s.Dedupe, read: Read) -> DataFrame:
    if step.within is not None and df.isStreaming:
        return df.dropDuplicatesWithinWatermark(list(step.keys))
    return df.dropDuplicates(list(step.keys))


def _join(df: DataFrame, step: s.Join, read: Read) -> DataFrame:
    other = read(step.other)
    if step.how == "cross":
        return df.crossJoin(other)
    return df.join(other, on=list(step.on), how=step.how)


def _union(df: DataFrame, step: s.Union, read: Read) -> DataFrame:
    return df.unionByName(read(step.other))


def quoted(column: str) -> str:
    """A column name that may hold spaces or dots, as Spark parses it."""
    return f"`{column.replace('`', '``')}`"


LOWERED: dict[type[Step], Callable[[DataFrame, Any, Read], DataFrame]] = {
    Call: _call,
    s.Where: _where,
    s.Select: _select,
    s.WithColumns: _with_columns,
    s.Rename: _rename,
    s.Drop: _drop,
    s.Cast: _cast,
    s.Sql: _sql,
    s.Watermark: _watermark,
    s.Aggregate: _aggregate,
    s.Dedupe: _dedupe,
    s.Join: _join,
    s.Union: _union,
}
