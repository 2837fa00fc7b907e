"""The run of one pipeline in its own thread: the handle, its events, and restarts after outages."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from helios.catalog.operations import forget_all
from helios.errors import RunError
from helios.metrics.metrics import Metrics
from helios.model import html
from helios.plan.nodes import Plan
from helios.sources.common.spark.protocol import ReplanNeeded
from helios.sources.kinds import source_kind
from helios.spark.iceberg.failures import expired_token_message, outage_reason, user_error
from helios.spark.iceberg.scan_metrics import ScanMetrics
from helios.spark.jvm.proxies import free_with_last_reference
from helios.spark.maintenance.upkeep import MaintenanceResult
from helios.spark.run.backoff import Outage, unavailable_service
from helios.spark.run.events import Event
from helios.spark.run.failover import ReplicaChoice
from helios.spark.run.job import Stopped, StreamingQuery
from helios.spark.run.query import PipelineQuery
from helios.spark.run.remaining import known_sum, unread_data
from helios.spark.run.summaries import summary
from helios.spark.session.executors import EXECUTOR_WAIT, Executors
from helios.spark.sinks.options import Commit
from helios.table.positions import Lag


class PipelineRun:
    """The run of one pipeline, in its own thread.

    Args:
        plan: The pipeline.
        spark: The session.
        once: Whether the run processes the data that is there at the start, and then ends.
        new_checkpoint: Whether the run starts a new checkpoint at the position in the target's record.
        full_refresh: Whether the run empties the target in one snapshot, and refills it from the start.
        again: Whether the run appends the inputs of a batch pipeline even if they were appended before.
        beside: Pipelines whose rows of the same sources may be in the target, too.
        siblings: The pipelines of the script, whose rows may be in the target, too. Each name has its plan if the
            same run starts it, and None otherwise.
        emit: Called with every event, from the run's own threads.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        *,
        once: bool = False,
        new_checkpoint: bool = False,
        full_refresh: bool = False,
        again: bool = False,
        beside: Collection[str] = (),
        siblings: Mapping[str, Plan | None] = MappingProxyType({}),
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.plan = plan
        self.spark = spark
        self.once = once
        self.new_checkpoint = new_checkpoint
        self.full_refresh = full_refresh
        self._again = again
        self._beside, self._siblings = beside, siblings
        self.error: BaseException | None = None
        self.state = "waiting"
        self.rows = self.rejected_rows = 0
        self.batches = 0
        self.last: Commit | None = None
        self._emit = emit
        self._stop = threading.Event()
        self._batch_lock = threading.Lock()
        self._replica_choice = ReplicaChoice(plan, spark)
        self._outage = Outage(plan.write.sink.retry_policy.outage)
        self._served = False  # whether the services have answered since the start
        self._postponed = False  # whether the commit of a batch is postponed until a service answers
        self._last_waiting = ""
        self._noted: set[str] = set()
        self._late = self._rejected = 0  # rows of the current batch
        self._begun: int | None = None  # the last batch that was begun
        self._late_counted: int | None = None  # the last batch whose late rows are counted
        self._lags: dict[int, Lag] = {}
        self._store_freshness: Callable[[], None] = lambda: None
        self._left: Sequence[str] = ()
        self._thread: threading.Thread | None = None
        self._metrics = Metrics(plan.pipeline, plan.write.table.text)

    def start(self) -> PipelineRun:
        free_with_last_reference()
        self._thread = threading.Thread(target=self._run, name=f"helios-{self.plan.pipeline}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Requests the end of the run after the current batch; returns at once."""
        self._stop.set()

    @property
    def active(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the run's end, at most `timeout` seconds; returns True if the run has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.active

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for the run's end.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether the run has ended.

        Raises:
            HeliosError: The run failed.
        """
        if not self.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def status(self) -> dict[str, Any]:
        """The current state of the run, as JSON values."""
        return {
            "pipeline": self.plan.pipeline,
            "target": self.plan.write.table.text,
            "state": self.state,
            "batches": self.batches,
            "rows": self.rows,
            "rejected": self.rejected_rows,
            "left": list(self._left),
            "snapshot": self.last.snapshot if self.last else None,
            "error": str(self.error) if self.error else None,
        }

    def _repr_html_(self) -> str:
        return html.name_value_table(self.plan.pipeline, self.status())

    def metrics(self) -> Metrics:
        """The run's figures, live: see `helios.metrics.metrics.Metrics`."""
        return self._metrics

    def _run(self) -> None:
        self.state = "starting"
        self._metrics.started()
        try:
            with tempfile.TemporaryDirectory(prefix="helios-") as folder, self._companions():
                self._run_with_restarts(self.plan.checkpoint or folder)
            self._end("stopped" if self._stop.is_set() else "finished")
        except Stopped:
            self.error = None
            self._end("stopped")
        except BaseException as error:
            self.error = user_error(error, self.plan)
            self.state = "failed"
            self._event("failed", message=str(self.error))
        finally:
            self._metrics.ended()

    @contextmanager
    def _companions(self) -> Generator[None, None, None]:
        """Runs the companions of followed sources, such as receivers of webhooks, even during outages."""
        with ExitStack() as stack:
            for read in self.plan.reads:
                companion = source_kind(read.source).companion
                if companion is not None and not self.once:
                    for url in stack.enter_context(resolve_name(companion)([read.source], self.noted)):
                        self.noted(f"receiving {url}")
            yield

    def _run_with_restarts(self, location: str) -> None:
        """Starts the pipeline, and restarts it on the next replica in an outage, or to plan a batch again."""
        replanned_error = ""
        while True:
            try:
                self._run_attempt(location)
                return
            except ReplanNeeded as error:
                if error.what == replanned_error:  # the same error again: a part of the batch is committed
                    raise RunError(error.what, where=error.where, fix=error.fix) from error
                replanned_error = error.what
                self.new_checkpoint = self.full_refresh = False
                self.noted(f"{error.what} The batch is planned again.")
                if self._stop.is_set():
                    raise Stopped from error
            except Exception as error:
                reason = outage_reason(error)
                if reason is None and self._served and self._replica_choice.requests_tokens:
                    # After an outage of the token server; a new session gets a new token.
                    reason = expired_token_message(error)
                if reason is None:
                    raise
                if self.state == "running":
                    # The first start has already made the new checkpoint or the full refresh.
                    self.new_checkpoint = self.full_refresh = False
                self.state = "away"
                outage, where = self._outage, unavailable_service(reason, self.plan)
                pause = outage.pause(len(self._replica_choice))
                if pause is None:
                    if self._postponed:
                        self._metrics.failed()
                    raise outage.limit_error(self.plan, where, reason) from error
                self._replica_choice.switch()
                self._report_waiting(pause, outage.message(where, reason, self._replica_choice))
                if self._stop.wait(pause):
                    raise Stopped from error

    def _report_waiting(self, pause: float, line: str) -> None:
        """Emits a `waiting` event, unless the last one had the same message."""
        if line != self._last_waiting:
            self._last_waiting = line
            self._event("waiting", seconds=pause, message=line)

    def _run_attempt(self, location: str) -> None:
        self.plan, self.spark = self._replica_choice.plan, self._replica_choice.spark
        wait = partial(self._report_waiting, EXECUTOR_WAIT)
        self._executors = Executors(self.spark, self.plan, location, wait, self._stop.is_set)
        self._executors.verify()
        if self._stop.is_set():
            raise Stopped
        self._lags.clear()
        query = PipelineQuery(self.plan, self.spark, self, location)
        self._store_freshness = partial(self._replica_choice.store_freshness, query.checkpoint.files)
        self._replica_choice.restore_freshness(query.checkpoint.files)
        df = query.declare(refills=self.full_refresh)
        options = {"new_checkpoint": self.new_checkpoint, "full_refresh": self.full_refresh, "again": self._again}
        job = query.validate(df, beside=self._beside, siblings=self._siblings, **options)
        try:
            self.state = "running"
            self._event("started")
            query.execute(job, df)
            self._services_answered()
        finally:
            job.lease.release()

    def _services_answered(self) -> None:
        """Notes that the services answer: an outage ends when a batch or a source check has succeeded."""
        seconds = self._outage.end()
        self._served, self._postponed, self._last_waiting = True, False, ""
        if seconds is not None:
            self.state = "running"
            self._event("resumed", seconds=seconds, message=f"reachable again after {seconds:.0f} s")

    def _end(self, state: str) -> None:
        self.state = state
        if state == "stopped" and not self._left:
            self._left = unread_data(self._lags.values())
        self._event(state, message="; ".join(self._left))

    def _event(self, kind: str, **details: Any) -> None:
        self._emit(Event(pipeline=self.plan.pipeline, kind=kind, **details))

    def follow(self, query: StreamingQuery) -> None:
        """Waits for a streaming query, and stops it between batches on request."""
        while not query.awaitTermination(1 if self._stop.is_set() else 0.2):  # short, to notice a stop request soon
            # Progress means that a check of the sources has succeeded.
            if (self._outage.ongoing or not self._served) and query.lastProgress is not None:
                self._services_answered()
            if self._stop.is_set():
                with self._batch_lock:
                    pass  # the current batch has ended; the next one raises Stopped
                query.stop()

    def retried(self) -> None:
        """Counts a commit retry."""
        self._metrics.retried()

    def rejected(self, rows: int) -> None:
        """Counts rows that were kept out of the target."""
        if rows:
            self._rejected += rows
            self.rejected_rows += rows
            self._metrics.records_rejected(rows)

    def commit_failed(self) -> None:
        """Counts a commit that failed for good."""
        self._metrics.failed()

    def commit_postponed(self) -> None:
        """Counts a commit that failed because a service is unavailable, and that will be retried."""
        self._postponed = True
        self._metrics.retried()

    def maintained(self, done: MaintenanceResult) -> None:
        """Emits the event of maintenance between two batches."""
        message = f"{done.kind} failed: {done.problem}" if done.problem else summary(done)
        self._event("maintained", seconds=done.seconds, message=message)

    def noted(self, message: str) -> None:
        """Emits a message, once in a run."""
        if message not in self._noted:
            self._noted.add(message)
            self._event("noted", message=message)

    def data_left(self, texts: Sequence[str]) -> None:
        """Stores the texts that name the data that is left for a later run; the last event shows them."""
        self._left = texts

    def late(self, rows: int) -> None:
        """Stores the number of rows that a watermark dropped from the current batch; they are counted at its end."""
        self._late = rows

    def _count_late(self, number: int, commit: Commit | None, *, first_attempt: bool) -> int:
        """Counts the late rows of a batch once; returns 0 if this or an earlier process has counted them."""
        if number == self._late_counted or (first_attempt and commit is not None and commit.already_committed):
            return 0
        self._late_counted = number
        self._metrics.records_dropped_late(self._late)
        return self._late

    def lagging(self, source: int, lag: Lag) -> None:
        """Updates the lag over all sources."""
        self._lags[source] = lag
        lags = self._lags.values()
        self._metrics.lag(
            snapshots=sum(lag.snapshots for lag in lags),
            seconds=max(lag.seconds for lag in lags),
            files=known_sum(lag.files for lag in lags),
            bytes=known_sum(lag.bytes for lag in lags),
            records=known_sum(lag.records for lag in lags),
        )

    def files_gone(self, paths: Sequence[str]) -> None:
        """Counts planned files that are gone, and emits an event that names them."""
        self._metrics.gone(len(paths))
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else "")
        message = f'planned files are gone and left out (.on_missing("skip")): {shown}'
        self._event("noted", files=len(paths), message=message)

    def scanned(self, metrics: ScanMetrics) -> None:
        """Counts the files and partitions that a batch read and skipped."""
        matched, skipped = metrics.partitions()
        self._metrics.scanned(
            matched=metrics.matched,
            skipped=metrics.skipped,
            bytes=metrics.bytes,
            partitions_matched=matched,
            partitions_skipped=skipped,
        )

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        """Runs the work of a batch, counts it and emits its event."""
        with self._batch_lock:
            if self._stop.is_set():
                raise Stopped
            self._executors.verify()
            began = time.monotonic()
            self._store_freshness()
            self._late = self._rejected = 0
            is_first, self._begun = number != self._begun, number
            commit = work()
            kept_out = {"late": self._count_late(number, commit, first_attempt=is_first), "rejected": self._rejected}
            self._store_freshness()
            seconds = time.monotonic() - began
        self._services_answered()
        forget_all(self.plan.write.table.catalog)
        if commit is not None and commit.already_committed:
            details = {"message": commit.note, **kept_out}
            self._event("skipped", batch=number, snapshot=commit.snapshot, seconds=seconds, **details)
        elif commit is not None:
            self.batches += 1
            self.rows += commit.rows
            self.last = commit
            self._metrics.flushed(seconds=commit.write_seconds)
            self._metrics.committed(
                records=commit.rows, bytes=commit.bytes, files=commit.files, seconds=commit.commit_seconds
            )
            self._event(
                "batch",
                batch=number,
                rows=commit.rows,
                seconds=seconds,
                snapshot=commit.snapshot,
                files=commit.files,
                bytes=commit.bytes,
                message=commit.note,
                write_seconds=commit.write_seconds,
                commit_seconds=commit.commit_seconds,
                **kept_out,
            )
        else:
            self._event("idle", batch=number, seconds=seconds, **kept_out)
        return commit
