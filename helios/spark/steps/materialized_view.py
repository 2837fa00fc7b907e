"""Materialized views: recomputes the groups that changed rows belong to, from all rows of the table.

A changed row affects the group of its former image and the group of its new image. Each of these groups is aggregated
over the table at the batch's last snapshot. So the result equals a full recompute, also for `min`, `max`, `avg` and
floating-point sums.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.model.columns import CHANGE_COLUMNS
from helios.model.flow import Flow
from helios.plan.nodes import Plan
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.views import View
from helios.sources.iceberg.spark.rows import narrowed
from helios.sources.iceberg.spark.snapshot import count_state, read_state, source_table
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.spark import JavaLogicalPlan
from helios.spark.steps.build import Built
from helios.spark.steps.row_by_row import ROW_BY_ROW
from helios.spark.steps.steps import Scope, apply


def empty(spark: SparkSession, plan: Plan, view: View) -> DataFrame:
    """An empty DataFrame with the columns of the view.

    Raises:
        InputError: A row that reaches the aggregate depends on other rows, or on the clock.
    """
    [read] = plan.reads
    schema = spark_schema(spark, source_table(spark, read))
    rows = _before_aggregate(narrowed(spark.createDataFrame([], schema), read), view)
    why = _row_dependency(rows._jdf.queryExecution().analyzed())
    if why is not None:
        raise InputError(
            f"{view.aggregate.text()} over followed changes is a materialized view, and each row before the aggregate "
            f"must depend on one row of the table: {why}.",
            where=plan.origin,
            fix="only the groups of changed rows are recomputed: use steps that depend on one row, not on time.",
        )
    return _after_aggregate(apply(rows, [view.aggregate], Scope(_refuse_other_flow)), view)


def _row_dependency(node: JavaLogicalPlan) -> str | None:
    """Why a row of a plan depends on other rows or on the time of computation; None if it does not."""
    name = str(node.nodeName())
    if name not in ROW_BY_ROW:
        return f"Spark's {name} combines several rows"
    expressions = node.expressions()
    for index in range(expressions.size()):
        expression = expressions.apply(index)
        text = str(expression.sql())
        if not expression.deterministic() or nondeterministic_function(text) is not None:
            return f"{text} returns another value each time"
    if node.subqueries().size():
        return "a subquery reads other rows"
    children = node.children()
    reasons = (_row_dependency(children.apply(i)) for i in range(children.size()))
    return next((why for why in reasons if why is not None), None)


def recomputed(spark: SparkSession, plan: Plan, view: View, changed: DataFrame, to: int | None) -> Built:
    """The groups of changed rows as of a snapshot, and a delete for each group that no longer exists.

    `changed` has the changes of a batch, and `to` is the batch's last snapshot.
    """
    step = view.aggregate
    rows = _before_aggregate(changed.drop(*CHANGE_COLUMNS), view)
    changed_groups = rows.groupBy(*map(F.expr, step.by)).agg(F.count(F.lit(1)).alias("__helios_n")).drop("__helios_n")
    names = changed_groups.columns
    keys = [f"__helios_k{i}" for i in range(len(names))]
    changed_groups = changed_groups.toDF(*keys).localCheckpoint()  # used twice below; the changes are read once
    groups = _aggregated(spark, plan, view, to, changed_groups)
    vanished = changed_groups.join(groups, _keys_match([F.col(quoted(name)) for name in names], keys), "left_anti")
    values = [F.lit(None).cast(f.dataType).alias(f.name) for f in groups.schema.fields if f.name not in names]
    deleted = vanished.select(*[F.col(key).alias(name) for key, name in zip(keys, names, strict=True)], *values)
    present = _after_aggregate(groups, view).withColumn(DELETED, F.lit(False))
    return Built(present.unionByName(_after_aggregate(deleted, view).withColumn(DELETED, F.lit(True))))


def _aggregated(
    spark: SparkSession, plan: Plan, view: View, snapshot: int | None, changed_groups: DataFrame
) -> DataFrame:
    [read] = plan.reads
    if snapshot is not None:
        count_state(spark, read, snapshot)
    rows = _before_aggregate(narrowed(read_state(spark, read, snapshot), read), view)
    rows = rows.join(
        changed_groups, _keys_match([F.expr(by) for by in view.aggregate.by], changed_groups.columns), "left_semi"
    )
    return apply(rows, [view.aggregate], Scope(_refuse_other_flow))


def _before_aggregate(df: DataFrame, view: View) -> DataFrame:
    return apply(df, view.before, Scope(_refuse_other_flow))


def _after_aggregate(df: DataFrame, view: View) -> DataFrame:
    return apply(df, view.after, Scope(_refuse_other_flow))


def _keys_match(left: list[Column], right: list[str]) -> Column:
    return reduce(Column.__and__, [key.eqNullSafe(F.col(other)) for key, other in zip(left, right, strict=True)])


def _refuse_other_flow(flow: Flow) -> DataFrame:
    raise AssertionError(f"a view reads one table, not {flow.text()}")
