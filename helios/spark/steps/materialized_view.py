"""Keeping a materialized view: the groups of changed rows, computed anew from the table's state.

Whatever a commit did to rows, both of their images tell their groups; the aggregate of such a group over the state at
the batch's last snapshot is what a full recompute gives, also for `min`, `max`, `avg` and sums of floating-point
numbers.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.model.flow import Flow
from helios.model.source import CHANGE_COLUMNS
from helios.plan.nodes import Plan
from helios.plan.typing.determinism import changing
from helios.plan.views import View
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.spark import JavaLogicalPlan
from helios.spark.sources.readers import narrowed
from helios.spark.sources.snapshot import count_state, read_state, source_table
from helios.spark.steps.build import Built
from helios.spark.steps.steps import Scope, apply

ROW_BY_ROW = (
    "Filter",
    "Generate",
    "LocalRelation",
    "LogicalRDD",
    "Project",
    "Repartition",
    "RepartitionByExpression",
    "Sort",
    "SubqueryAlias",
)
"""Logical operators of Spark that make rows of one row, whatever the others are."""


def empty(spark: SparkSession, plan: Plan, view: View) -> DataFrame:
    """The view without a row, by which its columns are known.

    Raises:
        InputError: A row that reaches the aggregate depends on other rows, or on the clock.
    """
    [read] = plan.reads
    schema = spark_schema(spark, source_table(spark, read))
    rows = _rows(narrowed(spark.createDataFrame([], schema), read), view)
    why = _obstacle(rows._jdf.queryExecution().analyzed())
    if why is not None:
        raise InputError(
            f"{view.aggregate.text()} over followed changes is a view, whose rows must stand for themselves: {why}.",
            where=plan.origin,
            fix="only groups of changed rows are computed anew: let each row be made of one row of the table.",
        )
    return _apply(apply(rows, [view.aggregate], Scope(_alone)), view)


def _obstacle(node: JavaLogicalPlan) -> str | None:
    """What in a plan makes a row depend on other rows, or on when it is computed."""
    name = str(node.nodeName())
    if name not in ROW_BY_ROW:
        return f"Spark's {name} looks at several rows"
    expressions = node.expressions()
    for index in range(expressions.size()):
        one = expressions.apply(index)
        text = str(one.sql())
        if not one.deterministic() or changing(text) is not None:
            return f"{text} is another value each time"
    if node.subqueries().size():
        return "a subquery reads other rows"
    children = node.children()
    return next((why for i in range(children.size()) if (why := _obstacle(children.apply(i))) is not None), None)


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


def _aggregated(spark: SparkSession, plan: Plan, view: View, snapshot: int | None, touched: DataFrame) -> DataFrame:
    [read] = plan.reads
    if snapshot is not None:
        count_state(spark, read, snapshot)
    rows = _rows(narrowed(read_state(spark, read, snapshot), read), view)
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
