"""The retained snapshots of a table, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable


class History:
    """The snapshots of a branch, newest first, as far as they have not expired.

    Args:
        table: Iceberg's table object.
        head: The snapshot to begin with; None for an empty branch.

    Attributes:
        expired: The id of the expired snapshot at which an iteration ended; None when it has not met one.
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

    def since(self, end: JavaSnapshot | None) -> list[JavaSnapshot] | None:
        """The snapshots after another one, newest first; None where the history does not reach back to it."""
        found: list[JavaSnapshot] = []
        for snapshot in self:
            if end is not None and snapshot.snapshotId() == end.snapshotId():
                return found
            found.append(snapshot)
        return found if end is None else None
