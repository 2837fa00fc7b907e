"""The lag of a pipeline behind a table, from the table's metadata and the pipeline's checkpoint; without a JVM."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from helios.errors import HeliosError
from helios.sources.iceberg.offsets import TOUCHED
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
"""The operations of the commits that a pipeline reads: APPENDS for rows, CHANGES for row-level changes."""


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """The lag of a pipeline behind a table; None if the table, or the pipeline's position in it, is unknown."""
    source = view.load(entry.source)
    if source is None:
        return None
    read = _read_up_to(pipeline, source, view)
    if read is None and entry.position is not None:  # the checkpoint is first: the record misses some batches
        read = entry.position.snapshot
    counted = CHANGES if entry.changes else APPENDS
    behind = lag_behind(source.iceberg.metadata, read, source.name, notes, branch=entry.branch or MAIN, counted=counted)
    if behind is not None and entry.position is not None and entry.position.partial:
        return replace(behind, snapshots=behind.snapshots + 1)
    return behind


def _read_up_to(pipeline: str, source: Table, view: View) -> int | None:
    """The last snapshot that a pipeline has read, by its checkpoint; None if the checkpoint cannot be read."""
    checkpoints = [view.checkpoints[pipeline]] if view.checkpoints.get(pipeline) else []
    try:
        readers = readers_of(source.name, source.iceberg.metadata, () if checkpoints else view.places, checkpoints)
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
    counted: Collection[str] = APPENDS,
) -> Lag | None:
    """How far a reader is behind the branch of a table; None if its position is no longer in the history.

    Args:
        metadata: The metadata of the table.
        read: The last snapshot that was read; None before the first.
        source: The name of the table, for the notes.
        notes: Gets a note when the position is lost.
        branch: The branch that is read.
        counted: The operations that are read.
    """
    head = metadata.refs.get(branch)
    unread = waiting(metadata, read, head.snapshot_id if head is not None else None, counted)
    if unread is None:
        notes.append(f"its place in {source} has expired, or was rolled back")
        return None
    unread = [raw for raw in unread if _touches_files(raw)]  # the metrics of a run count only these, too
    age = time.time() - min(raw.timestamp_ms for raw in unread) / 1000 if unread else 0.0
    return Lag(len(unread), max(0.0, age))


def _touches_files(raw: Snapshot) -> bool:
    """True if a commit added or removed files, or its summary has no counts."""
    counts = raw.summary.additional_properties if raw.summary is not None else {}
    return any(int(counts.get(key) or 0) for key in TOUCHED) or "total-data-files" not in counts


def waiting(
    metadata: TableMetadata, read: int | None, head: int | None, counted: Collection[str] = APPENDS
) -> list[Snapshot] | None:
    """The snapshots of some operations in `(read, head]`, or all up to `head`, newest first.

    Returns:
        The snapshots; None if `read` was rolled back, or has expired together with later ones.
    """
    snapshots: list[Snapshot] = []
    for id in ancestors(metadata, head) if head is not None else ():
        if id == read:
            return snapshots
        raw = metadata.snapshot_by_id(id)
        assert raw is not None  # ancestors are retained
        if raw.summary is not None and raw.summary.operation.value in counted:
            snapshots.append(raw)
        if read is not None and raw.parent_snapshot_id == read:  # `read` may have expired, but no later snapshot has
            return snapshots
    return snapshots if read is None else None
