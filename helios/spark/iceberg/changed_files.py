"""The data and delete files that a snapshot has added and removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark import SparkContext

from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable

ADDED, DELETED = "ADDED", "DELETED"


def added_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot added."""
    if not _lacks_columns(table):
        return snapshot.addedDataFiles(table.io())
    return _changed(table, snapshot, snapshot.dataManifests(table.io()), ADDED)


def removed_data(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDataFile]:
    """The data files that a snapshot removed."""
    if not _lacks_columns(table):
        return snapshot.removedDataFiles(table.io())
    return _changed(table, snapshot, snapshot.dataManifests(table.io()), DELETED)


def added_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot added."""
    if not _lacks_columns(table):
        return snapshot.addedDeleteFiles(table.io())
    return _changed(table, snapshot, snapshot.deleteManifests(table.io()), ADDED)


def removed_deletes(table: JavaTable, snapshot: JavaSnapshot) -> Iterable[JavaDeleteFile]:
    """The delete files that a snapshot removed."""
    if not _lacks_columns(table):
        return snapshot.removedDeleteFiles(table.io())
    return _changed(table, snapshot, snapshot.deleteManifests(table.io()), DELETED)


def _lacks_columns(table: JavaTable) -> bool:
    """Whether the table has lost a column by which a former spec has partitioned it.

    A manifest of that spec is written without the column, and Iceberg's snapshots then cannot read the spec from it.
    """
    schema = table.schema()
    sources = [int(field.sourceId()) for spec in table.specs().values() for field in listed(spec.fields())]
    return any(schema.findField(source) is None for source in sources)


def _changed(table: JavaTable, snapshot: JavaSnapshot, manifests: Any, status: str) -> list[Any]:
    """What `BaseSnapshot` gives, read with the specs of the table."""
    files, found = classes().org.apache.iceberg.ManifestFiles, []
    for manifest in listed(manifests):
        if manifest.snapshotId() != snapshot.snapshotId():
            continue
        read = files.read if str(manifest.content()) == "DATA" else files.readDeleteManifest
        reader = read(manifest, table.io(), table.specs())
        entries = _entries(reader).iterator()
        while entries.hasNext():
            entry = entries.next()  # the same object each time
            if str(entry.status()) == status:
                found.append(entry.file().copy())
        reader.close()
    return found


def _entries(reader: Any) -> Any:
    """The entries of a manifest, removed ones among them, which Iceberg keeps from other packages."""
    jvm, gateway = classes(), cast("Any", SparkContext._gateway)
    kind = reader.getClass().getClassLoader().loadClass("org.apache.iceberg.ManifestReader")
    entries = jvm.org.apache.iceberg.common.DynMethods.builder("entries")
    method = entries.hiddenImpl(kind, gateway.new_array(jvm.java.lang.Class, 0)).build()
    return method.invoke(reader, gateway.new_array(jvm.java.lang.Object, 0))
