"""The events of a run while its batches are planned, written and committed: one observer for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from helios.table.positions import Lag

if TYPE_CHECKING:
    from helios.spark.iceberg.scan_metrics import ScanMetrics
    from helios.spark.maintenance.upkeep import Upkeep


class Observer(Protocol):
    """Hooks that sources, sinks and schedulers call; `Silent` leaves them all as they are."""

    def retried(self) -> None:
        """A commit is tried again."""

    def rejected(self, rows: int) -> None:
        """Rows were kept out of the target."""

    def commit_failed(self) -> None:
        """A commit failed for good."""

    def commit_postponed(self) -> None:
        """A commit failed because a service is unavailable; it will be tried again."""

    def lagging(self, source: int, lag: Lag) -> None:
        """A followed source was looked at.

        Args:
            source: Its number in the plan.
            lag: How far the pipeline is behind it.
        """

    def files_gone(self, paths: Sequence[str]) -> None:
        """Files that were planned for a batch are gone, and the batch goes on without them."""

    def scanned(self, metrics: ScanMetrics) -> None:
        """A batch has read its sources."""

    def maintained(self, done: Upkeep) -> None:
        """A table was maintained between two batches."""

    def late(self, rows: int) -> None:
        """A watermark dropped rows of a batch, as they came too late."""

    def noted(self, message: str) -> None:
        """Something that the user should know, once."""

    def left(self, told: Sequence[str]) -> None:
        """A run that reads its sources to their end is done, and leaves this for a later one."""


class Silent:
    """An observer that does nothing, for a driver that nobody watches."""

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

    def left(self, told: Sequence[str]) -> None:
        return None
