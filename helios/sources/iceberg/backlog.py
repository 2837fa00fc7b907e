"""The backlog of a table for the next run: the unread commits, and the data files that the filters select."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helios.catalog.conf import pyiceberg_properties
from helios.errors import HeliosError
from helios.plan.nodes import Plan, ReadPlan
from helios.plan.scans import Backlog, Scan
from helios.sources.iceberg.lag import APPENDS, CHANGES, unread_commits
from helios.sources.iceberg.offsets import TOUCHED_FILES, IcebergOffset
from helios.sources.iceberg.pruning import row_filter
from helios.table.ledger import parse_record
from helios.table.positions import recorded_entries
from helios.table.readers import last_position
from helios.table.refs import LEDGER, ancestors, translating_errors
from helios.table.snapshots import Table

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

MAX_FILES = 10_000
"""The maximum number of files of a scan whose matching files are counted, so that planning stays fast."""


def with_backlog(plan: Plan, index: int, table: Table) -> ReadPlan:
    """Adds the backlog and the scan of `table` to `plan.reads[index]`. Raises RunError if the table cannot be read."""
    read = plan.reads[index]
    offset = None
    if read.source.streaming:
        # A checkpoint has offsets of the followed sources only.
        followed_before = [earlier for earlier in plan.reads[:index] if earlier.source.streaming]
        offset = _last_offset(plan, read, len(followed_before))
    return _with_backlog(read, table, offset, plan.pushed_predicates(index))


def _with_backlog(read: ReadPlan, table: Table, offset: IcebergOffset | None, pushed: tuple[str, ...]) -> ReadPlan:
    """Adds the backlog from an offset, and the files that the predicates `pushed` select.

    A state is all rows of the table at one snapshot, and the variable `state` is the id of that snapshot. The commits
    that are read come after the snapshot `after`, up to the snapshot `to`.
    """
    backlog = None
    if read.source.streaming:
        offset = offset if offset is not None else _starting_offset(read, table.iceberg.metadata)
        backlog = _backlog(read, table.iceberg.metadata, offset)
        state, after, to = backlog.state, backlog.since, read.snapshot
        reads_nothing = backlog.lost or (state is None and not backlog.snapshots)
    elif read.span:
        state, (after, to), reads_nothing = None, read.span, False
    else:
        state, after, to = read.state or read.snapshot, None, None
        reads_nothing = state is None
    if not pushed or reads_nothing:
        return replace(read, backlog=backlog)
    after = after if state is None else state  # a state includes all earlier commits
    return replace(read, backlog=backlog, scan=_scan(table, pushed, state, after, to))


# the unread commits


def _last_offset(plan: Plan, read: ReadPlan, index: int) -> IcebergOffset | None:
    """The offset up to which a pipeline has read a source; None if no offset is found.

    The offset comes from the checkpoint or else from the pipeline's record in its target.
    """
    properties = pyiceberg_properties(plan.write.table.catalog)
    for location in (plan.checkpoint, plan.former_checkpoint):
        try:
            offset = last_position(location, properties, index) if location else None
        except HeliosError:
            continue
        if isinstance(offset, IcebergOffset):
            return offset
    if not plan.write.exists or plan.write.sink.many_tables:
        return None
    target = plan.write.table.catalog.load(plan.write.table.name_in_catalog)
    recorded_offsets = (_recorded_offset(target, name, read) for name in (plan.pipeline, plan.was) if name)
    return next((offset for offset in recorded_offsets if offset is not None), None)


def _recorded_offset(target: Table, pipeline: str, read: ReadPlan) -> IcebergOffset | None:
    """The offset of a source in the pipeline's record in its target; None if the record has no such offset."""
    key = LEDGER + pipeline
    text = target.iceberg.metadata.properties.get(key)
    try:
        position = parse_record(text, key, target.name).position if text is not None else None
    except HeliosError:
        return None
    ends = (entry.position for entry in recorded_entries(position) if entry.source == read.ledger_name)
    return next((end for end in ends if isinstance(end, IcebergOffset)), None)


