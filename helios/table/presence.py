"""Decides whether a table's history contains a commit, from its current and earlier metadata files; without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from helios.table.ancestry import Landing, Node, Presence, presence
from helios.table.refs import translating_errors

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from helios.table.snapshots import Table


def presence_in(table: Table, head: int | None, landing: Landing) -> Presence:
    """Decides whether the history that ends at `head` (None if it is empty) contains the commit of `landing`.

    Raises:
        RunError: The earlier metadata cannot be read.
    """
    with translating_errors(table, "reading its earlier metadata"):
        return presence(head, landing, _Version(table.iceberg.metadata), partial(_read, table))


class _Version:
    """A table's metadata as a `helios.table.ancestry.Version`."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata

    def node(self, snapshot: int) -> Node | None:
        raw = self._metadata.snapshot_by_id(snapshot)
        if raw is None:
            return None
        return Node(raw.snapshot_id, raw.parent_snapshot_id, raw.sequence_number or 0, raw.timestamp_ms)

    def earlier(self) -> Sequence[tuple[int, str]]:
        return [(entry.timestamp_ms, entry.metadata_file) for entry in self._metadata.metadata_log]


def _read(table: Table, file: str) -> _Version | None:
    """Reads an earlier metadata file; None if it was deleted."""
    from pyiceberg.serializers import FromInputFile

    try:
        return _Version(FromInputFile.table_metadata(table.iceberg.io.new_input(file)))
    except FileNotFoundError:
        return None
