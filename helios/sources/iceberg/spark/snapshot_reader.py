"""Plans the reads of a followed table: the data files of its snapshots, and Iceberg's scan tasks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from pyspark.sql import SparkSession

from helios.plan.nodes import ReadPlan
from helios.plan.typing.determinism import nondeterministic_function
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.offsets import SnapshotRange
from helios.sources.iceberg.spark import offsets
from helios.sources.iceberg.spark.offsets import SnapshotDelta
from helios.spark.iceberg import filters, foreign_files, overflow, partitions
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_metrics import ScanMetrics, counts_partitions
from helios.spark.iceberg.scan_tasks import plan_tasks
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaExpression, JavaFileScanTask, JavaScan
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList

_VERIFIED: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], int] = {}
"""The last verified state of each source, by table, schema, columns and conditions.

A joined table is read in each batch. It is verified only if its state is new, or if it has a name mapping, which may
change without a new state.
"""


@dataclass(frozen=True)
class File:
    """A data file of a delta, with its scan task unless the delta has many files."""

    location: str
    rows: int
    task: JavaFileScanTask | None = field(compare=False)


def verify(spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], read: ReadPlan) -> None:
    """Refuses the files of a source that Spark would read incorrectly.

    Raises:
        RunError: A file does not match what the table declares.
    """
    if not foreign_files.has_checks(table):  # no required column and no name mapping: nothing to check
        return
    source, columns = read.source, list[str]()
    assert isinstance(source, IcebergSource)
    if source.columns:
        names = [str(field.name()) for field in listed(table.schema().columns())]
        columns = [*source.columns, *foreign_files.named_in(source.conditions, names)]
    foreign_files.verify(spark, table, tasks, foreign_files.Reading(read.name, source.origin, columns))


def verify_state(spark: SparkSession, read: ReadPlan, table: JavaTable, snapshot: int) -> None:
    """Refuses files as `verify` does, for a state whose scan tasks Spark itself plans."""
    if not foreign_files.has_checks(table):  # as in `verify`
        return
    source, state = read.source, SnapshotRange(state=snapshot, after=snapshot, to=snapshot)
    assert isinstance(source, IcebergSource)
    key = (str(table.uuid()), str(table.schema()), source.columns, source.conditions)
    if _VERIFIED.get(key) == snapshot and not foreign_files.has_mapping(table):  # a mapping changes without a snapshot
        return
    reader = SnapshotReader(spark=spark, read=read, predicates=deterministic_conditions(source))
    reader.tasks(table, state)  # verifies the tasks, which are not needed here
    _VERIFIED[key] = snapshot


def deterministic_conditions(source: IcebergSource) -> list[str]:
    """The deterministic conditions of a source. Only these conditions may skip files."""
    return [condition for condition in source.conditions if nondeterministic_function(condition) is None]


@dataclass(kw_only=True)
class SnapshotReader:
    """Plans the scans of one table's snapshot deltas. Skips files that cannot have rows that meet the `predicates`."""

    spark: SparkSession
    read: ReadPlan
    predicates: Sequence[str] = ()
    _cached_files: tuple[SnapshotDelta, list[File]] | None = None
    _cached_condition: tuple[int, JavaExpression | None] | None = None

    def rows_of(self, table: JavaTable, delta: SnapshotDelta) -> list[int]:
        """The row count of each file of a delta.

        For row-level changes, there is a single count, the rows of the commit, since batches do not split commits.
        """
        if offsets.follows_changes(self.read):
            return [delta.rows]
        return [file.rows for file in self.files(table, delta)]

    def files(self, table: JavaTable, delta: SnapshotDelta) -> list[File]:
        """The data files of a delta, always in the same order."""
        if self._cached_files is None or self._cached_files[0] != delta:
            # Tasks are kept to count partitions. Partitions are counted only if there are few files.
            keeps_tasks = counts_partitions(delta.files)
            files = [
                File(str(task.file().location()), int(task.file().recordCount()), task if keeps_tasks else None)
                for task in plan_tasks(self.spark, self._scan(table, delta))
            ]
            self._cached_files = delta, sorted(files, key=lambda file: file.location)
        return self._cached_files[1]

    def tasks(self, table: JavaTable, span: SnapshotRange) -> tuple[JavaList[JavaFileScanTask], ScanMetrics]:
        """The scan tasks of a range as a Java list, and their scan metrics.

        Raises:
            RunError: A file does not match what the table declares.
        """
        jvm = classes()
        chosen: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
        slices = self.slices(table, span)
        total = 0
        for delta, first, last in slices:
            matching = plan_tasks(self.spark, self._filtered_scan(table, delta))
            if first or last is not None:
                # A counter and not a set, since another writer may have added a file twice: its rows then occur twice.
                remaining = Counter(file.location for file in self.files(table, delta)[first:last])
                total += remaining.total()
                for task in matching:
                    location = str(task.file().location())
                    if remaining[location]:
                        remaining[location] -= 1
                        chosen.add(task)
            else:
                total += delta.files
                chosen.addAll(matching)
        verify(self.spark, table, chosen, self.read)
        size = int(jvm.org.apache.iceberg.BaseCombinedScanTask(chosen).sizeBytes())
        metrics = ScanMetrics(total=total, matched=int(chosen.size()), bytes=size)
        if counts_partitions(sum(delta.files for delta, _, _ in slices)):
            # `matched_partitions` counts the partitions of the matching files, `total_partitions` those of all files.
            # Neither counts before it is called.
            metrics.matched_partitions = (lambda: partitions.count(table, chosen),)
            metrics.total_partitions = (lambda: partitions.count(table, self._all_tasks(table, slices)),)
        return chosen, metrics

    def _all_tasks(
        self, table: JavaTable, slices: list[tuple[SnapshotDelta, int, int | None]]
    ) -> JavaList[JavaFileScanTask]:
        """The scan tasks of all files in slices, regardless of the predicates, as a Java list."""
        jvm = classes()
        tasks: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
        for delta, first, last in slices:
            if first or last is not None:
                for file in self.files(table, delta)[first:last]:
                    if file.task is not None:
                        tasks.add(file.task)
            else:
                tasks.addAll(plan_tasks(self.spark, self._scan(table, delta)))
        return tasks

    def slices(self, table: JavaTable, span: SnapshotRange) -> list[tuple[SnapshotDelta, int, int | None]]:
        """The deltas of a range, oldest first, each with the slice of its files that the range reads.

        A slice is a start and an end; the end is None if the range reads the delta to its end.
        """
        deltas = list(offsets.commit_deltas(table, self.read, span.after, span.to))
        # The deltas are sorted newest first. If the parent of a delta is not the next older delta, overwrites between
        # the two were skipped.
        parents = [delta.after for delta in deltas]
        predecessors = [*(older.snapshot for older in deltas[1:]), span.after]
        gaps = offsets.overwrite_policy(self.read) == "skip" and parents != predecessors
        if span.has_whole_units and span.state is None and deltas and not gaps:  # one scan reads all deltas
            return [(offsets.combined(deltas, span.after), 0, None)]
        if span.state is not None:
            deltas.append(offsets.state_delta(table, self.read, span.state))
        deltas.reverse()
        last = len(deltas) - 1
        return [
            (delta, span.skipped if i == 0 else 0, span.taken if i == last else None) for i, delta in enumerate(deltas)
        ]

    def _scan(self, table: JavaTable, delta: SnapshotDelta) -> JavaScan:
        if delta.state:
            return foreign_files.with_counts(table, table.newScan()).useSnapshot(delta.snapshot)
        scan = foreign_files.with_counts(table, table.newIncrementalAppendScan()).toSnapshot(delta.snapshot)
        return scan.fromSnapshotExclusive(delta.after) if delta.after is not None else scan

    def _filtered_scan(self, table: JavaTable, delta: SnapshotDelta) -> JavaScan:
        """A scan of the files that may have rows that meet the predicates.

        A table with a name mapping is scanned without a filter, since it may have files of other writers. Their bounds
        may be in milliseconds, or decimals of another scale, so a filter could skip matching rows.
        """
        scan, condition = self._scan(table, delta), self._condition(table)
        if foreign_files.has_mapping(table):
            return scan
        # A scan of a state with an older schema would bind the filter to that schema.
        state = table.snapshot(delta.snapshot) if delta.state else None
        older = state is not None and state.schemaId() != table.schema().schemaId()
        if condition is None or older:
            return scan
        condition = self._without_unordered(table, delta, condition)
        return scan.caseSensitive(self.spark.conf.get("spark.sql.caseSensitive") == "true").filter(condition)

    def _without_unordered(self, table: JavaTable, delta: SnapshotDelta, condition: JavaExpression) -> JavaExpression:
        """The condition without <, <=, > and >= on columns whose partition values do not sort as the columns do."""
        if not overflow.compares_by_order(condition, overflow.ordered_ranges(table)):
            return condition
        history = History(table, table.snapshot(delta.snapshot))
        if delta.state:  # the manifests of the snapshot list all files of the state
            return overflow.without_order(condition, overflow.unordered_columns(table, islice(history, 1)))
        # For appends, only the manifests that each new snapshot added are read.
        new = takewhile(lambda snapshot: snapshot.snapshotId() != delta.after, history)
        return overflow.without_order(condition, overflow.unordered_columns(table, new, added=True))

    def _condition(self, table: JavaTable) -> JavaExpression | None:
        """The predicates as an Iceberg expression, cached per schema."""
        schema = int(table.schema().schemaId())
        if self.predicates and (self._cached_condition is None or self._cached_condition[0] != schema):
            assert self.read.table is not None
            # A predicate that tests for null is not pushed. It could skip files with nulls in a required column, and
            # such files must be planned, so that they are refused.
            pushed = [text for text in self.predicates if not foreign_files.may_test_null(table, text)]
            condition = filters.expression(self.spark, table, self.read.table.sql, pushed) if pushed else None
            self._cached_condition = schema, condition
        return self._cached_condition[1] if self._cached_condition is not None else None
