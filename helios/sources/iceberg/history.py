"""Resolves the snapshots that an Iceberg source reads: finds its declared points in the table's current history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from helios.errors import DeclarationError, NotFound, near_miss
from helios.model.values import Point
from helios.plan.context import Unsettled
from helios.sources.iceberg.declare import At, Between, IcebergSource

if TYPE_CHECKING:
    from helios.table.snapshots import Snapshot, Table

MAIN = "main"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ResolvedSnapshots:
    """The snapshots that a source reads, found in the history of its table.

    Attributes:
        branch: The branch that is read or followed; None for main.
        state: The snapshot whose state is read once, or is read first; None if the source names no state.
        span: The snapshots `(after, to]` of a source that reads history.
        head: The current snapshot of the branch; None for a table without snapshots.
    """

    branch: str | None = None
    state: int | None = None
    span: tuple[int | None, int] | None = None
    head: int | None = None


def resolve_snapshots(source: IcebergSource, table: Table) -> ResolvedSnapshots:
    """Resolves the snapshots that a source reads; for a followed source, the snapshots of its first start.

    Raises:
        NotFound: A time before the first snapshot; an id, branch or tag that does not exist; expired history.
        Unsettled: The same problems, for a followed source.
        DeclarationError: A reversed range, points of different histories, or a text that is not a time.
    """
    try:
        if source.between_points is not None:
            return _between(source, source.between_points, table)
        if source.at is not None:
            return _at(source, source.at, table)
        if isinstance(source.start, int):
            _refuse_unfollowable(source, table, None, _retained(source, table, source.start, f"start={source.start}"))
        return ResolvedSnapshots(head=table.branches().get(MAIN))
    except NotFound as problem:
        if not source.streaming:
            raise
        fix = f"{problem.fix} A pipeline that has begun continues anyway." if problem.fix else None
        raise Unsettled(problem.what, where=problem.where, fix=fix) from None


def history(table: Table, head: int | None) -> list[Snapshot]:
    """A snapshot and its retained ancestors, newest first."""
    known = {snapshot.id: snapshot for snapshot in table.snapshots()}
    snapshots = []
    while head is not None and head in known:
        snapshots.append(known[head])
        head = known[head].parent_id
    return snapshots


# a state


def _at(source: IcebergSource, at: At, table: Table) -> ResolvedSnapshots:
    """Resolves the state that a source names."""
    branch, state = POINTS[at.call](source, at, table)
    if source.streaming:
        _refuse_unfollowable(source, table, branch, state)
    return ResolvedSnapshots(branch=branch, state=state.id, head=table.branches().get(branch or MAIN))


def _as_of(source: IcebergSource, at: At, table: Table) -> tuple[str | None, Snapshot]:
    assert not isinstance(at.point, int)
    ts = at.point
    return None, _located(source, str(at), table, lambda: table.snapshot_at(ts))


def _at_snapshot(source: IcebergSource, at: At, table: Table) -> tuple[str | None, Snapshot]:
    assert isinstance(at.point, int)
    return None, _retained(source, table, at.point, str(at))


def _at_ref(source: IcebergSource, at: At, table: Table) -> tuple[str | None, Snapshot]:
    """The branch and the snapshot of a branch or a tag. The branch of a tag has the tag in its history."""
    name = str(at.point)
    branches, tags = table.branches(), table.tags()
    if name in branches:
        return (name if name != MAIN else None), table.snapshot(branches[name])
    if name not in tags:
        raise NotFound(
            f"{at}: table {table.name} has no branch or tag {name!r}. {near_miss(name, {**branches, **tags})}",
            where=source.origin,
            fix="name one that exists, or a state with .as_of(ts) or .at_snapshot(id).",
        )
    state = table.snapshot(tags[name])
    containing = _branches_with(table, state.id)
    if source.streaming and len(containing) > 1 and MAIN not in containing:
        raise DeclarationError(
            f"{at}: the tag is in the history of the branches {', '.join(containing)}, and not of main.",
            where=source.origin,
            fix=f"name the branch to follow, such as .at_ref({containing[0]!r}).",
        )
    return (None if MAIN in containing or not containing else containing[0]), state


POINTS: dict[str, Callable[[IcebergSource, At, Table], tuple[str | None, Snapshot]]] = {
    "as_of": _as_of,
    "at_snapshot": _at_snapshot,
    "at_ref": _at_ref,
}
"""For each call of `At`, a function that returns the branch (None for main) and the snapshot that the call names."""


def _branches_with(table: Table, snapshot: int) -> list[str]:
    """The branches whose history contains a snapshot."""
    return [name for name, head in table.branches().items() if any(s.id == snapshot for s in history(table, head))]


def _refuse_unfollowable(source: IcebergSource, table: Table, branch: str | None, state: Snapshot) -> None:
    """Refuses a state if the history of the branch does not have all commits after it."""
    name = branch or MAIN
    past = history(table, table.branches().get(name))
    if any(snapshot.id == state.id for snapshot in past):
        return
    subject = f"{source.at or f'start={source.start}'}: snapshot {state.id} of {table.name}"
    if _may_precede(past, state):
        raise NotFound(
            f"{subject} cannot be followed: the commits between it and {_shown(past[-1])} are missing or have expired.",
            where=source.origin,
            fix='begin at a later state, at the oldest with .incremental(start="earliest"), or read it once, without '
            ".incremental().",
        )
    others = [other for other in _branches_with(table, state.id) if other != name]
    owner = f"the branch {others[0]}" if others else "no branch"
    raise NotFound(
        f"{subject} is not in the history of {name}, so {name} has no commits after it. The snapshot belongs "
        f"to {owner}; {name} was rolled back, or never had the snapshot.",
        where=source.origin,
        fix=f"begin at a state that {name} has, or read this state once, without .incremental().",
    )


def _may_precede(past: list[Snapshot], snapshot: Snapshot) -> bool:
    """True if a snapshot may precede a history, and the commits between them have expired.

    Only the commit times can show this, since PyIceberg's expiry removes parent ids.
    """
    return bool(past) and snapshot.timestamp < past[-1].timestamp


# a span


def _between(source: IcebergSource, points: Between, table: Table) -> ResolvedSnapshots:
    call = "changes_between" if source.changed is not None else "between"
    call_text = f"{call}({points})"
    after, to = (_point(source, call_text, table, point) for point in (points.after, points.to))
    first, last = _moment(points.after), _moment(points.to)
    begins_later = first is not None and last is not None and first > last
    descends = after.id != to.id and any(snapshot.id == to.id for snapshot in history(table, after.id))
    if begins_later or descends:
        raise DeclarationError(
            f"{call_text} is reversed: it begins at {_shown(after)} and ends at {_shown(to)}.",
            where=source.origin,
            fix=f"swap them: {call}({Between(points.to, points.after)}).",
        )
    past = history(table, to.id)
    if all(snapshot.id != after.id for snapshot in past):
        if _may_precede(past, after):
            raise NotFound(
                f"{call_text}: the commits between {_shown(after)} and {_shown(past[-1])} are missing or have expired.",
                where=source.origin,
                fix=f"begin at a later snapshot, at the earliest at {past[-1].id}.",
            )
        raise DeclarationError(
            f"{call_text}: {_shown(after)} is not an ancestor of {_shown(to)}: they are on different branches, or main "
            "was rolled back between them.",
            where=source.origin,
            fix=f"give two snapshots of one history; the history of {to.id} begins at {_shown(past[-1])}.",
        )
    branch = str(points.to) if points.to != MAIN and points.to in table.branches() else None
    return ResolvedSnapshots(branch=branch, span=(after.id, to.id), head=table.branches().get(branch or MAIN))


def _point(source: IcebergSource, call_text: str, table: Table, point: Point) -> Snapshot:
    if isinstance(point, int):
        return _retained(source, table, point, call_text)
    return _located(source, call_text, table, lambda: table.find(point))


def _moment(point: Point) -> datetime | None:
    """The time of a point; None if it is an id or a name."""
    if isinstance(point, int):
        return None
    from helios.table.snapshots import as_moment

    try:
        return as_moment(point)
    except DeclarationError:
        return None


# messages


def _located(source: IcebergSource, call_text: str, table: Table, find: Callable[[], T]) -> T:
    """Returns the result of `find`; adds the source's line and call to its errors, and the retained snapshots."""
    try:
        return find()
    except NotFound as problem:
        raise NotFound(
            f"{call_text}: {problem.what}",
            where=source.origin,
            fix=problem.fix or f"name one that exists.{_retention(table)}",
        ) from None
    except DeclarationError as problem:
        raise DeclarationError(f"{call_text}: {problem.what}", where=source.origin, fix=problem.fix) from None


