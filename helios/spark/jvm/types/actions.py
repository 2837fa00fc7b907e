"""Iceberg's maintenance actions on Spark, and their results."""

from __future__ import annotations

from typing import Protocol, Self

from helios.spark.jvm.types.files import JavaManifestFile
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaIterable, JavaObject
from helios.spark.jvm.types.updates import JavaExpiry


class JavaRewriteDataFilesResult(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewriteDataFiles.Result`."""

    def rewrittenDataFilesCount(self) -> int: ...

    def addedDataFilesCount(self) -> int: ...

    def rewrittenBytesCount(self) -> int: ...


class JavaRewriteDataFiles(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewriteDataFiles`."""

    def option(self, key: str, value: str) -> Self: ...

    def toBranch(self, branch: str) -> Self: ...

    def execute(self) -> JavaRewriteDataFilesResult: ...


class JavaRewritePositionDeletesResult(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewritePositionDeleteFiles.Result`."""

    def rewrittenDeleteFilesCount(self) -> int: ...


class JavaRewritePositionDeletes(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewritePositionDeleteFiles`."""

    def execute(self) -> JavaRewritePositionDeletesResult: ...


class JavaRewriteManifestsResult(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewriteManifests.Result`."""

    def rewrittenManifests(self) -> JavaIterable[JavaManifestFile]: ...


class JavaRewriteManifests(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.RewriteManifests`."""

    def execute(self) -> JavaRewriteManifestsResult: ...


class JavaExpireSnapshotsResult(JavaObject, Protocol):
    """An `org.apache.iceberg.actions.ExpireSnapshots.Result`."""

    def deletedDataFilesCount(self) -> int: ...

    def deletedPositionDeleteFilesCount(self) -> int: ...

    def deletedEqualityDeleteFilesCount(self) -> int: ...

    def deletedManifestsCount(self) -> int: ...

    def deletedManifestListsCount(self) -> int: ...


class JavaExpireSnapshotsAction(JavaExpiry, Protocol):
    """An `org.apache.iceberg.actions.ExpireSnapshots`."""

    def execute(self) -> JavaExpireSnapshotsResult: ...


class JavaSparkActions(JavaObject, Protocol):
    """An `org.apache.iceberg.spark.actions.SparkActions`."""

    def rewriteDataFiles(self, table: JavaTable) -> JavaRewriteDataFiles: ...

    def rewritePositionDeletes(self, table: JavaTable) -> JavaRewritePositionDeletes: ...

    def rewriteManifests(self, table: JavaTable) -> JavaRewriteManifests: ...

    def expireSnapshots(self, table: JavaTable) -> JavaExpireSnapshotsAction: ...
