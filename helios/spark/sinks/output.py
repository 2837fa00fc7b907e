"""The sink of what is no table: it keeps no record, and every batch that is run is delivered."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from pyspark.sql import DataFrame
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.flow import Sink
from helios.model.kafka_sink import KafkaSink
from helios.model.output import HELD, ConsoleSink, Held, MemorySink, Output
from helios.model.source import POSITION
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.maintenance.upkeep import Upkeep
from helios.spark.sinks import kafka_output
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.ledger import Record, Starts
from helios.table.positions import Batch, Span

O_co = TypeVar("O_co", bound=Output, covariant=True)


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
        output = context.plan.write.sink
        self.context = context
        self._delivery = DELIVERIES[type(output)](context.plan.pipeline, output)
        self._rows = 0
        self._delivery.begin(anew=anew)

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """The sink of a pipeline that has its lease.

        Args:
            context: The pipeline.
            planned: The last batch that an earlier process may have run; -1 for none.
        """
        return cls(context, anew=planned < 0)

    @classmethod
    def unresumable(cls, context: SinkContext) -> InputError:
        """The error for --new-checkpoint and --full-refresh."""
        return InputError(
            f"--new-checkpoint and --full-refresh cannot serve {context.plan.pipeline}: "
            f"{context.plan.write.sink.label()} keeps no record of what it holds, and cannot be emptied.",
            where=context.plan.origin,
            fix="give the pipeline another .named(...): it then begins at the start of its sources.",
        )

    @classmethod
    def there(cls, context: SinkContext) -> Iterator[tuple[TableName, JavaTable]]:
        """No tables: what the sink holds is not known."""
        yield from ()

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
            self._delivery.deliver(staged.rows.df, staged.batch.number, self._rows)
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


class Delivery(Generic[O_co]):
    """How rows reach the outputs of one kind.

    Args:
        pipeline: The pipeline.
        output: The declared sink.
    """

    def __init__(self, pipeline: str, output: O_co) -> None:
        self.pipeline = pipeline
        self.output = output

    def begin(self, *, anew: bool) -> None:
        """Called as a run starts; does nothing by default.

        Args:
            anew: Whether no batch was run before with the checkpoint.
        """

    def deliver(self, df: DataFrame, number: int, count: int) -> None:
        """Delivers the rows of a batch.

        Args:
            df: The rows.
            number: The number of the batch.
            count: How many rows there are.
        """
        raise NotImplementedError


class Kept(Delivery[MemorySink]):
    """Rows in the memory of this process, in place of those that a run before has put there."""

    @override
    def begin(self, *, anew: bool) -> None:
        if anew:
            HELD.setdefault(self.output.name, Held()).batches[self.pipeline] = {}

    @override
    def deliver(self, df: DataFrame, number: int, count: int) -> None:
        rows = [row.asDict(recursive=True) for row in df.collect()]
        HELD[self.output.name].batches[self.pipeline][number] = rows


class Printed(Delivery[ConsoleSink]):
    """Rows on standard output."""

    @override
    def deliver(self, df: DataFrame, number: int, count: int) -> None:
        most = self.output.rows
        more = f", of which the first {most:,}" if count > most else ""
        shown = df._jdf.showString(most, 0, False)
        print(f"{self.pipeline}, batch {number}: {count:,} rows{more}\n{shown}", file=sys.stdout, flush=True)


class Produced(Delivery[KafkaSink]):
    """Records of a topic."""

    @override
    def begin(self, *, anew: bool) -> None:
        kafka_output.verify(self.output, begun=not anew)

    @override
    def deliver(self, df: DataFrame, number: int, count: int) -> None:
        kafka_output.produce(self.output, df)


DELIVERIES: Mapping[type[Sink], type[Delivery[Any]]] = {
    MemorySink: Kept,
    ConsoleSink: Printed,
    KafkaSink: Produced,
}
"""By the type of the declared sink, how rows reach it."""
