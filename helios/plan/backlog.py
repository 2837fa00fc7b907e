"""What the next run will find: the commits that wait for it, and the files that it will open; read without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helios.catalog.conf import pyiceberg_properties
from helios.errors import HeliosError
from helios.plan.nodes import Backlog, Plan, ReadPlan, Scan
from helios.plan.pruning import row_filter
from helios.table.ledger import parse
from helios.table.readers import NO_SNAPSHOT, stands
from helios.table.refs import LEDGER, ancestors, talking
from helios.table.snapshots import Table
from helios.table.status import APPENDS, CHANGES, waiting

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

MOST_FILES = 10_000
"""Of more files it is not counted which of them match: a plan is to be there at once."""


def looked_ahead(plan: Plan) -> Plan:
    """The plan with what each of its tables has ready for the next run.

    Raises:
        RunError: A table cannot be read.
    """
    followed = [index for index, read in enumerate(plan.reads) if read.source.streaming]
    reads = list(plan.reads)
    for index, read in enumerate(reads):
        if read.table is not None and read.uuid is not None:
            table = read.table.catalog.load(read.table.within)
            place = _stood(plan, read, followed.index(index)) if index in followed else None
            reads[index] = _looked(read, table, place, plan.pushed(index))
    return replace(plan, reads=tuple(reads))


def _looked(read: ReadPlan, table: Table, place: Mapping[str, Any] | None, pushed: tuple[str, ...]) -> ReadPlan:
    backlog = None
    if read.source.streaming:
        place = place if place is not None else _beginning(read, table.iceberg.metadata)
        backlog = _backlog(read, table.iceberg.metadata, place)
        state, after, to = backlog.state, backlog.since, read.snapshot
        nothing = backlog.lost or (state is None and not backlog.snapshots)
    else:
        state, (after, to) = (None, read.span) if read.span else (read.state or read.snapshot, (None, None))
        nothing = state is None and to is None
    if not pushed or nothing:
        return replace(read, backlog=backlog)
    return replace(read, backlog=backlog, scan=_scan(table, pushed, state, after if state is None else state, to))


# the commits that wait


def _stood(plan: Plan, read: ReadPlan, index: int) -> Mapping[str, Any] | None:
    """Where the pipeline stands in a source, by its checkpoint or else by its target; None before its first run."""
    properties = pyiceberg_properties(plan.write.table.catalog)
    for location in (plan.checkpoint, plan.former_checkpoint):
        try:
            place = stands(location, properties, index) if location else None
        except HeliosError:
            continue
        if place is not None:
            return place
    if not plan.write.exists or plan.write.sink.routing is not None:
        return None
    target = plan.write.table.catalog.load(plan.write.table.within)
    return next(
        (place for name in (plan.pipeline, plan.was) if name and (place := _recorded(target, name, read))), None
    )


def _recorded(target: Table, pipeline: str, read: ReadPlan) -> Mapping[str, Any] | None:
    """The place in a source that a target remembers."""
    key = LEDGER + pipeline
    text = target.iceberg.metadata.properties.get(key)
    try:
        position = parse(text, key, target.name).position if text is not None else None
    except HeliosError:
        return None
    for entry in (position or {}).get("sources") or ():
        if isinstance(entry, dict) and entry.get("source") == read.name:
            place = entry.get("place") or entry.get("to")
            return place if isinstance(place, dict) else {"snapshot_id": place} if isinstance(place, int) else None
    return None


def _beginning(read: ReadPlan, metadata: TableMetadata) -> Mapping[str, Any]:
    """Where a pipeline begins that has not run yet, as a run settles it."""
    start = read.source.start
    if read.state is not None:
        return {"snapshot_id": read.state, "files": 0, "state": True}
    if isinstance(start, int):
        return {"snapshot_id": start}
    if read.snapshot is None:
        return {"snapshot_id": NO_SNAPSHOT}
    if start == "latest":
        return {"snapshot_id": read.snapshot}
    first = list(ancestors(metadata, read.snapshot))[-1] if start == "earliest" else read.snapshot
    return {"snapshot_id": first, "files": 0, "state": True}


def _backlog(read: ReadPlan, metadata: TableMetadata, place: Mapping[str, Any]) -> Backlog:
    snapshot, files = _id(place.get("snapshot_id")), place.get("files")
    state = snapshot if files is not None and place.get("state") else None
    since = _id(place.get("after")) if files is not None and state is None else snapshot
    counted = CHANGES if read.source.reads_changes else APPENDS
    commits = waiting(metadata, since, read.snapshot, counted)
    made = metadata.snapshot_by_id(state) if state is not None else None
    if commits is None or (state is not None and made is None):
        return Backlog(since=since, lost=True)
    touched = ("added-data-files", "deleted-data-files", "added-delete-files")
    return Backlog(
        state=state,
        since=since,
        state_rows=_count(made, "total-records"),
        state_files=_count(made, "total-data-files"),
        snapshots=len(commits),
        rows=sum(_count(commit, "added-records") for commit in commits),
        files=sum(_count(commit, *touched) for commit in commits),
        begun=int(files or 0),
    )


def _id(found: Any) -> int | None:
    return found if isinstance(found, int) and found != NO_SNAPSHOT else None


def _count(snapshot: Any, *names: str) -> int:
    summary = snapshot.summary if snapshot is not None else None
    return sum(int(summary.additional_properties.get(name) or 0) for name in names) if summary is not None else 0


# the files that match


def _scan(table: Table, pushed: Iterable[str], state: int | None, after: int | None, to: int | None) -> Scan:
    """What a scan of a state, of the appends in `(after, to]`, or of both opens."""
    from pyiceberg.expressions import AlwaysTrue

    metadata = table.iceberg.metadata
    wanted = row_filter(pushed, table.iceberg.schema())
    appended = (waiting(metadata, after, to) or []) if to is not None else []
    total = sum(_count(commit, "added-data-files") for commit in appended)
    made = metadata.snapshot_by_id(state) if state is not None else None
    total += _count(made, "total-data-files")
    # PyIceberg plans no state that has equality deletes.
    if total > MOST_FILES or _count(made, "total-equality-deletes"):
        return Scan(of_files=total)
    matched: list[FileScanTask] = []
    everything: list[FileScanTask] = []
    with talking(table, "reading its manifests"):
        if made is not None:
            everything += _of_state(table, state, AlwaysTrue())
            # A scan of an older state knows the columns of that time only: a run leaves nothing out of it.
            older = made.schema_id is not None and made.schema_id != metadata.current_schema_id
            matched += everything if older else _of_state(table, state, wanted)
        if appended:
            everything += _of_range(table, after, to, AlwaysTrue())
            matched += _of_range(table, after, to, wanted)
    return Scan(
        files=len(matched),
        of_files=len(everything),
        partitions=_partitions(table, matched),
        of_partitions=_partitions(table, everything),
        bytes=sum(task.file.file_size_in_bytes for task in matched),
    )


def _of_state(table: Table, state: int | None, wanted: BooleanExpression) -> list[FileScanTask]:
    scan = table.iceberg.scan(snapshot_id=state, row_filter=wanted)
    return list(scan.plan_files())


def _of_range(table: Table, after: int | None, to: int | None, wanted: BooleanExpression) -> list[FileScanTask]:
    scan = table.iceberg.incremental_append_scan(
        from_snapshot_id_exclusive=after, to_snapshot_id_inclusive=to, row_filter=wanted
    )
    return list(scan.plan_files())


def _partitions(table: Table, tasks: list[FileScanTask]) -> int:
    """Partitions, each of its partition spec; 0 of a table that has none, nor had."""
    if all(spec.is_unpartitioned() for spec in table.iceberg.specs().values()):
        return 0
    return len({(task.file.spec_id, task.file.partition) for task in tasks})