def _retained(source: IcebergSource, table: Table, id: int, call_text: str) -> Snapshot:
    """The retained snapshot with an id. Raises `NotFound` if it has expired, or never existed."""
    known = {snapshot.id: snapshot for snapshot in table.snapshots()}
    if id in known:
        return known[id]
    log = table.iceberg.metadata.snapshot_log
    former = {snapshot.parent_id for snapshot in known.values()} | {entry.snapshot_id for entry in log}
    problem, hint = f"snapshot {id} of {table.name} has expired", ""
    if id not in former:
        import difflib

        problem = f"table {table.name} has no snapshot {id}: it has expired, or never existed"
        close = difflib.get_close_matches(str(id), map(str, known), n=1, cutoff=0.8)
        hint = f" Did you mean {close[0]}?" if close else ""
    raise NotFound(
        f"{call_text}: {problem}.{hint}", where=source.origin, fix=f"name one that exists.{_retention(table)}"
    )


def _retention(table: Table) -> str:
    """The text about the retained snapshots of a table, for the end of a message."""
    kept = table.snapshots()
    if not kept:
        return f" {table.name} has none."
    if len(kept) == 1:
        return f" {table.name} retains {_shown(kept[0])} only."
    return f" {table.name} retains {len(kept)} snapshots, from {_shown(kept[0])} to {_shown(kept[-1])}."


def _shown(snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.id} ({snapshot.timestamp:%Y-%m-%dT%H:%M:%SZ})"
