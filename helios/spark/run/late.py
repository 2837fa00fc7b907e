"""The rows of a batch that a watermark dropped, as Spark's stateful operators count them."""

from __future__ import annotations

from collections.abc import Iterator

from helios.spark.jvm.types.spark import JavaSparkPlan
from helios.spark.run.job import StreamingQuery

DROPPED = "numRowsDroppedByWatermark"
"""The metric of `StateStoreWriter`, which Spark's progress has only after the batch."""


def late_rows(query: StreamingQuery) -> int:
    """The number of rows that watermarks have dropped in the current batch, as far as it has run."""
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()
    found = (node.metrics().get(DROPPED) for node in _nodes(plan))
    return sum(metric.get().value() for metric in found if metric.isDefined())


def _nodes(plan: JavaSparkPlan) -> Iterator[JavaSparkPlan]:
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        children = node.children()
        pending += [children.apply(i) for i in range(children.size())]
