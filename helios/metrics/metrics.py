"""The figures of a run, which `handle.metrics()` returns.

The sums since the start are kept in a registry of prometheus-client, which is never reset. The fields and methods show
sums over a period, which are the increases since the period began. `snapshot_and_reset()` ends a period.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING

from helios.metrics.prometheus import BATCH_RECORDS, COMMIT_SECONDS, GAUGES, SUMS, WRITE_SECONDS, Series, exposition

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """Sums over a period.

    Attributes:
        records_written: Rows that committed batches added or changed. A `merge_sql` that rewrites files also counts
            the rows that it copies.
        records_failed: Rows kept out of the target by an expectation, a failed parse, or a null key or route.
        records_late: Rows that a watermark dropped because they came too late, except those of a batch that an earlier
            run has committed. Before an aggregate, Spark counts rows after their partial aggregation.
        bytes_written: Bytes of data files in committed batches.
        commits_success: Batches that were committed.
        commits_failed: Commits that were given up.
        commit_retries: Retries of commits.
        files_created: Data files in committed batches.
        batches_flushed: Batches whose data files were written, and then committed.
        commit_latency_us: Time of successful commits with their retries and pauses, in microseconds.
        write_latency_us: Time of writing the data files of these commits, over all attempts, in microseconds.
        batch_size_min: Rows of the smallest committed batch; 0 without a committed batch.
        batch_size_max: Rows of the largest committed batch; 0 without a committed batch.
        batch_size_sum: Rows of all committed batches.
        files_matched: Source files that scans opened.
        files_skipped: Source files that scans did not open, because a predicate or a partition ruled them out.
        bytes_read: The size of the source files that scans opened.
        files_gone: Files of a folder that were planned for a batch, and left out because they were deleted.
        partitions_matched: Source partitions in which scans opened a file. Not counted for sources of more than 10,000
            files.
        partitions_skipped: Source partitions in which scans opened no file. Not counted for sources of more than 10,000
            files.
    """

    records_written: int = 0
    records_failed: int = 0
    records_late: int = 0
    bytes_written: int = 0
    commits_success: int = 0
    commits_failed: int = 0
    commit_retries: int = 0
    files_created: int = 0
    batches_flushed: int = 0
    commit_latency_us: int = 0
    write_latency_us: int = 0
    batch_size_min: int = 0
    batch_size_max: int = 0
    batch_size_sum: int = 0
    files_matched: int = 0
    files_skipped: int = 0
    bytes_read: int = 0
    files_gone: int = 0
    partitions_matched: int = 0
    partitions_skipped: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures(Counts, ABC):
    """The fields and methods of `Metrics` and `MetricsSnapshot`. Each method reads all figures at one moment.

    Attributes:
        pipeline: The pipeline's identity.
        table: The pipeline's target.
        seconds: The time for which the pipeline has run in the period.
        source_lag_snapshots: Snapshots of the followed sources that the target does not have; None while unknown.
        source_lag_seconds: The age of the oldest data that the target does not have; None while unknown.
        source_lag_files: Files of the followed folders that the target does not have; None without a folder.
        source_lag_bytes: The total size of these files; None without a folder.
        source_lag_records: Records of the followed topics that the target does not have; None without a topic.
    """

    pipeline: str
    table: str
    seconds: float = 0.0
    source_lag_snapshots: int | None = None
    source_lag_seconds: float | None = None
    source_lag_files: int | None = None
    source_lag_bytes: int | None = None
    source_lag_records: int | None = None

    @abstractmethod
    def snapshot(self) -> MetricsSnapshot:
        """A copy of the current figures."""

    def avg_commit_latency_ms(self) -> float:
        """Mean time of a successful commit, in milliseconds; 0.0 without one."""
        now = self.snapshot()
        return _ratio(now.commit_latency_us / 1000, now.commits_success)

    def avg_write_latency_ms(self) -> float:
        """Mean time of writing a batch's data files, in milliseconds; 0.0 without a batch."""
        now = self.snapshot()
        return _ratio(now.write_latency_us / 1000, now.batches_flushed)

    def success_rate(self) -> float:
        """The share of successful commits among all ended commits, from 0.0 to 1.0; 1.0 before a commit has ended."""
        now = self.snapshot()
        return _ratio(now.commits_success, now.commits_success + now.commits_failed, empty=1.0)

    def retry_rate(self) -> float:
        """Retries per ended commit, which may be more than 1.0; 0.0 before a commit has ended."""
        now = self.snapshot()
        return _ratio(now.commit_retries, now.commits_success + now.commits_failed)

    def bytes_per_second(self) -> float:
        """Bytes committed per second of the period's `seconds`, which include waits; 0.0 before the run has started."""
        now = self.snapshot()
        return _ratio(now.bytes_written, now.seconds)

    def records_per_second(self) -> float:
        """Rows committed per second of the period's `seconds`, which include waits; 0.0 before the run has started."""
        now = self.snapshot()
        return _ratio(now.records_written, now.seconds)

    def avg_batch_size(self) -> float:
        """Mean number of rows of a committed batch; 0.0 without one."""
        now = self.snapshot()
        return _ratio(now.batch_size_sum, now.commits_success)

    def to_json(self) -> str:
        """All fields and the results of the methods above, as one flat JSON object; an unknown lag is null."""
        now = self.snapshot()
        leading_keys = dict.fromkeys(("pipeline", "table", "seconds"))
        figures = {field.name: getattr(now, field.name) for field in fields(Figures)}
        derived = {name: getattr(now, name)() for name in DERIVED}
        return json.dumps(leading_keys | figures | derived)

    def to_prometheus(self, prefix: str = "") -> str:
        """The response of the Prometheus endpoint for this pipeline, in the text format 0.0.4.

        The response has the sums since the run was created: `snapshot_and_reset()` does not change them.

        Args:
            prefix: A prefix of every name, as in `acme_iceberg_records_written_total`.

        Raises:
            InputError: The prefix is not valid in a metric's name.
        """
        return exposition([self.snapshot()], prefix)


