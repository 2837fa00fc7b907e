"""Lowers each declared step to DataFrame calls."""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.errors import DeclarationError, HeliosError, InputError, Origin
from helios.model import steps as s
from helios.model.flow import Call, Flow, Step
from helios.model.joins import Join, Union
from helios.model.source import POSITION
from helios.model.topic_changes import GONE, LOG
from helios.plan.typing.aggregates import alias_of
from helios.spark.jvm.errors import FAILED
from helios.spark.jvm.sql import JSON_TIMES, quoted, refusal
from helios.spark.steps.dedupe import dated, deduplicate, marked
from helios.spark.steps.demand import demanded
from helios.spark.steps.joins import Dated, joined, joined_as_of

HIDDEN = (POSITION, LOG, GONE)
"""Columns that steps pass through."""

POSITION_KEEPING = (s.Where, s.Select, s.WithColumns, s.Rename, s.Drop, s.Cast, s.Expect)
"""Steps that pass the hidden position column through; a callable or SQL would see it."""


@dataclass(frozen=True)
class Scope:
    """What steps need besides their rows.

    Attributes:
        read: Reads another flow: the other side of a join or union.
        rejected: Collects the rows for the quarantine, as `payload`, `reason` and `step`.
        counted: Collects the counts of rows that expectations drop.
        earlier: Whether the state in the checkpoint is an earlier version's, as in `Plan.earlier_state`.
        dated: Reads the other side of a join as of a time; None where no step joins.
    """

    read: Callable[[Flow], DataFrame]
    rejected: list[DataFrame] = field(default_factory=list)
    counted: list[Observation] = field(default_factory=list)
    earlier: bool = False
    dated: Callable[[Flow], Dated] | None = None


# `sql()` steps share the view name `input`, which exists only while a query is analyzed.
_VIEW_LOCK = threading.Lock()


def apply(df: DataFrame, steps: Iterable[Step], scope: Scope) -> DataFrame:
    """Applies steps in order.

    Raises:
        InputError: Spark refuses an expression, or a callable fails or does not return a DataFrame.
    """
    for step in steps:
        try:
            df = LOWERED[type(step)](df, step, scope)
        except AnalysisException as error:
            raise refusal(step.text(), error, step.origin) from error
    return df


def _call(df: DataFrame, step: Call, scope: Scope) -> DataFrame:
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


def _where(df: DataFrame, step: s.Where, scope: Scope) -> DataFrame:
    if GONE not in df.columns:
        return df.where(step.condition)
    # A change whose row meets the condition no more takes away what it was before; a delete has the key alone.
    met = F.coalesce(F.expr(step.condition), F.lit(False))
    return df.withColumn(GONE, F.col(GONE) | ~met)


def _select(df: DataFrame, step: s.Select, scope: Scope) -> DataFrame:
    hidden = [name for name in HIDDEN if name in df.columns]
    return df.selectExpr(*step.expressions, *hidden)


def _with_columns(df: DataFrame, step: s.WithColumns, scope: Scope) -> DataFrame:
    return df.withColumns({name: F.expr(expression) for name, expression in step.columns})


def _rename(df: DataFrame, step: s.Rename, scope: Scope) -> DataFrame:
    return df.withColumnsRenamed(dict(step.names))


def _drop(df: DataFrame, step: s.Drop, scope: Scope) -> DataFrame:
    return df.drop(*step.columns)


def _cast(df: DataFrame, step: s.Cast, scope: Scope) -> DataFrame:
    return df.withColumns({name: df[quoted(name)].cast(spark_type) for name, spark_type in step.types})


def _sql(df: DataFrame, step: s.Sql, scope: Scope) -> DataFrame:
    session = df.sparkSession
    with _VIEW_LOCK:
        df.createOrReplaceTempView("input")
        try:
            return session.sql(step.query)
        finally:
            session.catalog.dropTempView("input")


def _watermark(df: DataFrame, step: s.Watermark, scope: Scope) -> DataFrame:
    delay = round(step.delay * 1000)
    return df.withWatermark(step.column, f"{delay} milliseconds") if df.isStreaming else marked(df, step.column, delay)


