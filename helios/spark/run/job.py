"""The job of a started pipeline: its checkpoint, sources and sink, and the rows of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.errors import HeliosError, LedgerError
from helios.plan.nodes import Plan, ReadPath, ReadPlan
from helios.plan.typing.late import late_rule
from helios.sources.common.spark.past import Past, past_of
from helios.sources.common.spark.protocol import Source
from helios.spark.checkpoint.files import Checkpoint, StartEntry
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.repeat import Repeat
from helios.spark.jvm.types.spark import JavaStreamingQuery
from helios.spark.native.batch import NativeBatch
from helios.spark.observer import Observer
from helios.spark.run.native import native_batch
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Sink
from helios.spark.steps import late, materialized_view
from helios.spark.steps.build import Built, NativeRows, build
from helios.table.positions import SNAPSHOT, Batch, Position, Span, recorded_entries

if TYPE_CHECKING:
    from helios.spark.run.late import LateRows


T = TypeVar("T")


class Stopped(Exception):
    """Raised instead of running a batch after a stop request."""


class Run(Observer, Protocol):
    """The methods of a run that its job needs."""

    once: bool

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        """Runs the work of a batch, counts it and emits its event.

        Raises:
            Stopped: A stop was requested.
        """

    def follow(self, query: StreamingQuery) -> None:
        """Waits for a streaming query, and stops it between batches on request."""


class StreamingQuery(Protocol):
    """The part of `pyspark.sql.streaming.StreamingQuery` that a run needs."""

    _jsq: JavaStreamingQuery

    def awaitTermination(self, timeout: Any = None) -> bool | None: ...

    def stop(self) -> None: ...

    @property
    def lastProgress(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """A started pipeline, which holds the lease on its checkpoint.

    Attributes:
        sources: The sources of the pipeline, by their number in the plan.
        schema: The columns of the rows after all steps, as Spark analyzed them at the start.
        last_planned: The last batch that an earlier process has planned, and may have written; -1 for none.
        repeat: The batch that `--again` appends a second time; only used by a batch pipeline.
        late: Counts the rows that watermarks drop from the current batch; None for a stateless pipeline.
        beside: The pipelines that `--beside` names, which may have read the same sources up to other positions.
        siblings: The plans of other pipelines that the same run starts into the same table.
    """

    plan: Plan
    spark: SparkSession
    run: Run
    checkpoint: Checkpoint
    lease: Lease
    sources: Mapping[int, Source]
    schema: StructType
    sink: Sink
    last_planned: int
    repeat: Repeat
    late: LateRows | None = None
    beside: Collection[str] = ()
    siblings: Sequence[Plan] = ()

    @cached_property
    def followed(self) -> dict[int, Source]:
        """The sources that the pipeline follows, by their number in the plan."""
        return {index: source for index, source in self.sources.items() if self._read(index).source.streaming}

    @property
    def stateful(self) -> bool:
        """True if Spark runs the whole pipeline, and keeps its state."""
        return self.plan.path is ReadPath.STATEFUL

    @property
    def tables(self) -> frozenset[str]:
        """The names of the source tables."""
        return frozenset(read.name for read in self.plan.reads if read.table is not None)

    def _read(self, index: int) -> ReadPlan:
        return self.plan.reads[index]

    # the input of a batch

    def begin(self) -> None:
        """Resolves and stores the starting positions at the first start; later starts use the stored ones."""
        known = self.checkpoint.start()
        if known is None:
            known = [source.begin() for source in self.followed.values()]
            self.checkpoint.write_start(known)
            self._store_latest_start(known)
            return
        for entry, source in zip(known, self.followed.values(), strict=True):
            source.resume(entry)
        self._store_latest_start(known)

    def _store_latest_start(self, starts: Sequence[StartEntry]) -> None:
        """Stores the starting positions in the target, too, if a source starts at its latest row.

        A full refresh needs them: if "latest" were resolved again, it would skip rows.
        """
        if any(self._read(index).source.declared_start == "latest" for index in self.followed):
            self.sink.store_starts(starts)

    def batch(self, number: int) -> Batch:
        """A batch of a streaming pipeline, as planned in Spark's offset log.

        Raises:
            CheckpointError: The log is damaged.
        """
        ends = self.checkpoint.offsets(number)
        starts = self.checkpoint.offsets(number - 1) if number > 0 else [None] * len(ends)
        spans = [self._span(*bounds) for bounds in zip(self.followed.items(), starts, ends, strict=True)]
        return Batch(number, tuple(spans), pins={}, maybe_written=number <= self.last_planned)

    def _span(self, numbered: tuple[int, Source], start: Position | None, end: Position | None) -> Span:
        index, source = numbered
        read = self._read(index)
        if not self.stateful:
            return source.span(start if start is not None else source.start(), end)
        branch = {"branch": read.branch} if read.branch else {}
        return Span(read.name, start, end, {"source": read.name, **branch, "to": end})

    def pin(self, batch: Batch, *, partly_written: bool = False) -> Batch:
        """The batch with its pins: the snapshots of the joined tables.

        A repeated batch gets the same pins. All pins are new if one of these snapshots has expired, if a joined source
        without snapshots has changed, or if the script now joins another source.

        Args:
            partly_written: Whether a part of the batch is written already.

        Raises:
            LedgerError: A part of the batch is written, and the pins would be new.
        """
        if not self.plan.streaming or self.stateful:
            return batch
        joined = {i: source for i, source in self.sources.items() if i not in self.followed}
        pinned = {str(i): source for i, source in joined.items() if source.pinned}
        unpinned = {
            f"state of {i}": source for i, source in joined.items() if not source.pinned and self._makes_several_commits
        }
        states = {key: json.dumps(source.current().entry) for key, source in unpinned.items()}
        names = {f"name of {key}": source.read_plan.name for key, source in pinned.items()}
        pins = self.checkpoint.pins(batch.number)
        changed: list[str] = []
        if pins is not None:
            changed += [source.read_plan.name for key, source in pinned.items() if not _has_pin(source, key, pins)]
            changed += [unpinned[key].read_plan.name for key, state in states.items() if pins.get(key, state) != state]
        if changed and partly_written:
            raise LedgerError(
                f"a part of batch {batch.number} is written, and {changed[0]}, which the batch joins, has changed, or "
                "its snapshot has expired, or the script did not join it before: the rest would be joined with another "
                "state. Nothing more was written.",
                where=self.plan.origin,
                fix="restore the former join, if it was changed; roll back the tables that have the batch; or refill "
                "them: `helios run --full-refresh`. Keep joined tables' snapshots longer than a pipeline is down.",
            )
        if changed:
            self.sink.reopen(batch)  # rows that were rejected with the former state are replaced
        if (pins is None or changed) and (pinned or states):
            pins = {**{key: source.pin() for key, source in pinned.items()}, **names, **states}
            self.checkpoint.pin(batch.number, pins)
        return replace(batch, pins={key: (pins or {})[key] for key in pinned}) if pinned else batch

    @property
    def _makes_several_commits(self) -> bool:
        """True if a batch makes several commits, between which a driver may die."""
        return self.plan.write.sink.many_tables or self.plan.write.quarantine is not None

    # the rows of a batch

    def rows(self, batch: Batch, emitted: DataFrame | None) -> Built | None:
        """The rows of a batch after all steps; None if the batch adds no rows.

        Args:
            emitted: The DataFrame that Spark's stream emits; None for a bounded pipeline. For a stateful pipeline, it
                has the rows after all steps. Otherwise only its session is used: the session of the batch.
        """
        native = native_batch(self.plan, list(self.sources.values()), batch, self.run.noted)
        if native is not None and emitted is not None and self._has_analyzed_columns(native):
            native = replace(native, counted_by_spark=False)
            return NativeRows(native, self.schema, emitted.sparkSession, lambda: _not_none(self._rows(batch, emitted)))
        return self._rows(batch, emitted, native)

    def _has_analyzed_columns(self, native: NativeBatch) -> bool:
        """True if Spark need not build the batch, as its rows are appended with the columns analyzed at the start."""
        [source] = self.sources.values()
        appends_rows = native.files.size > 0 and not self.plan.write.mode.traits.keyed
        return appends_rows and native.files.columns == source.stream_columns

    def _rows(self, batch: Batch, emitted: DataFrame | None, native: NativeBatch | None = None) -> Built | None:
        for source in self.sources.values():
            source.context.rejected_input.take()  # drops the rejects of an earlier read of the same rows
        built = self._build(batch, emitted)
        if built is None:
            return None
        inputs = [source.context.rejected_input.take() for source in self.sources.values()]
        rejected = [df for frames, _ in inputs for df in frames]
        counted = [observation for _, observations in inputs for observation in observations]
        return Built(built.df, native, [*built.rejected, *rejected], [*built.counted, *counted])

    def _build(self, batch: Batch, emitted: DataFrame | None) -> Built | None:
        if emitted is None:
            return self._bounded_rows(batch)
        if self.stateful:
            return self._emitted_rows(emitted, batch)
        return self._span_rows(emitted.sparkSession, batch)

    def _bounded_rows(self, batch: Batch) -> Built:
        spans = dict(zip(self.sources, batch.spans, strict=True))
        return build(
            self.plan,
            lambda index, _: _not_none(self.sources[index].read(self.spark, spans[index], positioned=self._positioned)),
            lambda index: past_of(self.spark, self.sources[index], (spans[index].end or {}).get(SNAPSHOT)),
        )

    def _emitted_rows(self, emitted: DataFrame, batch: Batch) -> Built:
        for source in self.followed.values():
            source.verify_stream()
        return Built(emitted, rejected=self._late_rows(emitted.sparkSession, batch))

    def _late_rows(self, spark: SparkSession, batch: Batch) -> list[DataFrame]:
        """The rows of a batch that the watermark drops, for the quarantine. They are read a second time."""
        rule = late_rule(self.plan.stream)
        if rule is None or self.late is None:
            return []
        [source], [span] = self.followed.values(), batch.spans
        if span.end is None or span.start == span.end:
            return []  # Spark runs such batches to close windows
        rows = source.read(spark, source.span(span.start or source.start(), span.end))
        return [late.late_rows(rows, rule, self.late.watermark())] if rows is not None else []

    def _span_rows(self, spark: SparkSession, batch: Batch) -> Built | None:
        """The rows after all steps, over the rows that the followed sources have in the batch's spans."""
        spans = dict(zip(self.followed, batch.spans, strict=True))
        rows_by_source = {
            index: self.sources[index].read(spark, span, positioned=self._positioned) for index, span in spans.items()
        }
        if all(rows is None for rows in rows_by_source.values()):
            return None
        if self.plan.view is not None:
            [rows] = rows_by_source.values()
            [entry] = recorded_entries(batch.position)
            assert entry.position is not None
            snapshot = entry.position.snapshot
            return materialized_view.recomputed(spark, self.plan, self.plan.view, _not_none(rows), snapshot)

        def rows_of(index: int, read: ReadPlan) -> DataFrame:
            if index not in rows_by_source:
                return self._joined_rows(spark, index, batch)
            rows = rows_by_source[index]
            return rows if rows is not None else self.sources[index].empty(spark)

        return build(self.plan, rows_of, self._pasts(spark, batch))

    def _joined_rows(self, spark: SparkSession, index: int, batch: Batch) -> DataFrame:
        """The rows of a joined source, which every batch reads in full: at its pin, or now if it has none."""
        source = self.sources[index]
        return _not_none(source.read(spark, source.at_pin((batch.pins or {})[str(index)]) if source.pinned else None))

    def _pasts(self, spark: SparkSession, batch: Batch) -> Callable[[int], Past | None]:
        """A function that returns the earlier states of a joined source, up to its pin."""
        return lambda index: past_of(spark, self.sources[index], (batch.pins or {}).get(str(index)))

    @property
    def _positioned(self) -> bool:
        """True if rows need their source positions for their order, and all steps keep these positions."""
        ordered = self.plan.write.mode.order_by is not None
        return ordered and all(step.traits.passes_hidden for step in self.plan.stream.steps)

    def set_aside(self, path: str) -> bool:
        """Makes the source of an unreadable file skip the file; False if no source does."""
        return any(source.set_aside(path) for source in self.sources.values())

    # after a batch

    def confirm(self, batch: Batch) -> None:
        """Asks the sources to confirm the rows that were read.

        Raises:
            RunError: The rows that were read may not be those of the batch.
        """
        sources = self.followed if self.plan.streaming else self.sources
        for source, span in zip(sources.values(), batch.spans, strict=True):
            source.confirm(span)

    def report_progress(self, batch: Batch) -> None:
        """Reports the committed positions to the sources, and the lag to the run."""
        for (index, source), span in zip(self.followed.items(), batch.spans, strict=True):
            if span.end is not None:
                source.committed(span.end)
            with suppress(HeliosError, Py4JError):  # the next batch raises the same error
                lag = source.lag(span.end if span.end is not None else source.start())
                if lag is not None:
                    self.run.lagging(index, lag)


def _has_pin(source: Source, key: str, pins: Mapping[str, int | str | None]) -> bool:
    """True if the pins have a pin of this very source: the script may have had another source at this number."""
    if key not in pins:
        return False
    pin, name = pins[key], source.read_plan.name
    assert not isinstance(pin, str)  # only the state of a source without snapshots is a string
    return source.exists(pin) if pin is not None else pins.get(f"name of {key}", name) == name


def _not_none(rows: T | None) -> T:
    assert rows is not None  # the current state of a source has a DataFrame, even without rows
    return rows
