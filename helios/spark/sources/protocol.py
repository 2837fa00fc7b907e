"""The protocol of sources: positions, the spans between them, and their rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.plan.nodes import ReadPlan
from helios.plan.sources import row_of
from helios.spark.checkpoint.files import StartEntry
from helios.spark.iceberg.scan_metrics import ScanMetrics
from helios.spark.sources.context import SourceContext
from helios.table.positions import Lag, Position, Span


class Source(Protocol):
    """One source of a pipeline at work.

    A source that is followed gives spans between positions; one that is read once gives its current state as a span.
    """

    context: SourceContext
    read_plan: ReadPlan
    ordering: str | None
    """The hidden column by which `read` orders equal rows; None where the source has no order."""
    pinned: bool
    """Whether a batch of a streaming pipeline reads it at a pin, so that a replay sees the same."""

    # what is followed

    def begin(self) -> StartEntry:
        """Settles where a pipeline first begins, as `helios/start.json` keeps it: `declared`, `place` and what is
        needed to recognize the source."""

    def resume(self, entry: StartEntry) -> None:
        """Takes up the beginning that an earlier start has settled.

        Raises:
            HeliosError: The source was replaced, or another beginning was declared.
        """

    def start(self) -> Position:
        """The position before the first batch."""

    def latest(self, after: Position) -> Position:
        """Where the batch behind a position ends, within the limits of the plan; `after` where nothing is new."""

    def freeze(self) -> None:
        """From now on goes no further than the source is now."""

    def span(self, start: Position | None, end: Position | None) -> Span:
        """The span between two positions; None is the beginning."""

    def lost(self, span: Span) -> bool:
        """Whether a planned span cannot be read any more, and the source may begin again with its current state."""

    def lag(self, at: Position) -> Lag | None:
        """How far a position is behind; None where that is not known."""

    def committed(self, position: Position) -> None:
        """The target holds all up to a position: a source may delete what is behind it."""

    # what is read once

    def current(self) -> Span:
        """The current state; two states with equal entries hold equal rows."""

    def pin(self) -> int | None:
        """What a batch that joins the source reads it at, as `helios/pins/N.json` keeps it."""

    def exists(self, pin: int | None) -> bool:
        """Whether the state at a pin can still be read."""

    def at_pin(self, pin: int | None) -> Span:
        """The state at a pin."""

    # rows

    def schema(self) -> StructType:
        """The columns that a followed source gives, before its own predicates and columns are applied."""

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        """The rows of a span; None where it adds none.

        Args:
            spark: The session of the batch.
            span: What is read; None for the current state.
            positioned: Whether each row tells its position in the hidden column `POSITION`.
        """

    def nothing(self, spark: SparkSession) -> DataFrame:
        """No rows, in the columns of `read`."""

    def stream(self) -> DataFrame:
        """The rows as a streaming DataFrame, whose offsets are positions of the source or Spark's own."""

    def verify_stream(self) -> None:
        """Refuses to go on where Spark's own stream would leave something out.

        Raises:
            RunError: With what it would leave out.
        """

    def scanned(self) -> ScanMetrics:
        """The files that Spark's own stream has read since the last call."""

    error: BaseException | None
    """What stopped Spark's own stream, which keeps the text of an error only."""


def open_source(context: SourceContext, index: int) -> Source:
    """The source at a number of the plan, by the reader of its kind.

    Raises:
        DeclarationError: Its kind is unknown.
    """
    module, _, name = row_of(context.plan.reads[index].source).reader.partition(":")
    reader: Callable[[SourceContext, int], Source] = getattr(import_module(module), name)
    return reader(context, index)


def current_rows(context: SourceContext, index: int) -> DataFrame:
    """All rows of a source, as it is now."""
    rows = open_source(context, index).read(context.spark, None)
    assert rows is not None
    return rows
