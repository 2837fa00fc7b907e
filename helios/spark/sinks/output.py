"""The sink for targets that are not tables. It keeps no record, so a batch that runs twice is delivered twice."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Generic, Self, TypeVar, cast

from pyspark.sql import DataFrame
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.columns import POSITION
from helios.model.output import MEMORY_ROWS, ConsoleSink, MemoryRows, MemorySink, Output
from helios.model.values import counted
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks import protocol
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.positions import Batch

S = TypeVar("S", bound=Output)


class OutputWriter(Generic[S]):
    """Delivers the rows of a declared sink; `Output.writer` names its class."""

    def __init__(self, sink: S) -> None:
        self.sink = sink

    def start(self, pipeline: str, *, begun: bool) -> None:
        """Prepares a run; `begun` is True if an earlier process may have run a batch."""

    def deliver(self, pipeline: str, df: DataFrame, number: int, count: int) -> None:
        """Delivers the rows of the batch with this number, `count` rows."""
        raise NotImplementedError


class OutputSink(protocol.Sink):
    """A `Sink` that finds no batch: a batch that runs again is delivered again.

    The rows are computed once, before the first row is delivered. So a record that does not parse, or an expectation
    that is not met, fails the batch before any delivery.

    Args:
        planned: The last batch that an earlier process may have run; -1 for none.
    """

    def __init__(self, context: SinkContext, planned: int) -> None:
        self.context = context
        sink = cast("Output", context.plan.write.sink)
        self._rows = 0
        self._writer: OutputWriter[Output] = resolve_name(sink.writer)(sink)
        self._writer.start(context.plan.pipeline, begun=planned >= 0)

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """Opens the sink; the pipeline holds the lease of its checkpoint already."""
        return cls(context, planned)

    @classmethod
    def unresumable_error(cls, context: SinkContext) -> InputError:
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
            self._writer.deliver(self.context.plan.pipeline, staged.rows.df, staged.batch.number, self._rows)
        self.context.observer.rejected(staged.rows.dropped())
        if not self._rows:
            return None
        return Commit(snapshot=None, rows=self._rows, write_seconds=time.monotonic() - began)


class MemoryWriter(OutputWriter[MemorySink]):
    """Keeps the rows in the memory of this process."""

    def start(self, pipeline: str, *, begun: bool) -> None:
        if not begun:  # rows of an earlier pipeline with the same name
            MEMORY_ROWS.setdefault(self.sink.name, MemoryRows()).batches[pipeline] = {}

    def deliver(self, pipeline: str, df: DataFrame, number: int, count: int) -> None:
        MEMORY_ROWS[self.sink.name].batches[pipeline][number] = [row.asDict(recursive=True) for row in df.collect()]


class ConsoleWriter(OutputWriter[ConsoleSink]):
    """Prints the rows to standard output."""

    def deliver(self, pipeline: str, df: DataFrame, number: int, count: int) -> None:
        most = self.sink.rows
        more = f", of which the first {most:,}" if count > most else ""
        shown = df._jdf.showString(most, 0, False)
        print(f"{pipeline}, batch {number}: {counted(count, 'row')}{more}\n{shown}", file=sys.stdout, flush=True)
