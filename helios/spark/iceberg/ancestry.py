"""Decides whether a branch of a loaded table contains a batch: by its history first, then by the files of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JJavaError

from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_class
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaSnapshotUtil, JavaTable, JavaTableMetadata
from helios.table.ancestry import Landing, Node, Presence, presence


class JavaTableVersion:
    """A table's metadata in the JVM; implements the `Version` that `presence` reads."""

    def __init__(self, metadata: JavaTableMetadata) -> None:
        self._metadata = metadata

    def node(self, snapshot: int) -> Node | None:
        java_snapshot = self._metadata.snapshot(snapshot)
        if java_snapshot is None:
            return None
        parent = java_snapshot.parentId()
        return Node(
            id=snapshot,
            parent=int(parent) if parent is not None else None,
            sequence=int(java_snapshot.sequenceNumber()),
            at=int(java_snapshot.timestampMillis()),
        )

    def earlier(self) -> Sequence[tuple[int, str]]:
        return [(int(entry.timestampMillis()), str(entry.file())) for entry in listed(self._metadata.previousFiles())]


def presence_of(
    table: JavaTable, head: JavaSnapshot | None, landing: Landing, has_files: Callable[[int], bool] | None = None
) -> Presence:
    """Returns whether a branch contains a batch, as far as this is known.

    Args:
        head: The newest snapshot of the branch; None for an empty one.
        has_files: Returns True if the snapshot with this id still has files that the batch added. It reads the list of
            all files, so it is called last, for the head.
    """
    if head is None:
        return Presence.GONE
    newest = int(head.snapshotId())
    if newest in (landing.snapshot, landing.head) or is_ancestor(table, head, landing.snapshot):
        return Presence.PRESENT
    result = presence(
        newest, landing, JavaTableVersion(table.operations().current()), lambda file: _version(table, file)
    )
    if result is not Presence.UNKNOWN:
        return result
    # A manifest names the snapshot that added it. Only that snapshot and its descendants can have the manifest.
    if any(manifest.snapshotId() == landing.snapshot for manifest in listed(head.allManifests(table.io()))):
        return Presence.PRESENT
    if has_files is not None and has_files(newest):
        return Presence.PRESENT
    return Presence.UNKNOWN


def is_ancestor(table: JavaTable, head: JavaSnapshot, snapshot: int) -> bool:
    """True if a snapshot is the head or one of its retained ancestors."""
    util: JavaSnapshotUtil = classes().org.apache.iceberg.util.SnapshotUtil
    return util.isAncestorOf(table, int(head.snapshotId()), snapshot)


def _version(table: JavaTable, file: str) -> JavaTableVersion | None:
    metadata = read_metadata(table, file)
    return JavaTableVersion(metadata) if metadata is not None else None


def read_metadata(table: JavaTable, file: str) -> JavaTableMetadata | None:
    """An earlier metadata file of the table; None if the file was deleted."""
    try:
        metadata: JavaTableMetadata = classes().org.apache.iceberg.TableMetadataParser.read(table.io(), file)
        return metadata
    except Py4JJavaError as error:
        if java_class(error) != "NotFoundException":
            raise
        return None
