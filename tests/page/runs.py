"""Runs for the page, without a JVM: their figures and events are those that a real run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helios.metrics.metrics import Metrics
from helios.spark.run.events import Event
from helios.ui.live import LiveRun


@dataclass
class Run:
    """The handle of a pipeline, as far as the page looks at it."""

    name: str
    table: str
    state: str = "running"
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.figures = Metrics(self.name, self.table)
        self.figures.started()
        self.batches = 0

    def metrics(self) -> Metrics:
        return self.figures

    def status(self) -> dict[str, Any]:
        return {"pipeline": self.name, "target": self.table, "state": self.state, "left": []}

    def commit(self, facts: LiveRun, *, snapshot: int = 1, rows: int = 100, rejected: int = 0) -> None:
        """Counts and tells a committed batch, as `PipelineRun.batch` does."""
        number, self.batches = self.batches, self.batches + 1
        self.figures.flushed(seconds=0.4)
        self.figures.committed(records=rows, bytes=rows * 40, files=2, seconds=0.2)
        self.figures.records_rejected(rejected)
        facts.emit(
            Event(
                self.name, "batch", number, rows, 1.0, snapshot, 2, rows * 40,
                rejected=rejected, write_seconds=0.4, commit_seconds=0.2,
            )
        )  # fmt: skip
