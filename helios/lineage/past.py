"""Commits that have expired, as far as earlier metadata files of their table still tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.table.snapshots import Table

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class Past:
    """The earlier metadata files that a table's log names; a few are read for each commit that is looked up.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.iceberg.io
        self._files = [entry.metadata_file for entry in table.iceberg.metadata.metadata_log]
        self._read: dict[str, TableMetadata | None] = {}

    def holding(self, sequence: int) -> tuple[TableMetadata, int] | None:
        """The metadata that has the snapshot of a sequence number, and its id; None where no file has it any more."""
        low, high = 0, len(self._files)
        while low < high:
            middle = (low + high) // 2
            metadata = self._metadata(self._files[middle])
            # A file that was deleted is older than all that are left.
            if metadata is None or _last_sequence(metadata) < sequence:
                low = middle + 1
            else:
                high = middle
        metadata = self._metadata(self._files[low]) if low < len(self._files) else None
        ids = [raw.snapshot_id for raw in metadata.snapshots if raw.sequence_number == sequence] if metadata else []
        return (metadata, ids[0]) if metadata is not None and ids else None

    def _metadata(self, file: str) -> TableMetadata | None:
        from pyiceberg.serializers import FromInputFile

        if file not in self._read:
            try:
                self._read[file] = FromInputFile.table_metadata(self._io.new_input(file))
            except (OSError, ValueError):  # it was deleted, or is damaged
                self._read[file] = None
        return self._read[file]


def _last_sequence(metadata: TableMetadata) -> int:
    """The newest sequence number; 0 for tables of format v1, which have none."""
    return int(getattr(metadata, "last_sequence_number", 0))
