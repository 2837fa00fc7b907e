"""The metrics of the last hour, rates, and the end of a backlog."""

from __future__ import annotations

import pytest

from helios.metrics.metrics import Metrics
from helios.ui.series import POINT_SECONDS, SPAN_SECONDS, Series

pytestmark = pytest.mark.promise("page")


def test_points_are_means_of_ten_seconds_and_an_hour_is_kept() -> None:
    metrics, series = Metrics("p", "a.t"), Series()
    series.add(0.0, metrics.snapshot())
    metrics.flushed(seconds=2.0)
    metrics.committed(records=500, bytes=1000, files=1, seconds=0.5)
    metrics.records_rejected(20)
    series.add(4.0, metrics.snapshot())
    series.add(10.0, metrics.snapshot())
    assert series.as_json() == {
        "at": [10_000], "rows": [50.0], "bytes": [100.0], "writing": [2000.0], "committing": [500.0], "behind": [None],
        "rejected": [2.0],
    }  # fmt: skip
    for second in range(20, 20_000, 10):
        series.add(float(second), metrics.snapshot())
    points = series.as_json()
    assert len(points["at"]) == SPAN_SECONDS / POINT_SECONDS
    assert (points["rows"][-1], points["committing"][-1]) == (0.0, None)


def test_the_rate_is_of_the_last_minute() -> None:
    metrics, series = Metrics("p", "a.t"), Series()
    assert series.rate() is None
    for second in range(0, 301, 10):
        series.add(float(second), metrics.snapshot())
        metrics.committed(records=100 if second < 200 else 10, bytes=0, files=1, seconds=0.1)
    assert series.rate() == 1.0


def test_a_backlog_has_an_end_where_it_shrinks() -> None:
    metrics, series = Metrics("p", "a.t"), Series()
    series.add(0.0, metrics.snapshot())
    assert series.behind() is None
    for second, files in ((10, 50), (20, 90), (30, 80), (40, 70)):
        metrics.lag(snapshots=0, seconds=float(second), files=files, bytes=files * 10)
        series.add(float(second), metrics.snapshot())
    behind = series.behind()
    assert behind is not None
    assert (behind.files, behind.bytes, behind.drained, behind.grows) == (70, 700, 70, False)
    metrics.lag(snapshots=0, seconds=0.0, files=200, bytes=1)
    series.add(50.0, metrics.snapshot())
    behind = series.behind()
    assert behind is not None
    assert (behind.drained, behind.grows) == (None, True)
