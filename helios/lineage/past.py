"""Looks up expired commits in earlier metadata files of their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.table.snapshots import Table

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class EarlierMetadata:
    """The earlier metadata files in a table's metadata log. A lookup reads only a few of them, by bisection."""

    def __init__(self, table: Table) -> None:
        self._io = table.iceberg.io
        self._files = [entry.metadata_file for entry in table.iceberg.metadata.metadata_log]
        self._read: dict[str, TableMetadata | None] = {}

    def with_sequence_number(self, sequence: int) -> tuple[TableMetadata, int] | None:
        """Finds metadata with the snapshot of a sequence number, and the snapshot's id; None if no file has it."""
        low, high = 0, len(self._files)
        while low < high:
            middle = (low + high) // 2
            metadata = self._metadata(self._files[middle])
            # A file that was deleted is older than all files that remain.
            if metadata is None or _last_sequence(metadata) < sequence:
                low = middle + 1
            else:
                high = middle
        metadata = self._metadata(self._files[low]) if low < len(self._files) else None
        if metadata is None:
            return None
        ids = (snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.sequence_number == sequence)
        id = next(ids, None)
        return (metadata, id) if id is not None else None

    def _metadata(self, file: str) -> TableMetadata | None:
        from pyiceberg.serializers import FromInputFile

        if file not in self._read:
            try:
                self._read[file] = FromInputFile.table_metadata(self._io.new_input(file))
            except (OSError, ValueError):  # the file was deleted, or is damaged
                self._read[file] = None
        return self._read[file]


def _last_sequence(metadata: TableMetadata) -> int:
    """The newest sequence number in the metadata; 0 for format v1, which has no sequence numbers."""
    return int(getattr(metadata, "last_sequence_number", 0))
