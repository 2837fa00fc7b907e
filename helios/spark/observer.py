"""The observer of a run, to which sources, sinks and schedulers report what happens to batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from helios.table.positions import Lag

if TYPE_CHECKING:
    from helios.spark.iceberg.scan_metrics import ScanMetrics
    from helios.spark.maintenance.upkeep import MaintenanceResult


class Observer(Protocol):
    """The calls by which a run is observed. Each docstring says what has happened."""

    def retried(self) -> None:
        """A commit is about to be tried again."""

    def rejected(self, rows: int) -> None:
        """Rows were kept out of the target."""

    def commit_failed(self) -> None:
        """A commit failed for good."""

    def commit_postponed(self) -> None:
        """A commit failed because a service is unavailable; it will be tried again."""

    def lagging(self, source: int, lag: Lag) -> None:
        """The lag behind a followed source was measured; `source` is its number in the plan."""

    def files_gone(self, paths: Sequence[str]) -> None:
        """Files that a batch planned to read are gone, and the batch continues without them."""

    def scanned(self, metrics: ScanMetrics) -> None:
        """A batch has read its sources."""

    def maintained(self, done: MaintenanceResult) -> None:
        """A table was maintained between two batches."""

    def late(self, rows: int) -> None:
        """A watermark dropped late rows of a batch."""

    def noted(self, message: str) -> None:
        """A message is to be shown to the user once."""

    def data_left(self, texts: Sequence[str]) -> None:
        """A run has read its sources to their end; the texts name the data that is left for a later run."""


class SilentObserver:
    """An observer that does nothing."""

    def retried(self) -> None:
        return None

    def rejected(self, rows: int) -> None:
        return None

    def commit_failed(self) -> None:
        return None

    def commit_postponed(self) -> None:
        return None

    def lagging(self, source: int, lag: Lag) -> None:
        return None

    def files_gone(self, paths: Sequence[str]) -> None:
        return None

    def scanned(self, metrics: ScanMetrics) -> None:
        return None

    def maintained(self, done: MaintenanceResult) -> None:
        return None

    def late(self, rows: int) -> None:
        return None

    def noted(self, message: str) -> None:
        return None

    def data_left(self, texts: Sequence[str]) -> None:
        return None
