"""One start of a pipeline: its DataFrame, its claim, and its batches along one of the read paths."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from helios.errors import CheckFailed, HeliosError, InputError, RunError
from helios.model.modes import Upsert
from helios.plan.check import pipeline_problems
from helios.plan.plan import Plan, ReadPath, ReadPlan
from helios.spark import read as reading
from helios.spark.checkpoint import Checkpoint
from helios.spark.claim import Claim, Claimed
from helios.spark.failures import ColumnsChanged, engine_failure
from helios.spark.ledger import Commit, Record
from helios.spark.maintain import Upkeep
from helios.spark.read import Built
from helios.spark.steps import CARRYING, refusal
from helios.spark.target import Site, Work

EXPIRED = "Cannot load current offset at snapshot"
"""How Iceberg's stream says that the snapshot of its last offset has expired."""

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

    def tended(self, done: Upkeep) -> None: ...

    def lag(self, snapshots: int, seconds: float) -> None: ...

    def follow(self, query: Any, watch: Callable[[], object], every: float) -> None: ...


class Attempt:
    """One start of a pipeline: its checkpoint, its target and its ledger, and the batches until it ends."""

    def __init__(self, run: Handle, location: str) -> None:
        self.handle = run
        self.plan = run.plan
        self.spark = run.spark
        self.checkpoint = Checkpoint(run.spark, location)
        self.followed = [read for read in self.plan.reads if read.source.streaming]
        self.held: Claimed

    # before anything is written

    def declare(self) -> DataFrame:
        """Builds the DataFrame of the whole pipeline, which Spark analyzes, and settles the read path.

        Raises:
            InputError: Spark refuses an expression, or the plan as a stream.
        """
        if self.plan.path is ReadPath.BATCH:
            return reading.build(self.plan, lambda _, read: reading.read_batch(self.spark, read)).df
        max_rows = self.plan.trigger.max_rows if self.plan.trigger else None
        df = reading.build(
            self.plan,
            lambda _, read: (
                reading.read_stream(self.spark, read, max_rows=max_rows)
                if read.source.streaming
                else reading.read_batch(self.spark, read)
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

    def _refuse_unsupported(self, df: DataFrame) -> None:
        jvm: Any = self.spark._jvm
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
        )
        self.held = Claim(site, anew=anew, refresh=refresh).take(df)
        return self.held

    # running

    def run(self, df: DataFrame) -> None:
        RUNNERS[self.plan.path](self, df)

    def once_over(self, df: DataFrame) -> None:
        """A batch pipeline: one batch, told from the last run by what its sources give."""
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
            self.handle.batch(record.batch, lambda: Commit(snapshot=record.snapshot, again=True))
            return
        number = record.batch + 1 if record is not None else 0

        def work() -> Commit | None:
            position = {"sources": sources}
            found = target.find(number, position, planned=True)
            return found or self._write(
                reading.build(plan, lambda index, _: read[index][0]), number, position, planned=True
            )

        if self.handle.batch(number, work) is not None:
            self._tend()

    def in_ranges(self, df: DataFrame) -> None:
        """A stateless pipeline over Iceberg: the stream tells which snapshots, the batch reads them."""
        starts = self._starts()
        positioned = self._tells_positions()

        def position(number: int) -> list[dict[str, Any]]:
            return [
                {"source": self.plan.reads[index].name, **span.as_json()}
                for index, span in self._spans(number, starts).items()
            ]

        def rows(tick: DataFrame, number: int, pins: Pins) -> Built | None:
            spark, spans = tick.sparkSession, self._spans(number, starts)
            parts = {
                index: reading.read_range(spark, self.plan.reads[index], span, positioned=positioned)
                for index, span in spans.items()
            }
            if all(part is None for part in parts.values()):
                return None

            def of(index: int, read: ReadPlan) -> DataFrame:
                if not read.source.streaming:
                    return self._still(spark, index, read, pins)
                part = parts[index]
                return part if part is not None else reading.read_state(spark, read, None)

            return reading.build(self.plan, of)

        if self.handle.once and not self._anything_new(starts):
            return
        self._seed(starts)
        while True:
            ticker = reading.read_ticker(self.spark, self.followed)
            try:
                self._stream(
                    ticker,
                    position,
                    rows,
                    watch=lambda: self._anything_new(starts),
                    measure=lambda number: self._tell_lag(starts, number),
                )
                return
            except RunError as error:
                # The snapshot where the stream stood expired under it: go on from the same place by another name.
                if EXPIRED not in error.what or not self._seed(starts):
                    raise

    def in_micro_batches(self, df: DataFrame) -> None:
        """A stateless pipeline over one followed source: Spark's own micro-batch goes through the steps."""
        source = self.followed[0]
        self._refuse_partial(source)
        columns = self._columns()
        stream = reading.read_stream(
            self.spark, source, max_rows=self.plan.trigger.max_rows if self.plan.trigger else None
        )

        def rows(raw: DataFrame, number: int, pins: Pins) -> Built:
            self._refuse_new_columns(columns)
            return reading.build(
                self.plan,
                lambda index, read: raw if read.source.streaming else self._still(raw.sparkSession, index, read, pins),
            )

        self._stream(stream, self._offset_json, rows)

    def in_state(self, df: DataFrame) -> None:
        """Spark runs the whole pipeline as a stream; what it emits is written."""
        for read in self.followed:
            self._refuse_partial(read)
        columns = self._columns()

        def rows(raw: DataFrame, number: int, pins: Pins) -> Built:
            self._refuse_new_columns(columns)
            return Built(raw)

        self._stream(df, self._offset_json, rows)

    def _stream(
        self,
        df: DataFrame,
        position: Callable[[int], list[dict[str, Any]]],
        rows: Callable[[DataFrame, int, Pins], Built | None],
        watch: Callable[[], object] = lambda: None,
        measure: Callable[[int], object] = lambda number: None,
    ) -> None:
        """Runs a stream whose batches are looked up, and built and written where they are not there.

        Args:
            df: The stream that gives the rhythm.
            position: What a batch reads of the followed sources.
            rows: Builds a batch; None when it adds nothing.
            watch: Looks after the sources between batches.
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
                measure(number - 1)
                if handle.batch(number, work) is not None:
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
            handle.follow(writer.start(), watch, plan.trigger.every)
        except StreamingQueryException as error:
            # Spark tells of a batch's error as text; this is the error itself.
            raise (failure[0] if failure else engine_failure(error, plan)) from error

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

    def _measure_lag(self, starts: list[dict[str, Any]], stood: list[dict[str, Any] | None]) -> int:
        """Notes how far behind the followed tables the pipeline is; returns the snapshots that wait."""
        behind = [reading.lag(self.spark, r, s, o) for r, s, o in zip(self.followed, starts, stood, strict=True)]
        snapshots = sum(number for number, _ in behind)
        self.handle.lag(snapshots, max((seconds for _, seconds in behind), default=0.0))
        return snapshots

    def _tell_lag(self, starts: list[dict[str, Any]], number: int) -> None:
        """Measures the lag of a target that stands after this batch; -1 is before the first."""
        with suppress(HeliosError, Py4JError):  # what stands in the way is the business of the batch, or of `watch`
            self._measure_lag(starts, self.checkpoint.offsets(number) if number >= 0 else [None] * len(starts))

    def _starts(self) -> list[dict[str, Any]]:
        """Where the followed tables stood when the pipeline first began; written once."""
        known = self.checkpoint.start()
        if known is not None:
            return known
        starts = []
        for read in self.followed:
            head = reading.source_table(self.spark, read).currentSnapshot()
            starts.append({"snapshot": int(head.snapshotId()) if head is not None else None, "state": True})
        self.checkpoint.write_start(starts)
        return starts

    def _seed(self, starts: list[dict[str, Any]]) -> bool:
        """Points Iceberg's stream at snapshots that it can still load: where it stood, or where it begins.

        Returns:
            Whether a place had to be named anew, because its snapshot has expired.
        """
        moved = False
        committed = self.checkpoint.batches("commits")
        stood = self._stood(committed, len(starts))
        if committed:
            kept = self._retain(committed[-1], stood)
            moved, stood = kept != stood, kept
        for index, (start, offset) in enumerate(zip(starts, stood, strict=True)):
            if offset is not None and offset["snapshot_id"] != reading.NO_SNAPSHOT:
                # Only looked at by availableNow, which fails where nothing is new: no end is at position -1.
                self.checkpoint.seed(index, {**offset, "position": -1})
            elif start["snapshot"] is not None:
                self.checkpoint.seed(index, reading.before(self.spark, self.followed[index], start["snapshot"]))
        return moved

    def _stood(self, committed: list[int], sources: int) -> list[dict[str, Any] | None]:
        return self.checkpoint.offsets(committed[-1]) if committed else [None] * sources

    def _retain(self, batch: int, stood: list[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
        """Names the place where the last batch ended by snapshots that have not expired, also in Spark's log."""
        kept = [
            dict(reading.retained(reading.source_table(self.spark, read), offset) or offset)
            if offset is not None and offset["snapshot_id"] != reading.NO_SNAPSHOT
            else offset
            for read, offset in zip(self.followed, stood, strict=True)
        ]
        if kept != stood:
            self.checkpoint.rewrite_offsets(batch, kept)
        return kept

    def _anything_new(self, starts: list[dict[str, Any]]) -> bool:
        """Whether the followed tables hold rows that no committed batch has read.

        Raises:
            RunError: A commit since then cannot be followed.
        """
        planned, committed = self.checkpoint.batches("offsets"), self.checkpoint.batches("commits")
        if planned and planned[-1:] != committed[-1:]:
            return True
        stood = self._stood(committed, len(starts))
        return self._measure_lag(starts, stood) > 0

    def _spans(self, number: int, starts: list[dict[str, Any]]) -> dict[int, reading.Range]:
        ends = self.checkpoint.offsets(number)
        before = self.checkpoint.offsets(number - 1) if number > 0 else [None] * len(ends)
        indexes = [i for i, read in enumerate(self.plan.reads) if read.source.streaming]
        return {
            index: reading.range_of(reading.source_table(self.spark, self.plan.reads[index]), start, old, new)
            for index, start, old, new in zip(indexes, starts, before, ends, strict=True)
        }

    def _offset_json(self, number: int) -> list[dict[str, Any]]:
        ends = self.checkpoint.offsets(number)
        return [{"source": read.name, "to": end} for read, end in zip(self.followed, ends, strict=True)]

    def _pins(self, spark: SparkSession, number: int) -> Pins:
        """The snapshots of the joined tables that a batch reads, the same again when it is replayed."""
        still = {i: r for i, r in enumerate(self.plan.reads) if r.table is not None and not r.source.streaming}
        if not still:
            return {}
        pinned = self.checkpoint.pins(number)
        if pinned is None or not all(reading.is_there(spark, r, pinned[str(i)]) for i, r in still.items()):
            pinned = {str(i): reading.head(spark, read) for i, read in still.items()}
            self.checkpoint.pin(number, pinned)
        return pinned

    def _still(self, spark: SparkSession, index: int, read: ReadPlan, pins: Pins) -> DataFrame:
        """A source that is read once a batch: a table at its pin, anything else as it is now."""
        if read.table is None:
            return reading.read_batch(spark, read)
        return reading.read_state(spark, read, pins[str(index)])

    def _columns(self) -> dict[str, int]:
        """The followed tables' schemas when a stream of Spark's own starts: it never looks at them again."""
        tables = [read for read in self.followed if read.table is not None]
        return {r.name: int(reading.source_table(self.spark, r).schema().schemaId()) for r in tables}

    def _refuse_new_columns(self, known: dict[str, int]) -> None:
        """Spark's stream never sees a new column: a stateless one starts anew, a stateful one cannot."""
        changed = [name for name, schema in self._columns().items() if schema != known[name]]
        if changed and self.plan.path is ReadPath.MICRO_BATCHES:
            raise ColumnsChanged(f"the columns of {changed[0]} have changed: the stream starts anew to read them.")
        if changed:
            raise RunError(
                f"the columns of {changed[0]} have changed since the run began, and would be left out silently.",
                where=self.plan.origin,
                fix="run again: a new run reads the columns that are there.",
            )

    def _refuse_partial(self, read: ReadPlan) -> None:
        if read.table is not None and self.held.planned < 0:
            reading.refuse_partial_history(reading.source_table(self.spark, read), read)


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
