"""Running one pipeline: from a plan to commits in its target."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from helios.errors import CheckpointError, HeliosError, InputError, RunError
from helios.model.iceberg import IcebergSource
from helios.plan.plan import Plan, ReadPath, ReadPlan
from helios.spark import read as reading
from helios.spark import write as writing
from helios.spark.checkpoint import Checkpoint, Identity, Lease
from helios.spark.ledger import Commit, Ledger, Record, java_class, java_message
from helios.spark.steps import refusal

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


@dataclass(frozen=True)
class Event:
    """Something that a run tells: `kind` is started, batch, skipped, idle, finished, stopped or failed."""

    pipeline: str
    kind: str
    batch: int | None = None
    rows: int = 0
    seconds: float = 0.0
    snapshot: int | None = None
    files: int = 0
    bytes: int = 0
    message: str = ""


class _Stopped(Exception):
    """Ends a batch that began after a stop was asked for."""


class PipelineRun:
    """One pipeline at work, in a thread of its own.

    Args:
        plan: What to run.
        spark: The session.
        once: Drain what is there now, then end.
        new_checkpoint: Start a new checkpoint at the position that the target remembers.
        tell: Called with every event, from the run's own threads.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        *,
        once: bool = False,
        new_checkpoint: bool = False,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.plan = plan
        self.spark = spark
        self.once = once
        self.new_checkpoint = new_checkpoint
        self.error: BaseException | None = None
        self.state = "waiting"
        self.rows = 0
        self.batches = 0
        self.last: Commit | None = None
        self._tell = tell
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None
        self._query: Any = None

    # the handle

    def start(self) -> PipelineRun:
        self._thread = threading.Thread(target=self._run, name=f"helios-{self.plan.pipeline}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Asks the run to end after the batch at work; returns at once."""
        self._stop.set()

    @property
    def active(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for the run's end.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether the run has ended.

        Raises:
            HeliosError: The run failed.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        if self.error is not None:
            raise self.error
        return True

    def status(self) -> dict[str, Any]:
        """Where the run stands, as JSON values."""
        return {
            "pipeline": self.plan.pipeline,
            "target": self.plan.write.table.text,
            "state": self.state,
            "batches": self.batches,
            "rows": self.rows,
            "snapshot": self.last.snapshot if self.last else None,
            "error": str(self.error) if self.error else None,
        }

    # the run

    def _run(self) -> None:
        self.state = "starting"
        lease: Lease | None = None
        try:
            with tempfile.TemporaryDirectory(prefix="helios-") as folder:
                attempt = Attempt(self, self.plan.checkpoint or folder)
                df = attempt.declare()
                attempt.identify(df)
                lease = attempt.lease
                self.state = "running"
                self._say("started")
                attempt.run(df)
            self.state = "stopped" if self._stop.is_set() and not self.once else "finished"
            self._say(self.state)
        except BaseException as error:
            self.error = plain(error, self.plan)
            self.state = "failed"
            self._say("failed", message=str(self.error))
        finally:
            if lease is not None:
                lease.release()

    def _say(self, kind: str, **details: Any) -> None:
        self._tell(Event(pipeline=self.plan.pipeline, kind=kind, **details))

    def follow(self, query: Any, watch: Callable[[], object], every: float) -> None:
        """Waits for a streaming query, and stops it between batches when asked to.

        Args:
            query: Spark's query.
            watch: Looks after the sources between batches, and raises when they cannot be followed any more.
            every: Seconds between two looks.
        """
        looked = time.monotonic()
        while not query.awaitTermination(1 if self._stop.is_set() else 0.2):
            if self._stop.is_set():
                with self._busy:
                    query.stop()
            elif time.monotonic() - looked > every:
                with self._busy:
                    try:
                        watch()
                    except HeliosError:
                        query.stop()
                        raise
                looked = time.monotonic()

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        """Runs a batch's work, counts it and tells of it."""
        if self._stop.is_set():
            raise _Stopped
        with self._busy:
            began = time.monotonic()
            commit = work()
            seconds = time.monotonic() - began
        if commit is not None and commit.again:
            self._say("skipped", batch=number, snapshot=commit.snapshot, seconds=seconds)
        elif commit is not None:
            self.batches += 1
            self.rows += commit.rows
            self.last = commit
            self._say(
                "batch",
                batch=number,
                rows=commit.rows,
                seconds=seconds,
                snapshot=commit.snapshot,
                files=commit.files,
                bytes=commit.bytes,
            )
        else:
            self._say("idle", batch=number, seconds=seconds)
        return commit

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()


class Attempt:
    """One start of a pipeline: its checkpoint, its target and its ledger, and the batches until it ends."""

    def __init__(self, run: PipelineRun, location: str) -> None:
        self.handle = run
        self.plan = run.plan
        self.spark = run.spark
        self.checkpoint = Checkpoint(run.spark, location)
        self.followed = [read for read in self.plan.reads if read.source.streaming]
        self.path = self.plan.path
        self.planned = -1
        self.lease: Lease
        self.ledger: Ledger
        self.table: Any

    # before anything is written

    def declare(self) -> DataFrame:
        """Builds the DataFrame of the whole pipeline, which Spark analyzes, and settles the read path.

        Raises:
            InputError: Spark refuses an expression, or the plan as a stream.
        """
        if self.path is ReadPath.BATCH:
            return reading.build(self.plan, lambda _, read: reading.read_batch(self.spark, read))
        max_rows = self.plan.write.max_rows
        df = reading.build(
            self.plan,
            lambda _, read: (
                reading.read_stream(self.spark, read, max_rows=max_rows)
                if read.source.streaming
                else reading.read_batch(self.spark, read)
            ),
        )
        if not df.isStreaming:
            raise InputError(
                "a callable turned the stream into a batch DataFrame.",
                where=self.plan.origin,
                fix="return a DataFrame made from the one that was passed in.",
            )
        self._refuse_unsupported(df)
        if self.path is not ReadPath.STREAM and keeps_state(df):
            self.path = ReadPath.STREAM
        return df

    def _refuse_unsupported(self, df: DataFrame) -> None:
        jvm: Any = self.spark._jvm
        plan = df._jdf.queryExecution().analyzed()
        mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        try:
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except AnalysisException as error:
            fix = 'append behind a watermark: watermark("ts", "10 minutes") and window("ts", ...).'
            refused = refusal("Spark cannot stream this pipeline", error, self.plan.origin)
            refused.fix = fix if "watermark" in refused.what else None
            raise refused from error

    def identify(self, df: DataFrame) -> None:
        """Matches the checkpoint, the pipeline and the target, and claims what is new.

        Raises:
            CheckpointError: They do not belong together.
            LeaseError: Another driver is alive on the checkpoint.
        """
        plan = self.plan
        if self.handle.new_checkpoint:
            self._refuse_new_checkpoint()
            existing = None
        else:
            existing = self.checkpoint.identity()
        table = writing.load_table(self.spark, plan.write.table)
        if existing is not None:
            self._compare(existing, table)
        elif table is not None and not self.handle.new_checkpoint:
            self._refuse_lost_checkpoint(table)
        self.checkpoint.verify()
        if table is not None:  # a batch that does not fit is refused before anything is touched
            writing.align(df, plan.write, writing.target_schema(self.spark, table), plan.declared.sink.origin)
        elif not plan.write.creates:
            raise InputError(f"table {plan.write.table.text} does not exist.", where=plan.declared.sink.origin)
        self.lease = Lease(self.checkpoint)
        self.lease.acquire()
        try:
            self._claim(existing, table, df)
        except BaseException:
            self.lease.release()
            raise

    def _refuse_new_checkpoint(self) -> None:
        if self.path is ReadPath.STREAM or any(not isinstance(r.source, IcebergSource) for r in self.followed):
            raise InputError(
                f"--new-checkpoint cannot resume {self.plan.pipeline}: only a stateless pipeline over Iceberg sources "
                "can begin at the position that its target remembers.",
                where=self.plan.origin,
                fix="restore the checkpoint from a backup, or run under a new name into a new target.",
            )

    def _compare(self, existing: Identity, table: Any | None) -> None:
        plan, location = self.plan, self.checkpoint.location
        if existing.pipeline not in (plan.pipeline, plan.was):
            raise CheckpointError(
                f"the checkpoint {location} belongs to pipeline {existing.pipeline!r}, not to {plan.pipeline!r}.",
                where=plan.declared.sink.origin,
                fix=f'give each pipeline its own .checkpoint(...); for a renamed one write .named("{plan.pipeline}", '
                f'was="{existing.pipeline}").',
            )
        uuid_now = str(table.uuid()) if table is not None else None
        if existing.target_uuid and uuid_now != existing.target_uuid:
            became = "is gone" if table is None else "was replaced by another table"
            raise CheckpointError(
                f"the target {existing.target} {became} since the checkpoint {location} was made.",
                where=plan.declared.sink.origin,
                fix="restore the table, or delete the checkpoint folder to fill a new table from the beginning.",
            )
        sources = tuple(read.name for read in self.followed)
        if existing.sources != sources:
            raise CheckpointError(
                f"the checkpoint {location} follows {', '.join(existing.sources) or 'nothing'}; the pipeline now "
                f"follows {', '.join(sources) or 'nothing'}.",
                where=plan.origin,
                fix="put the sources back, or give the pipeline a new name and a new target.",
            )
        if existing.state != self._state():
            raise CheckpointError(
                f"the state in the checkpoint {location} was built by "
                f"{'; '.join(existing.state) or 'no stateful step'}; the pipeline now has "
                f"{'; '.join(self._state()) or 'no stateful step'}.",
                where=plan.origin,
                fix="put the steps back, or give the pipeline a new name and a new target.",
            )

    def _state(self) -> tuple[str, ...]:
        return replace(self.plan, path=self.path).state

    def _refuse_lost_checkpoint(self, table: Any) -> None:
        plan = self.plan
        record = Ledger(table, plan.pipeline, "", "").load()
        if record is not None and record.batch >= 0:
            raise CheckpointError(
                f"{plan.write.table.text} holds batch {record.batch} of {plan.pipeline}, but its checkpoint "
                f"{self.checkpoint.location} is lost.",
                where=plan.declared.sink.origin,
                fix="restore the checkpoint, or resume at the target's position with `helios run --new-checkpoint`.",
            )

    def _claim(self, existing: Identity | None, table: Any | None, df: DataFrame) -> None:
        plan = self.plan
        identity = existing or Identity(
            id=uuid.uuid4().hex,
            pipeline=plan.pipeline,
            target=plan.write.table.text,
            target_uuid="",
            sources=tuple(read.name for read in self.followed),
            state=self._state(),
        )
        old = Ledger(table, plan.pipeline, identity.id, "").load() if table is not None else None
        if existing is None:
            if self.handle.new_checkpoint:
                self._begin_anew(old)
            # Before the target knows the checkpoint: a driver that dies between the two goes on with the same id.
            self.checkpoint.create(identity)
        # A new checkpoint keeps what the old one read, by which a batch pipeline knows identical inputs.
        claim = Record(
            checkpoint=identity.id,
            position=old.position if old else None,
            steps=old.steps if old else plan.fingerprint,
        )
        if table is None:
            key = Ledger(None, plan.pipeline, identity.id, "").key
            table = writing.create_table(self.spark, plan.write, df.schema, {key: claim.as_json()})
        self.table = table
        self.ledger = Ledger(table, plan.pipeline, identity.id, plan.fingerprint)
        if plan.was is not None and identity.pipeline == plan.was:
            moved = Ledger(table, plan.was, identity.id, "").load()
            self.ledger.claim(moved or claim, forget=plan.was)
        elif not identity.target_uuid:
            record = self.ledger.load()
            if record is None or record.checkpoint != identity.id:
                self.ledger.claim(claim)
        if identity.pipeline != plan.pipeline or not identity.target_uuid:
            settled = replace(identity, pipeline=plan.pipeline, target_uuid=str(table.uuid()))
            self.checkpoint.create(settled)
        planned = self.checkpoint.batches("offsets")
        self.planned = planned[-1] if planned else -1

    def _begin_anew(self, old: Record | None) -> None:
        """Empties the checkpoint, and notes where the target says that the pipeline stood."""
        for name in ("offsets", "commits", "sources", "state", "metadata", "helios/start.json", "helios/pins"):
            self.checkpoint.files.delete(name)
        stood = {s["source"]: s for s in ((old.position or {}).get("sources") or [])} if old else {}
        if old is not None and old.position is not None and self.followed:
            start = [{"snapshot": stood[r.name]["to"], "state": False} for r in self.followed]
            self.checkpoint.write_start(start)

    # running

    def run(self, df: DataFrame) -> None:
        RUNNERS[self.path](self, df)

    def once_over(self, df: DataFrame) -> None:
        """A batch pipeline: one batch, told from the last run by what its sources give."""
        plan = self.plan
        record = self.ledger.load()
        sources = [reading.batch_position(self.spark, read) for read in plan.reads]
        position = {"sources": sources, "steps": plan.fingerprint}
        if record is not None:
            self.ledger.refuse_rollback(record)
            if reading_same(record, sources):
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
        pins = {str(i): s.get("snapshot") for i, s in enumerate(sources)}
        batch_df = reading.build(plan, lambda index, read: reading.read_batch(self.spark, read, pins.get(str(index))))
        self.handle.batch(number, lambda: self._write(batch_df, number, position, planned=True))

    def in_ranges(self, df: DataFrame) -> None:
        """A stateless pipeline over Iceberg: the stream tells which snapshots, the batch reads them."""
        starts = self._starts()

        def rows(spark: SparkSession, number: int) -> tuple[DataFrame | None, dict[str, Any]]:
            spans = self._spans(number, starts)
            pins = self._pins(spark, number)
            changed = False

            def of(index: int, read: ReadPlan) -> DataFrame:
                nonlocal changed
                if not read.source.streaming:
                    return reading.read_batch(spark, read, pins.get(str(index)))
                part = reading.read_range(spark, read, spans[index])
                changed = changed or part is not None
                return part if part is not None else reading.read_batch(spark, read).limit(0)

            built = reading.build(self.plan, of)
            position = {"sources": self._span_json(spans), "pins": pins}
            return (built if changed else None), position

        if self.handle.once and not self._anything_new(starts):
            return
        self._seed(starts)
        while True:
            ticker = reading.read_ticker(self.spark, self.followed)
            try:
                self._stream(
                    ticker, lambda tick, number: rows(tick.sparkSession, number), lambda: self._anything_new(starts)
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
        stream = reading.read_stream(self.spark, source, max_rows=self.plan.write.max_rows)

        def rows(raw: DataFrame, number: int) -> tuple[DataFrame, dict[str, Any]]:
            pins = self._pins(raw.sparkSession, number)
            built = reading.build(
                self.plan,
                lambda index, read: (
                    raw if read.source.streaming else reading.read_batch(raw.sparkSession, read, pins.get(str(index)))
                ),
            )
            return built, {"sources": self._offset_json(number), "pins": pins}

        self._stream(stream, rows)

    def in_state(self, df: DataFrame) -> None:
        """Spark runs the whole pipeline as a stream; what it emits is written."""
        for read in self.followed:
            self._refuse_partial(read)
        self._stream(df, lambda raw, number: (raw, {"sources": self._offset_json(number)}))

    def _stream(
        self,
        df: DataFrame,
        rows: Callable[[DataFrame, int], tuple[DataFrame | None, dict[str, Any]]],
        watch: Callable[[], object] = lambda: None,
    ) -> None:
        plan, handle = self.plan, self.handle

        def on_batch(raw: DataFrame, number: int) -> None:
            def work() -> Commit | None:
                self.lease.verify()
                built, position = rows(raw, number)
                if built is None:
                    return None
                commit = self._write(built, number, position, planned=number <= self.planned)
                if commit is not None and commit.again and self.path is ReadPath.STREAM:
                    # The rows are there already, but Spark's state of this batch is built by running it.
                    raw.write.format("noop").mode("overwrite").save()
                return commit

            try:
                handle.batch(number, work)
            except BaseException as error:
                handle.error = error
                raise

        writer = df.writeStream.foreachBatch(on_batch).option("checkpointLocation", self.checkpoint.location)
        assert plan.trigger is not None
        writer = (
            writer.trigger(availableNow=True)
            if handle.once
            else writer.trigger(processingTime=f"{round(plan.trigger.every * 1000)} milliseconds")
        )
        try:
            handle.follow(writer.start(), watch, plan.trigger.every)
        except StreamingQueryException as error:
            if isinstance(handle.error, _Stopped):
                handle.error = None
                return
            raise handle.error or engine_failure(error, plan) from error

    def _write(self, df: DataFrame, number: int, position: dict[str, Any], *, planned: bool) -> Commit | None:
        found = self.ledger.find(number, position, planned=planned)
        if found is not None:
            return found
        target = writing.target_schema(self.spark, self.table)
        batch = writing.align(df, self.plan.write, target, self.plan.declared.sink.origin)
        staged = writing.stage(batch, self.table, self.plan.write.table)
        if not staged.files:
            return None
        commit = self.ledger.commit(
            staged.files,
            number,
            position,
            dict(self.plan.write.stamps),
            [{"kind": r.kind, "name": r.name, "uuid": r.uuid} for r in self.plan.reads],
            before=self.lease.verify,
        )
        if commit.again:
            staged.discard()
        return commit

    # positions

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
        pending = [
            reading.has_news(self.spark, read, start, offset)
            for read, start, offset in zip(self.followed, starts, stood, strict=True)
        ]
        return any(pending)

    def _spans(self, number: int, starts: list[dict[str, Any]]) -> dict[int, reading.Range]:
        ends = self.checkpoint.offsets(number)
        before = self.checkpoint.offsets(number - 1) if number > 0 else [None] * len(ends)
        indexes = [i for i, read in enumerate(self.plan.reads) if read.source.streaming]
        return {
            index: reading.range_of(reading.source_table(self.spark, self.plan.reads[index]), start, old, new)
            for index, start, old, new in zip(indexes, starts, before, ends, strict=True)
        }

    def _span_json(self, spans: dict[int, reading.Range]) -> list[dict[str, Any]]:
        return [{"source": self.plan.reads[index].name, **span.as_json()} for index, span in spans.items()]

    def _offset_json(self, number: int) -> list[dict[str, Any]]:
        ends = self.checkpoint.offsets(number)
        return [{"source": read.name, "to": end} for read, end in zip(self.followed, ends, strict=True)]

    def _pins(self, spark: SparkSession, number: int) -> dict[str, Any]:
        """The snapshots of the joined tables that a batch reads, the same again when it is replayed."""
        still = {i: r for i, r in enumerate(self.plan.reads) if r.table is not None and not r.source.streaming}
        if not still:
            return {}
        pinned = self.checkpoint.pins(number)
        if pinned is None:
            pinned = {str(i): reading.batch_position(spark, read)["snapshot"] for i, read in still.items()}
            self.checkpoint.pin(number, pinned)
        return pinned

    def _refuse_partial(self, read: ReadPlan) -> None:
        if read.table is not None and self.planned < 0:
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


def plain(error: BaseException, plan: Plan) -> BaseException:
    """An error as the user should read it."""
    if isinstance(error, HeliosError):
        return error
    if isinstance(error, AnalysisException):
        return refusal(plan.pipeline, error, plan.origin)
    if isinstance(error, Py4JJavaError):
        wrapped: BaseException = RunError(f"{plan.pipeline}: {java_class(error)}: {java_message(error)}")
    elif isinstance(error, (PySparkException, OSError)):
        wrapped = RunError(f"{plan.pipeline}: {first_line(error)}")
    elif isinstance(error, Exception):
        wrapped = RunError(f"{plan.pipeline}: {type(error).__name__}: {first_line(error)}")
    else:
        return error
    wrapped.__cause__ = error
    return wrapped


def engine_failure(error: StreamingQueryException, plan: Plan) -> RunError:
    """A failure of Spark's own, outside the batches: its deepest cause in one line."""
    text = str(error)
    causes = [line.removeprefix("Caused by:").strip() for line in text.splitlines() if line.startswith("Caused by:")]
    return RunError(f"{plan.pipeline}: {(causes or [first_line(error)])[-1]}", where=plan.origin)


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


RUNNERS: dict[ReadPath, Callable[[Attempt, DataFrame], None]] = {
    ReadPath.BATCH: Attempt.once_over,
    ReadPath.RANGES: Attempt.in_ranges,
    ReadPath.MICRO_BATCHES: Attempt.in_micro_batches,
    ReadPath.STREAM: Attempt.in_state,
}
