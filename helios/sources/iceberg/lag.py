"""How far a pipeline is behind a table, by the metadata of the table and the pipeline's checkpoint; without a JVM."""

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
"""The operations that a pipeline reads: of rows, and of changes."""


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """The commits of a table that a pipeline has not read; None where the table or the place in it is unknown."""
    source = view.load(entry.source)
    if source is None:
        return None
    read = _read_up_to(pipeline, source, view)
    if read is None and entry.position is not None:  # batches that wrote nothing are in the checkpoint alone
        read = entry.position.snapshot
    counted = CHANGES if entry.changes else APPENDS
    behind = lag_behind(source.iceberg.metadata, read, source.name, notes, branch=entry.branch or MAIN, counted=counted)
    partial = entry.position is not None and entry.position.partial
    return replace(behind, snapshots=behind.snapshots + 1) if behind is not None and partial else behind


def _read_up_to(pipeline: str, source: Table, view: View) -> int | None:
    """The last snapshot that a pipeline has read, by its checkpoint; None where that cannot be read."""
    given = [view.checkpoints[pipeline]] if view.checkpoints.get(pipeline) else []
    try:
        readers = readers_of(source.name, source.iceberg.metadata, () if given else view.places, given)
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
    """How far a reader is behind the branch of a table; None where its place in the history is lost.

    Args:
        metadata: The metadata of the table.
        read: The last snapshot that is read; None when none is.
        source: The name of the table, for the notes.
        notes: Gets a note when the place is lost.
        branch: The branch that is read.
        counted: The operations that are read.
    """
    head = metadata.refs.get(branch)
    waiting_snapshots = waiting(metadata, read, head.snapshot_id if head is not None else None, counted)
    if waiting_snapshots is None:
        notes.append(f"its place in {source} has expired, or was rolled back")
        return None
    waiting_snapshots = [
        raw for raw in waiting_snapshots if _touches(raw)
    ]  # a commit without files has nothing to read, as metrics have it
    age = time.time() - min(raw.timestamp_ms for raw in waiting_snapshots) / 1000 if waiting_snapshots else 0.0
    return Lag(len(waiting_snapshots), max(0.0, age))


def _touches(raw: Snapshot) -> bool:
    """True if a commit touches files. Also true of a commit that does not say."""
    counts = raw.summary.additional_properties if raw.summary is not None else {}
    return any(int(counts.get(key) or 0) for key in TOUCHED) or "total-data-files" not in counts


def waiting(
    metadata: TableMetadata, read: int | None, head: int | None, counted: Collection[str] = APPENDS
) -> list[Snapshot] | None:
    """The snapshots of some operations in `(read, head]`, or all up to `head`, newest first.

    Returns:
        The snapshots; None where `read` was rolled back, or has expired together with later ones.
    """
    snapshots: list[Snapshot] = []
    for id in ancestors(metadata, head) if head is not None else ():
        if id == read:
            return snapshots
        raw = metadata.snapshot_by_id(id)
        assert raw is not None  # ancestors are retained
        if raw.summary is not None and raw.summary.operation.value in counted:
            snapshots.append(raw)
        if read is not None and raw.parent_snapshot_id == read:  # expired since, with nothing missing behind it
            return snapshots
    return snapshots if read is None else None
