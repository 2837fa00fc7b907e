"""The options and the results of a commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError

from helios.model.retry import CommitRetries, Retry
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.observer import Observer, SilentObserver
from helios.table.positions import Batch


@dataclass(frozen=True)
class Commit:
    """A committed batch.

    Attributes:
        snapshot: Its snapshot; None if the target has no snapshots, or records only a later batch.
        rows: The rows written; 0 if `already_committed`.
        files: The data files added; 0 if `already_committed`.
        bytes: The size of those files.
        already_committed: Whether the batch was already committed, so that it was not written again.
        note: A note for the user; empty for none.
    """

    snapshot: int | None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    already_committed: bool = False
    retries: int = 0
    write_seconds: float = 0.0
    commit_seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Conflict:
    """An attempt that conflicted with another writer. `error` is Iceberg's error; None if there was none."""

    error: Py4JJavaError | None
    write_seconds: float


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """How a batch is committed.

    Attributes:
        stamps: Further entries of the snapshot summary, such as the user's.
        sources: The sources as JSON values, with `kind`, `name` and `uuid`.
        properties: Table properties for the writer; they override the table's own.
        commits_empty: Whether a batch that changes no file is committed, so that it is counted.
        exclusive: Whether any change by other writers since the look-up is a conflict; Spark itself may miss some.
        retries_conflicts: Whether a conflict with another writer is retried; False if a retry would erase unseen rows.
        verify: Called before each attempt; raises to stop.
        observer: Receives each retry.
    """

    stamps: Mapping[str, str] = field(default_factory=dict)
    sources: Sequence[Mapping[str, str | None]] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    commits_empty: bool = False
    exclusive: bool = False
    retries_conflicts: bool = True
    verify: Callable[[], None] = lambda: None
    observer: Observer = field(default_factory=SilentObserver)

    def source_stamp(self, batch: Batch) -> dict[str, str]:
        """The stamp `helios.sources`: the sources that are missing in the batch's position, such as joined ones."""
        named = {(entry.get("source"), entry.get("uuid")) for entry in batch.sources}
        sources = [source for source in self.sources if (source["name"], source["uuid"]) not in named]
        return {"helios.sources": json.dumps(sources, separators=(",", ":"))} if sources else {}

    def retries(self) -> CommitRetries:
        """The retries of one commit, shared by all loops that retry it."""
        return CommitRetries(self.retry, self.observer.retried)


def commit_of(snapshots: Sequence[JavaSnapshot], rows: int | None = None) -> Commit:
    """The commit of a batch, with the counts in the summaries of its snapshots.

    Args:
        snapshots: The snapshots, newest first.
        rows: The number of rows that a MERGE stores: the snapshots also count the rows that it copies from rewritten
            files. None for other commands, of which the snapshots count only the rows of the batch.
    """
    summaries = [snapshot.summary() for snapshot in snapshots]
    added = int(summaries[0].get("added-records") or 0)
    return Commit(
        snapshot=int(snapshots[0].snapshotId()),
        rows=added if rows is None else min(rows, added),
        files=sum(int(summary.get("added-data-files") or 0) for summary in summaries),
        bytes=sum(int(summary.get("added-files-size") or 0) for summary in summaries),
    )
