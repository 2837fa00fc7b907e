"""Computes rows with the current script, from earlier parts of its sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from helios.errors import HeliosError, InputError, LedgerError
from helios.plan.nodes import Plan, ReadPlan
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.past import Past, past_of
from helios.sources.common.spark.protocol import Source, open_source
from helios.sources.kinds import position_of
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.small_files import SmallFiles
from helios.spark.observer import SilentObserver
from helios.spark.steps.build import Built, build
from helios.table.ledger import Starts
from helios.table.positions import Position

Positions: TypeAlias = "tuple[Position | None, ...]"
"""A position in each followed source."""
OtherRows: TypeAlias = Callable[[Source], DataFrame]
"""Returns the rows that replace those of a source."""
FROM_FIX = "with --from, name a table or a folder that has these rows and the same columns; --from needs --where."


def other_rows_fix(plan: Plan) -> str:
    """The fix for a source that no longer has the rows of a backfill; upserts cannot use `--from`."""
    return FROM_FIX if plan.write.mode.upsert is None else "repair later commits, whose rows the source still has."


class ReadOnlyFiles(SmallFiles):
    """The small files of a checkpoint that another process drives: writes do nothing."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self.root = files.root

    @override
    def read(self, name: str) -> str | None:
        return self._files.read(name)

    @override
    def names(self, folder: str) -> list[str]:
        return self._files.names(folder)

    @override
    def write(self, name: str, text: str) -> None:
        return None  # the pipeline itself has written this content

    @override
    def delete(self, name: str) -> None:
        return None

    @override
    def rename(self, name: str, to: str) -> None:
        return None

    @override
    def move(self, to: SmallFiles) -> None:
        return None

    @override
    def locked(self) -> AbstractContextManager[bool]:
        return nullcontext(False)


class ReadOnlyCheckpoint(Checkpoint):
    """The checkpoint of a pipeline that another process drives."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        super().__init__(spark, location)
        self.files = ReadOnlyFiles(self.files)


class StrictObserver(SilentObserver):
    """An observer that raises an error if source files are missing; a run would continue without them."""

    @override
    def files_gone(self, paths: Sequence[str]) -> None:
        more = f" and {len(paths) - 1:,} more are" if len(paths) > 1 else " is"
        raise InputError(f"{paths[0]}{more} gone")


class Recompute:
    """Runs the steps of a pipeline, compiled from the current script, over earlier parts of its sources."""

    def __init__(self, plan: Plan, spark: SparkSession, checkpoint: ReadOnlyCheckpoint) -> None:
        self._plan, self._spark, self.checkpoint = plan, spark, checkpoint
        context = SourceContext(plan=plan, spark=spark, observer=StrictObserver(), checkpoint=checkpoint)
        self._sources = {index: open_source(context, index) for index in range(len(plan.reads))}
        self._followed = [index for index, read in enumerate(plan.reads) if read.source.streaming]

    def resume(self, starts: Starts, *, reads_other: bool = False) -> None:
        """Sets the sources to their positions at the pipeline's first start; to be called before anything is read.

        Args:
            reads_other: Whether another table or folder is read instead of the source. If so, the source's table may
                have been replaced.

        Raises:
            HeliosError: A source was replaced, or the script declares another start.
        """
        for index, entry in zip(self._followed, starts, strict=True):
            source = self._sources[index]
            uuid = {"uuid": source.read_plan.uuid} if reads_other and source.read_plan.uuid is not None else {}
            try:
                source.resume({**entry, **uuid})  # type: ignore[typeddict-item]
            except LedgerError as error:
                raise _lost_error(self._plan, source.read_plan, error) from error

    def rows(
        self, after: Positions | None, to: Positions, other: OtherRows | None = None, *, positioned: bool = False
    ) -> Built | None:
        """The rows after all steps; None if nothing lies between the positions.

        Args:
            after: The position after which the rows begin; None for the first start of the pipeline.
            to: The position at which the rows end.
            other: Returns the rows that are read instead of those of the followed source; None to read the source.
            positioned: Whether each row carries its position in the source, as in the batches of an ordered upsert.

        Raises:
            InputError: A source no longer has all of these rows.
        """
        rows_by_source: dict[int, DataFrame | None] = {}
        for number, index in enumerate(self._followed):
            source = self._sources[index]
            if other is not None:
                rows_by_source[index] = other(source)
            else:
                begin = after[number] if after is not None else None
                with _adding_fix(self._plan, source.read_plan):
                    _refuse_expired_history(to[number] if after is None else None)
                    span = source.span(begin if begin is not None else source.start(), to[number])
                    empty = span.start == span.end
                    rows_by_source[index] = source.read(self._spark, span, positioned=positioned) if not empty else None
            source.context.rejected_input.take()  # bad rows, which the pipeline has handled already
        if all(rows is None for rows in rows_by_source.values()):
            return None

        def read_source(index: int, read: ReadPlan) -> DataFrame:
            source = self._sources[index]
            rows = rows_by_source.get(index)
            if rows is None:
                rows = source.empty(self._spark) if index in rows_by_source else source.read(self._spark, None)
            assert rows is not None  # a source that is not followed always has a DataFrame, maybe without rows
            return rows

        def past(index: int) -> Past | None:
            """The earlier states of a source that a join reads as of a time; None if it keeps no history."""
            source = self._sources[index]
            return past_of(self._spark, source, source.pin())

        return build(self._plan, read_source, past)

    def states(self) -> list[str]:
        """The current states of the sources that are not followed, such as joined tables."""
        others = [source for index, source in self._sources.items() if index not in self._followed]
        return [json.dumps(source.current().entry, sort_keys=True, default=str) for source in others]

    def analyzed(self) -> DataFrame:
        """The result of the steps over streams of the followed sources, which Spark only analyzes."""

        def read_source(index: int, read: ReadPlan) -> DataFrame:
            source = self._sources[index]
            rows = source.stream() if read.source.streaming else source.read(self._spark, None)
            assert rows is not None
            return rows

        return build(self._plan, read_source).df


def _refuse_expired_history(end: Position | None) -> None:
    """Refuses a position before which rows have expired."""
    kind_and_position = position_of(end)
    if kind_and_position is not None and kind_and_position[1].is_rebootstrapped:
        raise InputError(f"its history before snapshot {kind_and_position[1].snapshot} has expired")


@contextmanager
def _adding_fix(plan: Plan, read: ReadPlan) -> Generator[None, None, None]:
    """Turns the error of a source that no longer has the rows into an error with a fix."""
    try:
        yield
    except HeliosError as error:
        raise _lost_error(plan, read, error) from error


def _lost_error(plan: Plan, read: ReadPlan, error: HeliosError) -> InputError:
    reason = error.what.rstrip(".")
    return InputError(
        f"{read.name} no longer has the rows that the backfill needs: {reason}; nothing was written.",
        where=read.source.origin,
        fix=other_rows_fix(plan),
    )
