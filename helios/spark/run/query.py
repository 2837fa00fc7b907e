"""One start of a pipeline: its DataFrame, its claim, and its batches along one of the read paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Protocol, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import CheckFailed, HeliosError, InputError, RunError
from helios.model.modes import Groups, Overwrite, OverwritePartitions, Upsert
from helios.model.source import IcebergSource
from helios.plan.checks.pipeline import pipeline_problems
from helios.plan.nodes import Plan, ReadPath, ReadPlan
from helios.plan.views import view_of
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg.failures import engine_failure
from helios.spark.iceberg.scan_metrics import ScanMetrics, collect_scan_metrics
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import refusal
from helios.spark.maintenance.maintain import Upkeep
from helios.spark.run.startup import Claim, Claimed
from helios.spark.sinks.options import Commit
from helios.spark.sinks.table import Site, Work
from helios.spark.sources import readers as reading
from helios.spark.sources.iceberg import Feed, Stream
from helios.spark.sources.offsets import Place, Range, Unit, between, lag
from helios.spark.sources.snapshot import is_there, source_table
from helios.spark.sources.starting_offsets import beginnings, declared
from helios.spark.steps import materialized_view
from helios.spark.steps.build import Built, build
from helios.spark.steps.steps import CARRYING
from helios.table.ledger import Record

STATEFUL_OPERATORS = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "EventTimeWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)
"""Logical operators of Spark that keep state in a streaming plan (UnsupportedOperationChecker names them)."""


Pins: TypeAlias = dict[str, Any]
"""The snapshots at which a batch reads its joined tables, by the source's number in the plan."""


class Stopped(Exception):
    """Ends a batch that began after a stop was asked for."""


class Handle(Protocol):
    """What an attempt needs of the run that it belongs to."""

    plan: Plan
    spark: SparkSession
    once: bool
    new_checkpoint: bool
    full_refresh: bool

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None: ...

    def retried(self) -> None: ...

    def rejected(self, rows: int) -> None: ...

    def gave_up(self) -> None: ...

    def put_off(self) -> None: ...

    def tended(self, done: Upkeep) -> None: ...

    def lag(self, snapshots: int, seconds: float) -> None: ...

    def scanned(self, seen: ScanMetrics) -> None: ...

    def follow(self, query: Any) -> None: ...


