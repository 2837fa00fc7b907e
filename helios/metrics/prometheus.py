"""The Prometheus series of runs, made with prometheus-client: their names, kinds and labels, and the text format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from helios.errors import InputError
from helios.metrics.histogram import BATCH_RECORDS, COMMIT_SECONDS, WRITE_SECONDS

if TYPE_CHECKING:
    from helios.metrics.metrics import MetricsSnapshot

LABELS = ("pipeline", "table")
COUNTERS = {
    "records_written": ("iceberg_records_written_total", "Rows in committed batches."),
    "bytes_written": ("iceberg_bytes_written_total", "Bytes of data files in committed batches."),
    "commits_success": ("iceberg_batches_committed_total", "Batches that were committed."),
    "commits_failed": ("iceberg_commits_failed_total", "Commits that were given up."),
    "commit_retries": ("iceberg_commit_retries_total", "Times that a commit was tried again."),
    "files_created": ("iceberg_files_created_total", "Data files in committed batches."),
    "records_failed": ("iceberg_records_failed_total", "Rows that were kept out of the target."),
    "records_late": ("iceberg_records_late_total", "Rows that a watermark dropped."),
    "files_matched": ("iceberg_source_files_matched_total", "Source files that scans opened."),
    "files_skipped": ("iceberg_source_files_skipped_total", "Source files that scans ruled out unopened."),
    "bytes_read": ("iceberg_source_bytes_read_total", "Bytes of the source files that scans opened."),
    "files_gone": ("iceberg_source_files_gone_total", "Planned files that were gone and were left out."),
    "partitions_matched": ("iceberg_source_partitions_matched_total", "Source partitions that scans opened files of."),
    "partitions_skipped": ("iceberg_source_partitions_skipped_total", "Source partitions that scans ruled out."),
}
"""By the field of `Counts`: the metric and its help."""
HISTOGRAMS = {
    COMMIT_SECONDS: "Seconds per commit that went through.",
    WRITE_SECONDS: "Seconds per writing of a batch's data files.",
    BATCH_RECORDS: "Rows per committed batch.",
}
GAUGES = {
    "source_lag_seconds": ("iceberg_source_lag_seconds", "Age of the oldest source snapshot that was not delivered."),
    "source_lag_snapshots": ("iceberg_source_lag_snapshots", "Source snapshots that were not delivered."),
    "source_lag_files": ("iceberg_source_lag_files", "Files of followed folders that were not delivered."),
    "source_lag_bytes": ("iceberg_source_lag_bytes", "Bytes of the files that were not delivered."),
    "source_lag_records": ("iceberg_source_lag_records", "Records of followed topics that were not delivered."),
}
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class RunCollector:
    """Makes the metric families of runs for each scrape.

    An unknown lag has no sample. Of two runs of one pipeline the later one is shown: no two samples may have the same
    labels.

    Args:
        snapshots: Gives the figures of the runs at this moment.
        prefix: Stands before every name.
    """

    def __init__(self, snapshots: Callable[[], Iterable[MetricsSnapshot]], prefix: str = "") -> None:
        self._snapshots = snapshots
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        runs = {(one.pipeline, one.table): one for one in self._snapshots()}
        for name, (metric, about) in COUNTERS.items():
            counter = CounterMetricFamily(self._prefix + metric, about, labels=LABELS)
            for labels, run in runs.items():
                counter.add_metric(labels, getattr(run.since_start, name))
            yield counter
        for metric, about in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(self._prefix + metric, about, labels=LABELS)
            for labels, run in runs.items():
                seen = run.histograms[metric]
                histogram.add_metric(labels, list(seen.cumulative()), seen.sum)
            yield histogram
        for name, (metric, about) in GAUGES.items():
            gauge = GaugeMetricFamily(self._prefix + metric, about, labels=LABELS)
            for labels, run in runs.items():
                if (value := getattr(run, name)) is not None:
                    gauge.add_metric(labels, value)
            yield gauge


def registry(snapshots: Callable[[], Iterable[MetricsSnapshot]], prefix: str = "") -> CollectorRegistry:
    """A registry with the series of some runs alone: the library's default one belongs to the user's process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(RunCollector(snapshots, prefix))
    return made


def exposition(snapshots: Iterable[MetricsSnapshot], prefix: str = "") -> str:
    """The metrics in Prometheus's text format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

    Raises:
        InputError: A metric's name cannot begin with the prefix.
    """
    if prefix and not METRIC_NAME.fullmatch(prefix):
        raise InputError(
            f"no metric's name begins with {prefix!r}.",
            fix='use letters, digits and "_", and no digit at the front, as in "acme_".',
        )
    return generate_latest(registry(lambda: snapshots, prefix)).decode()
