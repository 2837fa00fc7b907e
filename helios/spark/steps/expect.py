"""`expect`: keeps the rows that meet all conditions. Other rows fail the batch, are dropped or are quarantined."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.model.columns import IS_DELETE
from helios.spark.jvm.errors import EXPECTATION_PREFIX
from helios.spark.steps.row_check import check_rows
from helios.spark.steps.steps import Scope, payload, rejected
from helios.steps.expect import Expect

Met: TypeAlias = "dict[str, Column]"
"""By the name of each condition, a column that is true if a row meets the condition."""


def apply_step(df: DataFrame, step: Expect, scope: Scope) -> DataFrame:
    met = {name: F.coalesce(F.expr(condition), F.lit(False)) for name, condition in step.conditions}
    all_met = reduce(lambda a, b: a & b, met.values())
    if IS_DELETE in df.columns:  # the rows are changes, and a delete has only the key
        all_met = all_met | F.col(IS_DELETE)
    return ON_FAIL[step.on_fail](df, step, scope, met, all_met)


def _fail(df: DataFrame, step: Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    message = F.concat(F.lit(EXPECTATION_PREFIX), _reason(step, met), F.lit(" in "), payload(df))
    return check_rows(df, all_met, message)


def _drop_failing(df: DataFrame, step: Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    if not df.isStreaming:
        scope.counted.append(Observation())
        df = df.observe(scope.counted[-1], F.count_if(~all_met).alias("dropped"))
    return df.where(all_met)


def _quarantine(df: DataFrame, step: Expect, scope: Scope, met: Met, all_met: Column) -> DataFrame:
    scope.rejected.append(rejected(df.where(~all_met), _reason(step, met), step.text()))
    return df.where(all_met)


def _reason(step: Expect, met: Met) -> Column:
    failed = [F.when(~met[name], F.lit(f"{name} ({condition})")) for name, condition in step.conditions]
    return F.concat_ws(", ", *failed)


ON_FAIL: dict[str, Callable[[DataFrame, Expect, Scope, Met, Column], DataFrame]] = {
    "fail": _fail,
    "drop": _drop_failing,
    "quarantine": _quarantine,
}
"""The function that handles the rows that do not meet all conditions, by `Expect.on_fail`."""
