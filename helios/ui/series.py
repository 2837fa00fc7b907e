"""The metrics of the last hour of a pipeline, and the estimated time until the backlog is drained."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from helios.metrics.drain import Drain
from helios.ui.facts import Backlog

if TYPE_CHECKING:
    from helios.metrics.metrics import MetricsSnapshot

POINT_SECONDS, SPAN_SECONDS = 10.0, 3600.0
"""The seconds between two points of a plot, and the seconds that all points cover."""
RATE_SECONDS = 60.0
"""The seconds over which a rate is computed."""
FIELDS = ("at", "rows", "bytes", "writing", "committing", "behind", "rejected")
"""The values of a point: time, rows and bytes per second, mean milliseconds of writing and of commits, the age of the
oldest unread data in seconds, and rejected rows per second. An unknown value is null."""


class Series:
    """The points of one pipeline, and the latest figures. One thread adds figures, other threads read points."""

    def __init__(self) -> None:
        self.figures: MetricsSnapshot | None = None
        self._points: deque[tuple[float | None, ...]] = deque(maxlen=int(SPAN_SECONDS / POINT_SECONDS))
        self._last: tuple[float, MetricsSnapshot] | None = None
        self._rows: deque[tuple[float, int]] = deque()
        self._drain = Drain()
        self._lock = threading.Lock()

    def add(self, now: float, figures: MetricsSnapshot) -> None:
        """Adds the current figures; `now` is the time in seconds since 1970."""
        with self._lock:
            self.figures = figures
            _remember(self._rows, now, figures.since_start.records_written, RATE_SECONDS)
            amount = finest_count(figures.source_lag_records, figures.source_lag_files, figures.source_lag_snapshots)
            if amount is not None:
                self._drain.add(now, amount)
            if self._last is None:
                self._last = now, figures
            elif now - self._last[0] >= POINT_SECONDS:
                self._points.append(_point(*self._last, now, figures))
                self._last = now, figures

    def rate(self) -> float | None:
        """Written rows per second over the last minute; None before the second call of `add`."""
        with self._lock:
            if len(self._rows) < 2:
                return None
            (before, old), (now, new) = self._rows[0], self._rows[-1]
        return (new - old) / (now - before) if now > before else None

    def behind(self) -> Backlog | None:
        """The backlog, and the estimated time until it is drained; None while the backlog is unknown."""
        figures = self.figures
        if figures is None or figures.source_lag_seconds is None:
            return None
        drained, grows = self._drain.estimate()
        return Backlog(
            snapshots=figures.source_lag_snapshots,
            seconds=round(figures.source_lag_seconds, 1),
            files=figures.source_lag_files,
            bytes=figures.source_lag_bytes,
            records=figures.source_lag_records,
            drained=round(drained) if drained is not None else None,
            grows=grows,
        )

    def as_json(self) -> dict[str, Any]:
        """The values of all points, by the names in `FIELDS`."""
        with self._lock:
            points = list(self._points)
        return {name: [point[index] for point in points] for index, name in enumerate(FIELDS)}


def _remember(kept: deque[tuple[float, int]], now: float, value: int, seconds: float) -> None:
    """Adds a value. Of the values that are older than `seconds`, only the newest is kept."""
    kept.append((now, value))
    while len(kept) > 2 and kept[1][0] <= now - seconds:
        kept.popleft()


def finest_count(records: int | None, files: int | None, snapshots: int | None) -> int | None:
    """Returns the size of a backlog in records, else in files, else in snapshots; None if all are unknown."""
    return next((count for count in (records, files, snapshots) if count is not None), None)


def _point(before: float, earlier: MetricsSnapshot, now: float, figures: MetricsSnapshot) -> tuple[float | None, ...]:
    old, new, seconds = earlier.since_start, figures.since_start, now - before

    def mean(sum_: str, count: str) -> float | None:
        number = getattr(new, count) - getattr(old, count)
        return round((getattr(new, sum_) - getattr(old, sum_)) / number / 1000, 1) if number else None

    return (
        round(now * 1000),
        round((new.records_written - old.records_written) / seconds, 2),
        round((new.bytes_written - old.bytes_written) / seconds, 1),
        mean("write_latency_us", "batches_flushed"),
        mean("commit_latency_us", "commits_success"),
        figures.source_lag_seconds,
        round((new.records_failed - old.records_failed) / seconds, 2),
    )
