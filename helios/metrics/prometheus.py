"""The Prometheus metrics of runs: their names, their registry in prometheus-client, and their text format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from helios.errors import InputError

if TYPE_CHECKING:
    from helios.metrics.metrics import MetricsSnapshot

LABELS = ("pipeline", "table")
COUNTERS = {
    "records_written": ("iceberg_records_written_total", "Rows in committed batches."),
    "bytes_written": ("iceberg_bytes_written_total", "Bytes of data files in committed batches."),
    "commits_success": ("iceberg_batches_committed_total", "Batches that were committed."),
    "commits_failed": ("iceberg_commits_failed_total", "Commits that were given up."),
    "commit_retries": ("iceberg_commit_retries_total", "Retries of commits."),
    "files_created": ("iceberg_files_created_total", "Data files in committed batches."),
    "records_failed": ("iceberg_records_failed_total", "Rows that were kept out of the target."),
    "records_late": ("iceberg_records_late_total", "Rows that a watermark dropped."),
    "files_matched": ("iceberg_source_files_matched_total", "Source files that scans opened."),
    "files_skipped": ("iceberg_source_files_skipped_total", "Source files that scans did not open."),
    "bytes_read": ("iceberg_source_bytes_read_total", "Bytes of the source files that scans opened."),
    "files_gone": ("iceberg_source_files_gone_total", "Planned files that were left out because they were deleted."),
    "partitions_matched": (
        "iceberg_source_partitions_matched_total",
        "Source partitions with a file that scans opened.",
    ),
    "partitions_skipped": (
        "iceberg_source_partitions_skipped_total",
        "Source partitions without a file that scans opened.",
    ),
}
"""For fields of `Counts`: the name of the metric, and its help text."""
COMMIT_SECONDS = "iceberg_commit_duration_seconds"
WRITE_SECONDS = "iceberg_write_duration_seconds"
BATCH_RECORDS = "iceberg_records_per_batch"
HISTOGRAMS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    COMMIT_SECONDS: ("Seconds per successful commit.", (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)),
    WRITE_SECONDS: ("Seconds to write a batch's data files.", (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)),
    BATCH_RECORDS: ("Rows per committed batch.", (1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)),
}
"""For each histogram: its help text, and the inclusive upper bounds of its buckets."""
GAUGES = {
    "source_lag_seconds": ("iceberg_source_lag_seconds", "Age of the oldest source data that was not delivered."),
    "source_lag_snapshots": ("iceberg_source_lag_snapshots", "Source snapshots that were not delivered."),
    "source_lag_files": ("iceberg_source_lag_files", "Files of followed folders that were not delivered."),
    "source_lag_bytes": ("iceberg_source_lag_bytes", "Bytes of the files that were not delivered."),
    "source_lag_records": ("iceberg_source_lag_records", "Records of followed topics that were not delivered."),
}
"""For the lag fields of `Figures`: the name of the metric, and its help text."""
SUMS: Mapping[str, tuple[str, int]] = {
    **{field: (metric, 1) for field, (metric, _) in COUNTERS.items()},
    "batches_flushed": (f"{WRITE_SECONDS}_count", 1),
    "commit_latency_us": (f"{COMMIT_SECONDS}_sum", 1_000_000),
    "write_latency_us": (f"{WRITE_SECONDS}_sum", 1_000_000),
    "batch_size_sum": (f"{BATCH_RECORDS}_sum", 1),
}
"""For fields of `Counts`: the name of the sample, and the factor that converts the sample's unit to the field's."""
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Series:
    """The metrics of a run, in a registry of their own. The library's default registry is left to the user's code.

    Args:
        labels: The values of `LABELS`.
    """

    def __init__(self, *labels: str) -> None:
        self._labels, self._registry = labels, CollectorRegistry()
        store = self._registry
        self._counters = {
            field: Counter(name, about, LABELS, registry=store).labels(*labels)
            for field, (name, about) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(name, about, LABELS, registry=store, buckets=bounds).labels(*labels)
            for name, (about, bounds) in HISTOGRAMS.items()
        }
        self._gauges = {field: Gauge(name, about, LABELS, registry=store) for field, (name, about) in GAUGES.items()}

    def add(self, **numbers: int) -> None:
        for field, number in numbers.items():
            self._counters[field].inc(number)

    def observe(self, metric: str, value: float) -> None:
        self._histograms[metric].observe(value)

    def show(self, field: str, value: Callable[[], float] | None) -> None:
        """Sets the function that returns a gauge's value; None removes the gauge's sample."""
        if value is None:
            self._gauges[field].clear()
        else:
            self._gauges[field].labels(*self._labels).set_function(value)

    def collect(self) -> list[Metric]:
        """The current metric families. The `_created` samples, which are times of creation, are left out."""
        families = list(self._registry.collect())
        for family in families:
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        return families


class RunCollector:
    """Joins the metric families of runs for each scrape.

    An unknown lag has no sample. If a pipeline has two runs, only the later run is shown, because two samples must not
    have the same labels.

    Args:
        snapshots: Returns the figures of the runs at this moment.
    """

    def __init__(self, snapshots: Callable[[], Iterable[MetricsSnapshot]], prefix: str = "") -> None:
        self._snapshots = snapshots
        self._prefix = prefix
        self._empty_families = Series("", "").collect()  # names and help texts, which are shown even without a run

    def collect(self) -> Iterator[Metric]:
        series_by_labels = {(snapshot.pipeline, snapshot.table): snapshot.series for snapshot in self._snapshots()}
        for empty, *families in zip(self._empty_families, *series_by_labels.values(), strict=True):
            joined = Metric(self._prefix + empty.name, empty.documentation, empty.type)
            samples = [sample for family in families for sample in family.samples]
            joined.samples = [sample._replace(name=self._prefix + sample.name) for sample in samples]
            yield joined


def registry(snapshots: Callable[[], Iterable[MetricsSnapshot]], prefix: str = "") -> CollectorRegistry:
    """A registry that has only the metrics of the given runs."""
    runs = CollectorRegistry(auto_describe=False)
    runs.register(RunCollector(snapshots, prefix))
    return runs


def exposition(snapshots: Iterable[MetricsSnapshot], prefix: str = "") -> str:
    """The metrics in Prometheus's text format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

    Raises:
        InputError: The prefix is not valid in a metric's name.
    """
    if prefix and not METRIC_NAME.fullmatch(prefix):
        raise InputError(
            f"the name of a metric cannot begin with {prefix!r}.",
            fix='use letters, digits and "_", and no digit at the front, as in "acme_".',
        )
    return generate_latest(registry(lambda: snapshots, prefix)).decode()
