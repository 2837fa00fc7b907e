"""The source on Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from helios.sources.common.spark.spans import SpanSource
from helios.table.positions import Lag, Position, Span
from helios_counter.declare import CounterSource
from helios_counter.kind import newest


class CounterReader(SpanSource):
    """The numbers of a span."""

    def first(self) -> Position:
        return {"counter": self._path, "number": 0}

    def latest(self, after: Position) -> Position:
        end, trigger = newest(self._path), self.context.plan.trigger
        most = trigger.max_rows if trigger is not None and trigger.max_rows is not None else end
        return {"counter": self._path, "number": max(after["number"], min(end, after["number"] + most))}

    def read(self, spark: SparkSession, span: Span | None, **_: Any) -> DataFrame | None:
        span = span or self.current()
        after, end = (span.start or self.first())["number"], (span.end or self.first())["number"]
        return spark.range(after + 1, end + 1) if end > after else None

    def lag(self, at: Position) -> Lag:
        return Lag(newest(self._path) - at["number"], 0.0)

    @property
    def _path(self) -> str:
        source = self.read_plan.source
        assert isinstance(source, CounterSource)
        return source.path
