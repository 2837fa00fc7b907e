"""Keeping a materialized view: the groups of changed rows, computed anew from the table's state.

Whatever a commit did to rows, both of their images tell their groups; the aggregate of such a group over the state at
the batch's last snapshot is what a full recompute gives, also for `min`, `max`, `avg` and sums of floating-point
numbers.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.model.flow import Flow
from helios.model.source import CHANGE_COLUMNS
from helios.plan.plan import Plan
from helios.plan.views import View
from helios.spark.keys import DELETED
from helios.spark.read import Built, narrowed
from helios.spark.steps import Scope, apply, quoted
from helios.spark.tables import read_state


def empty(spark: SparkSession, plan: Plan, view: View) -> DataFrame:
    """The view without a row, by which its columns are known."""
    return _apply(_aggregated(spark, plan, view, None), view)


def recomputed(spark: SparkSession, plan: Plan, view: View, changed: DataFrame, to: int | None) -> Built:
    """The groups of changed rows as they are at a snapshot, and the marks of those that are gone.

    Args:
        spark: The session.
        plan: The pipeline.
        view: Its view.
        changed: The changes of a batch.
        to: The batch's last snapshot.
    """
    step = view.aggregate
    steps = _rows(changed.drop(*CHANGE_COLUMNS), view)
    touched = steps.groupBy(*map(F.expr, step.by)).agg(F.count(F.lit(1)).alias("__helios_n")).drop("__helios_n")
    names = touched.columns
    keys = [f"__helios_k{i}" for i in range(len(names))]
    touched = touched.toDF(*keys).localCheckpoint()  # it is read twice, and the changes need not be
    groups = _aggregated(spark, plan, view, to, touched)
    lost = touched.join(groups, _same([F.col(quoted(name)) for name in names], keys), "left_anti")
    values = [F.lit(None).cast(f.dataType).alias(f.name) for f in groups.schema.fields if f.name not in names]
    gone = lost.select(*[F.col(key).alias(name) for key, name in zip(keys, names, strict=True)], *values)
    marked = [_apply(df, view).withColumn(DELETED, F.lit(there)) for df, there in ((groups, False), (gone, True))]
    return Built(marked[0].unionByName(marked[1]))


def _aggregated(
    spark: SparkSession, plan: Plan, view: View, snapshot: int | None, touched: DataFrame | None = None
) -> DataFrame:
    [read] = plan.reads
    rows = _rows(narrowed(read_state(spark, read, snapshot), read), view)
    if touched is not None:
        rows = rows.join(touched, _same([F.expr(by) for by in view.aggregate.by], touched.columns), "left_semi")
    return apply(rows, [view.aggregate], Scope(_alone))


def _rows(df: DataFrame, view: View) -> DataFrame:
    return apply(df, view.before, Scope(_alone))


def _apply(df: DataFrame, view: View) -> DataFrame:
    return apply(df, view.after, Scope(_alone))


def _same(left: list[Column], right: list[str]) -> Column:
    return reduce(Column.__and__, [one.eqNullSafe(F.col(other)) for one, other in zip(left, right, strict=True)])


def _alone(flow: Flow) -> DataFrame:
    raise AssertionError(f"a view reads one table, not {flow.text()}")
