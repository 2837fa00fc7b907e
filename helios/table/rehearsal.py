"""Finds the batches that a rehearsal reads again, from a pipeline's commits and its offset log; without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.table.commits import Commit
from helios.table.first_snapshot import is_first
from helios.table.ledger import summary_of
from helios.table.positions import Position

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

Places: TypeAlias = Mapping[str, Position]
"""A position for each source, by the name of the source."""


@dataclass(frozen=True, kw_only=True)
class CommittedBatch:
    """A batch that a pipeline committed.

    Attributes:
        snapshots: Its snapshots, oldest first: one, or two if a delete and an append were committed together.
        parent: The snapshot before the batch's snapshots; None if there is none, or if an expiry has removed its id.
        parent_is_known: Whether the state before the batch is known: the parent is retained, or the table was new.
        batch: Its number in the checkpoint.
        checkpoint: The id of the checkpoint.
        position: The recorded position of its sources.
        before: The recorded position of the previous batch; None if there is none, or if that batch has expired.
        previous_batch: The number of the previous batch if both have the same checkpoint; otherwise -1.
        rows: The number of rows in the data files that it added and removed.
        commit: Its last commit, with the plan.
    """

    snapshots: tuple[int, ...]
    parent: int | None
    parent_is_known: bool
    committed: datetime
    batch: int
    checkpoint: str
    position: Position
    before: Position | None
    previous_batch: int
    rows: int
    commit: Commit

    @property
    def pins(self) -> Mapping[str, Any]:
        """The snapshots of joined tables that the batch read, by the number of the source in the plan."""
        return self.position.get("pins") or {}


@dataclass(frozen=True)
class History:
    """The batches of a pipeline in a branch of its target.

    Attributes:
        batches: The batches, oldest first.
        others: The commits of other writers, oldest first.
        refilled: Whether a full refresh emptied the table before these batches.
        names: The present and former names of the pipeline.
    """

    batches: tuple[CommittedBatch, ...] = ()
    others: tuple[Commit, ...] = ()
    refilled: bool = False
    names: tuple[str, ...] = ()

    def others_since(self, snapshot: int) -> tuple[Commit, ...]:
        """The commits of other writers after a snapshot of the pipeline, without compactions."""
        moment = next(batch.commit.committed for batch in self.batches if snapshot in batch.snapshots)
        return tuple(other for other in self.others if other.committed >= moment and other.operation != "replace")


def history_of(metadata: TableMetadata, commits: Sequence[Commit], names: Sequence[str]) -> History:
    """Splits the commits of a branch into the batches of a pipeline and the commits of other writers.

    Args:
        commits: The commits of the branch, newest first, as `helios.table.commits.commits` returns them.
        names: The present and former names of the pipeline.
    """
    batches: list[CommittedBatch] = []
    others: list[Commit] = []
    refilled = False
    for commit in reversed(commits):
        if commit.pipeline not in names:
            others.append(commit)
        elif commit.batch is None or commit.position is None:  # a full refresh has emptied the table
            batches, others, refilled = [], [], True
        else:
            checkpoint = summary_of(metadata, commit.snapshot).get("helios.checkpoint", "")
            last = batches[-1] if batches else None
            if last is not None and (last.checkpoint, last.batch) == (checkpoint, commit.batch):
                batches[-1] = _with_second_snapshot(last, commit)
            else:
                batches.append(_committed_batch(metadata, commit, checkpoint, last))
    return History(tuple(batches), tuple(others), refilled, tuple(names))


def _committed_batch(
    metadata: TableMetadata, commit: Commit, checkpoint: str, last: CommittedBatch | None
) -> CommittedBatch:
    raw = metadata.snapshot_by_id(commit.snapshot)
    parent = raw.parent_snapshot_id if raw is not None else None
    summary = summary_of(metadata, commit.snapshot)
    first = parent is None and raw is not None and is_first(raw.sequence_number or 0, summary.get)
    assert commit.batch is not None
    assert commit.position is not None
    return CommittedBatch(
        snapshots=(commit.snapshot,),
        parent=parent,
        parent_is_known=first or (parent is not None and metadata.snapshot_by_id(parent) is not None),
        committed=commit.committed,
        batch=commit.batch,
        checkpoint=checkpoint,
        position=commit.position,
        before=last.position if last is not None else None,
        previous_batch=last.batch if last is not None and last.checkpoint == checkpoint else -1,
        rows=commit.added + commit.removed,
        commit=commit,
    )


def _with_second_snapshot(batch: CommittedBatch, commit: Commit) -> CommittedBatch:
    return replace(
        batch,
        snapshots=(*batch.snapshots, commit.snapshot),
        rows=batch.rows + commit.added + commit.removed,
        commit=commit,
    )


# the batches to read again


@dataclass(frozen=True, kw_only=True)
class OffsetLog:
    """The offset log of a pipeline's checkpoint.

    Attributes:
        checkpoint: The id of the checkpoint.
        ends: The positions at which each retained batch ended, by batch number.
        last_committed: The number of the last finished batch; -1 if there is none.
        starts: The starting positions of the sources; None if unknown.
    """

    checkpoint: str
    ends: Mapping[int, Places] = field(default_factory=dict)
    last_committed: int = -1
    starts: Places | None = None


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A batch to read again.

    Attributes:
        commit_index: The index of its commit among the committed batches. A batch that wrote nothing has the index of
            the next commit, or the number of committed batches if no commit follows.
        starts: The position after which it begins, by source; empty for a pipeline that reads its sources once.
        position: The recorded position, with the entries of its sources.
        pins: The snapshots of joined tables; None if unknown.
    """

    commit_index: int
    starts: Places
    position: Position
    pins: Mapping[str, Any] | None

    @property
    def ends(self) -> Places:
        """The position at which it ends, by source."""
        return ends_of(self.position)


