"""How Prometheus sees a run: the names of its metrics, their histograms, and the text format. Standard library only."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from helios.errors import InputError

if TYPE_CHECKING:
    from helios.metrics.metrics import MetricsSnapshot


@dataclass(frozen=True)
class Histogram:
    """How many values fell under each bound.

    Args:
        bounds: Inclusive upper bounds, as the label `le` writes them; infinity follows them.
        counts: Values per bucket, one more than there are bounds.
        sum: The sum of all values.

    Examples:
        >>> list(Histogram.empty("1.0", "5.0").observe(1).observe(9).cumulative())
        [('1.0', 1), ('5.0', 1), ('+Inf', 2)]
    """

    bounds: tuple[str, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, *bounds: str) -> Self:
        return cls(bounds, (0,) * (len(bounds) + 1))

    def observe(self, value: float) -> Self:
        at = bisect_left(self.bounds, value, key=float)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return replace(self, counts=counts, sum=self.sum + value)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bound with the number of values up to it."""
        below = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            yield bound, below


COMMIT_SECONDS = "iceberg_commit_duration_seconds"
WRITE_SECONDS = "iceberg_write_duration_seconds"
BATCH_RECORDS = "iceberg_records_per_batch"
NO_OBSERVATIONS: Mapping[str, Histogram] = {
    COMMIT_SECONDS: Histogram.empty("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0"),
    WRITE_SECONDS: Histogram.empty("0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0", "900.0"),
    BATCH_RECORDS: Histogram.empty("1.0", "10.0", "100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "1e+08"),
}

LABELS = ("pipeline", "table")
COUNTERS = {
    "records_written": ("iceberg_records_written_total", "Rows in committed batches."),
    "bytes_written": ("iceberg_bytes_written_total", "Bytes of data files in committed batches."),
    "commits_success": ("iceberg_batches_committed_total", "Batches that were committed."),
    "commits_failed": ("iceberg_commits_failed_total", "Commits that were given up."),
    "commit_retries": ("iceberg_commit_retries_total", "Times that a commit was tried again."),
    "files_created": ("iceberg_files_created_total", "Data files in committed batches."),
    "records_failed": ("iceberg_records_failed_total", "Rows that were kept out of the target."),
    "files_matched": ("iceberg_source_files_matched_total", "Source files that scans opened."),
    "files_skipped": ("iceberg_source_files_skipped_total", "Source files that scans ruled out unopened."),
    "bytes_read": ("iceberg_source_bytes_read_total", "Bytes of the source files that scans opened."),
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
}
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True)
class Family:
    """A metric of all pipelines: its rows are the values of `LABELS`, and a number or a histogram."""

    name: str
    kind: str
    help: str
    rows: tuple[tuple[tuple[str, ...], float | Histogram], ...]


def families(snapshots: Iterable[MetricsSnapshot]) -> Iterator[Family]:
    """The metrics of these pipelines, as Prometheus groups them.

    An unknown lag has no row. Of two runs of one pipeline the later one is shown: no two rows may have the same labels.
    """
    every = {(one.pipeline, one.table): one for one in snapshots}.items()
    for name, (metric, text) in COUNTERS.items():
        yield Family(metric, "counter", text, tuple((key, getattr(one.since_start, name)) for key, one in every))
    for metric, text in HISTOGRAMS.items():
        yield Family(metric, "histogram", text, tuple((key, one.histograms[metric]) for key, one in every))
    for name, (metric, text) in GAUGES.items():
        known = ((key, getattr(one, name)) for key, one in every)
        yield Family(metric, "gauge", text, tuple((key, value) for key, value in known if value is not None))


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
    lines = []
    for family in families(snapshots):
        name = prefix + family.name
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        for key, value in family.rows:
            labels = dict(zip(LABELS, key, strict=True))
            if isinstance(value, Histogram):
                buckets = [*value.cumulative()]
                lines += [_line(f"{name}_bucket", {"le": bound, **labels}, count) for bound, count in buckets]
                lines += [_line(f"{name}_count", labels, buckets[-1][1]), _line(f"{name}_sum", labels, value.sum)]
            else:
                lines.append(_line(name, labels, value))
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    """A label's value.

    Examples:
        >>> print(_escaped('a "b"'))
        a \\"b\\"
    """
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
