"""The observer of a run: all layers report to it while batches are planned, written and committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from helios.table.positions import Lag

if TYPE_CHECKING:
    from helios.spark.iceberg.scan_metrics import ScanMetrics
    from helios.spark.maintenance.upkeep import Upkeep


class Observer(Protocol):
    """Hooks that sources, sinks and schedulers call."""

    def retried(self) -> None:
        """A commit is tried again."""

    def rejected(self, rows: int) -> None:
        """Rows were kept out of the target."""

    def commit_failed(self) -> None:
        """A commit failed for good."""

    def commit_postponed(self) -> None:
        """A commit failed because a service is unavailable; it will be tried again."""

    def lagging(self, source: int, lag: Lag) -> None:
        """The lag behind a followed source was measured; `source` is its number in the plan."""

    def files_gone(self, paths: Sequence[str]) -> None:
        """Planned files of a batch are gone, and the batch continues without them."""

    def scanned(self, metrics: ScanMetrics) -> None:
        """A batch has read its sources."""

    def maintained(self, done: Upkeep) -> None:
        """A table was maintained between two batches."""

    def late(self, rows: int) -> None:
        """A watermark dropped late rows of a batch."""

    def noted(self, message: str) -> None:
        """There is a message for the user, to be shown once."""

    def left(self, texts: Sequence[str]) -> None:
        """A run has ended at the end of its sources; the texts name the data that is left for a later run."""


class Silent:
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

    def maintained(self, done: Upkeep) -> None:
        return None

    def late(self, rows: int) -> None:
        return None

    def noted(self, message: str) -> None:
        return None

    def left(self, texts: Sequence[str]) -> None:
        return None
