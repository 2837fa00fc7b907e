"""Commit options and result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError

from helios.model.sink import Retry
from helios.spark.iceberg.commit import CommitRetries
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.observer import Observer, Silent


@dataclass(frozen=True)
class Commit:
    """A committed batch.

    Attributes:
        snapshot: Its snapshot; None when that has expired.
        rows: The rows it wrote, when it was made now.
        files: The data files it added, when it was made now.
        bytes: Their size.
        again: Whether the batch was found there rather than written.
        retries: How often its commit was tried again.
        write_seconds: How long Spark wrote.
        commit_seconds: How long the commit took.
    """

    snapshot: int | None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    again: bool = False
    retries: int = 0
    write_seconds: float = 0.0
    commit_seconds: float = 0.0


@dataclass(frozen=True)
class Conflict:
    """A try that lost against another writer.

    Attributes:
        error: What Iceberg said; None where it said nothing.
        write_seconds: How long Spark wrote in vain.
    """

    error: Py4JJavaError | None
    write_seconds: float


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """How a batch is committed.

    Attributes:
        stamps: The user's own entries of the snapshot summary.
        sources: The sources as JSON values, for `helios.sources`.
        properties: What the writer follows, whatever the table itself says.
        retry: What is tried again.
        counts_empty: Whether a batch that changes no file is committed, so that it counts.
        alone: Whether any change of other writers since the look-up is a conflict, as Spark's own writer may miss it.
        yields: Whether a conflict with another writer is tried again; an overwrite would erase what it has not seen.
        verify: Called before each try; raises to stop.
        observer: What is told of each try after the first.
    """

    stamps: Mapping[str, str] = field(default_factory=dict)
    sources: object = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    counts_empty: bool = False
    alone: bool = False
    yields: bool = True
    verify: Callable[[], None] = lambda: None
    observer: Observer = field(default_factory=Silent)

    def retries(self) -> CommitRetries:
        """The retries of one commit, shared by all loops that try it again."""
        return CommitRetries(self.retry.retries, self.retry.backoff, self.observer.retried)


def counted(made: Sequence[JavaSnapshot], rows: int | None = None) -> Commit:
    """The commit of a batch, from the summaries of its snapshots, newest first.

    Args:
        made: The snapshots.
        rows: The rows of the batch, where a snapshot may also count those of files that were written anew.
    """
    summaries = [snapshot.summary() for snapshot in made]
    added = int(summaries[0].get("added-records") or 0)
    return Commit(
        snapshot=int(made[0].snapshotId()),
        rows=added if rows is None else min(rows, added),
        files=sum(int(summary.get("added-data-files") or 0) for summary in summaries),
        bytes=sum(int(summary.get("added-files-size") or 0) for summary in summaries),
    )
