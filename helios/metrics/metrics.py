"""Counters of a run, behind `handle.metrics()`. Standard library only.

Everything is counted twice: for the current period, which fields and methods show and `snapshot_and_reset()` resets,
and since the run was created, for Prometheus, which nothing resets.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Self

from helios.metrics.histogram import BATCH_RECORDS, COMMIT_SECONDS, NO_OBSERVATIONS, WRITE_SECONDS, Histogram
from helios.metrics.live import Live, Worked


@dataclass(frozen=True, kw_only=True)
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

    def plus(self, **added: int) -> Self:
        return replace(self, **{name: getattr(self, name) + number for name, number in added.items()})

    def sized(self, records: int) -> Self:
        """With a batch of this size, before it is counted as committed."""
        smallest = min(self.batch_size_min, records) if self.commits_success else records
        return replace(self, batch_size_min=smallest, batch_size_max=max(self.batch_size_max, records))


class Figures(ABC):
    """The methods of `Metrics` and `MetricsSnapshot`. Each reads all figures at one moment."""

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
        lag = {name: getattr(now, name) for name in LAGS}
        counts = {one.name: getattr(now, one.name) for one in fields(Counts)}
        derived = {name: getattr(now, name)() for name in DERIVED}
        return json.dumps(
            {"pipeline": now.pipeline, "table": now.table, "seconds": now.seconds, **counts, **lag} | derived
        )

    def to_prometheus(self, prefix: str = "") -> str:
        """The response of the Prometheus endpoint for this pipeline, in the text format 0.0.4.

        These are the sums since the run was made: `snapshot_and_reset()` leaves them as they are.

        Args:
            prefix: Stands before every name, as in `acme_iceberg_records_written_total`.

        Raises:
            InputError: A metric's name cannot begin with the prefix.
        """
        from helios.metrics.prometheus import exposition  # prometheus-client takes a moment to load

        return exposition([self.snapshot()], prefix)


LAGS = (
    "source_lag_snapshots", "source_lag_seconds", "source_lag_files", "source_lag_bytes", "source_lag_records",
)  # fmt: skip
DERIVED = (
    "avg_commit_latency_ms", "avg_write_latency_ms", "success_rate", "retry_rate",
    "bytes_per_second", "records_per_second", "avg_batch_size",
)  # fmt: skip


def _ratio(part: float, whole: float, *, empty: float = 0.0) -> float:
    return part / whole if whole else empty


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot(Counts, Figures):
    """The figures of a period as they were in one moment; the fields of `Counts`, and these.

    Attributes:
        pipeline: The pipeline's identity.
        table: Its target.
        seconds: For how long the pipeline has run in the period.
        source_lag_snapshots: Snapshots of the followed sources that the target does not have; None while unknown.
        source_lag_seconds: For how long the oldest of them has been waiting; None while unknown.
        source_lag_files: Files of the followed folders that the target does not have; None without a folder.
        source_lag_bytes: Their sizes together.
        source_lag_records: Records of the followed topics that the target does not have; None without a topic.
        since_start: The sums since the run was made.
        histograms: By the name of the metric, since the run was made.
    """

    pipeline: str
    table: str
    seconds: float = 0.0
    source_lag_snapshots: int | None = None
    source_lag_seconds: float | None = None
    source_lag_files: int | None = None
    source_lag_bytes: int | None = None
    source_lag_records: int | None = None
    since_start: Counts = field(default_factory=Counts, repr=False)
    histograms: Mapping[str, Histogram] = field(default_factory=lambda: NO_OBSERVATIONS, repr=False)

    def snapshot(self) -> MetricsSnapshot:
        return self


class Metrics(Figures):
    """The figures of one pipeline while it runs, recorded and read from any thread.

    What `handle.metrics()` returns: always the same object, whose fields and methods follow the run. For figures that
    belong together take a `snapshot()`; to report period by period, a `snapshot_and_reset()`.

    The fields are those of `Counts` and `MetricsSnapshot`.

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

    records_written = Live()
    records_failed = Live()
    records_late = Live()
    bytes_written = Live()
    commits_success = Live()
    commits_failed = Live()
    commit_retries = Live()
    files_created = Live()
    batches_flushed = Live()
    commit_latency_us = Live()
    write_latency_us = Live()
    batch_size_min = Live()
    batch_size_max = Live()
    batch_size_sum = Live()
    files_matched = Live()
    files_skipped = Live()
    bytes_read = Live()
    files_gone = Live()
    partitions_matched = Live()
    partitions_skipped = Live()

    def __init__(self, pipeline: str, table: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.pipeline = pipeline
        self.table = table
        self._clock = clock
        self._lock = threading.Lock()
        # Values are replaced and never changed, so that they can be read without the lock.
        self._period = self._total = Counts()
        self._histograms = NO_OBSERVATIONS
        self._ran = 0.0  # seconds of the period, up to the last end
        self._since: float | None = None  # when it was last started
        self._lag: tuple[int, float, float] | None = None  # snapshots, seconds, when they were measured
        self._others: Mapping[str, int | None] = {}  # files, bytes, records

    @property
    def seconds(self) -> float:
        """For how long the pipeline has run since its start or the last `snapshot_and_reset()`."""
        return self.snapshot().seconds

    source_lag_snapshots = Worked[int | None]()
    source_lag_seconds = Worked[float | None]()
    source_lag_files = Worked[int | None]()
    source_lag_bytes = Worked[int | None]()
    source_lag_records = Worked[int | None]()

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
            self._period, self._ran = Counts(), 0.0
            self._since = now if self._since is not None else None
            return ended

    def _snapshot(self, now: float) -> MetricsSnapshot:
        behind, waited, measured = self._lag or (None, None, now)
        others = self._others
        if (behind or any(others.values())) and waited is not None:
            waited += now - measured  # nothing has been delivered since, and time goes on
        return MetricsSnapshot(
            pipeline=self.pipeline,
            table=self.table,
            seconds=self._ran + (now - self._since if self._since is not None else 0.0),
            source_lag_snapshots=behind,
            source_lag_seconds=waited,
            source_lag_files=others.get("files"),
            source_lag_bytes=others.get("bytes"),
            source_lag_records=others.get("records"),
            since_start=self._total,
            histograms=self._histograms,
            **{one.name: getattr(self._period, one.name) for one in fields(Counts)},
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
            self._add(batches_flushed=1, write_latency_us=round(seconds * 1e6))
            self._observe({WRITE_SECONDS: seconds})

    def committed(self, *, records: int, bytes: int, files: int, seconds: float) -> None:
        """A batch was committed, in this time, its retries included.

        Args:
            records: Its rows.
            bytes: The size of its data files.
            files: Their number.
            seconds: How long the commit took.
        """
        with self._lock:
            self._period, self._total = self._period.sized(records), self._total.sized(records)
            self._add(
                records_written=records,
                bytes_written=bytes,
                files_created=files,
                batch_size_sum=records,
                commits_success=1,
                commit_latency_us=round(seconds * 1e6),
            )
            self._observe({COMMIT_SECONDS: seconds, BATCH_RECORDS: records})

    def failed(self) -> None:
        """A commit was given up."""
        with self._lock:
            self._add(commits_failed=1)

    def retried(self) -> None:
        """A commit is tried again."""
        with self._lock:
            self._add(commit_retries=1)

    def records_rejected(self, records: int) -> None:
        """Rows were kept out of the target."""
        with self._lock:
            self._add(records_failed=records)

    def records_dropped_late(self, records: int) -> None:
        """A watermark dropped rows."""
        with self._lock:
            self._add(records_late=records)

    def scanned(
        self, *, matched: int, skipped: int, bytes: int = 0, partitions_matched: int = 0, partitions_skipped: int = 0
    ) -> None:
        """A batch read this many files of its sources, and left out so many; and of their partitions."""
        with self._lock:
            self._add(
                files_matched=matched,
                files_skipped=skipped,
                bytes_read=bytes,
                partitions_matched=partitions_matched,
                partitions_skipped=partitions_skipped,
            )

    def gone(self, files: int) -> None:
        """Planned files were gone, and a batch goes on without them."""
        with self._lock:
            self._add(files_gone=files)

    def lag(self, *, snapshots: int, seconds: float, **others: int | None) -> None:
        """How far the target is behind its followed sources now; until the next call the seconds go on by themselves.

        Args:
            snapshots: What is not delivered, of all of them.
            seconds: The age of the oldest of it; 0 with no snapshots.
            others: What of folders and topics is not delivered, `files`, `bytes` and `records`; None without one.
        """
        with self._lock:
            self._others = others
            self._lag = (snapshots, seconds, self._clock())

    def _add(self, **added: int) -> None:
        self._period, self._total = self._period.plus(**added), self._total.plus(**added)

    def _observe(self, values: Mapping[str, float]) -> None:
        seen = {name: self._histograms[name].observe(value) for name, value in values.items()}
        self._histograms = {**self._histograms, **seen}
