"""The batches that a rehearsal reads again, from a pipeline's commits and its offset log; without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.table.commits import Commit
from helios.table.ledger import stamps_of
from helios.table.positions import Position

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

Places: TypeAlias = Mapping[str, Position]
"""Positions by the names of their sources."""


@dataclass(frozen=True, kw_only=True)
class CommittedBatch:
    """A batch that a pipeline has committed.

    Attributes:
        snapshots: Its snapshots, oldest first: one, or two if a delete and an append were committed together.
        parent: The snapshot before them; None if these are the first of the table.
        base: Whether the parent is retained, or the table has no snapshot before these.
        committed: The time of the commit.
        batch: Its number in its checkpoint.
        checkpoint: The id of that checkpoint.
        position: What it read.
        before: What the previous batch read; None if there is none, or it has expired.
        follows: The number of the previous batch, if it has the same checkpoint; otherwise -1.
        rows: The rows of the data files that it added and removed.
        commit: Its last commit, with its plan.
    """

    snapshots: tuple[int, ...]
    parent: int | None
    base: bool
    committed: datetime
    batch: int
    checkpoint: str
    position: Position
    before: Position | None
    follows: int
    rows: int
    commit: Commit

    @property
    def pins(self) -> Mapping[str, Any]:
        """The snapshots of the tables that it was joined with, by the number of the source in its plan."""
        return self.position.get("pins") or {}


@dataclass(frozen=True)
class History:
    """The batches of a pipeline in a branch of its target.

    Attributes:
        made: The batches, oldest first.
        others: The commits of other writers, oldest first.
        refilled: Whether a full refresh emptied the table before these batches.
        names: The present and former names of the pipeline.
    """

    made: tuple[CommittedBatch, ...] = ()
    others: tuple[Commit, ...] = ()
    refilled: bool = False
    names: tuple[str, ...] = ()

    def since(self, snapshot: int) -> tuple[Commit, ...]:
        """The commits of other writers since a snapshot of the pipeline, without compactions."""
        moment = next(one.commit.committed for one in self.made if snapshot in one.snapshots)
        return tuple(one for one in self.others if one.committed >= moment and one.operation != "replace")


def history_of(metadata: TableMetadata, commits: Sequence[Commit], names: Sequence[str]) -> History:
    """The batches of a pipeline.

    Args:
        metadata: The metadata of the table.
        commits: The commits of the branch, newest first, as `helios.table.commits.commits` gives them.
        names: The present and former names of the pipeline.
    """
    made: list[CommittedBatch] = []
    others: list[Commit] = []
    refilled = False
    for one in reversed(commits):
        if one.pipeline not in names:
            others.append(one)
        elif one.batch is None or one.position is None:  # a full refresh has emptied the table
            made, others, refilled = [], [], True
        else:
            checkpoint = stamps_of(metadata, one.snapshot).get("helios.checkpoint", "")
            last = made[-1] if made else None
            if last is not None and (last.checkpoint, last.batch) == (checkpoint, one.batch):
                made[-1] = _together(last, one)
            else:
                made.append(_made(metadata, one, checkpoint, last))
    return History(tuple(made), tuple(others), refilled, tuple(names))


def _made(metadata: TableMetadata, one: Commit, checkpoint: str, last: CommittedBatch | None) -> CommittedBatch:
    raw = metadata.snapshot_by_id(one.snapshot)
    parent = raw.parent_snapshot_id if raw is not None else None
    # PyIceberg's expiry removes parent ids, so a missing parent alone does not prove that this is the first commit.
    first = parent is None and raw is not None and (raw.sequence_number or 0) <= 1
    assert one.batch is not None
    assert one.position is not None
    return CommittedBatch(
        snapshots=(one.snapshot,),
        parent=parent,
        base=first or (parent is not None and metadata.snapshot_by_id(parent) is not None),
        committed=one.committed,
        batch=one.batch,
        checkpoint=checkpoint,
        position=one.position,
        before=last.position if last is not None else None,
        follows=last.batch if last is not None and last.checkpoint == checkpoint else -1,
        rows=one.added + one.removed,
        commit=one,
    )


def _together(made: CommittedBatch, also: Commit) -> CommittedBatch:
    """A batch with its second snapshot."""
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    also_read = {"snapshots": (*made.snapshots, also.snapshot), "rows": made.rows + also.added + also.removed}
    return CommittedBatch(**{**fields, **also_read, "commit": also})


# the batches to read again


@dataclass(frozen=True, kw_only=True)
class OffsetLog:
    """The log of a pipeline's batches in its checkpoint.

    Attributes:
        checkpoint: Its id.
        ends: The positions at which each retained batch ended, by batch number.
        committed: The number of the last finished batch; -1 if there is none.
        starts: The starting positions of the sources; None if unknown.
    """

    checkpoint: str
    ends: Mapping[int, Places] = field(default_factory=dict)
    committed: int = -1
    starts: Places | None = None


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A batch to read again.

    Attributes:
        owner: The index of the commit with its rows; the number of commits if the batch came after all of them and
            wrote nothing.
        starts: Where it begins in each source; empty for a pipeline that reads its sources once.
        position: What it read: the entries of its sources.
        pins: The snapshots of joined tables; None if unknown.
    """

    owner: int
    starts: Places
    position: Position
    pins: Mapping[str, Any] | None

    @property
    def ends(self) -> Places:
        """Where it ends in each source."""
        return places(self.position)