class Attempt:
    """One start of a pipeline: its checkpoint, its target and its ledger, and the batches until it ends."""

    def __init__(self, run: Handle, location: str) -> None:
        self.handle = run
        self.plan = _with_groups(run.plan)
        self.spark = run.spark
        self.checkpoint = Checkpoint(run.spark, location)
        self.followed = [read for read in self.plan.reads if read.source.streaming]
        self.streams: dict[int, Stream] = {}  # of the sources whose rows Spark reads, by their number in the plan
        self.held: Claimed

    # before anything is written

    def declare(self) -> DataFrame:
        """Builds the DataFrame of the whole pipeline, which Spark analyzes, and settles the read path.

        Raises:
            InputError: Spark refuses an expression, or the plan as a stream.
        """
        if self.plan.path is ReadPath.BATCH:
            with scan_task_scope():
                return build(self.plan, lambda _, read: reading.read_batch(self.spark, read)).df
        view = view_of(self.plan.declared)
        if view is not None:
            return materialized_view.empty(self.spark, self.plan, view)
        df = build(
            self.plan,
            lambda index, read: (
                self._stream_of(index, read) if read.source.streaming else reading.read_batch(self.spark, read)
            ),
        ).df
        if not df.isStreaming:
            raise InputError(
                "a callable turned the stream into a batch DataFrame.",
                where=self.plan.origin,
                fix="return a DataFrame made from the one that was passed in.",
            )
        self._refuse_unsupported(df)
        if keeps_state(df) and self.plan.path is not ReadPath.STREAM:
            self.plan = replace(self.plan, path=ReadPath.STREAM)
            problems = pipeline_problems(self.plan.declared, self.plan.write.sink, ReadPath.STREAM)
            if problems:
                raise CheckFailed(problems)
        return df

    def _stream_of(self, index: int, read: ReadPlan) -> DataFrame:
        """A followed source as a streaming DataFrame, whose rows Spark reads."""
        if read.table is None:
            return reading.read_stream(self.spark, read)
        self.streams[index] = Stream(Feed(spark=self.spark, read=read), delivers=True)
        return reading.narrowed(self.streams[index].df(), read)

    def _refuse_unsupported(self, df: DataFrame) -> None:
        jvm = classes()
        plan = df._jdf.queryExecution().analyzed()
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = modes.Update() if self.plan.output_mode == "update" else modes.Append()
        try:
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except AnalysisException as error:
            fix = (
                'append behind a watermark: watermark("ts", "10 minutes") and window("ts", ...), or upsert by the '
                "group columns."
            )
            refused = refusal("Spark cannot stream this pipeline", error, self.plan.origin)
            refused.fix = fix if "watermark" in refused.what else None
            raise refused from error

    def claim(self, df: DataFrame) -> Claimed:
        """Takes the pipeline's claim on its checkpoint and its target."""
        anew, refresh = self.handle.new_checkpoint, self.handle.full_refresh
        handle = self.handle
        site = Site(
            plan=self.plan,
            spark=self.spark,
            checkpoint=self.checkpoint,
            retried=handle.retried,
            rejected=handle.rejected,
            gave_up=handle.gave_up,
            put_off=handle.put_off,
        )
        self.held = Claim(site, anew=anew, refresh=refresh).take(df)
        return self.held

    # running

    def run(self, df: DataFrame) -> None:
        RUNNERS[self.plan.path](self, df)

    def once_over(self, df: DataFrame) -> None:
        """A batch pipeline: one batch, told from the last run by what its sources give."""
        with scan_task_scope(), collect_scan_metrics(self._tables()) as seen:
            made = self._one_batch()
        self.handle.scanned(seen)
        if made is not None:
            self._tend()

    def _one_batch(self) -> Commit | None:
        plan, target = self.plan, self.held.target
        record = target.last()
        read = [reading.read_pinned(self.spark, one) for one in plan.reads]
        sources = [position for _, position in read]
        if record is not None and not plan.write.mode.reruns and reading_same(record, sources):
            if record.steps != plan.fingerprint:
                raise InputError(
                    f"{plan.write.table.text} holds the rows that {plan.pipeline} made from these inputs with "
                    "other steps: appending them again would double rows.",
                    where=plan.origin,
                    fix="run the changed pipeline under a new name into a new table.",
                )
            return self.handle.batch(record.batch, lambda: Commit(snapshot=record.snapshot, again=True))
        number = record.batch + 1 if record is not None else 0

        def work() -> Commit | None:
            position = {"sources": sources}
            found = target.find(number, position, planned=True)
            return found or self._write(build(plan, lambda index, _: read[index][0]), number, position, planned=True)

        return self.handle.batch(number, work)

    def in_ranges(self, df: DataFrame) -> None:
        """A stateless pipeline over Iceberg: the stream tells which snapshots, the batch reads them."""
        feeds = self._feeds()
        positioned = self._tells_positions()
        view = view_of(self.plan.declared)

        def position(number: int) -> list[dict[str, Any]]:
            ends = self.checkpoint.offsets(number)
            return [
                {**_named(feeds[index].read), **span.as_json(), "place": end}
                for (index, span), end in zip(self._spans(number, feeds).items(), ends, strict=True)
            ]

        def rows(tick: DataFrame, number: int, pins: Pins) -> Built | None:
            spark, spans = tick.sparkSession, self._spans(number, feeds)
            parts = {
                index: reading.read_range(spark, feed, spans[index], positioned=positioned)
                for index, feed in feeds.items()
            }
            if all(part is None for part in parts.values()):
                return None
            if view is not None:
                [(index, part)] = parts.items()
                return (
                    materialized_view.recomputed(spark, self.plan, view, part, spans[index].to)
                    if part is not None
                    else None
                )

            def of(index: int, read: ReadPlan) -> DataFrame:
                if not read.source.streaming:
                    return self._still(spark, index, read, pins)
                part = parts[index]
                return part if part is not None else reading.narrowed(reading.nothing(spark, read), read)

            return build(self.plan, of)

        self._forget_lost(feeds, position)
        tickers = [Stream(feed, delivers=False) for feed in feeds.values()]
        ticks = [ticker.df().select(F.lit(1).alias("tick")) for ticker in tickers]
        self._stream(reduce(DataFrame.union, ticks), position, rows, tickers, lambda n: self._tell_lag(feeds, n))

    def _forget_lost(self, feeds: dict[int, Feed], position: Callable[[int], list[dict[str, Any]]]) -> None:
        """A batch that was planned, is not in the target, and can be read no more, is planned anew from the state."""
        planned, committed = self.checkpoint.batches("offsets"), self.checkpoint.batches("commits")
        if not planned or planned[-1] in committed:
            return
        spans = self._spans(planned[-1], feeds)
        if any(feed.lost(spans[index]) for index, feed in feeds.items()):
            found = self.held.target.find(planned[-1], {"sources": position(planned[-1])}, planned=True)
            if found is None:
                self.checkpoint.forget(planned[-1])

    def in_micro_batches(self, df: DataFrame) -> None:
        """A stateless pipeline over one followed folder: Spark's own micro-batch goes through the steps."""
        stream = reading.read_stream(self.spark, self.followed[0])

        def rows(raw: DataFrame, number: int, pins: Pins) -> Built:
            return build(
                self.plan,
                lambda index, read: raw if read.source.streaming else self._still(raw.sparkSession, index, read, pins),
            )

        self._stream(stream, self._offset_json, rows)

    def in_state(self, df: DataFrame) -> None:
        """Spark runs the whole pipeline as a stream; what it emits is written."""
        feeds = self._feeds()
        for index, stream in self.streams.items():
            stream.feed = replace(feeds[index], rows_only=True)
        known = self._columns()

        def rows(raw: DataFrame, number: int, pins: Pins) -> Built:
            self._refuse_new_columns(known)
            return Built(raw)

        streams = list(self.streams.values())
        self._stream(df, self._offset_json, rows, streams, lambda n: self._tell_lag(feeds, n))

    def _stream(
        self,
        df: DataFrame,
        position: Callable[[int], list[dict[str, Any]]],
        rows: Callable[[DataFrame, int, Pins], Built | None],
        streams: Sequence[Stream] = (),
        measure: Callable[[int], object] = lambda number: None,
    ) -> None:
        """Runs a stream whose batches are looked up, and built and written where they are not there.

        Args:
            df: The stream that gives the rhythm.
            position: What a batch reads of the followed sources.
            rows: Builds a batch; None when it adds nothing.
            streams: Its streams over tables.
            measure: Measures how far behind a target is that holds a batch.
        """
        plan, handle = self.plan, self.handle
        failure: list[BaseException] = []

        def on_batch(raw: DataFrame, number: int) -> None:
            def work() -> Commit | None:
                self.held.lease.verify()
                read = {"sources": position(number)}
                planned = number <= self.held.planned
                found = self.held.target.find(number, read, planned=planned)
                if found is not None:
                    if plan.path is ReadPath.STREAM:
                        # The rows are there already, but Spark's state of this batch is built by running it.
                        raw.write.format("noop").mode("overwrite").save()
                    return found
                pins = self._pins(raw.sparkSession, number) if plan.path is not ReadPath.STREAM else {}
                built = rows(raw, number, pins)
                return self._write(built, number, {**read, "pins": pins}, planned=planned) if built else None

            try:
                with scan_task_scope(), collect_scan_metrics(self._tables()) as seen:
                    made = handle.batch(number, work)
                    for stream in streams:  # what Spark itself read, in a thread of its own
                        seen.add(stream.feed.taken())
                handle.scanned(seen)
                if made is not None:
                    self._tend()
                measure(number)
            except BaseException as error:
                failure.append(error)
                raise

        writer = (
            df.writeStream.outputMode(plan.output_mode)
            .foreachBatch(on_batch)
            .option("checkpointLocation", self.checkpoint.location)
        )
        assert plan.trigger is not None
        writer = (
            writer.trigger(availableNow=True)
            if handle.once
            else writer.trigger(processingTime=f"{round(plan.trigger.every * 1000)} milliseconds")
        )
        try:
            handle.follow(writer.start())
        except StreamingQueryException as error:
            # Spark tells of an error in Python as text; this is the error itself.
            told = [*failure, *(stream.error for stream in streams if stream.error is not None)]
            raise (told[0] if told else engine_failure(error, plan)) from error

    def _tables(self) -> frozenset[str]:
        """The tables that the pipeline reads."""
        return frozenset(read.name for read in self.plan.reads if read.table is not None)

    def _tend(self) -> None:
        for done in self.held.target.tend():
            self.handle.tended(done)

    def _write(self, built: Built, number: int, position: dict[str, Any], *, planned: bool) -> Commit | None:
        """Hands a batch to its target."""
        return self.held.target.write(
            Work(
                df=built.df,
                rejected=built.rejected,
                number=number,
                position=position,
                planned=planned,
                dropped=built.dropped,
            )
        )

    # positions

    def _tells_positions(self) -> bool:
        """Whether the source position of a row matters, and every step lets it through."""
        mode = self.plan.write.mode
        ordered = isinstance(mode, Upsert) and mode.order_by is not None
        return ordered and all(isinstance(step, CARRYING) for step in self.plan.stream.steps)

    def _feeds(self) -> dict[int, Feed]:
        """The followed tables, by their number in the plan, each from where the pipeline first began."""
        plan, mode = self.plan, self.plan.write.mode
        followed = {i: r for i, r in enumerate(plan.reads) if r.source.streaming and r.table is not None}
        starts = beginnings(self.spark, self.checkpoint, list(followed.values()))
        waiting: dict[int, list[Unit]] = {}

        def told(index: int, units: list[Unit]) -> None:
            waiting[index] = units
            self.handle.lag(*lag([unit for units in waiting.values() for unit in units]))

        return {
            index: Feed(
                spark=self.spark,
                read=read,
                start=start,
                predicates=plan.pushed(index),
                max_rows=plan.trigger.max_rows if plan.trigger else None,
                max_files=plan.trigger.max_files if plan.trigger else None,
                # To a state of Spark's the same rows again would be more rows.
                replaces=plan.path is ReadPath.RANGES
                and isinstance(mode, (Upsert, Overwrite, OverwritePartitions, Groups)),
                told=partial(told, index),
            )
            for index, (read, start) in zip(followed, starts, strict=True)
        }

    def _tell_lag(self, feeds: dict[int, Feed], number: int) -> None:
        """Measures the lag of a target that stands after a batch."""
        with suppress(HeliosError, Py4JError):  # what stands in the way is the business of the next batch
            followed = [index for index, read in enumerate(self.plan.reads) if read.source.streaming]
            for index, end in zip(followed, self.checkpoint.offsets(number), strict=True):
                if index in feeds:  # of a folder nobody knows what is ahead
                    feeds[index].look(Place.parse(end) if end is not None else feeds[index].start)

    def _spans(self, number: int, feeds: dict[int, Feed]) -> dict[int, Range]:
        ends = self.checkpoint.offsets(number)
        before = self.checkpoint.offsets(number - 1) if number > 0 else [None] * len(ends)
        return {
            index: between(
                Place.parse(old) if old is not None else feed.start,
                Place.parse(new) if new is not None else feed.start,
            )
            for (index, feed), old, new in zip(feeds.items(), before, ends, strict=True)
        }

    def _offset_json(self, number: int) -> list[dict[str, Any]]:
        ends = self.checkpoint.offsets(number)
        named = [{"source": r.name, **({"branch": r.branch} if r.branch else {})} for r in self.followed]
        return [{**name, "to": end} for name, end in zip(named, ends, strict=True)]

    def _pins(self, spark: SparkSession, number: int) -> Pins:
        """The snapshots of the joined tables that a batch reads, the same again when it is replayed."""
        still = {i: r for i, r in enumerate(self.plan.reads) if r.table is not None and not r.source.streaming}
        if not still:
            return {}
        pinned = self.checkpoint.pins(number)
        if pinned is None or not all(is_there(spark, r, pinned[str(i)]) for i, r in still.items()):
            pinned = {str(i): reading.pin(spark, read) for i, read in still.items()}
            self.checkpoint.pin(number, pinned)
        return pinned

    def _still(self, spark: SparkSession, index: int, read: ReadPlan, pins: Pins) -> DataFrame:
        """A source that is read once a batch: a table at its pin, anything else as it is now."""
        if read.table is None:
            return reading.read_batch(spark, read)
        return reading.read_at(spark, read, pins[str(index)])

    def _columns(self) -> dict[str, int]:
        """The followed tables' schemas when a stream of Spark's own starts: it never looks at them again."""
        tables = [read for read in self.followed if read.table is not None]
        return {r.name: int(source_table(self.spark, r).schema().schemaId()) for r in tables}

    def _refuse_new_columns(self, known: dict[str, int]) -> None:
        """Spark's stream never sees a new column."""
        changed = [name for name, schema in self._columns().items() if schema != known[name]]
        if changed:
            raise RunError(
                f"the columns of {changed[0]} have changed since the run began, and would be left out silently.",
                where=self.plan.origin,
                fix="run again: a new run reads the columns that are there.",
            )


