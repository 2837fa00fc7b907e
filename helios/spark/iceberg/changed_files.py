"""The data and delete files that a snapshot has added and removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from helios.spark.jvm.classes import classes, java_array, listed
from helios.spark.jvm.types.files import (
    JavaContentFile,
    JavaDataFile,
    JavaDeleteFile,
    JavaManifestEntries,
    JavaManifestFile,
    JavaManifestReader,
)
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList

ADDED, DELETED = "ADDED", "DELETED"


def added_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot added."""
    if not _lacks_columns(table):
        return snapshot.addedDataFiles(table.io())
    return cast("list[JavaDataFile]", _changed(table, snapshot, snapshot.dataManifests(table.io()), ADDED))


def removed_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot removed."""
    if not _lacks_columns(table):
        return snapshot.removedDataFiles(table.io())
    return cast("list[JavaDataFile]", _changed(table, snapshot, snapshot.dataManifests(table.io()), DELETED))


def added_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot added."""
    if not _lacks_columns(table):
        return snapshot.addedDeleteFiles(table.io())
    return cast("list[JavaDeleteFile]", _changed(table, snapshot, snapshot.deleteManifests(table.io()), ADDED))


def removed_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot removed."""
    if not _lacks_columns(table):
        return snapshot.removedDeleteFiles(table.io())
    return cast("list[JavaDeleteFile]", _changed(table, snapshot, snapshot.deleteManifests(table.io()), DELETED))


def _lacks_columns(table: JavaTable) -> bool:
    """Whether the table has lost a column by which a former spec has partitioned it.

    A manifest of that spec is written without the column, and Iceberg's snapshots then cannot read the spec from it.
    """
    schema = table.schema()
    sources = [int(field.sourceId()) for spec in table.specs().values() for field in listed(spec.fields())]
    return any(schema.findField(source) is None for source in sources)


def _changed(
    table: JavaTable, snapshot: JavaSnapshot, manifests: JavaList[JavaManifestFile], status: str
) -> list[JavaContentFile]:
    """What `BaseSnapshot` gives, read with the specs of the table."""
    files = classes().org.apache.iceberg.ManifestFiles
    found: list[JavaContentFile] = []
    for manifest in listed(manifests):
        if manifest.snapshotId() != snapshot.snapshotId():
            continue
        read = files.read if str(manifest.content()) == "DATA" else files.readDeleteManifest
        reader: JavaManifestReader = read(manifest, table.io(), table.specs())
        entries = _entries(reader).iterator()
        while entries.hasNext():
            entry = entries.next()  # the same object each time
            if str(entry.status()) == status:
                found.append(entry.file().copy())
        reader.close()
    return found


def _entries(reader: JavaManifestReader) -> JavaManifestEntries:
    """The entries of a manifest, removed ones among them, which Iceberg keeps from other packages."""
    jvm = classes()
    kind = reader.getClass().getClassLoader().loadClass("org.apache.iceberg.ManifestReader")
    entries = jvm.org.apache.iceberg.common.DynMethods.builder("entries")
    method = entries.hiddenImpl(kind, java_array(jvm.java.lang.Class)).build()
    found: JavaManifestEntries = method.invoke(reader, java_array(jvm.java.lang.Object))
    return found
