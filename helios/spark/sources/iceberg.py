"""A followed table as a stream of Spark's, whose offsets are places in the table's history.

Iceberg's own stream plans manifests, reads row by row, takes no filter, always reads main, and fails or leaves rows out
where history has expired. This one is Python behind Spark's interface for micro-batch streams (`MicroBatchStream`):
Spark keeps the offsets, the triggers and the recovery; the files of a batch are planned by Iceberg's batch scans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.plan.nodes import ReadPlan
from helios.spark.iceberg import filters
from helios.spark.iceberg import partitions as counted
from helios.spark.iceberg.scan_metrics import ScanMetrics, counts_partitions
from helios.spark.iceberg.scan_tasks import plan_input_partitions, plan_tasks
from helios.spark.jvm.classes import classes
from helios.spark.sources import offsets as places
from helios.spark.sources.offsets import Place, Range, Unit
from helios.spark.sources.snapshot import ROW_ID, columns, source_table, vector_of

SPARK = "org.apache.spark.sql.connector"


@dataclass(frozen=True)
class File:
    """A data file of a unit, and Iceberg's task that reads it; None where there are many."""

    location: str
    rows: int
    task: Any = field(compare=False)


@dataclass(kw_only=True)
class Feed:
    """The units of one followed table, and their files.

    Attributes:
        spark: The session.
        read: The source.
        start: Where the reader first begins.
        predicates: What its rows have to meet, by which files are left out.
        max_rows: About how many rows a batch has at most.
        max_files: How many files a batch reads at most.
        replaces: Whether the target takes rows again that it has.
        rows_only: Whether a batch begins only where rows were added.
        told: Called with what is ahead, whenever the table is looked at.
        scanned: What the last plan of files came to.
    """

    spark: SparkSession
    read: ReadPlan
    start: Place = field(default_factory=Place)
    predicates: Sequence[str] = ()
    max_rows: int | None = None
    max_files: int | None = None
    replaces: bool = False
    rows_only: bool = False
    told: Callable[[list[Unit]], None] = lambda units: None
    scanned: ScanMetrics = field(default_factory=ScanMetrics)
    _until: int | None = None
    _bounded: bool = False
    _listed: tuple[Unit, list[File]] | None = None
    _resolved: tuple[int, Any] | None = None

    def table(self) -> Any:
        """Iceberg's table object, loaded now.

        Raises:
            RunError: It is gone.
        """
        return source_table(self.spark, self.read)

    # how far it goes

    def bound(self) -> None:
        """From now on goes no further than the table is now."""
        newest = places.head(self.table(), self.read.branch)
        self._until, self._bounded = (int(newest.snapshotId()) if newest is not None else None), True

    def latest(self, stood: Place) -> Place:
        """The end of the batch that begins at a place; the place itself when nothing is ahead.

        Raises:
            HeliosError: What is ahead cannot be read.
        """
        table = self.table()
        newest = table.snapshot(self._until) if self._until is not None else None
        # Where that has expired, what came later holds its rows.
        newest = newest or places.head(table, self.read.branch)
        if newest is None or (self._bounded and self._until is None):
            return stood
        fresh = False
        try:
            units = places.ahead(table, self.read, stood, newest)
        except places.Expired as lost:
            if not self._begins_again():
                raise
            kept = partial(self._kept, int(newest.snapshotId()))
            stood, fresh = places.anew(stood, newest, lost, replaces=self.replaces, kept=kept), True
            units = places.ahead(table, self.read, stood, newest)
        self.told(units)
        if self.rows_only and not any(unit.files for unit in units):
            return stood
        if self.max_rows is None and self.max_files is None:
            end = Place(snapshot=int(newest.snapshotId()))
        else:
            end = places.step(
                stood,
                units,
                newest,
                max_rows=self.max_rows,
                max_files=self.max_files,
                rows_of=lambda unit: self._rows_of(table, unit),
            )
        if end.files is None and end.snapshot is not None:
            rows, live = places.lineage(table.snapshot(end.snapshot))
            end = replace(end, rows=rows, live=live)
            if fresh:  # whoever reads the two places must know that the state lies between them
                end = replace(end, state=True, since=stood.since)
        return end

    def _begins_again(self) -> bool:
        """Whether the state is read where history is lost; a state of Spark's would count its rows again."""
        return getattr(self.read.source, "expired", "fail") == "rebootstrap" and not self.rows_only

    def _kept(self, snapshot: int, row: int) -> int:
        """How many rows of a state have a row id below another one."""
        assert self.read.table is not None
        state = self.spark.read.option("versionAsOf", snapshot).table(self.read.table.sql)
        return state.where(F.col(ROW_ID) < row).count()

    def lost(self, span: Range) -> bool:
        """Whether a planned batch cannot be read any more, and the reader may begin again with the state."""
        if not self._begins_again():
            return False
        try:
            self._parts(self.table(), span)
        except places.Expired:
            return True
        return False

    def look(self, stood: Place) -> None:
        """Tells of what is ahead of a place."""
        table = self.table()
        newest = places.head(table, self.read.branch)
        self.told(places.ahead(table, self.read, stood, newest) if newest is not None else [])

    def taken(self) -> ScanMetrics:
        """What the plans since the last call came to."""
        taken, self.scanned = self.scanned, ScanMetrics()
        return taken

    # what is there

    def _rows_of(self, table: Any, unit: Unit) -> list[int]:
        """The rows of each part of a unit; the changes of a commit are one part."""
        if places.follows_changes(self.read):
            return [unit.rows]
        return [file.rows for file in self.files(table, unit)]

    def files(self, table: Any, unit: Unit) -> list[File]:
        """The data files of a unit, always in the same order."""
        if self._listed is None or self._listed[0] != unit:
            kept = counts_partitions(unit.files)
            files = [
                File(str(task.file().location()), int(task.file().recordCount()), task if kept else None)
                for task in plan_tasks(self.spark, self._scan(table, unit))
            ]
            self._listed = unit, sorted(files, key=lambda file: file.location)
        return self._listed[1]

    def tasks(self, table: Any, span: Range) -> tuple[Any, ScanMetrics]:
        """The tasks of a range as a Java list, and what they are of its files and partitions."""
        jvm = classes()
        chosen = jvm.java.util.ArrayList()
        parts = self._parts(table, span)
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

    def _whole(self, table: Any, parts: list[tuple[Unit, int, int | None]]) -> Any:
        """The tasks of all files of some parts of units, as a Java list."""
        jvm = classes()
        found = jvm.java.util.ArrayList()
        for unit, first, last in parts:
            if first or last is not None:
                for file in self.files(table, unit)[first:last]:
                    found.add(file.task)
            else:
                found.addAll(plan_tasks(self.spark, self._scan(table, unit)))
        return found

    def _parts(self, table: Any, span: Range) -> list[tuple[Unit, int, int | None]]:
        """The units of a range, oldest first, with the files of each that are read."""
        units = list(places.appends(table, self.read, span.after, span.to))
        if span.whole and span.state is None and units:  # one scan for all of them
            return [(replace(units[0], after=span.after, files=sum(unit.files for unit in units)), 0, None)]
        if span.state is not None:
            units.append(places.state(table, self.read, span.state))
        units.reverse()
        last = len(units) - 1
        return [
            (unit, span.skipped if i == 0 else 0, span.taken if i == last else None) for i, unit in enumerate(units)
        ]

    def _scan(self, table: Any, unit: Unit) -> Any:
        if unit.state:
            return table.newScan().useSnapshot(unit.snapshot)
        scan = table.newIncrementalAppendScan().toSnapshot(unit.snapshot)
        return scan.fromSnapshotExclusive(unit.after) if unit.after is not None else scan

    def _wanting(self, table: Any, unit: Unit) -> Any:
        """A scan of the files that may hold wanted rows."""
        scan, wanted = self._scan(table, unit), self._wanted(table)
        # A scan of an older state knows the columns of that time only, and their names as they were.
        older = unit.state and table.snapshot(unit.snapshot).schemaId() != table.schema().schemaId()
        return scan.filter(wanted) if wanted is not None and not older else scan

    def _wanted(self, table: Any) -> Any | None:
        """The predicates as Iceberg takes them, which change with the table's columns only."""
        schema = int(table.schema().schemaId())
        if self.predicates and (self._resolved is None or self._resolved[0] != schema):
            assert self.read.table is not None
            self._resolved = schema, filters.expression(self.spark, self.read.table.sql, self.predicates)
        return self._resolved[1] if self._resolved is not None else None


