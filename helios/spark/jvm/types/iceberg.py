"""Iceberg's tables, snapshots and catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, overload

from helios.spark.jvm.types.files import (
    JavaDataFile,
    JavaDeleteFile,
    JavaFileIO,
    JavaIncrementalAppendScan,
    JavaManifestFile,
    JavaTableScan,
)
from helios.spark.jvm.types.java import JavaArray, JavaIterable, JavaList, JavaMap, JavaObject, JavaSet

if TYPE_CHECKING:
    from helios.spark.jvm.types.updates import (
        JavaExpireSnapshots,
        JavaManageSnapshots,
        JavaReplaceSortOrder,
        JavaTransaction,
        JavaUpdatePartitionSpec,
        JavaUpdateProperties,
        JavaUpdateSchema,
    )


class JavaType(JavaObject, Protocol):
    """An `org.apache.iceberg.types.Type`."""


class JavaStructType(JavaType, Protocol):
    """An `org.apache.iceberg.types.Types.StructType`."""

    def fields(self) -> JavaList[JavaNestedField]: ...


class JavaNestedField(JavaObject, Protocol):
    """An `org.apache.iceberg.types.Types.NestedField`."""

    def name(self) -> str: ...

    def type(self) -> JavaType: ...


class JavaSchema(JavaObject, Protocol):
    """An `org.apache.iceberg.Schema`."""

    def schemaId(self) -> int: ...

    def columns(self) -> JavaList[JavaNestedField]: ...

    def findColumnName(self, field: int) -> str: ...

    @overload
    def findField(self, name: str) -> JavaNestedField: ...

    @overload
    def findField(self, field: int) -> JavaNestedField | None: ...

    def caseInsensitiveFindField(self, name: str) -> JavaNestedField: ...

    def identifierFieldNames(self) -> JavaSet[str]: ...

    def idToName(self) -> JavaMap[int, str]:
        """The names of all columns and nested fields, by their ids."""


class JavaTransform(JavaObject, Protocol):
    """An `org.apache.iceberg.transforms.Transform`."""

    def isVoid(self) -> bool: ...


class JavaPartitionField(JavaObject, Protocol):
    """An `org.apache.iceberg.PartitionField`."""

    def name(self) -> str: ...

    def sourceId(self) -> int: ...

    def transform(self) -> JavaTransform: ...


class JavaPartitionSpec(JavaObject, Protocol):
    """An `org.apache.iceberg.PartitionSpec`."""

    def specId(self) -> int: ...

    def fields(self) -> JavaList[JavaPartitionField]: ...

    def partitionType(self) -> JavaStructType: ...


class JavaPartitionSpecBuilder(JavaObject, Protocol):
    """An `org.apache.iceberg.PartitionSpec.Builder`; each transform has a method that adds a field."""

    def caseSensitive(self, sensitive: bool) -> Self: ...

    def build(self) -> JavaPartitionSpec: ...


class JavaSortField(JavaObject, Protocol):
    """An `org.apache.iceberg.SortField`."""

    def sourceId(self) -> int: ...


class JavaSortOrder(JavaObject, Protocol):
    """An `org.apache.iceberg.SortOrder`."""

    def fields(self) -> JavaList[JavaSortField]: ...

    def isUnsorted(self) -> bool: ...

    def orderId(self) -> int: ...

    def sameOrder(self, other: JavaSortOrder) -> bool: ...


class JavaSnapshot(JavaObject, Protocol):
    """An `org.apache.iceberg.Snapshot`."""

    def snapshotId(self) -> int: ...

    def parentId(self) -> int | None: ...

    def sequenceNumber(self) -> int:
        """0 in tables of format v1."""

    def timestampMillis(self) -> int: ...

    def operation(self) -> str | None:
        """append, replace, overwrite or delete; None in the oldest tables."""

    def summary(self) -> JavaMap[str, str]:
        """None in the oldest tables."""

    def schemaId(self) -> int | None: ...

    def manifestListLocation(self) -> str: ...

    def firstRowId(self) -> int | None:
        """The first row id that the snapshot assigned, in format v3."""

    def addedRows(self) -> int | None:
        """The number of row ids that the snapshot assigned, in format v3."""

    def allManifests(self, io: JavaFileIO) -> JavaList[JavaManifestFile]: ...

    def dataManifests(self, io: JavaFileIO) -> JavaList[JavaManifestFile]: ...

    def deleteManifests(self, io: JavaFileIO) -> JavaList[JavaManifestFile]: ...

    def addedDataFiles(self, io: JavaFileIO) -> JavaIterable[JavaDataFile]: ...

    def removedDataFiles(self, io: JavaFileIO) -> JavaIterable[JavaDataFile]: ...

    def addedDeleteFiles(self, io: JavaFileIO) -> JavaIterable[JavaDeleteFile]: ...

    def removedDeleteFiles(self, io: JavaFileIO) -> JavaIterable[JavaDeleteFile]: ...


class JavaSnapshotRef(JavaObject, Protocol):
    """An `org.apache.iceberg.SnapshotRef`: a branch or a tag."""

    def snapshotId(self) -> int: ...

    def isBranch(self) -> bool: ...


class JavaMetadataLogEntry(JavaObject, Protocol):
    """An `org.apache.iceberg.TableMetadata.MetadataLogEntry`: an earlier metadata file."""

    def file(self) -> str: ...

    def timestampMillis(self) -> int: ...


class JavaTableMetadata(JavaObject, Protocol):
    """An `org.apache.iceberg.TableMetadata`."""

    def uuid(self) -> str: ...

    def metadataFileLocation(self) -> str | None:
        """None if the catalog's server does not send the location."""

    def lastSequenceNumber(self) -> int: ...

    def lastColumnId(self) -> int: ...

    def lastUpdatedMillis(self) -> int: ...

    def previousFiles(self) -> JavaList[JavaMetadataLogEntry]: ...

    def snapshot(self, snapshot: int) -> JavaSnapshot | None: ...

    def currentSnapshot(self) -> JavaSnapshot | None: ...

    def currentSchemaId(self) -> int: ...

    def defaultSpecId(self) -> int: ...

    def defaultSortOrderId(self) -> int: ...

    def properties(self) -> JavaMap[str, str]: ...

    def property(self, name: str, default: str) -> str: ...

    def replaceProperties(self, properties: JavaMap[str, str]) -> JavaTableMetadata:
        """The same metadata with other properties; nothing is committed."""