def _starting_offset(read: ReadPlan, metadata: TableMetadata) -> IcebergOffset:
    """The offset from which the first run of a pipeline reads."""
    start = read.source.declared_start
    if read.state is not None:
        return IcebergOffset(snapshot=read.state, files=0, state=True)
    if isinstance(start, int):
        return IcebergOffset(snapshot=start)
    if read.snapshot is None:
        return IcebergOffset()
    if start == "latest":
        return IcebergOffset(snapshot=read.snapshot)
    snapshot = list(ancestors(metadata, read.snapshot))[-1] if start == "earliest" else read.snapshot
    return IcebergOffset(snapshot=snapshot, files=0, state=True)


def _backlog(read: ReadPlan, metadata: TableMetadata, offset: IcebergOffset) -> Backlog:
    """The unread part of a table after an offset."""
    state = offset.snapshot if offset.partial and offset.state else None
    after = offset.after if offset.partial and state is None else offset.snapshot
    operations = CHANGES if read.source.reads_changes else APPENDS
    commits = unread_commits(metadata, after, read.snapshot, operations)
    snapshot = metadata.snapshot_by_id(state) if state is not None else None
    if commits is None or (state is not None and snapshot is None):
        return Backlog(since=after, lost=True)
    return Backlog(
        state=state,
        since=after,
        state_rows=_count(snapshot, "total-records"),
        state_files=_count(snapshot, "total-data-files"),
        snapshots=len(commits),
        rows=sum(_count(commit, "added-records") for commit in commits),
        files=sum(_count(commit, *TOUCHED_FILES) for commit in commits),
        begun=offset.files or 0,
    )


def _count(snapshot: Any, *names: str) -> int:
    """The sum of some counts in a snapshot's summary; 0 without a snapshot or a summary."""
    if snapshot is None or snapshot.summary is None:
        return 0
    return sum(int(snapshot.summary.additional_properties.get(name) or 0) for name in names)


# the files that the filters select


def _scan(table: Table, pushed: Iterable[str], state: int | None, after: int | None, to: int | None) -> Scan:
    """The data files that a scan opens. The scan reads a state, the appends in `(after, to]`, or both."""
    from pyiceberg.expressions import AlwaysTrue

    metadata = table.iceberg.metadata
    predicate = row_filter(pushed, table.iceberg.schema())
    appended = (unread_commits(metadata, after, to) or []) if to is not None else []
    total = sum(_count(commit, "added-data-files") for commit in appended)
    snapshot = metadata.snapshot_by_id(state) if state is not None else None
    total += _count(snapshot, "total-data-files")
    # PyIceberg cannot plan a state with equality deletes.
    if total > MAX_FILES or _count(snapshot, "total-equality-deletes"):
        return Scan(of_files=total)
    matching: list[FileScanTask] = []
    all_tasks: list[FileScanTask] = []
    with translating_errors(table, "reading its manifests"):
        if snapshot is not None:
            all_tasks += _state_tasks(table, state, AlwaysTrue())
            # A scan of a state with an older schema does not know the columns that are newer, so a run reads all files.
            older = snapshot.schema_id is not None and snapshot.schema_id != metadata.current_schema_id
            matching += all_tasks if older else _state_tasks(table, state, predicate)
        if appended:
            all_tasks += _append_tasks(table, after, to, AlwaysTrue())
            matching += _append_tasks(table, after, to, predicate)
    return Scan(
        files=len(matching),
        of_files=len(all_tasks),
        partitions=_partitions(table, matching),
        of_partitions=_partitions(table, all_tasks),
        bytes=sum(task.file.file_size_in_bytes for task in matching),
    )


def _state_tasks(table: Table, state: int | None, predicate: BooleanExpression) -> list[FileScanTask]:
    scan = table.iceberg.scan(snapshot_id=state, row_filter=predicate)
    return list(scan.plan_files())


def _append_tasks(table: Table, after: int | None, to: int | None, predicate: BooleanExpression) -> list[FileScanTask]:
    scan = table.iceberg.incremental_append_scan(
        from_snapshot_id_exclusive=after, to_snapshot_id_inclusive=to, row_filter=predicate
    )
    return list(scan.plan_files())


def _partitions(table: Table, tasks: list[FileScanTask]) -> int:
    """The number of partitions of the files, over all specs; 0 for a table that was never partitioned."""
    if all(spec.is_unpartitioned() for spec in table.iceberg.specs().values()):
        return 0
    return len({(task.file.spec_id, task.file.partition) for task in tasks})
