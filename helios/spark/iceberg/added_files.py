"""The files that snapshots add, and a test whether a snapshot changes any file."""

from __future__ import annotations

from collections.abc import Iterable

from helios.spark.iceberg import changed_files
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable


class AddedFiles:
    """The files that snapshots have added; `delete` removes them after a failed commit."""

    def __init__(self, table: JavaTable, snapshots: Iterable[JavaSnapshot]) -> None:
        self._io = table.io()
        # The files are listed before the commit, since a failed commit deletes the manifests.
        self._lists = [
            added_files(table, snapshot)
            for snapshot in snapshots
            for added_files in (changed_files.added_data, changed_files.added_deletes)
        ]

    def delete(self) -> None:
        for files in self._lists:
            for file in files:
                self._io.deleteFile(file.location())


CHANGED_FILES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
"""The entries in a snapshot's summary that count the added and removed files."""


def changes_files(snapshot: JavaSnapshot) -> bool:
    """True if a snapshot adds or removes any file."""
    summary = snapshot.summary()
    return any(int(summary.get(key) or 0) for key in CHANGED_FILES)
