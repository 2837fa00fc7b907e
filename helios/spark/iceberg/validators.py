"""Validators of a commit's ancestry, which Iceberg runs at every try of the commit."""

from __future__ import annotations

from collections.abc import Callable

from helios.spark.iceberg.added_files import changes_files
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.jvm.types.java import JavaIterable

COMPACTION = "replace"
"""The operation of a snapshot that has the same rows as its parent, in other files."""

INTERFACE = "org.apache.iceberg.SnapshotAncestryValidator"


def changes_rows(snapshot: JavaSnapshot) -> bool:
    """True if a snapshot may have other rows than its parent."""
    return str(snapshot.operation()) != COMPACTION and changes_files(snapshot)


class Watch:
    """Looks for conflicts that Iceberg does not see.

    Attributes:
        conflict: Returns why a snapshot since the look-up is a conflict; an empty text if it is not.
    """

    def __init__(self) -> None:
        self.conflict: Callable[[JavaSnapshot], str] = lambda snapshot: ""


class AncestryValidator:
    """Rejects a commit when this pipeline has committed since its batch was looked up.

    Implements Iceberg's `SnapshotAncestryValidator`, which gets the ancestors to commit onto, newest first.

    Args:
        pipeline: The pipeline's identity.
        checkpoint: The id of its checkpoint.
        head: The newest snapshot at the look-up.
        exclusive: Whether changes of rows by other writers since the look-up are rejected, too.
        watch: Looks for conflicts that Iceberg does not see.
    """

    def __init__(
        self,
        pipeline: str,
        checkpoint: str,
        head: int | None,
        exclusive: bool,
        watch: Watch | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._head = head
        self._passed = {head}  # snapshots whose ancestors an earlier try has checked: calls of the JVM take time
        self._exclusive = exclusive
        self._watch = watch or Watch()
        self._reason = ""

    def validate(self, ancestors: JavaIterable[JavaSnapshot]) -> bool:
        newest: int | None = None
        snapshots = ancestors.iterator()
        while snapshots.hasNext():
            snapshot = snapshots.next()
            id = int(snapshot.snapshotId())
            newest = id if newest is None else newest
            if id in self._passed:
                self._passed.add(newest)
                return True
            summary = snapshot.summary()
            # A pipeline that was renamed meanwhile still has its checkpoint.
            if summary.get("helios.pipeline") == self._pipeline or summary.get("helios.checkpoint") == self._checkpoint:
                self._reason = f"pipeline {self._pipeline} has committed since this batch was looked up"
                return False
            if self._exclusive and changes_rows(snapshot):
                self._reason = f"snapshot {snapshot.snapshotId()} was committed since this batch was looked up"
                return False
            self._reason = self._watch.conflict(snapshot)
            if self._reason:
                return False
        self._reason = "the history no longer reaches back to the snapshot at which this batch was looked up"
        return self._head is None

    def errorMessage(self) -> str:
        return self._reason

    class Java:
        implements = (INTERFACE,)


class HeadValidator:
    """Rejects a commit onto any snapshot but the head at the look-up.

    Args:
        head: The head; None for an empty branch.
    """

    def __init__(self, head: int | None) -> None:
        self._head = head

    def validate(self, ancestors: JavaIterable[JavaSnapshot]) -> bool:
        snapshots = ancestors.iterator()
        newest = snapshots.next().snapshotId() if snapshots.hasNext() else None
        return newest == self._head

    def errorMessage(self) -> str:
        return "another writer has committed to the table meanwhile"

    class Java:
        implements = (INTERFACE,)
