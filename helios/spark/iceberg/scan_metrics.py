"""Collects the scan metrics of a batch: the data files and partitions that its sources read and skipped."""

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

MAX_FILES = 10_000
"""If a batch's sources have more files, partitions are not counted: that would read the metadata of each file."""


def counts_partitions(files: int) -> bool:
    return files <= MAX_FILES


@dataclass
class ScanMetrics:
    """The data files of a batch's sources, and their partitions.

    Attributes:
        tables: The full names of the sources.
        total: The number of data files in the snapshots that were read.
        matched: The number of data files that were read.
        bytes: The size of the data files that were read.
        matched_partitions: Functions that each return the number of partitions of some of the files that were read.
        total_partitions: Functions that each return the number of partitions of all files of a snapshot that was read.
    """

    tables: frozenset[str] = frozenset()
    total: int = 0
    matched: int = 0
    bytes: int = 0
    matched_partitions: tuple[Callable[[], int], ...] = field(default=(), repr=False)
    total_partitions: tuple[Callable[[], int], ...] = field(default=(), repr=False)

    @property
    def skipped(self) -> int:
        """The number of data files that were skipped because they cannot have a matching row."""
        return max(0, self.total - self.matched)

    def add(self, other: ScanMetrics) -> None:
        self.total += other.total
        self.matched += other.matched
        self.bytes += other.bytes
        self.matched_partitions += other.matched_partitions
        self.total_partitions += other.total_partitions

    def partitions(self) -> tuple[int, int]:
        """The number of partitions that were read, and of partitions that were skipped; call it after the commit.

        Returns (0, 0) if the sources have too many files, or if files no longer exist.
        """
        if not counts_partitions(self.total):
            return 0, 0
        try:
            matched = sum(count() for count in self.matched_partitions)
            # Each function in `total_partitions` plans a scan, which is not needed if no file was skipped.
            whole = sum(count() for count in self.total_partitions) if self.skipped else matched
        except Py4JError:  # the batch is committed, and a metric must not fail it
            return 0, 0
        return matched, max(0, whole - matched)


_COLLECTED: ContextVar[ScanMetrics | None] = ContextVar("helios_scan_metrics", default=None)


@contextmanager
def collect_scan_metrics(tables: frozenset[str]) -> Iterator[ScanMetrics]:
    """Collects the metrics of the reads in the block. Of commands, only reads of `tables` (full names) count."""
    collected = ScanMetrics(tables)
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def record(read: ScanMetrics) -> None:
    """Adds the metrics of a read to the innermost open `collect_scan_metrics`; does nothing if none is open."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.add(read)


def record_command(dataset: JavaDataset) -> None:
    """Adds the source files that an executed command has read, by the metrics that Iceberg reports for its scans.

    The sources themselves record how many files there are.
    """
    collected = _COLLECTED.get()
    if collected is None:
        return
    # This is the plan that has run. executedPlan() would return the plan of a query over the command's result rows.
    result = cast("JavaCommandResult", dataset.queryExecution().commandExecuted())
    for scan in _scans(result.commandPhysicalPlan()):
        if str(scan.table().name()) not in collected.tables:
            continue
        reported = {str(metric.name()): int(metric.value()) for metric in scan.scan().reportDriverMetrics()}
        matched = reported.get("resultDataFiles", 0)
        parts = (partial(partitions.count_of_scan, _iceberg_table(scan.table()), scan.scan()),) if matched else ()
        collected.add(
            ScanMetrics(matched=matched, bytes=reported.get("totalDataFileSize", 0), matched_partitions=parts)
        )


def _iceberg_table(table: JavaConnectorTable) -> JavaTable:
    """The Iceberg table in a connector table of Spark; the target of a MERGE is nested in two connector tables."""
    inner = table.table()
    if inner.getClass().getSimpleName() != "SparkTable":
        return inner
    return cast("JavaConnectorTable", inner).table()


def _scans(node: JavaSparkPlan) -> Iterator[JavaBatchScanExec]:
    """The batch scans of an executed plan. A part of the plan that Spark reuses is visited only once."""
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
