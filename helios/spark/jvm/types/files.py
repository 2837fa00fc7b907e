"""Iceberg's data files, the tasks that read them, and the scans that plan the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, SupportsFloat

from helios.spark.jvm.types.java import JavaCloseableIterable, JavaCollection, JavaEnum, JavaList, JavaMap, JavaObject

if TYPE_CHECKING:
    from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable


class JavaExpression(JavaObject, Protocol):
    """An `org.apache.iceberg.expressions.Expression`."""

    def op(self) -> JavaEnum: ...


class JavaJunction(JavaExpression, Protocol):
    """An `org.apache.iceberg.expressions.And` or `Or`."""

    def left(self) -> JavaExpression: ...

    def right(self) -> JavaExpression: ...


class JavaPredicate(JavaExpression, Protocol):
    """An `org.apache.iceberg.expressions.UnboundPredicate`."""

    def ref(self) -> JavaReference: ...

    def literal(self) -> JavaLiteral: ...

    def literals(self) -> JavaList[JavaLiteral]: ...


class JavaReference(JavaObject, Protocol):
    """An `org.apache.iceberg.expressions.NamedReference`."""

    def name(self) -> str: ...


class JavaLiteral(JavaObject, Protocol):
    """An `org.apache.iceberg.expressions.Literal`."""

    def value(self) -> SupportsFloat: ...


class JavaContentFile(JavaObject, Protocol):
    """An `org.apache.iceberg.ContentFile` of a committed snapshot."""

    def location(self) -> str: ...

    def content(self) -> JavaEnum:
        """DATA, POSITION_DELETES or EQUALITY_DELETES."""

    def recordCount(self) -> int: ...

    def fileSizeInBytes(self) -> int: ...

    def format(self) -> JavaEnum:
        """PARQUET, AVRO or ORC."""

    def specId(self) -> int: ...

    def partition(self) -> JavaObject: ...

    def dataSequenceNumber(self) -> int: ...

    def copy(self) -> Self: ...


class JavaDataFile(JavaContentFile, Protocol):
    """An `org.apache.iceberg.DataFile`."""

    def firstRowId(self) -> int | None:
        """The id of the file's first row, in tables of format v3."""


class JavaDeleteFile(JavaContentFile, Protocol):
    """An `org.apache.iceberg.DeleteFile`."""

    def referencedDataFile(self) -> str | None: ...

    def contentOffset(self) -> int | None:
        """The offset of a deletion vector in its file; None for other deletes."""


class JavaFieldSummary(JavaObject, Protocol):
    """An `org.apache.iceberg.ManifestFile.PartitionFieldSummary`."""

    def lowerBound(self) -> JavaObject | None:
        """A `ByteBuffer`; null if all partitions are null."""

    def upperBound(self) -> JavaObject | None: ...


class JavaManifestFile(JavaObject, Protocol):
    """An `org.apache.iceberg.ManifestFile`."""

    def snapshotId(self) -> int | None:
        """The id of the snapshot that added the manifest."""

    def partitionSpecId(self) -> int: ...

    def content(self) -> JavaEnum:
        """DATA or DELETES."""

    def partitions(self) -> JavaList[JavaFieldSummary] | None:
        """The summary of each field of the partition spec; None if the manifest has no summaries."""

    def hasAddedFiles(self) -> bool: ...

    def hasExistingFiles(self) -> bool: ...

    def length(self) -> int: ...


class JavaManifestEntry(JavaObject, Protocol):
    """An `org.apache.iceberg.ManifestEntry`."""

    def status(self) -> JavaEnum:
        """EXISTING, ADDED or DELETED."""

    def file(self) -> JavaContentFile: ...


class JavaManifestEntries(JavaObject, Protocol):
    """An iterator over entries. `next` returns the same object each time, with new values."""

    def iterator(self) -> JavaManifestEntries: ...

    def hasNext(self) -> bool: ...

    def next(self) -> JavaManifestEntry: ...


class JavaManifestReader(JavaObject, Protocol):
    """An `org.apache.iceberg.ManifestReader`."""

    def close(self) -> None: ...


class JavaInputFile(JavaObject, Protocol):
    """An `org.apache.iceberg.io.InputFile`."""

    def exists(self) -> bool: ...

    def getLength(self) -> int: ...


class JavaFileIO(JavaObject, Protocol):
    """An `org.apache.iceberg.io.FileIO`."""

    def newInputFile(self, location: str) -> JavaInputFile: ...

    def newOutputFile(self, location: str) -> JavaObject: ...

    def deleteFile(self, location: str) -> None: ...

    def properties(self) -> JavaMap[str, str]: ...

    def credentials(self) -> JavaList[JavaObject]:
        """Storage credentials from the catalog's server; not every client has this method."""


# scans


class JavaFileScanTask(JavaObject, Protocol):
    """An `org.apache.iceberg.FileScanTask`: a data file with the deletes that apply to it."""

    def file(self) -> JavaDataFile: ...

    def deletes(self) -> JavaList[JavaDeleteFile]: ...


class JavaFileReporter(Protocol):
    """Helios's Java classes `NullCounts` and `ScanFiles`, which return values of each task's file."""

    def call(self, tasks: JavaList[JavaFileScanTask]) -> JavaList[JavaObject]: ...


class JavaTaskComparer(Protocol):
    """Helios's Java class `OtherTasks`, which returns the tasks that only one of two lists has."""

    def call(
        self, first: JavaList[JavaFileScanTask], second: JavaList[JavaFileScanTask]
    ) -> JavaList[JavaList[JavaFileScanTask]]: ...


class JavaManifestReporter(Protocol):
    """Helios's Java class `ManifestNulls`, which finds files with nulls in a snapshot's manifests."""

    def readUnchecked(self, table: JavaTable, snapshot: JavaSnapshot) -> JavaObject: ...


class JavaFooterReporter(Protocol):
    """Helios's Java class `Footers`, which reads the columns of parquet files."""

    def call(self, locations: JavaList[str]) -> JavaList[JavaObject]: ...


class JavaScan(JavaObject, Protocol):
    """An `org.apache.iceberg.Scan` of data files."""

    def includeColumnStats(self, columns: JavaCollection[str]) -> Self: ...

    def filter(self, expression: JavaExpression) -> Self: ...

    def caseSensitive(self, sensitive: bool) -> Self: ...

    def planFiles(self) -> JavaCloseableIterable[JavaFileScanTask]: ...


class JavaTableScan(JavaScan, Protocol):
    """An `org.apache.iceberg.TableScan` or `BatchScan`."""

    def useSnapshot(self, snapshot: int) -> Self: ...
    def useRef(self, name: str) -> Self: ...


class JavaIncrementalAppendScan(JavaScan, Protocol):
    """An `org.apache.iceberg.IncrementalAppendScan`."""

    def fromSnapshotExclusive(self, snapshot: int) -> Self: ...

    def toSnapshot(self, snapshot: int) -> Self: ...


class JavaScanTaskSetManager(JavaObject, Protocol):
    """An `org.apache.iceberg.spark.ScanTaskSetManager`, which keeps staged tasks by table and id."""

    def stageTasks(self, table: JavaTable, name: str, tasks: JavaList[JavaFileScanTask]) -> None: ...

    def removeTasks(self, table: JavaTable, name: str) -> JavaList[JavaFileScanTask]: ...
