"""What the reads of a batch came to: the files and partitions that were read, and those that were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError

from helios.spark.iceberg import partitions

MOST_FILES = 10_000
"""Where the sources of a batch have more, partitions are not counted: that reads what is known of every file."""


def counts_partitions(files: int) -> bool:
    """Whether the partitions of so many files are counted."""
    return files <= MOST_FILES


@dataclass
class ScanMetrics:
    """The data files of a batch's sources, and their partitions.

    Attributes:
        tables: The full names of the sources.
        total: How many the snapshots that were read have.
        matched: How many of them were read.
        bytes: Their size.
        parts: Each counts the partitions of some files that were read.
        whole: Each counts the partitions of all files that a read chose from.
    """

    tables: frozenset[str] = frozenset()
    total: int = 0
    matched: int = 0
    bytes: int = 0
    parts: tuple[Callable[[], int], ...] = field(default=(), repr=False)
    whole: tuple[Callable[[], int], ...] = field(default=(), repr=False)

    @property
    def skipped(self) -> int:
        """How many cannot hold a row that was wanted."""
        return max(0, self.total - self.matched)

    def add(self, other: ScanMetrics) -> None:
        """Counts another one's files too."""
        self.total += other.total
        self.matched += other.matched
        self.bytes += other.bytes
        self.parts += other.parts
        self.whole += other.whole

    def partitions(self) -> tuple[int, int]:
        """How many partitions were read, and how many left out: counted now, when no row waits for it.

        (0, 0) where the sources have too many files, and where what was read has gone since.
        """
        if not counts_partitions(self.total):
            return 0, 0
        try:
            matched = sum(count() for count in self.parts)
            # Where every file was read, there is nothing to plan.
            whole = sum(count() for count in self.whole) if self.skipped else matched
        except Py4JJavaError:
            return 0, 0
        return matched, max(0, whole - matched)


_COUNTED: ContextVar[ScanMetrics | None] = ContextVar("helios_scanned", default=None)


@contextmanager
def collect_scan_metrics(tables: frozenset[str]) -> Iterator[ScanMetrics]:
    """Counts what is read of these tables inside."""
    counted = ScanMetrics(tables)
    token = _COUNTED.set(counted)
    try:
        yield counted
    finally:
        _COUNTED.reset(token)


def record(seen: ScanMetrics) -> None:
    """Counts files where somebody asks."""
    counted = _COUNTED.get()
    if counted is not None:
        counted.add(seen)


def ran(dataset: Any) -> None:
    """Counts the files that a command of Spark's has read, as Iceberg reported them to its scans."""
    counted = _COUNTED.get()
    if counted is None:
        return
    for scan in _scans(dataset.queryExecution().executedPlan()):
        if str(scan.table().name()) not in counted.tables:
            continue
        told = {str(metric.name()): int(metric.value()) for metric in scan.scan().reportDriverMetrics()}
        matched = told.get("resultDataFiles", 0)
        parts = (partial(partitions.of_scan, scan.table().table(), scan.scan()),) if matched else ()
        counted.add(ScanMetrics(matched=matched, bytes=told.get("totalDataFileSize", 0), parts=parts))


def _scans(node: Any) -> Iterator[Any]:
    """The batch scans of an executed plan; a part that Spark ran once and used again counts once."""
    name = str(node.getClass().getSimpleName())
    if name == "BatchScanExec":
        yield node
    elif name == "CommandResultExec":
        yield from _scans(node.commandPhysicalPlan())
    elif name == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    elif name == "InMemoryTableScanExec":
        yield from _scans(node.relation().cacheBuilder().cachedPlan())
    elif not name.startswith("Reused"):
        children = node.children()
        for index in range(children.size()):
            yield from _scans(children.apply(index))
