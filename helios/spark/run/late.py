"""Counts the rows of a batch that a watermark drops, by the metrics of Spark's stateful operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from helios.errors import RunError
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.types.spark import JavaSparkPlan, JavaStateStoreWriter
from helios.spark.run.job import StreamingQuery
from helios.spark.sinks.protocol import Staged

DROPPED = "numRowsDroppedByWatermark"
"""The metric of Spark's `StateStoreWriter`, read directly: Spark's progress reports it only after the batch."""

SESSIONS = "SessionWindowStateStoreRestoreExec"
"""The first of the two operators of a session window. Both have the metric; `late_watermark` reads only the second."""


class LateRows:
    """Counts the rows of one batch that watermarks drop.

    Spark's metric adds up all attempts to write the batch; only the last attempt counts here.

    Args:
        read: Returns the metric so far.
        watermark: Returns the watermark that drops the rows, in milliseconds since 1970.
    """

    def __init__(self, read: Callable[[], int], watermark: Callable[[], int]) -> None:
        self._read = read
        self.watermark = watermark
        self._dropped_before: int | None = None  # before the first write; None if nothing is written
        self._dropped_by_write = 0  # by the last write

    def count(self) -> int:
        """The number of dropped rows, once the batch has run."""
        return self._read() if self._dropped_before is None else self._dropped_before + self._dropped_by_write

    def counted(self, staged: Staged) -> Staged:
        """The batch with a `write` that also counts the dropped rows of each attempt."""
        write = staged.write
        if write is None:  # the parts of a routed batch are computed once
            return staged

        def counting(transaction: Transaction) -> None:
            before = self._read()
            self._dropped_before = before if self._dropped_before is None else self._dropped_before
            write(transaction)
            self._dropped_by_write = self._read() - before

        return replace(staged, write=counting)


def late_rows(query: StreamingQuery) -> int:
    """The number of rows that watermarks have dropped in the current batch so far."""
    counts = (node.metrics().get(DROPPED) for node in _nodes(_plan(query)))
    return sum(metric.get().value() for metric in counts if metric.isDefined())


def late_watermark(query: StreamingQuery) -> int:
    """The watermark by which the current batch drops rows: the watermark after the previous batch.

    Raises:
        RunError: Several operators drop rows.
    """
    droppers = [node for node in _nodes(_plan(query)) if node.metrics().get(DROPPED).isDefined()]
    operators = [node for node in droppers if node.getClass().getSimpleName() != SESSIONS]
    if len(operators) != 1:
        raise RunError(
            "the late rows are unknown: a callable keeps state beside the window or dedupe that drops late rows.",
            fix="leave on_late= out, or write the callable's rows to a table first, and follow that.",
        )
    return int(cast("JavaStateStoreWriter", operators[0]).eventTimeWatermarkForLateEvents().get())


def _plan(query: StreamingQuery) -> JavaSparkPlan:
    return query._jsq.streamingQuery().lastExecution().executedPlan()


def _nodes(plan: JavaSparkPlan) -> Iterator[JavaSparkPlan]:
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        children = node.children()
        pending += [children.apply(i) for i in range(children.size())]
