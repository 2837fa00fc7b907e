"""The data and delete files that a snapshot has added and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from helios.spark.jvm.classes import classes, java_array, listed
from helios.spark.jvm.types.files import (
    JavaContentFile,
    JavaDataFile,
    JavaDeleteFile,
    JavaFileIO,
    JavaManifestEntries,
    JavaManifestFile,
    JavaManifestReader,
)
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaIterable, JavaList

AnyFile = TypeVar("AnyFile", JavaDataFile, JavaDeleteFile)

ADDED, DELETED = "ADDED", "DELETED"


def added_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot added."""
    return _files(table, snapshot, snapshot.addedDataFiles, snapshot.dataManifests, ADDED)


def removed_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot removed."""
    return _files(table, snapshot, snapshot.removedDataFiles, snapshot.dataManifests, DELETED)


def added_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot added."""
    return _files(table, snapshot, snapshot.addedDeleteFiles, snapshot.deleteManifests, ADDED)


def removed_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot removed."""
    return _files(table, snapshot, snapshot.removedDeleteFiles, snapshot.deleteManifests, DELETED)


def _files(
    table: JavaTable,
    snapshot: JavaSnapshot,
    from_snapshot: Callable[[JavaFileIO], JavaIterable[AnyFile]],
    manifests: Callable[[JavaFileIO], JavaList[JavaManifestFile]],
    status: str,
) -> Iterable[AnyFile]:
    """The files that a snapshot changed: from Iceberg's list, or from the manifests if Iceberg cannot list the files.

    Args:
        from_snapshot: Iceberg's method that lists the files.
        manifests: Iceberg's method that lists the manifests.
        status: The status of the files in the manifests.
    """
    io = table.io()
    if not _has_spec_of_dropped_column(table):
        return from_snapshot(io)
    return cast("list[AnyFile]", _with_status(table, snapshot, manifests(io), status))


def _has_spec_of_dropped_column(table: JavaTable) -> bool:
    """True if an old partition spec uses a column that has been dropped since.

    Iceberg then writes the spec into manifests with a schema that lacks the column, and cannot read the spec back from
    these manifests.
    """
    if len(table.specs()) < 2:  # Iceberg does not drop a column of the current spec
        return False
    schema = table.schema()
    source_ids = [int(field.sourceId()) for spec in table.specs().values() for field in listed(spec.fields())]
    return any(schema.findField(id) is None for id in source_ids)


def _with_status(
    table: JavaTable, snapshot: JavaSnapshot, manifests: JavaList[JavaManifestFile], status: str
) -> list[JavaContentFile]:
    """The files with this status in the manifests of a snapshot. The partition specs come from the table."""
    manifest_files = classes().org.apache.iceberg.ManifestFiles
    changed: list[JavaContentFile] = []
    for manifest in listed(manifests):
        if manifest.snapshotId() != snapshot.snapshotId():
            continue
        read = manifest_files.read if str(manifest.content()) == "DATA" else manifest_files.readDeleteManifest
        reader: JavaManifestReader = read(manifest, table.io(), table.specs())
        entries = _entries(reader).iterator()
        while entries.hasNext():
            entry = entries.next()  # the reader reuses one entry object, so the file must be copied
            if str(entry.status()) == status:
                changed.append(entry.file().copy())
        reader.close()
    return changed


def _entries(reader: JavaManifestReader) -> JavaManifestEntries:
    """All entries of a manifest, also for removed files. The method of Iceberg that reads them is not public."""
    jvm = classes()
    reader_class = reader.getClass().getClassLoader().loadClass("org.apache.iceberg.ManifestReader")
    builder = jvm.org.apache.iceberg.common.DynMethods.builder("entries")
    method = builder.hiddenImpl(reader_class, java_array(jvm.java.lang.Class)).build()
    result: JavaManifestEntries = method.invoke(reader, java_array(jvm.java.lang.Object))
    return result
