"""The size of a table's history, and the retained snapshots of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.table.first_snapshot import has_earlier_rows, is_first
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
    """The snapshots of a branch, newest first; an iteration ends where earlier snapshots have expired.

    Args:
        head: The snapshot to begin with; None for an empty branch.

    Attributes:
        expired: The id of the expired snapshot at which an iteration ended; None if there is none, or if its id is lost
            because PyIceberg has expired it.
        lost: The expired snapshot at which an iteration ended, as text for messages; empty if there is none.
    """

    def __init__(self, table: JavaTable, head: JavaSnapshot | None) -> None:
        self._table = table
        self._head = head
        self.expired: int | None = None
        self.lost = ""

    @property
    def is_cut(self) -> bool:
        """Whether an iteration ended because earlier snapshots have expired."""
        return bool(self.lost)

    def __iter__(self) -> Iterator[JavaSnapshot]:
        snapshot = self._head
        while snapshot is not None:
            yield snapshot
            child, parent = snapshot, snapshot.parentId()
            snapshot = self._table.snapshot(parent) if parent is not None else None
            if parent is not None and snapshot is None:
                self.expired, self.lost = int(parent), f"snapshot {parent}"
            elif parent is None and has_earlier_rows(int(child.sequenceNumber()), _summary(child)):
                self.lost = f"the parent of snapshot {child.snapshotId()}"

    def since(self, start: JavaSnapshot | None) -> list[JavaSnapshot] | None:
        """The snapshots after `start` (None: all), newest first; None if the history does not reach back to it."""
        snapshots: list[JavaSnapshot] = []
        for snapshot in self:
            if start is not None and snapshot.snapshotId() == start.snapshotId():
                return snapshots
            snapshots.append(snapshot)
        return snapshots if start is None else None


def is_first_snapshot(snapshot: JavaSnapshot) -> bool:
    """Whether a snapshot without a parent id is surely the first of its table; see `helios.table.first_snapshot`."""
    return is_first(int(snapshot.sequenceNumber()), _summary(snapshot))


def _summary(snapshot: JavaSnapshot) -> Callable[[str], str | None]:
    summary = snapshot.summary()
    return summary.get if summary is not None else {}.get  # format v1 allows snapshots without a summary
