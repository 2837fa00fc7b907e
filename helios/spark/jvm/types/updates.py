"""Iceberg's changes to a table: transactions, operations that create snapshots, and updates of metadata."""

from __future__ import annotations

from typing import Protocol, Self

from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile, JavaExpression
from helios.spark.jvm.types.iceberg import (
    JavaSnapshot,
    JavaSortOrder,
    JavaTable,
    JavaType,
)
from helios.spark.jvm.types.java import JavaIterable, JavaList, JavaObject


class JavaPendingUpdate(JavaObject, Protocol):
    """An `org.apache.iceberg.PendingUpdate`."""

    def commit(self) -> None: ...


# operations that create snapshots


class AncestryCheck(Protocol):
    """An `org.apache.iceberg.SnapshotAncestryValidator`, which Python implements."""

    def validate(self, ancestors: JavaIterable[JavaSnapshot]) -> bool:
        """True if a snapshot may be committed after these ancestors, which come newest first."""

    def errorMessage(self) -> str: ...


class JavaSnapshotUpdate(JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.SnapshotUpdate`: append, overwrite, replace partitions, row delta, delete or rewrite."""

    def set(self, key: str, value: str) -> Self:
        """Sets an entry of the snapshot's summary."""

    def toBranch(self, branch: str) -> Self: ...

    def validateWith(self, check: AncestryCheck) -> Self: ...


class JavaAppendFiles(JavaSnapshotUpdate, Protocol):
    """An `org.apache.iceberg.AppendFiles`."""

    def appendFile(self, file: JavaDataFile) -> Self: ...


class JavaDeleteFiles(JavaSnapshotUpdate, Protocol):
    """An `org.apache.iceberg.DeleteFiles`."""

    def deleteFromRowFilter(self, expression: JavaExpression) -> Self: ...

    def deleteFile(self, file: JavaDataFile) -> Self: ...

    def validateFilesExist(self) -> Self: ...


class JavaReplacePartitions(JavaSnapshotUpdate, Protocol):
    """An `org.apache.iceberg.ReplacePartitions`."""

    def addFile(self, file: JavaDataFile) -> Self: ...

    def validateFromSnapshot(self, snapshot: int) -> Self:
        """Only commits after this snapshot may conflict."""

    def validateNoConflictingData(self) -> Self: ...

    def validateNoConflictingDeletes(self) -> Self: ...


class JavaRowChange(JavaSnapshotUpdate, Protocol):
    """An `org.apache.iceberg.RowDelta` of a merge-on-read command, or an `OverwriteFiles` of a copy-on-write one."""

    def conflictDetectionFilter(self, expression: JavaExpression) -> Self:
        """Only files that may have matching rows conflict."""

    def validateFromSnapshot(self, snapshot: int) -> Self:
        """Only commits after this snapshot may conflict."""


class JavaRowDelta(JavaRowChange, Protocol):
    """An `org.apache.iceberg.RowDelta`."""

    def addRows(self, file: JavaDataFile) -> Self: ...

    def addDeletes(self, file: JavaDeleteFile) -> Self: ...

    def removeDeletes(self, file: JavaDeleteFile) -> Self: ...

    def validateDataFilesExist(self, locations: JavaIterable[str]) -> Self:
        """Makes the commit fail if a rewrite has removed one of these files."""

    def validateDeletedFiles(self) -> Self:
        """Makes the commit also fail if a delete has removed one of the files of `validateDataFilesExist`."""

    def validateNoConflictingDeleteFiles(self) -> Self: ...

    def validateNoConflictingDataFiles(self) -> Self: ...


class JavaTransaction(JavaObject, Protocol):
    """An `org.apache.iceberg.Transaction`."""

    def table(self) -> JavaTable:
        """The table with the changes of the transaction so far."""

    def newAppend(self) -> JavaAppendFiles: ...

    def newFastAppend(self) -> JavaSnapshotUpdate: ...

    def newOverwrite(self) -> JavaRowChange: ...

    def newReplacePartitions(self) -> JavaReplacePartitions: ...

    def newRowDelta(self) -> JavaRowDelta: ...

    def newDelete(self) -> JavaDeleteFiles: ...

    def updateProperties(self) -> JavaUpdateProperties: ...

    def manageSnapshots(self) -> JavaManageSnapshots: ...

    def commitTransaction(self) -> None: ...


# updates of metadata


class JavaUpdateProperties(JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.UpdateProperties`."""

    def set(self, key: str, value: str) -> Self: ...

    def remove(self, key: str) -> Self: ...


class JavaUpdateSchema(JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.UpdateSchema`."""

    def addColumn(self, parent: str | None, name: str, type: JavaType, doc: str | None, default: None) -> Self: ...

    def updateColumn(self, name: str, type: JavaType) -> Self: ...

    def makeColumnOptional(self, name: str) -> Self: ...

    def renameColumn(self, name: str, to: str) -> Self: ...

    def deleteColumn(self, name: str) -> Self: ...


class JavaTerm(JavaExpression, Protocol):
    """An `org.apache.iceberg.expressions.UnboundTerm`: a column or a transform of one."""


class JavaUpdatePartitionSpec(JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.UpdatePartitionSpec`."""

    def caseSensitive(self, sensitive: bool) -> Self: ...

    def addField(self, term: JavaTerm) -> Self: ...

    def removeField(self, name: str) -> Self: ...


class JavaSortOrderBuilder(JavaObject, Protocol):
    """An `org.apache.iceberg.SortOrderBuilder`."""

    def caseSensitive(self, sensitive: bool) -> Self: ...

    def asc(self, term: JavaTerm, nulls: JavaObject) -> Self: ...

    def desc(self, term: JavaTerm, nulls: JavaObject) -> Self: ...


class JavaNewSortOrder(JavaSortOrderBuilder, Protocol):
    """An `org.apache.iceberg.SortOrder.Builder`."""

    def build(self) -> JavaSortOrder: ...


class JavaReplaceSortOrder(JavaSortOrderBuilder, JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.ReplaceSortOrder`."""


class JavaManageSnapshots(JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.ManageSnapshots`."""

    def createBranch(self, name: str, snapshot: int = ...) -> Self: ...

    def renameBranch(self, name: str, to: str) -> Self: ...

    def createTag(self, name: str, snapshot: int) -> Self: ...

    def removeBranch(self, name: str) -> Self: ...

    def removeTag(self, name: str) -> Self: ...

    def replaceBranch(self, name: str, snapshot: int) -> Self: ...

    def fastForwardBranch(self, name: str, to: str) -> Self: ...

    def setCurrentSnapshot(self, snapshot: int) -> Self: ...


class JavaExpiry(JavaObject, Protocol):
    """The common interface of `org.apache.iceberg.ExpireSnapshots` and the Spark action of that name."""

    def expireOlderThan(self, millis: int) -> Self: ...

    def retainLast(self, count: int) -> Self: ...

    def expireSnapshotId(self, snapshot: int) -> Self: ...


class JavaExpireSnapshots(JavaExpiry, JavaPendingUpdate, Protocol):
    """An `org.apache.iceberg.ExpireSnapshots`."""

    def apply(self) -> JavaList[JavaSnapshot]: ...
