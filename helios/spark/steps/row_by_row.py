"""Checks in Spark's plan that steps work row by row: each output row depends on one row of the source.

Such steps give the same rows whether a source is read at once or in several ranges of snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from helios.errors import HeliosError, first_line
from helios.plan.nodes import Plan
from helios.spark.jvm.types.spark import JavaJoin, JavaLogicalPlan, JavaSubqueryAlias
from helios.spark.steps.build import build

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
"""Logical operators of Spark whose output rows each depend on one input row."""

PASSING_ON = ("CollectMetrics", "CTERelationDef", "CTERelationRef", "ResolvedHint", "Union", "View", "WithCTE")
"""Logical operators of Spark that pass on rows unchanged, even of several inputs."""

READ_IN_RANGES = "helios_read_in_ranges"
"""The alias of a source that is read in ranges, one range for each batch."""

ONE_SIDED = {"LEFT": ("LEFT OUTER", "LEFT SEMI", "LEFT ANTI"), "RIGHT": ("RIGHT OUTER",)}
"""By side, the joins in which each row depends on only one row of that side, but on all rows of the other side."""
BOTH = ("INNER", "CROSS")
"""The joins in which each row depends on only one row of either side."""


def combining_reason(plan: Plan, empty: Callable[[int], DataFrame]) -> str | None:
    """Why a row depends on several rows of the sources that are read in ranges; None if no row does.

    Args:
        plan: A batch pipeline.
        empty: Returns an empty DataFrame with the columns of a source, by its number in the plan.
    """

    def rows(index: int) -> DataFrame:
        in_ranges = plan.reads[index].span is not None
        return empty(index).alias(READ_IN_RANGES) if in_ranges else empty(index)

    try:
        df = build(plan, lambda index, _: rows(index)).df
    except (AnalysisException, HeliosError) as error:
        # A callable may need rows.
        return f"they cannot be analyzed without rows: {first_line(error)}"
    return _reason(df._jdf.queryExecution().analyzed())


def _reason(node: JavaLogicalPlan) -> str | None:
    """Why a plan combines several rows of a source that is read in ranges; None if it does not."""
    if not _reads_ranges(node):
        return None
    name = str(node.nodeName())
    if name == "Join":
        why = _join_reason(cast("JavaJoin", node))
        if why is not None:
            return why
    elif name not in (*ROW_BY_ROW, *PASSING_ON):
        return f"Spark's {name} combines several rows"
    if node.subqueries().size():
        return "a subquery reads other rows"
    return next((why for why in map(_reason, _children(node)) if why is not None), None)


def _join_reason(node: JavaJoin) -> str | None:
    left, right = (_reads_ranges(child) for child in _children(node))
    kind = str(node.joinType().sql())
    if left and right:
        return "a join meets rows of several ranges"
    if kind in BOTH or kind in ONE_SIDED["LEFT" if left else "RIGHT"]:
        return None
    return f"a {kind.lower()} join depends on the rows that a range lacks"


def _reads_ranges(node: JavaLogicalPlan) -> bool:
    """True if a plan reads a source in ranges. A reference to a CTE counts, since the CTE may read such a source."""
    name = str(node.nodeName())
    if name == "CTERelationRef" or (
        name == "SubqueryAlias" and str(cast("JavaSubqueryAlias", node).alias()) == READ_IN_RANGES
    ):
        return True
    return any(map(_reads_ranges, _children(node)))


def _children(node: JavaLogicalPlan) -> list[JavaLogicalPlan]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]
