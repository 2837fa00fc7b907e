"""The sink for targets that are not tables. It keeps no record, so a batch that runs twice is delivered twice."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from pyspark.sql import DataFrame
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.columns import POSITION
from helios.model.flow import Sink
from helios.model.output import MEMORY_ROWS, ConsoleSink, MemoryRows, MemorySink
from helios.model.values import counted
from helios.sources.kafka.sink import KafkaSink
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks import kafka_output, protocol
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.positions import Batch

DeclaredSink: TypeAlias = Any
"""A declared sink. Its type is the key of the function in `START_HOOKS` or `DELIVERIES`."""


class OutputSink(protocol.Sink):
    """A `Sink` that finds no batch: a batch that runs again is delivered again.

    The rows are computed once, before the first row is delivered. So a record that does not parse, or an expectation
    that is not met, fails the batch before any delivery.

    Args:
        planned: The last batch that an earlier process may have run; -1 for none.
    """

    def __init__(self, context: SinkContext, planned: int) -> None:
        self.context = context
        self._declared = context.plan.write.sink
        self._rows = 0
        start = START_HOOKS.get(type(self._declared))
        if start is not None:
            start(context.plan.pipeline, self._declared, planned < 0)

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """Opens the sink; the pipeline holds the lease of its checkpoint already."""
        return cls(context, planned)

    @classmethod
    def unresumable(cls, context: SinkContext) -> InputError:
        """The error for --new-checkpoint and --full-refresh."""
        return InputError(
            f"--new-checkpoint and --full-refresh do not apply to {context.plan.pipeline}: "
            f"{context.plan.write.sink.label()} keeps no record of what it holds, and cannot be emptied.",
            where=context.plan.origin,
            fix="give the pipeline another .named(...): it then begins at the start of its sources.",
        )

    @classmethod
    def existing_tables(cls, context: SinkContext) -> Iterator[tuple[TableName, JavaTable]]:
        yield from ()

    @override
    def find(self, batch: Batch) -> Outcome:
        return Absent()

    @override
    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        df = rows.df.drop(POSITION).persist()
        try:
            self._rows = df.count()
            yield Staged(batch, Built(df, counted=rows.counted))
        finally:
            df.unpersist()

    @override
    def commit(self, staged: Staged) -> Commit | None:
        self.context.verify()
        began = time.monotonic()
        if self._rows:
            deliver = DELIVERIES[type(self._declared)]
            deliver(self.context.plan.pipeline, self._declared, staged.rows.df, staged.batch.number, self._rows)
        self.context.observer.rejected(staged.rows.dropped())
        if not self._rows:
            return None
        return Commit(snapshot=None, rows=self._rows, write_seconds=time.monotonic() - began)


def _clear_memory(pipeline: str, output: MemorySink, is_first: bool) -> None:
    """Drops rows of an earlier pipeline with the same name from the process's memory."""
    if is_first:
        MEMORY_ROWS.setdefault(output.name, MemoryRows()).batches[pipeline] = {}


def _verify_topic(pipeline: str, output: KafkaSink, is_first: bool) -> None:
    kafka_output.verify(output, begun=not is_first)


START_HOOKS: Mapping[type[Sink], Callable[[str, DeclaredSink, bool], None]] = {
    MemorySink: _clear_memory,
    KafkaSink: _verify_topic,
}
"""The function to call when a run starts, by type of the declared sink; `is_first` is True before the first batch."""


def _keep_in_memory(pipeline: str, output: MemorySink, df: DataFrame, number: int, count: int) -> None:
    MEMORY_ROWS[output.name].batches[pipeline][number] = [row.asDict(recursive=True) for row in df.collect()]


def _print(pipeline: str, output: ConsoleSink, df: DataFrame, number: int, count: int) -> None:
    more = f", of which the first {output.rows:,}" if count > output.rows else ""
    shown = df._jdf.showString(output.rows, 0, False)
    print(f"{pipeline}, batch {number}: {counted(count, 'row')}{more}\n{shown}", file=sys.stdout, flush=True)


def _produce(pipeline: str, output: KafkaSink, df: DataFrame, number: int, count: int) -> None:
    kafka_output.produce(output, df)


DELIVERIES: Mapping[type[Sink], Callable[[str, DeclaredSink, DataFrame, int, int], None]] = {
    MemorySink: _keep_in_memory,
    ConsoleSink: _print,
    KafkaSink: _produce,
}
"""The function that delivers the rows of a batch, given its number and row count, by type of the declared sink."""