DERIVED = (
    "avg_commit_latency_ms", "avg_write_latency_ms", "success_rate", "retry_rate",
    "bytes_per_second", "records_per_second", "avg_batch_size",
)  # fmt: skip


def _ratio(part: float, whole: float, *, empty: float = 0.0) -> float:
    return part / whole if whole else empty


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot(Figures):
    """A copy of the figures at one moment, with the fields of `Counts` and `Figures` and two more.

    Attributes:
        since_start: The sums since the run was created.
        series: The run's Prometheus metrics, since the run was created.
    """

    since_start: Counts = field(repr=False, compare=False)
    series: list[Metric] = field(repr=False, compare=False)

    def snapshot(self) -> MetricsSnapshot:
        return self


class Metrics(Figures):
    """The current figures of one pipeline, recorded and read from any thread.

    `handle.metrics()` always returns the same object. Its fields are those of `Counts` and `Figures`, and change with
    the run. All figures of a `snapshot()` are of the same moment. `snapshot_and_reset()` ends a period.

    Args:
        pipeline: The pipeline's identity.
        table: The pipeline's target.
        clock: A monotonic clock in seconds.

    Examples:
        >>> metrics = Metrics("orders", "local.sales.orders")
        >>> metrics.flushed(seconds=1.5)
        >>> metrics.committed(records=1200, bytes=40_000, files=3, seconds=0.25)
        >>> metrics.records_written, metrics.avg_commit_latency_ms(), metrics.success_rate()
        (1200, 250.0, 1.0)
        >>> metrics.snapshot_and_reset().files_created, metrics.files_created
        (3, 0)
        >>> print(metrics.to_prometheus().splitlines()[2])
        iceberg_records_written_total{pipeline="orders",table="local.sales.orders"} 1200.0
    """

    def __init__(self, pipeline: str, table: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._labels = (pipeline, table)
        self._clock = clock
        self._lock = threading.Lock()
        self._series = Series(pipeline, table)
        self._sums_before: Mapping[str, int] = dict.fromkeys(SUMS, 0)  # the sums when the period began
        self._extremes: list[int] = []  # rows of the smallest and the largest batch of the period
        self._all_extremes: list[int] = []  # rows of the smallest and the largest batch of all periods
        self._ran_seconds = 0.0  # in the period, up to the last call of ended()
        self._running_since: float | None = None  # the clock at the last call of started(); None if not running

    def snapshot(self) -> MetricsSnapshot:
        with self._lock:
            return self._snapshot(self._clock())

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """The figures of the period that ends now. The next period begins at zero, without a gap.

        The Prometheus metrics and the lag are not reset.
        """
        with self._lock:
            now = self._clock()
            ended = self._snapshot(now)
            self._sums_before = {name: getattr(ended.since_start, name) for name in SUMS}
            self._extremes, self._ran_seconds = [], 0.0
            self._running_since = now if self._running_since is not None else None
            return ended

    def _snapshot(self, now: float) -> MetricsSnapshot:
        pipeline, table = self._labels
        series = self._series.collect()
        values = {sample.name: sample.value for family in series for sample in family.samples}
        sums = {name: round(values[sample] * units) for name, (sample, units) in SUMS.items()}
        lags = {name: values.get(metric) for name, (metric, _) in GAUGES.items()}
        lag_counts = {name: int(lag) for name, lag in lags.items() if lag is not None and name != "source_lag_seconds"}
        running_seconds = now - self._running_since if self._running_since is not None else 0.0
        return MetricsSnapshot(
            pipeline=pipeline,
            table=table,
            seconds=self._ran_seconds + running_seconds,
            source_lag_seconds=lags["source_lag_seconds"],
            since_start=Counts(**sums, **_extreme_fields(self._all_extremes)),
            series=series,
            **{name: number - self._sums_before[name] for name, number in sums.items()},
            **_extreme_fields(self._extremes),
            **lag_counts,
        )

    # recording

    def started(self) -> None:
        """Records that the pipeline has started; `seconds` counts from here."""
        with self._lock:
            if self._running_since is None:
                self._running_since = self._clock()

    def ended(self) -> None:
        """Records that the pipeline has stopped; `seconds` pauses."""
        with self._lock:
            if self._running_since is not None:
                self._ran_seconds += self._clock() - self._running_since
                self._running_since = None

    def flushed(self, *, seconds: float) -> None:
        """Records the time of writing the data files of a batch that is committed."""
        with self._lock:
            self._series.observe(WRITE_SECONDS, seconds)

    def committed(self, *, records: int, bytes: int, files: int, seconds: float) -> None:
        """Records a committed batch.

        Args:
            seconds: The time of the commit with its retries.
        """
        with self._lock:
            self._extremes = _with_size(self._extremes, records)
            self._all_extremes = _with_size(self._all_extremes, records)
            self._series.add(records_written=records, bytes_written=bytes, files_created=files, commits_success=1)
            self._series.observe(COMMIT_SECONDS, seconds)
            self._series.observe(BATCH_RECORDS, records)

    def failed(self) -> None:
        """Records a commit that was given up."""
        with self._lock:
            self._series.add(commits_failed=1)

    def retried(self) -> None:
        """Records a retry of a commit."""
        with self._lock:
            self._series.add(commit_retries=1)

    def records_rejected(self, records: int) -> None:
        """Records rows that were kept out of the target."""
        with self._lock:
            self._series.add(records_failed=records)

    def records_dropped_late(self, records: int) -> None:
        """Records rows that a watermark dropped."""
        with self._lock:
            self._series.add(records_late=records)

    def scanned(
        self, *, matched: int, skipped: int, bytes: int = 0, partitions_matched: int = 0, partitions_skipped: int = 0
    ) -> None:
        """Records the source files and partitions that a scan opened (matched) and left out (skipped)."""
        with self._lock:
            self._series.add(
                files_matched=matched,
                files_skipped=skipped,
                bytes_read=bytes,
                partitions_matched=partitions_matched,
                partitions_skipped=partitions_skipped,
            )

    def gone(self, files: int) -> None:
        """Records deleted files that were planned for a batch, which continues without them."""
        with self._lock:
            self._series.add(files_gone=files)

    def lag(self, *, snapshots: int, seconds: float, **others: int | None) -> None:
        """Records the lag of the target behind its followed sources. The seconds grow until the next call.

        Args:
            snapshots: The number of snapshots that are not delivered, over all sources.
            seconds: The age of the oldest data that is not delivered; 0 if all is delivered.
            others: The `files`, `bytes` and `records` that are not delivered; None without a folder or topic.
        """
        with self._lock:
            measured, behind = self._clock(), bool(snapshots or any(others.values()))
            # The age of undelivered data grows, so the gauge adds the time since this call.
            self._series.show("source_lag_seconds", lambda: seconds + (self._clock() - measured if behind else 0.0))
            for name, number in {"snapshots": snapshots, **others}.items():
                self._series.show(f"source_lag_{name}", None if number is None else partial(float, number))


def _with_size(extremes: Sequence[int], records: int) -> list[int]:
    """The sizes of the smallest and the largest batch, with one more batch of `records` rows."""
    return [min(*extremes, records), max(*extremes, records)] if extremes else [records, records]


def _extreme_fields(extremes: Sequence[int]) -> dict[str, int]:
    smallest, largest = extremes or (0, 0)
    return {"batch_size_min": smallest, "batch_size_max": largest}


def _snapshot_field(name: str) -> property:
    return property(lambda metrics: getattr(metrics.snapshot(), name))


# Each field of `Metrics` is a property that reads the field of a new snapshot.
for _field in fields(Figures):
    setattr(Metrics, _field.name, _snapshot_field(_field.name))
