"""Scan metrics of a batch: the data files and partitions that its sources read and skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from py4j.protocol import Py4JError

from helios.spark.iceberg import partitions
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.spark import (
    JavaAdaptiveSparkPlanExec,
    JavaBatchScanExec,
    JavaCommandResult,
    JavaConnectorTable,
    JavaDataset,
    JavaInMemoryTableScanExec,
    JavaQueryStageExec,
    JavaSparkPlan,
)

MOST_FILES = 10_000
"""With more files in a batch's sources, partitions are not counted: that reads the metadata of every file."""


def counts_partitions(files: int) -> bool:
    """True if the partitions of so many files are counted."""
    return files <= MOST_FILES


@dataclass
class ScanMetrics:
    """The data files of a batch's sources, and their partitions.

    Attributes:
        tables: The full names of the sources.
        total: Data files of the snapshots that were read.
        matched: Data files that were read.
        bytes: Size of the data files that were read.
        parts: Functions, each of which counts the partitions of some files that were read.
        whole: Functions, each of which counts the partitions of all files of a snapshot that was read.
    """

    tables: frozenset[str] = frozenset()
    total: int = 0
    matched: int = 0
    bytes: int = 0
    parts: tuple[Callable[[], int], ...] = field(default=(), repr=False)
    whole: tuple[Callable[[], int], ...] = field(default=(), repr=False)

    @property
    def skipped(self) -> int:
        """Data files that were skipped, because they cannot have a matching row."""
        return max(0, self.total - self.matched)

    def add(self, other: ScanMetrics) -> None:
        """Adds the counts of another read."""
        self.total += other.total
        self.matched += other.matched
        self.bytes += other.bytes
        self.parts += other.parts
        self.whole += other.whole

    def partitions(self) -> tuple[int, int]:
        """The number of partitions that were read, and of those that were skipped; call it after the commit.

        (0, 0) if the sources have too many files, or if files are gone by now.
        """
        if not counts_partitions(self.total):
            return 0, 0
        try:
            matched = sum(count() for count in self.parts)
            # Every count of `whole` plans a scan, which is not needed if no file was skipped.
            whole = sum(count() for count in self.whole) if self.skipped else matched
        except Py4JError:  # the batch is committed, and a metric must not fail it
            return 0, 0
        return matched, max(0, whole - matched)


_COLLECTED: ContextVar[ScanMetrics | None] = ContextVar("helios_scan_metrics", default=None)


@contextmanager
def collect_scan_metrics(tables: frozenset[str]) -> Iterator[ScanMetrics]:
    """Collects the metrics of the reads inside.

    Args:
        tables: The full names of the tables whose reads count.
    """
    collected = ScanMetrics(tables)
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def record(read: ScanMetrics) -> None:
    """Adds the metrics of a read to those that `collect_scan_metrics` collects, if any."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.add(read)


def record_command(dataset: JavaDataset) -> None:
    """Adds the files that an executed command has read, from the metrics that Iceberg reports for its scans."""
    collected = _COLLECTED.get()
    if collected is None:
        return
    # This is the plan that has run. executedPlan() would be that of a query over the rows that the command returned.
    result = cast("JavaCommandResult", dataset.queryExecution().commandExecuted())
    for scan in _scans(result.commandPhysicalPlan()):
        if str(scan.table().name()) not in collected.tables:
            continue
        reported = {str(metric.name()): int(metric.value()) for metric in scan.scan().reportDriverMetrics()}
        matched = reported.get("resultDataFiles", 0)
        parts = (partial(partitions.of_scan, _iceberg(scan.table()), scan.scan()),) if matched else ()
        collected.add(ScanMetrics(matched=matched, bytes=reported.get("totalDataFileSize", 0), parts=parts))


def _iceberg(table: JavaConnectorTable) -> JavaTable:
    """Iceberg's table inside a table of Spark; the target of a MERGE has two tables of Spark around it."""
    inner = table.table()
    if inner.getClass().getSimpleName() != "SparkTable":
        return inner
    return cast("JavaConnectorTable", inner).table()


def _scans(node: JavaSparkPlan) -> Iterator[JavaBatchScanExec]:
    """The batch scans of an executed plan; a part that Spark has reused counts once."""
    name = str(node.getClass().getSimpleName())
    if name == "BatchScanExec":
        yield cast("JavaBatchScanExec", node)
    elif name == "AdaptiveSparkPlanExec":
        yield from _scans(cast("JavaAdaptiveSparkPlanExec", node).executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _scans(cast("JavaQueryStageExec", node).plan())
    elif name == "InMemoryTableScanExec":
        yield from _scans(cast("JavaInMemoryTableScanExec", node).relation().cacheBuilder().cachedPlan())
    elif not name.startswith("Reused"):
        children = node.children()
        for index in range(children.size()):
            yield from _scans(children.apply(index))
