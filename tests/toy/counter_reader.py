"""The toy source on Spark: a position is the last number that was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from helios.sources.common.spark.spans import SpanSource
from helios.table.positions import Lag, Position, Span


class CounterReader(SpanSource):
    """The numbers of a span."""

    def first(self) -> Position:
        return {"n": 0}

    def latest(self, after: Position) -> Position:
        end, trigger = self._end(), self.context.plan.trigger
        most = trigger.max_rows if trigger is not None and trigger.max_rows is not None else end
        return {"n": min(end, after["n"] + most)}

    def lag(self, at: Position) -> Lag:
        return Lag(self._end() - at["n"], 0.0)

    def read(self, spark: SparkSession, span: Span | None, **_: Any) -> DataFrame | None:
        span = span or self.current()
        after, end = (span.start or self.first())["n"], (span.end or self.first())["n"]
        return spark.range(after + 1, end + 1) if end > after else None

    def _end(self) -> int:
        source: Any = self.read_plan.source
        return int(Path(source.path).read_text())
