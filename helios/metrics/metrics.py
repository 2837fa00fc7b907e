"""Figures of a run, behind `handle.metrics()`.

The store is a registry of prometheus-client, which nothing resets. A period, which fields and methods show and
`snapshot_and_reset()` ends, is the difference to what the store had when the period began.
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
        records_failed: Rows that were not written because they failed an expectation, a parse or a key.
        records_late: Rows that a watermark dropped, because they came too late; of a batch that is found committed
            none. Of an aggregate Spark counts what is left of them after it has aggregated each task's rows.
        bytes_written: Bytes of data files in committed batches.
        commits_success: Batches that were committed.
        commits_failed: Commits that failed for good.
        commit_retries: Times that a commit was tried again.
        files_created: Data files in committed batches.
        batches_flushed: Batches whose data files were written, and then committed.
        commit_latency_us: Time of successful commits with their retries and pauses, in microseconds.
        write_latency_us: Time of writing their data files, over all tries, in microseconds.
        batch_size_min: Rows of the smallest committed batch; 0 when there is none.
        batch_size_max: Rows of the largest committed batch; 0 when there is none.
        batch_size_sum: Rows of all committed batches.
        files_matched: Source files that scans opened.
        files_skipped: Source files that scans did not open, because a predicate or a partition ruled them out.
        bytes_read: The size of the source files that scans opened.
        files_gone: Files of a folder that were planned for a batch, and left out because they were gone.
        partitions_matched: Source partitions with a file that scans opened.
        partitions_skipped: Source partitions without one. Neither is counted for sources of more than 10,000 files.
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
        table: Its target.
        seconds: For how long the pipeline has run in the period.
        source_lag_snapshots: Snapshots of the followed sources that the target does not have; None while unknown.
        source_lag_seconds: For how long the oldest of them has been waiting; None while unknown.
        source_lag_files: Files of the followed folders that the target does not have; None without a folder.
        source_lag_bytes: Their sizes together.
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
        """The figures of this moment, which do not change any more."""

    def avg_commit_latency_ms(self) -> float:
        """Mean time of a commit that went through, in milliseconds; 0.0 without one."""
        now = self.snapshot()
        return _ratio(now.commit_latency_us / 1000, now.commits_success)

    def avg_write_latency_ms(self) -> float:
        """Mean time of writing a batch's data files, in milliseconds; 0.0 without a batch."""
        now = self.snapshot()
        return _ratio(now.write_latency_us / 1000, now.batches_flushed)

    def success_rate(self) -> float:
        """The part of the ended commits that went through, from 0.0 to 1.0; 1.0 while none has ended."""
        now = self.snapshot()
        return _ratio(now.commits_success, now.commits_success + now.commits_failed, empty=1.0)

    def retry_rate(self) -> float:
        """Retries per ended commit, which may be more than 1.0; 0.0 while none has ended."""
        now = self.snapshot()
        return _ratio(now.commit_retries, now.commits_success + now.commits_failed)

    def bytes_per_second(self) -> float:
        """Bytes committed per second of the period's `seconds`, waiting included; 0.0 before the run has started."""
        now = self.snapshot()
        return _ratio(now.bytes_written, now.seconds)

    def records_per_second(self) -> float:
        """Rows committed per second of the period's `seconds`, waiting included; 0.0 before the run has started."""
        now = self.snapshot()
        return _ratio(now.records_written, now.seconds)

    def avg_batch_size(self) -> float:
        """Mean rows of a committed batch; 0.0 without one."""
        now = self.snapshot()
        return _ratio(now.batch_size_sum, now.commits_success)

    def to_json(self) -> str:
        """All fields and the results of the methods above, as one flat JSON object; an unknown lag is null."""
        now = self.snapshot()
        first = dict.fromkeys(("pipeline", "table", "seconds"))
        figures = {field.name: getattr(now, field.name) for field in fields(Figures)}
        derived = {name: getattr(now, name)() for name in DERIVED}
        return json.dumps(first | figures | derived)

    def to_prometheus(self, prefix: str = "") -> str:
        """The response of the Prometheus endpoint for this pipeline, in the text format 0.0.4.

        These are the sums since the run was made: `snapshot_and_reset()` leaves them as they are.

        Args:
            prefix: Stands before every name, as in `acme_iceberg_records_written_total`.

        Raises:
            InputError: A metric's name cannot begin with the prefix.
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
    """The figures of a period as they were in one moment; the fields of `Counts` and `Figures`, and these.

    Attributes:
        since_start: The sums since the run was made.
        series: Its Prometheus metrics, since the run was made.
    """

    since_start: Counts = field(repr=False, compare=False)
    series: list[Metric] = field(repr=False, compare=False)

    def snapshot(self) -> MetricsSnapshot:
        return self


class Metrics(Figures):
    """The figures of one pipeline while it runs, recorded and read from any thread.

    What `handle.metrics()` returns: always the same object, whose fields and methods follow the run. For figures that
    belong together take a `snapshot()`; to report period by period, a `snapshot_and_reset()`.

    The fields are those of `Counts` and `Figures`.

    Args:
        pipeline: The pipeline's identity.
        table: Its target.
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
        self._before: Mapping[str, int] = dict.fromkeys(SUMS, 0)  # the sums when the period began
        self._sizes: list[int] = []  # rows of the smallest and the largest batch of the period, and of all
        self._all_sizes: list[int] = []
        self._ran = 0.0  # seconds of the period, up to the last end
        self._since: float | None = None  # when it was last started

    def snapshot(self) -> MetricsSnapshot:
        """The figures of this moment, which do not change any more."""
        with self._lock:
            return self._snapshot(self._clock())

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """The figures of the period that ends now; the next one begins at zero, and nothing falls between them.

        What Prometheus sees is not reset, and neither is the lag, which is no sum.
        """
        with self._lock:
            now = self._clock()
            ended = self._snapshot(now)
            self._before = {name: getattr(ended.since_start, name) for name in SUMS}
            self._sizes, self._ran = [], 0.0
            self._since = now if self._since is not None else None
            return ended

    def _snapshot(self, now: float) -> MetricsSnapshot:
        pipeline, table = self._labels
        series = self._series.collect()
        values = {sample.name: sample.value for family in series for sample in family.samples}
        sums = {name: round(values[sample] * units) for name, (sample, units) in SUMS.items()}
        lags = {name: values.get(metric) for name, (metric, _) in GAUGES.items()}
        whole = {name: int(lag) for name, lag in lags.items() if lag is not None and name != "source_lag_seconds"}
        return MetricsSnapshot(
            pipeline=pipeline,
            table=table,
            seconds=self._ran + (now - self._since if self._since is not None else 0.0),
            source_lag_seconds=lags["source_lag_seconds"],
            since_start=Counts(**sums, **_extremes(self._all_sizes)),
            series=series,
            **{name: number - self._before[name] for name, number in sums.items()},
            **_extremes(self._sizes),
            **whole,
        )

    # recording

    def started(self) -> None:
        """The pipeline has begun to run: the time of the rates goes on."""
        with self._lock:
            self._since = self._clock() if self._since is None else self._since

    def ended(self) -> None:
        """The pipeline has stopped running: the time of the rates stops."""
        with self._lock:
            if self._since is not None:
                self._ran += self._clock() - self._since
                self._since = None

    def flushed(self, *, seconds: float) -> None:
        """A batch's data files were written, in this time, and it is committed."""
        with self._lock:
            self._series.observe(WRITE_SECONDS, seconds)

    def committed(self, *, records: int, bytes: int, files: int, seconds: float) -> None:
        """A batch was committed, in this time, its retries included.

        Args:
            records: Its rows.
            bytes: The size of its data files.
            files: Their number.
            seconds: How long the commit took.
        """
        with self._lock:
            self._sizes = _widened(self._sizes, records)
            self._all_sizes = _widened(self._all_sizes, records)
            self._series.add(records_written=records, bytes_written=bytes, files_created=files, commits_success=1)
            self._series.observe(COMMIT_SECONDS, seconds)
            self._series.observe(BATCH_RECORDS, records)

    def failed(self) -> None:
        """A commit was given up."""
        with self._lock:
            self._series.add(commits_failed=1)

    def retried(self) -> None:
        """A commit is tried again."""
        with self._lock:
            self._series.add(commit_retries=1)

    def records_rejected(self, records: int) -> None:
        """Rows were kept out of the target."""
        with self._lock:
            self._series.add(records_failed=records)

    def records_dropped_late(self, records: int) -> None:
        """A watermark dropped rows."""
        with self._lock:
            self._series.add(records_late=records)

    def scanned(
        self, *, matched: int, skipped: int, bytes: int = 0, partitions_matched: int = 0, partitions_skipped: int = 0
    ) -> None:
        """A batch read this many files of its sources, and left out so many; and of their partitions."""
        with self._lock:
            self._series.add(
                files_matched=matched,
                files_skipped=skipped,
                bytes_read=bytes,
                partitions_matched=partitions_matched,
                partitions_skipped=partitions_skipped,
            )

    def gone(self, files: int) -> None:
        """Planned files were gone, and a batch goes on without them."""
        with self._lock:
            self._series.add(files_gone=files)

    def lag(self, *, snapshots: int, seconds: float, **others: int | None) -> None:
        """How far the target is behind its followed sources now; until the next call the seconds go on by themselves.

        Args:
            snapshots: What is not delivered, of all of them.
            seconds: The age of the oldest of it; 0 with no snapshots.
            others: What of folders and topics is not delivered, `files`, `bytes` and `records`; None without one.
        """
        with self._lock:
            measured, grows = self._clock(), bool(snapshots or any(others.values()))
            # Nothing is delivered until the next call, and time goes on.
            self._series.show("source_lag_seconds", lambda: seconds + (self._clock() - measured) * grows)
            for name, number in {"snapshots": snapshots, **others}.items():
                self._series.show(f"source_lag_{name}", None if number is None else partial(float, number))


def _widened(sizes: Sequence[int], records: int) -> list[int]:
    """The sizes of the smallest and the largest batch, with one more batch."""
    return [min(*sizes, records), max(*sizes, records)] if sizes else [records, records]


def _extremes(sizes: Sequence[int]) -> dict[str, int]:
    least, most = sizes or (0, 0)
    return {"batch_size_min": least, "batch_size_max": most}


def _live(name: str) -> property:
    return property(lambda metrics: getattr(metrics.snapshot(), name))


for _field in fields(Figures):
    setattr(Metrics, _field.name, _live(_field.name))