def places(position: Position | None) -> dict[str, Position]:
    """Where a batch ended, by source."""
    entries = (position or {}).get("sources") or ()
    return {entry["source"]: entry["place"] for entry in entries if entry.get("place") is not None}


def reruns(made: Sequence[CommittedBatch], log: OffsetLog | None) -> tuple[list[Rerun], dict[int, str]]:
    """The batches to read again, even if they wrote nothing; and why some cannot be read, by the commit's index.

    If the log no longer has the batches between two commits, their input is read as one batch.

    Args:
        made: The batches that have committed, oldest first.
        log: The log in the checkpoint of the pipeline; None if there is none.
    """
    batches: list[Rerun] = []
    problems: dict[int, str] = {}
    for owner, one in enumerate(made):
        ends = places(one.position)
        kept = log if log is not None and log.checkpoint == one.checkpoint else None
        if not ends:  # its sources are read once
            batches.append(Rerun(owner=owner, starts={}, position=one.position, pins=None))
            continue
        between = range(one.follows + 1, one.batch)
        whole = kept is not None and all(number in kept.ends for number in between)
        # A new checkpoint may have continued after rows that were rolled back, which the position before it lacks.
        continues = one.before is not None and (kept is None or one.follows >= 0)
        first = one.before is not None or whole or one.batch == 0
        start = places(one.before) if continues else _first(kept, whole=first)
        if start is None:
            problems[owner] = "its input begins at the end of a commit that has expired"
            continue
        bounds = [kept.ends[number] for number in between] if kept is not None and whole else []
        batches += _chained(owner, one.position, start, [*bounds, ends], one.pins)
    if made and log is not None and log.checkpoint == made[-1].checkpoint:
        after = range(made[-1].batch + 1, log.committed + 1)
        if all(number in log.ends for number in after):
            last = made[-1].position
            batches += _chained(len(made), last, places(last), [log.ends[number] for number in after], None)
    return batches, problems


def _first(log: OffsetLog | None, *, whole: bool) -> Places | None:
    """The starting positions of the first batch of a checkpoint; None if unknown."""
    return log.starts if log is not None and whole else None


def _chained(
    owner: int, position: Position, start: Places, bounds: Sequence[Places], pins: Mapping[str, Any] | None
) -> list[Rerun]:
    """One batch for each of `bounds`; each begins where the one before it ended."""
    batches = []
    for end in bounds:
        # A source without data yet has no end in the log.
        sources = [
            {**entry, "place": end.get(entry["source"], start.get(entry["source"]))} for entry in position["sources"]
        ]
        batches.append(Rerun(owner=owner, starts=start, position={**position, "sources": sources}, pins=pins))
        start = {**start, **end}
    return batches