def ends_of(position: Position | None) -> dict[str, Position]:
    """The positions at which a batch ended, by source."""
    entries = (position or {}).get("sources") or ()
    return {entry["source"]: entry["place"] for entry in entries if entry.get("place") is not None}


def reruns(committed: Sequence[CommittedBatch], log: OffsetLog | None) -> tuple[list[Rerun], dict[int, str]]:
    """Returns the batches to read again, including those that wrote nothing.

    The second result has the reason for each commit that cannot be read again, by the index of the commit. If the log
    no longer has the batches between two commits, their input is read as one batch.

    Args:
        committed: The committed batches, oldest first.
        log: The log in the checkpoint of the pipeline; None if there is none.
    """
    batches: list[Rerun] = []
    problems: dict[int, str] = {}
    for commit_index, batch in enumerate(committed):
        ends = ends_of(batch.position)
        own_log = log if log is not None and log.checkpoint == batch.checkpoint else None
        if not ends:  # its sources are read once
            batches.append(Rerun(commit_index=commit_index, starts={}, position=batch.position, pins=None))
            continue
        between = range(batch.previous_batch + 1, batch.batch)
        complete = own_log is not None and all(number in own_log.ends for number in between)
        # After a rollback, a new checkpoint may begin before the end of the old one: the new one's log has the start.
        continues = batch.before is not None and (own_log is None or batch.previous_batch >= 0)
        nothing_expired = batch.before is not None or complete or batch.batch == 0
        start = ends_of(batch.before) if continues else _log_start(own_log, nothing_expired=nothing_expired)
        if start is None:
            unknown = "the starting positions of its checkpoint are unknown"
            problems[commit_index] = (
                unknown if nothing_expired else "its input begins at the end of a commit that has expired"
            )
            continue
        bounds = [own_log.ends[number] for number in between] if own_log is not None and complete else []
        batches += _chained(commit_index, batch.position, start, [*bounds, ends], batch.pins)
    if committed and log is not None and log.checkpoint == committed[-1].checkpoint:
        after = range(committed[-1].batch + 1, log.last_committed + 1)
        if all(number in log.ends for number in after):
            last = committed[-1].position
            batches += _chained(len(committed), last, ends_of(last), [log.ends[number] for number in after], None)
    return batches, problems


def _log_start(log: OffsetLog | None, *, nothing_expired: bool) -> Places | None:
    """The starting positions of a checkpoint; None if they are unknown, or if an expired batch follows them."""
    return log.starts if log is not None and nothing_expired else None


def _chained(
    commit_index: int, position: Position, start: Places, bounds: Sequence[Places], pins: Mapping[str, Any] | None
) -> list[Rerun]:
    """Returns one batch for each of `bounds`. Each batch begins where the one before it ended."""
    batches = []
    for end in bounds:
        # A source without data yet has no end in the log.
        sources = [
            {**entry, "place": end.get(entry["source"], start.get(entry["source"]))} for entry in position["sources"]
        ]
        batches.append(
            Rerun(commit_index=commit_index, starts=start, position={**position, "sources": sources}, pins=pins)
        )
        start = {**start, **end}
    return batches