def _named(read: ReadPlan) -> dict[str, Any]:
    """A followed table in a position, with all that tells where it stands."""
    assert isinstance(read.source, IcebergSource)
    changes = read.source.changed is not None
    return {
        "source": read.name,
        "uuid": read.uuid,
        "branch": read.branch,
        "from": declared(read.source),
        "changes": changes,
    }


def _with_groups(plan: Plan) -> Plan:
    """A plan whose view is written group by group."""
    mode = plan.write.mode
    if view_of(plan.declared) is None or not isinstance(mode, Upsert):
        return plan
    return replace(plan, write=replace(plan.write, sink=replace(plan.write.sink, mode=Groups(mode.keys))))


def reading_same(record: Record, sources: list[dict[str, Any]]) -> bool:
    """Whether a batch pipeline's last commit read the same inputs."""
    return record.position is not None and record.position.get("sources") == sources


def keeps_state(df: DataFrame) -> bool:
    """Whether Spark would keep state for a streaming DataFrame, as a callable or an SQL step may ask for."""
    pending = [df._jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        name = str(node.nodeName())
        children = [node.children().apply(i) for i in range(node.children().size())]
        if node.isStreaming() and name in STATEFUL_OPERATORS:
            return True
        if name == "Join" and all(child.isStreaming() for child in children):
            return True
        pending += children
    return False


RUNNERS: dict[ReadPath, Callable[[Attempt, DataFrame], None]] = {
    ReadPath.BATCH: Attempt.once_over,
    ReadPath.RANGES: Attempt.in_ranges,
    ReadPath.MICRO_BATCHES: Attempt.in_micro_batches,
    ReadPath.STREAM: Attempt.in_state,
}
