"""Builds a pipeline's DataFrame: its steps over the rows of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation

from helios.model.flow import Flow
from helios.plan.nodes import Plan, ReadPlan
from helios.spark.steps.steps import Scope, apply


@dataclass(frozen=True)
class Built:
    """A pipeline's rows, and the rows that its expectations rejected.

    Attributes:
        df: The rows.
        rejected: Rows for the quarantine.
        counted: Counts of dropped rows, available once the rows have been written.
    """

    df: DataFrame
    rejected: list[DataFrame] = field(default_factory=list)
    counted: list[Observation] = field(default_factory=list)

    def dropped(self) -> int:
        """The number of dropped rows, once the rows have been written."""
        # `Observation.get` would block: Spark reports nothing for a part that it did not compute.
        found = [observation._jo.getOrEmpty() for observation in self.counted if observation._jo is not None]
        return sum(int(one.head()._2()) for one in found if one.nonEmpty())


def build(plan: Plan, rows: Callable[[int, ReadPlan], DataFrame]) -> Built:
    """The pipeline's DataFrame over the rows of its sources, which are numbered as in `plan.reads`."""
    numbered: Iterator[tuple[int, ReadPlan]] = iter(enumerate(plan.reads))
    scopes: list[Scope] = []

    def flow(declared: Flow) -> DataFrame:
        df = rows(*next(numbered))
        return apply(df, declared.steps, scopes[0])

    scopes.append(Scope(flow, earlier=plan.earlier_state))
    try:
        return Built(flow(plan.stream), scopes[0].rejected, scopes[0].counted)
    finally:
        scopes.clear()  # the scope and `flow` name each other: such a cycle would keep the batch's DataFrames
