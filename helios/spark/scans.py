"""What the reads of a batch came to: the data files that were read, and those that were left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass
class Scanned:
    """The data files of a batch's sources.

    Attributes:
        tables: The full names of the sources.
        total: How many the snapshots that were read have.
        matched: How many of them were read.
        bytes: Their size.
    """

    tables: frozenset[str] = frozenset()
    total: int = 0
    matched: int = 0
    bytes: int = 0

    @property
    def skipped(self) -> int:
        """How many cannot hold a row that was wanted."""
        return max(0, self.total - self.matched)

    def add(self, other: Scanned) -> None:
        """Counts another one's files too."""
        self.total += other.total
        self.matched += other.matched
        self.bytes += other.bytes


_COUNTED: ContextVar[Scanned | None] = ContextVar("helios_scanned", default=None)


@contextmanager
def counting(tables: frozenset[str]) -> Iterator[Scanned]:
    """Counts what is read of these tables inside."""
    counted = Scanned(tables)
    token = _COUNTED.set(counted)
    try:
        yield counted
    finally:
        _COUNTED.reset(token)


def add(*, total: int = 0, matched: int = 0, bytes: int = 0) -> None:
    """Counts files where somebody asks."""
    counted = _COUNTED.get()
    if counted is not None:
        counted.total += total
        counted.matched += matched
        counted.bytes += bytes


def ran(dataset: Any) -> None:
    """Counts the files that a command of Spark's has read, as Iceberg reported them to its scans."""
    counted = _COUNTED.get()
    if counted is None:
        return
    for scan in _scans(dataset.queryExecution().executedPlan()):
        if str(scan.table().name()) not in counted.tables:
            continue
        told = {str(metric.name()): int(metric.value()) for metric in scan.scan().reportDriverMetrics()}
        add(matched=told.get("resultDataFiles", 0), bytes=told.get("totalDataFileSize", 0))


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
