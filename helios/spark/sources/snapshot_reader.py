"""The snapshot reader: the data files of a followed table's snapshots, and Iceberg's tasks that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from helios.plan.nodes import ReadPlan
from helios.spark.iceberg import filters
from helios.spark.iceberg import partitions as counted
from helios.spark.iceberg.scan_metrics import ScanMetrics, counts_partitions
from helios.spark.iceberg.scan_tasks import plan_tasks
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression, JavaFileScanTask, JavaScan
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.spark.sources import offsets
from helios.spark.sources.offsets import SnapshotDelta
from helios.table.offsets import SnapshotRange


@dataclass(frozen=True)
class File:
    """A data file of a unit, and Iceberg's task that reads it; None where there are many."""

    location: str
    rows: int
    task: JavaFileScanTask | None = field(compare=False)


@dataclass(kw_only=True)
class SnapshotReader:
    """The units of one followed table, and their files.

    Attributes:
        spark: The session.
        read: The source.
        predicates: What its rows have to meet, by which files are left out.
    """

    spark: SparkSession
    read: ReadPlan
    predicates: Sequence[str] = ()
    _listed: tuple[SnapshotDelta, list[File]] | None = None
    _resolved: tuple[int, JavaExpression | None] | None = None

    def rows_of(self, table: JavaTable, unit: SnapshotDelta) -> list[int]:
        """The rows of each part of a unit; the changes of a commit are one part."""
        if offsets.follows_changes(self.read):
            return [unit.rows]
        return [file.rows for file in self.files(table, unit)]

    def files(self, table: JavaTable, unit: SnapshotDelta) -> list[File]:
        """The data files of a unit, always in the same order."""
        if self._listed is None or self._listed[0] != unit:
            kept = counts_partitions(unit.files)
            files = [
                File(str(task.file().location()), int(task.file().recordCount()), task if kept else None)
                for task in plan_tasks(self.spark, self._scan(table, unit))
            ]
            self._listed = unit, sorted(files, key=lambda file: file.location)
        return self._listed[1]

    def tasks(self, table: JavaTable, span: SnapshotRange) -> tuple[JavaList[JavaFileScanTask], ScanMetrics]:
        """The tasks of a range as a Java list, and what they are of its files and partitions."""
        jvm = classes()
        chosen: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
        parts = self.parts(table, span)
        total = 0
        for unit, first, last in parts:
            found = plan_tasks(self.spark, self._wanting(table, unit))
            if first or last is not None:
                part = {file.location for file in self.files(table, unit)[first:last]}
                total += len(part)
                for task in found:
                    if str(task.file().location()) in part:
                        chosen.add(task)
            else:
                total += unit.files
                chosen.addAll(found)
        size = int(jvm.org.apache.iceberg.BaseCombinedScanTask(chosen).sizeBytes())
        seen = ScanMetrics(total=total, matched=int(chosen.size()), bytes=size)
        if counts_partitions(sum(unit.files for unit, _, _ in parts)):
            seen.parts = (lambda: counted.count(table, chosen),)
            seen.whole = (lambda: counted.count(table, self._whole(table, parts)),)
        return chosen, seen

    def _whole(
        self, table: JavaTable, parts: list[tuple[SnapshotDelta, int, int | None]]
    ) -> JavaList[JavaFileScanTask]:
        """The tasks of all files of some parts of units, as a Java list."""
        jvm = classes()
        found: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
        for unit, first, last in parts:
            if first or last is not None:
                for file in self.files(table, unit)[first:last]:
                    if file.task is not None:
                        found.add(file.task)
            else:
                found.addAll(plan_tasks(self.spark, self._scan(table, unit)))
        return found

    def parts(self, table: JavaTable, span: SnapshotRange) -> list[tuple[SnapshotDelta, int, int | None]]:
        """The units of a range, oldest first, with the files of each that are read."""
        units = list(offsets.appends(table, self.read, span.after, span.to))
        if span.whole and span.state is None and units:  # one scan for all of them
            return [(replace(units[0], after=span.after, files=sum(unit.files for unit in units)), 0, None)]
        if span.state is not None:
            units.append(offsets.state(table, self.read, span.state))
        units.reverse()
        last = len(units) - 1
        return [
            (unit, span.skipped if i == 0 else 0, span.taken if i == last else None) for i, unit in enumerate(units)
        ]

    def _scan(self, table: JavaTable, unit: SnapshotDelta) -> JavaScan:
        if unit.state:
            return table.newScan().useSnapshot(unit.snapshot)
        scan = table.newIncrementalAppendScan().toSnapshot(unit.snapshot)
        return scan.fromSnapshotExclusive(unit.after) if unit.after is not None else scan

    def _wanting(self, table: JavaTable, unit: SnapshotDelta) -> JavaScan:
        """A scan of the files that may hold wanted rows."""
        scan, wanted = self._scan(table, unit), self._wanted(table)
        # A scan of an older state knows the columns of that time only, and their names as they were.
        made = table.snapshot(unit.snapshot) if unit.state else None
        older = made is not None and made.schemaId() != table.schema().schemaId()
        return scan.filter(wanted) if wanted is not None and not older else scan

    def _wanted(self, table: JavaTable) -> JavaExpression | None:
        """The predicates as Iceberg takes them, which change with the table's columns only."""
        schema = int(table.schema().schemaId())
        if self.predicates and (self._resolved is None or self._resolved[0] != schema):
            assert self.read.table is not None
            self._resolved = schema, filters.expression(self.spark, self.read.table.sql, self.predicates)
        return self._resolved[1] if self._resolved is not None else None
