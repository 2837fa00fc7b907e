"""Validators that check the ancestors of a new snapshot; Iceberg runs them at every try of the commit.

Before a pipeline writes a batch, it looks up whether the table already has the batch. The validators reject a commit if
the table has changed since that look-up in a way that could repeat or lose rows.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.spark.iceberg.added_files import changes_files
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.jvm.types.java import JavaIterable

COMPACTION = "replace"
"""The operation of a snapshot that has the same rows as its parent, in other files."""

INTERFACE = "org.apache.iceberg.SnapshotAncestryValidator"


def changes_rows(snapshot: JavaSnapshot) -> bool:
    """True if a snapshot may have different rows from its parent."""
    return str(snapshot.operation()) != COMPACTION and changes_files(snapshot)


class Watch:
    """A hook that finds conflicts that Iceberg does not detect.

    Attributes:
        conflict_reason: Returns the reason why a snapshot that was committed since the look-up is a conflict; an
            empty text for no conflict.
    """

    def __init__(self) -> None:
        self.conflict_reason: Callable[[JavaSnapshot], str] = lambda snapshot: ""


class AncestryValidator:
    """Rejects a commit if this pipeline has committed since its batch was looked up.

    Implements Iceberg's `SnapshotAncestryValidator`, which gets the snapshots below the commit, newest first.

    Args:
        checkpoint: The id of the pipeline's checkpoint.
        head: The newest snapshot at the time of the look-up; None for an empty branch.
        exclusive: Whether the commit is also rejected if another writer has changed rows since the look-up.
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
        self._checked = {head}  # an earlier try has checked these snapshots and their ancestors; JVM calls are slow
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
            if id in self._checked:
                self._checked.add(newest)
                return True
            summary = snapshot.summary()
            # A pipeline that was renamed meanwhile still has the same checkpoint.
            if summary.get("helios.pipeline") == self._pipeline or summary.get("helios.checkpoint") == self._checkpoint:
                self._reason = f"pipeline {self._pipeline} has committed since this batch was looked up in the table"
                return False
            if self._exclusive and changes_rows(snapshot):
                self._reason = f"snapshot {id} was committed since this batch was looked up in the table"
                return False
            self._reason = self._watch.conflict_reason(snapshot)
            if self._reason:
                return False
        self._reason = "the history no longer reaches back to the look-up of this batch in the table"
        return self._head is None

    def errorMessage(self) -> str:
        return self._reason

    class Java:
        implements = (INTERFACE,)


class HeadValidator:
    """Rejects a commit if the head of the branch is not `head`, which is None for an empty branch."""

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
