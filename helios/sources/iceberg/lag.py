"""The lag of a pipeline behind a table, from the table's metadata and the pipeline's checkpoint. No JVM is needed."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from helios.errors import HeliosError
from helios.sources.iceberg.offsets import TOUCHED_FILES
from helios.table.positions import Lag, Recorded
from helios.table.readers import readers_of
from helios.table.refs import MAIN, ancestors
from helios.table.snapshots import Table
from helios.table.view import View

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

APPENDS = ("append",)
CHANGES = ("append", "overwrite", "delete")
"""The operations of the commits that a pipeline reads: `APPENDS` for rows, `CHANGES` for row-level changes."""


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """The lag of a pipeline behind a table; None if the table, or the pipeline's position in it, is unknown."""
    source = view.load(entry.source)
    if source is None:
        return None
    read = _read_up_to(pipeline, source, view)
    if read is None and entry.position is not None:  # second choice, since the entry does not show batches without rows
        read = entry.position.snapshot
    operations = CHANGES if entry.changes else APPENDS
    branch = entry.branch or MAIN
    result = lag_behind(source.iceberg.metadata, read, source.name, notes, branch=branch, operations=operations)
    if result is not None and entry.position is not None and entry.position.partial:
        return replace(result, snapshots=result.snapshots + 1)  # the last snapshot is only partly read
    return result


def _read_up_to(pipeline: str, source: Table, view: View) -> int | None:
    """The last snapshot that a pipeline has read, from its checkpoint; None if the checkpoint cannot be read."""
    checkpoints = [view.checkpoints[pipeline]] if view.checkpoints.get(pipeline) else []
    try:
        readers = readers_of(source.name, source.iceberg.metadata, () if checkpoints else view.warehouses, checkpoints)
    except HeliosError:
        return None
    return next((reader.snapshot for reader in readers if reader.pipeline == pipeline), None)


def lag_behind(
    metadata: TableMetadata,
    read: int | None,
    source: str,
    notes: list[str],
    *,
    branch: str = MAIN,
    operations: Collection[str] = APPENDS,
) -> Lag | None:
    """The lag of a reader behind the branch of a table; None if the reader's position is no longer in the history.

    Args:
        read: The last snapshot that was read; None if no snapshot was read.
        notes: A list, to which a note is added if the position is lost.
    """
    head = metadata.refs.get(branch)
    unread = unread_commits(metadata, read, head.snapshot_id if head is not None else None, operations)
    if unread is None:
        notes.append(f"the position in {source} has expired, or was rolled back")
        return None
    unread = [commit for commit in unread if _touches_files(commit)]  # as in the metrics of a run
    age = time.time() - min(commit.timestamp_ms for commit in unread) / 1000 if unread else 0.0
    return Lag(len(unread), max(0.0, age))


def _touches_files(commit: Snapshot) -> bool:
    """True if a commit added or removed files, or its summary has no counts."""
    counts = commit.summary.additional_properties if commit.summary is not None else {}
    return any(int(counts.get(key) or 0) for key in TOUCHED_FILES) or "total-data-files" not in counts


def unread_commits(
    metadata: TableMetadata, read: int | None, head: int | None, operations: Collection[str] = APPENDS
) -> list[Snapshot] | None:
    """The snapshots in `(read, head]` with one of the operations, newest first; all up to `head` if `read` is None.

    Returns:
        The snapshots; None if `read` was rolled back, or has expired together with later snapshots.
    """
    snapshots: list[Snapshot] = []
    for id in ancestors(metadata, head) if head is not None else ():
        if id == read:
            return snapshots
        commit = metadata.snapshot_by_id(id)
        assert commit is not None  # `ancestors` returns retained snapshots only
        if commit.summary is not None and commit.summary.operation.value in operations:
            snapshots.append(commit)
        if read is not None and commit.parent_snapshot_id == read:  # `read` may have expired, but no later snapshot has
            return snapshots
    return snapshots if read is None else None
