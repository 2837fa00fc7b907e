"""The size of a table's history, and the retained snapshots of a branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.table.growth import MANY, Growth


def growth(table: JavaTable) -> Growth:
    """The size of a loaded table's history.

    For a short history, only the number of snapshots is returned, so that no request is needed.
    """
    snapshots = cast("JavaList[JavaSnapshot]", table.snapshots())
    count = int(snapshots.size())
    if count < MANY:
        return Growth(snapshots=count, seconds=0)
    first, last = snapshots.get(0), snapshots.get(count - 1)
    location = table.operations().current().metadataFileLocation()
    size = int(table.io().newInputFile(location).getLength()) if location else None
    return Growth(snapshots=count, seconds=(last.timestampMillis() - first.timestampMillis()) / 1000, bytes=size)


class History:
    """The snapshots of a branch, newest first; an iteration ends at the first expired snapshot.

    Args:
        head: The snapshot to begin with; None for an empty branch.

    Attributes:
        expired: The id of the expired snapshot at which an iteration ended; None if no iteration reached one.
    """

    def __init__(self, table: JavaTable, head: JavaSnapshot | None) -> None:
        self._table = table
        self._head = head
        self.expired: int | None = None

    def __iter__(self) -> Iterator[JavaSnapshot]:
        snapshot = self._head
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = self._table.snapshot(parent) if parent is not None else None
            if parent is not None and snapshot is None:
                self.expired = int(parent)

    def since(self, start: JavaSnapshot | None) -> list[JavaSnapshot] | None:
        """The snapshots after `start` (None: all), newest first; None if the history does not reach back to it."""
        snapshots: list[JavaSnapshot] = []
        for snapshot in self:
            if start is not None and snapshot.snapshotId() == start.snapshotId():
                return snapshots
            snapshots.append(snapshot)
        return snapshots if start is None else None