def _aggregate(df: DataFrame, step: s.Aggregate, scope: Scope) -> DataFrame:
    if step.window is not None:
        df = dated(df, _window_time(df, step), step.window[0], step)  # Spark drops rows without a time
    df, keys = _grouped_by(df, step)
    aggregates = [F.expr(e).alias(name) for name, e in step.columns]
    if step.window is None:
        return df.groupBy(*keys).agg(*aggregates)
    _, size, slide = step.window
    size_text = f"{round(size * 1000)} milliseconds"
    slide_text = f"{round(slide * 1000)} milliseconds" if slide else None
    time = _window_time(df, step)
    window = F.session_window(time, size_text) if step.session else F.window(time, size_text, slide_text)
    grouped = df.groupBy(window, *keys).agg(*aggregates)
    made, *rest = grouped.columns
    return grouped.select(f"{made}.start", f"{made}.end", *map(quoted, rest)).toDF("window_start", "window_end", *rest)


def _window_time(df: DataFrame, step: s.Aggregate) -> Column:
    """The time of a window: a column by its quoted name; a field of a struct, say, as Spark parses it."""
    assert step.window is not None
    column = step.window[0]
    return F.col(quoted(column)) if column in df.columns else F.col(column)


def _grouped_by(df: DataFrame, step: s.Aggregate) -> tuple[DataFrame, list[Column]]:
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


def _dedupe(df: DataFrame, step: s.Dedupe, scope: Scope) -> DataFrame:
    return deduplicate(df, step, earlier=scope.earlier)


def _join(df: DataFrame, step: Join, scope: Scope) -> DataFrame:
    if step.as_of is None:
        return joined(df, scope.read(step.other), step)
    assert scope.dated is not None
    return joined_as_of(df, scope.dated(step.other), step)


def _union(df: DataFrame, step: Union, scope: Scope) -> DataFrame:
    return df.unionByName(scope.read(step.other))


def _expect(df: DataFrame, step: s.Expect, scope: Scope) -> DataFrame:
    met = {name: F.coalesce(F.expr(condition), F.lit(False)) for name, condition in step.conditions}
    all_met = reduce(lambda a, b: a & b, met.values())
    if GONE in df.columns:  # a delete has the key alone
        all_met = all_met | F.col(GONE)
    return ON_FAIL[step.on_fail](df, step, scope, met, all_met)


Met: TypeAlias = "dict[str, Column]"


def _fail(df: DataFrame, step: s.Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    message = F.concat(F.lit(FAILED), _reason(step, met), F.lit(" in "), payload(df))
    return demanded(df, all_met, message)


def _drop_failing(df: DataFrame, step: s.Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    if not df.isStreaming:
        scope.counted.append(Observation())
        df = df.observe(scope.counted[-1], F.count_if(~all_met).alias("dropped"))
    return df.where(all_met)


def _quarantine(df: DataFrame, step: s.Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    scope.rejected.append(rejected(df.where(~all_met), _reason(step, met), step.text()))
    return df.where(all_met)


def _reason(step: s.Expect, met: Met) -> Column:
    failed = [F.when(~met[name], F.lit(f"{name} ({condition})")) for name, condition in step.conditions]
    return F.concat_ws(", ", *failed)


PAYLOAD = {"ignoreNullFields": "false", **JSON_TIMES}


def payload(df: DataFrame) -> Column:
    """A row as JSON, nulls included."""
    columns = [quoted(name) for name in df.columns if name not in HIDDEN]
    return F.to_json(F.struct(*columns), PAYLOAD)


def rejected(df: DataFrame, reason: Column, step: str) -> DataFrame:
    """Rejected rows in the form of the quarantine: `payload`, `reason` and `step`."""
    return df.select(payload(df).alias("payload"), reason.alias("reason"), F.lit(step).alias("step"))


ON_FAIL: dict[str, Callable[[DataFrame, s.Expect, Scope, Met, Column], DataFrame]] = {
    "fail": _fail,
    "drop": _drop_failing,
    "quarantine": _quarantine,
}


LOWERED: dict[type[Step], Callable[[DataFrame, Any, Scope], DataFrame]] = {
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
    Join: _join,
    Union: _union,
    s.Expect: _expect,
}
