"""Connects declared values to the planner and the runs. `helios.model` must import neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from helios.errors import HeliosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.model.flow import Flow, Pipeline
    from helios.model.preview import Preview
    from helios.plan.nodes import Plan
    from helios.plan.typing.schema import Schema
    from helios.spark.run.run import PipelineRun


class Engine(Protocol):
    """The planner and the runs, as declared values call them. `helios/__init__.py` provides the implementation.

    The arguments of `run` are those of `Pipeline.run`. `schema` returns None if only a run knows the columns.
    `frame` returns the columns of a pandas, Polars or Arrow frame as Spark SQL DDL, and its rows.
    """

    def check(self, pipeline: Pipeline) -> None: ...

    def plan(self, pipeline: Pipeline) -> Plan: ...

    def run(
        self, pipeline: Pipeline, once: bool, spark: SparkSession | None, again: bool, beside: Sequence[str]
    ) -> PipelineRun: ...

    def schema(self, flow: Flow) -> Schema | None: ...

    def rows_of_frame(self, frame: Any, declared: str | None) -> tuple[str, tuple[tuple[Any, ...], ...]]: ...

    def preview(self, flow: Flow, rows: int, spark: SparkSession | None) -> Preview: ...


_loader: Callable[[], Engine] | None = None


def provide(loader: Callable[[], Engine]) -> None:
    """Sets the function that loads the engine."""
    global _loader
    _loader = loader


def engine() -> Engine:
    if _loader is None:
        raise HeliosError("No engine is provided.", fix="import helios, not only helios.model.")
    return _loader()
