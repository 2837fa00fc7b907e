"""The sink of what is no table: it keeps no record, and every batch that is run is delivered."""

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
from helios.sources.kafka.sink import KafkaSink
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks import kafka_output, protocol
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.positions import Batch

OfItsType: TypeAlias = Any
"""A declared sink, of the type by which a table has its row."""


class OutputSink(protocol.Sink):
    """A `Sink` that finds no batch: one that is run again is delivered again.

    Rows are computed once, before any of them is delivered: a record that does not parse, or an expectation that does
    not hold, fails the batch with nothing of it delivered.

    Args:
        context: The pipeline.
        planned: The last batch that an earlier process may have run; -1 for none.
    """

    def __init__(self, context: SinkContext, planned: int) -> None:
        self.context = context
        self._declared = context.plan.write.sink
        self._rows = 0
        if (begin := BEGINNINGS.get(type(self._declared))) is not None:
            begin(context.plan.pipeline, self._declared, planned < 0)

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """The sink of a pipeline that has its lease."""
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
        """No tables: what the sink holds is not known."""
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


def _emptied(pipeline: str, output: MemorySink, restarted: bool) -> None:
    """Lets the rows go that a run before has put into this process's memory."""
    if restarted:
        MEMORY_ROWS.setdefault(output.name, MemoryRows()).batches[pipeline] = {}


def _verified(pipeline: str, output: KafkaSink, restarted: bool) -> None:
    kafka_output.verify(output, begun=not restarted)


BEGINNINGS: Mapping[type[Sink], Callable[[str, OfItsType, bool], None]] = {MemorySink: _emptied, KafkaSink: _verified}
"""By the type of the declared sink, what is done as a run starts: for a pipeline, which may start over."""


def _held(pipeline: str, output: MemorySink, df: DataFrame, number: int, count: int) -> None:
    MEMORY_ROWS[output.name].batches[pipeline][number] = [row.asDict(recursive=True) for row in df.collect()]


def _printed(pipeline: str, output: ConsoleSink, df: DataFrame, number: int, count: int) -> None:
    more = f", of which the first {output.rows:,}" if count > output.rows else ""
    shown = df._jdf.showString(output.rows, 0, False)
    print(f"{pipeline}, batch {number}: {count:,} rows{more}\n{shown}", file=sys.stdout, flush=True)


def _produced(pipeline: str, output: KafkaSink, df: DataFrame, number: int, count: int) -> None:
    kafka_output.produce(output, df)


DELIVERIES: Mapping[type[Sink], Callable[[str, OfItsType, DataFrame, int, int], None]] = {
    MemorySink: _held,
    ConsoleSink: _printed,
    KafkaSink: _produced,
}
"""By the type of the declared sink, what delivers the rows of a batch: with its number, and how many there are."""