class JavaTableOperations(JavaObject, Protocol):
    """An `org.apache.iceberg.TableOperations`."""

    def current(self) -> JavaTableMetadata: ...

    def refresh(self) -> JavaTableMetadata: ...

    def commit(self, base: JavaTableMetadata, metadata: JavaTableMetadata) -> None: ...

    def metadataFileLocation(self, name: str) -> str:
        """The location of a metadata file with this name."""


class JavaLocationProvider(JavaObject, Protocol):
    """An `org.apache.iceberg.io.LocationProvider`."""

    def newDataLocation(self, name: str) -> str:
        """The location of a data file with this name."""


class JavaTable(JavaObject, Protocol):
    """An `org.apache.iceberg.Table` that is a `HasTableOperations` too."""

    def name(self) -> str: ...

    def uuid(self) -> JavaObject:
        """A `java.util.UUID`; `str()` of it is its text."""

    def location(self) -> str: ...

    def refresh(self) -> None: ...

    def operations(self) -> JavaTableOperations: ...

    def io(self) -> JavaFileIO: ...

    def locationProvider(self) -> JavaLocationProvider: ...

    # metadata

    def properties(self) -> JavaMap[str, str]: ...

    def schema(self) -> JavaSchema: ...

    def schemas(self) -> JavaMap[int, JavaSchema]: ...

    def spec(self) -> JavaPartitionSpec: ...

    def specs(self) -> JavaMap[int, JavaPartitionSpec]: ...

    def sortOrder(self) -> JavaSortOrder: ...

    # contents

    def currentSnapshot(self) -> JavaSnapshot | None: ...

    def snapshot(self, snapshot: int | str) -> JavaSnapshot | None:
        """A snapshot by its id, or by the name of a branch or tag."""

    def snapshots(self) -> JavaIterable[JavaSnapshot]: ...

    def refs(self) -> JavaMap[str, JavaSnapshotRef]: ...

    def newScan(self) -> JavaTableScan: ...

    def newBatchScan(self) -> JavaTableScan: ...

    def newIncrementalAppendScan(self) -> JavaIncrementalAppendScan: ...

    # changes

    def newTransaction(self) -> JavaTransaction: ...

    def updateProperties(self) -> JavaUpdateProperties: ...

    def updateSchema(self) -> JavaUpdateSchema: ...

    def updateSpec(self) -> JavaUpdatePartitionSpec: ...

    def replaceSortOrder(self) -> JavaReplaceSortOrder: ...

    def manageSnapshots(self) -> JavaManageSnapshots: ...

    def expireSnapshots(self) -> JavaExpireSnapshots: ...


# catalogs


class JavaNamespace(JavaObject, Protocol):
    """An `org.apache.iceberg.catalog.Namespace`."""

    def levels(self) -> JavaArray[str]: ...


class JavaTableIdentifier(JavaObject, Protocol):
    """An `org.apache.iceberg.catalog.TableIdentifier`."""

    def name(self) -> str: ...

    def namespace(self) -> JavaNamespace: ...


class JavaTableBuilder(JavaObject, Protocol):
    """An `org.apache.iceberg.catalog.Catalog.TableBuilder`."""

    def withPartitionSpec(self, spec: JavaPartitionSpec) -> Self: ...

    def withSortOrder(self, order: JavaSortOrder) -> Self: ...

    def withProperty(self, key: str, value: str) -> Self: ...

    def create(self) -> JavaTable: ...


class JavaCatalog(JavaObject, Protocol):
    """An `org.apache.iceberg.catalog.Catalog` that is a `SupportsNamespaces` too."""

    def loadTable(self, name: JavaTableIdentifier) -> JavaTable: ...

    def tableExists(self, name: JavaTableIdentifier) -> bool: ...

    def listTables(self, namespace: JavaNamespace) -> JavaList[JavaTableIdentifier]: ...

    def buildTable(self, name: JavaTableIdentifier, schema: JavaSchema) -> JavaTableBuilder: ...

    def namespaceExists(self, namespace: JavaNamespace) -> bool: ...

    def createNamespace(self, namespace: JavaNamespace) -> None: ...

    def registerTable(self, name: JavaTableIdentifier, metadata: str) -> JavaTable:
        """Registers a metadata file as a table."""


class JavaTableCommit(JavaObject, Protocol):
    """An `org.apache.iceberg.catalog.TableCommit`: the changes of one table in a commit of several tables."""


class JavaRestCatalog(JavaCatalog, Protocol):
    """An `org.apache.iceberg.rest.RESTCatalog`."""

    def commitTransaction(self, commits: JavaList[JavaTableCommit]) -> None: ...


class JavaSnapshotUtil(Protocol):
    """The static methods of `org.apache.iceberg.util.SnapshotUtil`."""

    def latestSnapshot(self, table: JavaTable, branch: str | None) -> JavaSnapshot | None: ...

    def isAncestorOf(self, table: JavaTable, snapshot: int, ancestor: int) -> bool: ...
