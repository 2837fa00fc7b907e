"""The facts of a run: figures, events and tables of the pipelines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from helios.errors import HeliosError
from helios.metrics.metrics import Metrics
from helios.metrics.prometheus import exposition
from helios.ui.facts import Backlog, Json, PipelineFacts, Problem, TimelineEntry
from helios.ui.feed import Feed
from helios.ui.lake import LakeReader
from helios.ui.series import POINT_SECONDS, Series

OPEN_PAGE_SECONDS = 2.0
"""The seconds between two samples of the figures while a page is open."""
AFTER_EVENT_SECONDS = 0.25
"""The maximum seconds from an event of a pipeline to the next sample of the pipeline's figures."""
TIMELINE_KINDS = ("batch", "skipped", "maintained", "waiting", "resumed", "failed")
"""The kinds of events that the timeline shows."""
ENDED_STATES = ("finished", "stopped", "failed")


class Event(Protocol):
    """The attributes of `helios.spark.run.events.Event` that the page needs."""

    @property
    def pipeline(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def write_seconds(self) -> float: ...
    @property
    def commit_seconds(self) -> float: ...
    @property
    def snapshot(self) -> int | None: ...
    @property
    def files(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def message(self) -> str: ...


class Run(Protocol):
    """The part of a `PipelineRun` that the page needs."""

    error: BaseException | None

    def metrics(self) -> Metrics: ...

    def status(self) -> dict[str, Any]: ...


class LiveRun:
    """The facts of a run.

    Args:
        runs: The run of each pipeline; runs may be added later.
        token: The token that a page must send to stop the run, and to see rejected rows.
    """

    def __init__(self, runs: Collection[Run], *, token: str, title: str) -> None:
        self.token = token
        self._runs, self._title = runs, title
        self._began = time.time()
        self._feed = Feed()
        self._series: dict[str, Series] = {}
        self._messages: dict[str, tuple[str, str]] = {}
        self._last: dict[str, Event] = {}
        self._times: dict[str, float] = {}
        self._changed: set[str] = set()
        self._graph: Json = None
        self._maintenance: Mapping[str, str] = {}
        self._refused: Sequence[PipelineFacts] = ()
        self._lake: LakeReader | None = None
        self._stop: Callable[[], None] | None = None
        self._state = "starting"
        self._pages = 0
        self._lock = threading.Lock()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._sample, name="helios-ui", daemon=True)
        self._thread.start()

    # called by the run

    def mark_opened(
        self,
        graph: Json,
        lake: LakeReader,
        stop: Callable[[], None],
        *,
        maintenance: Mapping[str, str] = MappingProxyType({}),
        refused: Sequence[PipelineFacts] = (),
    ) -> None:
        """Is called when the run begins, after the pipelines are compiled.

        Args:
            stop: Asks the run to end after its running batches.
            maintenance: For each pipeline that declares maintenance, the maintenance as text.
            refused: Pipelines with problems, which do not run.
        """
        self._graph, self._maintenance, self._stop = graph, maintenance, stop
        self._refused = refused
        with self._lock:  # so that a page that opens meanwhile is counted once
            self._lake = lake
            lake.add_open_pages(self._pages)
        lake.start()
        self._state = "running"

    def emit(self, event: Event) -> None:
        """Receives an event of the run, from any of its threads."""
        name, now = event.pipeline, time.time()
        with self._lock:
            if event.kind in ("waiting", "noted", "failed", "resumed", "maintained"):
                self._messages[name] = event.kind, event.message
            elif event.kind == "batch" and self._messages.get(name, ("",))[0] == "waiting":
                del self._messages[name]
            if event.kind in ("batch", "skipped"):
                self._last[name], self._times[name] = event, now
            self._changed.add(name)
        if event.kind in TIMELINE_KINDS:
            self._feed.add([_timeline_entry(event, self._target(name), now)])
        self._wake.set()

    def mark_ended(self) -> None:
        """Is called when the run has ended. Open pages then receive the last facts."""
        self._state = "ended"
        self._add_samples([*self._runs])
        self._ended.set()
        self._wake.set()
        if self._lake is not None:
            self._lake.stop()

    # called by the page

    def items(self) -> Mapping[str, Json]:
        statuses = [in_table.status for in_table in self._lake.statuses()] if self._lake is not None else []
        audits = {status.pipeline: status.audit for status in statuses}
        tables = self._lake.tables() if self._lake is not None else []
        run = {
            "mode": "run",
            "title": self._title,
            "began": round(self._began * 1000),
            "state": self._state,
            "stops": self._stop is not None and self._state in ("running", "stopping"),
            "problems": self._lake.problems if self._lake is not None else (),
        }
        return {
            "run": run,
            "graph": self._graph,
            **{f"pipeline/{facts.name}": facts for facts in self._refused},
            **{f"pipeline/{facts.name}": facts for run in [*self._runs] for facts in [self._facts(run, audits)]},
            **{f"table/{facts.name}": facts for facts in tables},
        }

    def timeline(self, after: int) -> Sequence[TimelineEntry]:
        return self._feed.after(after)

    def add_open_pages(self, count: int) -> None:
        with self._lock:
            self._pages += count
            if self._lake is not None:
                self._lake.add_open_pages(count)
        self._wake.set()

    def series(self, pipeline: str) -> Json | None:
        series = self._series.get(pipeline)
        return series.as_json() if series is not None else None

    def commits(self, table: str, before: str | None, count: int) -> Json | None:
        return self._lake.commits(table, before, count) if self._lake is not None else None

    def batch(self, table: str, snapshot: str) -> Json | None:
        return self._lake.batch(table, snapshot) if self._lake is not None else None

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> Json | None:
        return self._lake.rejects(table, snapshot, samples=samples) if self._lake is not None else None

    def table(self, name: str) -> Json | None:
        return self._lake.table(name) if self._lake is not None else None

    def metrics(self) -> str | None:
        return exposition(run.metrics().snapshot() for run in [*self._runs])

    def stop(self) -> bool:
        if self._stop is None or self._state not in ("running", "stopping"):
            return False
        self._state = "stopping"
        self._stop()
        return True

    # implementation

    def _target(self, name: str) -> str:
        return next((run.status()["target"] for run in [*self._runs] if run.status()["pipeline"] == name), "")

    def _sample(self) -> None:
        """Samples the figures of all runs periodically, and the figures of one run soon after an event of the run."""
        due = 0.0
        while not self._ended.is_set():
            now = time.monotonic()
            every = OPEN_PAGE_SECONDS if self._pages else POINT_SECONDS
            with self._lock:
                changed, self._changed = self._changed, set()
            all_due = now >= due
            self._add_samples([run for run in [*self._runs] if all_due or run.status()["pipeline"] in changed])
            due = now + every if all_due else due
            self._ended.wait(AFTER_EVENT_SECONDS)
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()

    def _add_samples(self, runs: Sequence[Run]) -> None:
        for run in runs:
            figures = run.metrics().snapshot()
            self._series.setdefault(figures.pipeline, Series()).add(time.time(), figures)

    def _facts(self, run: Run, audits: Mapping[str, int | None]) -> PipelineFacts:
        status = run.status()
        name, state = status["pipeline"], status["state"]
        series, last = self._series.get(name), self._last.get(name)
        counts = series.figures.since_start if series is not None and series.figures is not None else None
        kind, message = self._messages.get(name, ("", ""))
        ended = state in ENDED_STATES
        behind: Backlog | None = series.behind() if series is not None and not ended else None
        return PipelineFacts(
            name=name,
            target=status["target"],
            state=state,
            batches=counts.commits_success if counts is not None else 0,
            rows=counts.records_written if counts is not None else 0,
            rejected=counts.records_failed if counts is not None else 0,
            late=counts.records_late if counts is not None else 0,
            rate=series.rate() if series is not None and not ended else None,
            batch=last.batch if last is not None else None,
            snapshot=str(last.snapshot) if last is not None and last.snapshot is not None else None,
            committed=round(self._times[name] * 1000) if name in self._times else None,
            behind=behind,
            problem=problem_of(run.error) if state == "failed" else None,
            message=message if kind != "failed" else "",
            audit=audits.get(name),
            notes=tuple(status["left"]),
            declared=self._maintenance.get(name),
        )


def problem_of(error: BaseException | None) -> Problem | None:
    """An error as the page shows it; None without an error."""
    if error is None:
        return None
    if isinstance(error, HeliosError):
        return Problem(what=error.what, where=str(error.where) if error.where else None, fix=error.fix, code=error.code)
    return Problem(what=f"{type(error).__name__}: {error}")


def _timeline_entry(event: Event, table: str, now: float) -> TimelineEntry:
    timed = event.kind in ("batch", "skipped", "maintained")
    return TimelineEntry(
        pipeline=event.pipeline,
        table=table,
        kind=event.kind,
        at=round(now * 1000),
        batch=event.batch,
        snapshot=str(event.snapshot) if event.snapshot is not None else None,
        seconds=round(event.seconds, 3) if timed else None,
        writing=round(event.write_seconds, 3) if event.kind == "batch" else None,
        committing=round(event.commit_seconds, 3) if event.kind == "batch" else None,
        rows=event.rows,
        files=event.files,
        bytes=event.bytes,
        rejected=event.rejected,
        late=event.late,
        message=event.message,
    )
