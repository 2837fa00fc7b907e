"""Running one pipeline in a thread of its own: the handle, its events and its end."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from helios.errors import HeliosError, RunError
from helios.plan.plan import Plan
from helios.spark.attempt import Attempt, Stopped, first_line
from helios.spark.checkpoint import Lease
from helios.spark.ledger import Commit, java_class, java_message
from helios.spark.steps import refusal


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


class PipelineRun:
    """One pipeline at work, in a thread of its own.

    Args:
        plan: What to run.
        spark: The session.
        once: Drain what is there now, then end.
        new_checkpoint: Start a new checkpoint at the position that the target remembers.
        full_refresh: Empty the target in one snapshot, and fill it from the beginning.
        tell: Called with every event, from the run's own threads.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        *,
        once: bool = False,
        new_checkpoint: bool = False,
        full_refresh: bool = False,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.plan = plan
        self.spark = spark
        self.once = once
        self.new_checkpoint = new_checkpoint
        self.full_refresh = full_refresh
        self.error: BaseException | None = None
        self.state = "waiting"
        self.rows = 0
        self.batches = 0
        self.last: Commit | None = None
        self._tell = tell
        self._stop = threading.Event()
        self._halted = False
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
                lease = attempt.claim(df).lease
                self.state = "running"
                self._say("started")
                attempt.run(df)
            self._end("stopped" if self._stop.is_set() else "finished")
        except Stopped:
            self.error = None
            self._end("stopped")
        except BaseException as error:
            self.error = plain(error, self.plan)
            self.state = "failed"
            self._say("failed", message=str(self.error))
        finally:
            if lease is not None:
                lease.release()

    def _end(self, state: str) -> None:
        self.state = state
        self._say(state)

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
                    pass  # the batch at work ends; one that waits here ends itself
                query.stop()
            elif time.monotonic() - looked > every:
                try:
                    with self._busy:
                        watch()
                except BaseException:
                    self._halted = True
                    query.stop()
                    raise
                looked = time.monotonic()

    def retried(self) -> None:
        """Counts a commit that is tried again."""

    def failed(self, rows: int) -> None:
        """Counts rows that were set aside."""

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        """Runs a batch's work, counts it and tells of it."""
        with self._busy:
            if self._stop.is_set() or self._halted:
                raise Stopped
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
