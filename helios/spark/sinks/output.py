"""The sink of what is no table: it keeps no record, and every batch that is run is delivered."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from helios.model.columns import POSITION
from helios.model.output import HELD, ConsoleSink, Held, MemorySink, Output
from helios.sources.kafka.sink import KafkaSink
from helios.spark.maintenance.upkeep import Upkeep
from helios.spark.sinks import kafka_output
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.ledger import Record, Starts
from helios.table.positions import Batch, Span


class OutputSink:
    """A `Sink` that finds no batch: one that is run again is delivered again.

    Rows are computed once, before any of them is delivered: a record that does not parse, or an expectation that does
    not hold, fails the batch with nothing of it delivered.

    Args:
        context: The pipeline.
        anew: Whether no batch was run before with its checkpoint.
    """

    transactional = False

    def __init__(self, context: SinkContext, *, anew: bool) -> None:
        output = context.plan.write.output
        assert output is not None
        self.context = context
        self._output = output
        self._rows = 0
        if isinstance(output, KafkaSink):
            kafka_output.verify(output, begun=not anew)
        if anew and not output.lasting:
            forget(context, output)

    def number(self, spans: Sequence[Span]) -> int:
        return 0  # each run of a batch pipeline delivers its only batch

    def find(self, batch: Batch) -> Outcome:
        return Absent()

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        df = rows.df.drop(POSITION).persist()
        try:
            self._rows = df.count()
            yield Staged(batch, Built(df, counted=rows.counted))
        finally:
            df.unpersist()

    def commit(self, staged: Staged) -> Commit | None:
        self.context.verify()
        began = time.monotonic()
        if self._rows:
            DELIVERIES[type(self._output)](self.context, staged.rows.df, staged.batch.number, self._rows)
        self.context.observer.rejected(staged.rows.dropped())
        if not self._rows:
            return None
        return Commit(snapshot=None, rows=self._rows, write_seconds=time.monotonic() - began)

    def reopen(self, batch: Batch) -> None:
        """Does nothing: nothing of the batch is kept."""

    def began(self, starts: Starts) -> None:
        """Does nothing: an output keeps no record."""

    def last(self) -> Record | None:
        return None

    def maintain(self) -> list[Upkeep]:
        return []


def forget(context: SinkContext, output: Output) -> None:
    """Lets the rows go that a run before has put into this process's memory."""
    if isinstance(output, MemorySink):
        HELD.setdefault(output.name, Held()).batches[context.plan.pipeline] = {}


def _held(context: SinkContext, df: DataFrame, number: int, count: int) -> None:
    name = context.plan.write.table.table
    HELD[name].batches[context.plan.pipeline][number] = [row.asDict(recursive=True) for row in df.collect()]


def _printed(context: SinkContext, df: DataFrame, number: int, count: int) -> None:
    output = context.plan.write.output
    assert isinstance(output, ConsoleSink)
    more = f", of which the first {output.rows:,}" if count > output.rows else ""
    shown = df._jdf.showString(output.rows, 0, False)
    print(f"{context.plan.pipeline}, batch {number}: {count:,} rows{more}\n{shown}", file=sys.stdout, flush=True)


def _produced(context: SinkContext, df: DataFrame, number: int, count: int) -> None:
    output = context.plan.write.output
    assert isinstance(output, KafkaSink)
    kafka_output.produce(output, df)


DELIVERIES: Mapping[type[Output], Callable[[SinkContext, DataFrame, int, int], None]] = {
    MemorySink: _held,
    ConsoleSink: _printed,
    KafkaSink: _produced,
}
"""By the type of the declared sink, what delivers the rows of a batch: with its number, and how many there are."""