class Stream:
    """Spark's view of a feed.

    Implements the interfaces through which Spark finds a stream: its table, scan builder, scan and micro-batch stream.

    Args:
        feed: What is read.
        delivers: Whether Spark reads the rows; where it does not, the offsets are all that is wanted.
    """

    def __init__(self, feed: Feed, *, delivers: bool) -> None:
        self.feed = feed
        self.delivers = delivers
        self.error: Exception | None = None
        gateway: Any = feed.spark.sparkContext._gateway
        listen: Any = ensure_callback_server_started
        listen(gateway)
        self._gateway = gateway
        self._jvm = classes()
        self._columns = feed.spark._jsparkSession.parseDataType(columns(feed.spark, feed.read).json())
        # A stream's columns never change: later ones are another stream's.
        self._table = feed.table()
        self._factory: Any | None = None
        self._planned: tuple[str, Any] | None = None

    def df(self) -> DataFrame:
        """Its rows, as a streaming DataFrame."""
        jvm = self._jvm
        none = jvm.scala.Option.empty()
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(self._columns)
        options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()
        plan = jvm.org.apache.spark.sql.catalyst.streaming.StreamingRelationV2(
            none, "helios", self, options, attributes, none, none, none
        )
        session = self.feed.spark._jsparkSession
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), self.feed.spark)

    def _offset(self, place: Place) -> Any:
        return self._jvm.org.apache.spark.sql.execution.streaming.SerializedOffset.apply(place.text())

    def _told(self, offset: Any) -> Place:
        return Place.parse(json.loads(str(offset.json())))

    def _none_of(self, kind: str) -> Any:
        found = self._jvm
        for part in f"{SPARK}.{kind}".split("."):
            found = getattr(found, part)
        return self._gateway.new_array(found, 0)

    # a table

    def name(self) -> str:
        return self.feed.read.name

    def id(self) -> None:
        return None

    def version(self) -> None:
        return None

    def schema(self) -> Any:
        return self._columns

    def columns(self) -> Any:
        return self._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.structTypeToV2Columns(self._columns)

    def partitioning(self) -> Any:
        return self._none_of("expressions.Transform")

    def constraints(self) -> Any:
        return self._none_of("catalog.constraints.Constraint")

    def properties(self) -> Any:
        return self._jvm.java.util.HashMap()

    def capabilities(self) -> Any:
        found = self._jvm.java.util.HashSet()
        found.add(self._jvm.org.apache.spark.sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        return found

    def newScanBuilder(self, options: Any) -> Any:
        return self

    # a scan

    def build(self) -> Any:
        return self

    def readSchema(self) -> Any:
        return self._columns

    def description(self) -> str:
        return self.name()

    def toMicroBatchStream(self, checkpoint: str) -> Any:
        return self

    def supportedCustomMetrics(self) -> Any:
        return self._none_of("metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._none_of("metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:
        modes = getattr(self._jvm.org.apache.spark.sql.connector.read, "Scan$ColumnarSupportMode")
        return modes.PARTITION_DEFINED if self.delivers else modes.UNSUPPORTED

    # a stream

    def initialOffset(self) -> Any:
        return self._offset(self.feed.start)

    def deserializeOffset(self, text: str) -> Any:
        return self._offset(Place.parse(json.loads(text)))

    def getDefaultReadLimit(self) -> Any:
        return self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._tell(self.feed.bound)

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        stood = self._told(start) if start is not None else self.feed.start
        return self._offset(self._tell(lambda: self.feed.latest(stood)))

    def reportLatestOffset(self) -> None:
        return None

    def planInputPartitions(self, start: Any, end: Any) -> Any:
        if not self.delivers:
            return self._none_of("read.InputPartition")
        key = f"{start.json()} {end.json()}"
        if self._planned is None or self._planned[0] != key:
            self._planned = key, self._tell(lambda: self._plan(places.between(self._told(start), self._told(end))))
        return self._planned[1]

    def createReaderFactory(self) -> Any:
        # Spark asks for one although it has no partition to read: any that can be sent to an executor will do.
        unused = getattr(
            self._jvm.org.apache.spark.sql.execution.streaming.sources, "RateStreamMicroBatchReaderFactory$"
        )
        return self._factory or getattr(unused, "MODULE$")

    def commit(self, end: Any) -> None:
        return None

    def stop(self) -> None:
        return None

    def _plan(self, span: Range) -> Any:
        tasks, self.feed.scanned = self.feed.tasks(self.feed.table(), span)
        if not tasks.size():
            return self._none_of("read.InputPartition")
        found, self._factory = plan_input_partitions(
            self.feed.spark, self._table, tasks, self._columns, vector=vector_of(self.feed.read)
        )
        return found

    def _tell(self, ask: Callable[[], Any]) -> Any:
        """Spark tells of an error in here as text; this keeps the error itself."""
        try:
            return ask()
        except Exception as error:
            self.error = error
            raise

    # an object

    def toString(self) -> str:
        return self.name()

    def hashCode(self) -> int:
        return hash(self.name()) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        return False

    class Java:
        implements = (
            f"{SPARK}.catalog.SupportsRead",
            f"{SPARK}.read.ScanBuilder",
            f"{SPARK}.read.Scan",
            f"{SPARK}.read.streaming.MicroBatchStream",
            f"{SPARK}.read.streaming.SupportsTriggerAvailableNow",
        )
