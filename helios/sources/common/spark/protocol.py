"""The `Source` protocol: positions, the spans between them, and their rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.errors import RunError
from helios.plan.nodes import ReadPlan
from helios.sources.common.spark.context import SourceContext
from helios.sources.kinds import source_kind
from helios.spark.checkpoint.files import StartEntry
from helios.spark.iceberg.scan_metrics import ScanMetrics
from helios.spark.jvm.sql import struct_of
from helios.spark.native.inputs import SourceFiles
from helios.table.commit_times import CommitTimes
from helios.table.positions import Lag, Position, Span


class ReplanNeeded(RunError):
    """The planned input of a batch is gone or has changed. The source accepts this: the next start plans it again."""


class DamagedFile(RunError):
    """A file cannot be read until someone repairs it."""


class Source(Protocol):
    """One source of a running pipeline.

    A followed source is read as spans between positions. A source that is read once is read as one span, which is its
    current state.

    A pin is the id of a state, such as a snapshot id.
    """

    context: SourceContext
    read_plan: ReadPlan
    pinned: bool
    """True if each batch reads the source at a pin, so that a replay of the batch reads the same rows."""

    stream_columns: StructType | None
    """The columns of Spark's stream over the source, fixed for the run; None if there is no stream."""

    # followed sources

    def begin(self) -> StartEntry:
        """Determines the starting position at the first start of a pipeline.

        Returns:
            The entry of `helios/start.json`: `declared`, `place`, and for a table its `branch` and `uuid`.
        """

    def resume(self, entry: StartEntry) -> None:
        """Uses the starting position that the first start has stored.

        Raises:
            HeliosError: The source was replaced, or the script declares another start.
        """

    def start(self) -> Position:
        """The position before the first batch."""

    def latest(self, after: Position) -> Position:
        """The end of the next batch after a position, within the plan's limits; `after` itself if nothing is new."""

    def freeze(self) -> None:
        """Limits `latest` to the current end of the source, for `--once`."""

    def span(self, start: Position | None, end: Position | None) -> Span:
        """The span between two positions; None is the starting position."""

    def lost(self, span: Span) -> bool:
        """True if a planned span can no longer be read, and the source is allowed to plan the span again."""

    def failed(self, span: Span) -> None:
        """Called when a run has failed on a planned span. The user may repair the input before the next run."""

    def give_up(self, span: Span) -> None:
        """Called before a lost span is planned again. Nothing of the span was written."""

    def confirm(self, span: Span) -> None:
        """Called when the rows of a span have been read, and before they are committed.

        Raises:
            RunError: The rows that were read may differ from the rows of the span.
        """

    def lag(self, at: Position) -> Lag | None:
        """The lag of a position; None if unknown."""

    def committed(self, position: Position) -> None:
        """Called when the target has all rows up to a position: the source may delete older data."""

    def unread_data(self) -> str:
        """The data that a run with `--once` leaves for a later run, as text for the user; empty if there is none."""

    # sources that are read once

    def current(self) -> Span:
        """The span of the current state. If the entries of two such spans are equal, so are their rows."""

    def pin(self) -> int | None:
        """The pin of the current state. A batch N that joins the source stores the pin in `helios/pins/N.json`."""

    def exists(self, pin: int | None) -> bool:
        """True if the state at a pin can still be read."""

    def at_pin(self, pin: int | None) -> Span:
        """The span of the state at a pin."""

    # rows

    def schema(self) -> StructType:
        """The columns of a followed source, before its own `where` and `select` are applied."""

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        """The rows of a span; None if the span adds no rows.

        Args:
            spark: The session of the batch.
            span: The span; None for the current state.
            positioned: Whether each row carries its position in the hidden column `POSITION`.
        """

    def empty(self, spark: SparkSession) -> DataFrame:
        """An empty DataFrame with the columns of `read`."""

    def set_aside(self, file_uri: str) -> bool:
        """Leaves out a file that cannot be read to its end, if the source is declared to continue without such files.

        Args:
            file_uri: The URI of the file in Spark's error message.

        Returns:
            True if the last read included the file, and later reads leave it out.
        """

    def stream(self) -> DataFrame:
        """The source as a streaming DataFrame, whose offsets are positions of the source."""

    def verify_stream(self) -> None:
        """Checks that Spark's own stream would not skip data.

        Raises:
            RunError: Spark's stream would skip data; the message names the data.
        """

    def scanned(self) -> ScanMetrics:
        """Scan metrics of Spark's own stream since the last call."""

    error: BaseException | None
    """The error that stopped Spark's own stream; Spark itself keeps only the text."""


@runtime_checkable
class CarriesOrder(Protocol):
    """A source whose rows carry their own order and their deletes, as change streams do."""

    def keys(self) -> tuple[str, ...]:
        """The key columns."""


@runtime_checkable
class HasFiles(Protocol):
    """A source whose spans are data files that can be read without Spark."""

    def size(self, span: Span) -> int | None:
        """The upper bound of the bytes in a span's files; None if it is known only when the files are planned."""

    def files(self, span: Span) -> SourceFiles:
        """The data files of a span.

        Raises:
            NotNative: The rows of the span are not all the rows of some files.
        """


@runtime_checkable
class KeepsHistory(Protocol):
    """A source whose earlier states can be read. Each state has a commit time."""

    def commits(self, pin: int | None) -> CommitTimes:
        """The commit times of the states up to a pin."""


def open_source(context: SourceContext, index: int) -> Source:
    """Opens a source of the plan with the reader of its kind.

    Raises:
        DeclarationError: The kind of the source is unknown.
    """
    reader: Callable[[SourceContext, int], Source] = resolve_name(source_kind(context.plan.reads[index].source).reader)
    return reader(context, index)


def require_declared_columns(rows: DataFrame, read_plan: ReadPlan) -> None:
    """Checks the rows that a reader returns. Spark would write nulls for a declared column that they lack.

    Raises:
        RunError: A declared column is missing.
    """
    declared = read_plan.source.declared_schema
    if declared is None:
        return
    returned = {name.lower() for name in rows.columns}
    missing = [name for name in _names_of(declared) if name.lower() not in returned]
    if missing:
        raise RunError(
            f"{read_plan.name} declares {', '.join(missing)}, but its reader returns rows without "
            f"{'it' if len(missing) == 1 else 'them'}.",
            where=read_plan.source.origin,
            fix=f"return all declared columns from read() of {source_kind(read_plan.source).reader}.",
        )


@cache
def _names_of(ddl: str) -> tuple[str, ...]:
    return tuple(struct_of(ddl).names)


def current_rows(context: SourceContext, index: int) -> DataFrame:
    """All current rows of a source."""
    rows = open_source(context, index).read(context.spark, None)
    assert rows is not None
    return rows
