"""Reads the status of a table's pipelines, from metadata of the table and the sources and from checkpoints; no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from helios.errors import HeliosError, LedgerError
from helios.table.ancestry import Landing, Presence
from helios.table.growth import growth
from helios.table.ledger import Record, parse_record, staged, summary_of
from helios.table.positions import Lag, recorded_entries
from helios.table.presence import presence_in
from helios.table.refs import BACKFILL, LEDGER, MAIN, REPLAY, translating_errors
from helios.table.snapshots import Table, as_snapshot
from helios.table.view import View

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

TARGET_SIZE = "write.target-file-size-bytes"
DEFAULT_TARGET_SIZE = 512 << 20
"""Iceberg's default."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The status of one pipeline in one table.

    Attributes:
        batch: The number of the last batch in the table; None before the first.
        snapshot: The snapshot that has the pipeline's last rows.
        committed: The time of that snapshot; None when it has expired.
        rows: The number of rows that the snapshot added.
        behind: The number of unread snapshots of its source tables; None if unknown, or without such a source.
        seconds: The age of the oldest unread snapshot, file or record.
        behind_files: The number of unread files of its folders; None if unknown, or without such a source.
        behind_bytes: The total size of these files.
        behind_records: The number of unread records of its topics when its run last looked; None if unknown, or without
            such a source.
        files: The number of data files of the table.
        small: The number of data files below half of the target file size. If a partition has only one such file, the
            file does not count.
        audit: The number of the batch that has not passed its audit yet.
        aside: The numbers of the discarded batches, whose rows main never had.
        reads_once: Whether the pipeline reads its sources once, and follows none of them.
    """

    pipeline: str
    table: str
    batch: int | None = None
    snapshot: int | None = None
    committed: datetime | None = None
    rows: int | None = None
    behind: int | None = None
    seconds: float | None = None
    behind_files: int | None = None
    behind_bytes: int | None = None
    behind_records: int | None = None
    files: int = 0
    small: int = 0
    audit: int | None = None
    aside: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    reads_once: bool = False
    sources: tuple[str, ...] = ()


def statuses(table: Table, view: View) -> list[Status]:
    """Returns the status of each pipeline that writes a table.

    If the table is a quarantine, only pipelines that have rows there, or have lost some, are returned.

    Raises:
        RunError: The table cannot be read.
    """
    from helios.table.quarantine import COLUMNS

    metadata = table.iceberg.metadata
    names = [key.removeprefix(LEDGER) for key in sorted(metadata.properties) if key.startswith(LEDGER)]
    # Replays and backfills are shown with their pipeline, if the table has a record of it.
    ends = (REPLAY, BACKFILL)
    names = [name for name in names if not any(name.endswith(end) and name.removesuffix(end) in names for end in ends)]
    if names and set(COLUMNS) <= set(table.iceberg.schema().column_names):
        return [status for status in (_quarantine_status(table, name) for name in names) if status is not None]
    if not names:
        return []
    files = _files(table)
    return [_status(table, name, view, files) for name in names]


def _quarantine_status(table: Table, pipeline: str) -> Status | None:
    """The status of a pipeline in its quarantine; None if the pipeline neither has rows there nor has lost any."""
    from pyiceberg.expressions import EqualTo

    key = LEDGER + pipeline
    try:
        notes = [
            *_notes_of_lost_batch(table, parse_record(table.iceberg.metadata.properties[key], key, table.name), MAIN)
        ]
        notes += _notes_of_lost_replay(table, pipeline, MAIN)
    except LedgerError as error:
        notes = [error.what]
    with translating_errors(table, "counting its rows"):
        rows = table.iceberg.scan(EqualTo("pipeline", pipeline)).count()  # type: ignore[arg-type, call-arg]
    if rows:
        notes.insert(0, f"{rows:,} rejected row{'s' if rows > 1 else ''}")
    return Status(pipeline=pipeline, table=table.name, notes=tuple(notes)) if notes else None


def _notes_of_lost_replay(table: Table, pipeline: str, branch: str | None) -> Iterator[str]:
    """A note if a table has lost the last replay of a pipeline's quarantine, or if the replay's record is damaged."""
    key = LEDGER + pipeline + REPLAY
    text = table.iceberg.metadata.properties.get(key)
    if text is not None:
        try:
            lost = [*_notes_of_lost_batch(table, parse_record(text, key, table.name), branch)]
        except LedgerError as error:
            yield error.what
            return
        yield from (note.replace("batch", "replay", 1) for note in lost if note.startswith("rolled back"))


def _status(table: Table, pipeline: str, view: View, files: Sequence[tuple[str, int]]) -> Status:
    metadata = table.iceberg.metadata
    notes: list[str] = []
    waits = staged(metadata, pipeline)
    key = LEDGER + pipeline
    try:
        record = parse_record(metadata.properties[key], key, table.name)
    except HeliosError as error:
        record = Record(checkpoint="")
        notes.append(error.what)
    raw = metadata.snapshot_by_id(record.snapshot) if record.snapshot is not None else None
    snapshot = as_snapshot(raw) if raw is not None else None
    set_aside = _set_aside(metadata, pipeline, record)
    if set_aside:
        listed = ", ".join(map(str, set_aside))
        notes.append(f"batch {listed} was set aside" if len(set_aside) == 1 else f"batches {listed} were set aside")
    branch = view.branches.get(pipeline.removesuffix(REPLAY))
    notes += _notes_of_lost_batch(table, record, branch)
    notes += _notes_of_lost_replay(table, pipeline, branch)
    if waits is not None:
        notes.append(f"batch {waits.batch} has not passed its audit")
    lags = _lags(pipeline, record, view, notes)
    lag = _total(lags)
    advice = growth(table.iceberg).advice()
    if advice is not None:
        notes.append(advice)
    reads_tables = any(lag.files is None and lag.records is None for lag in lags)
    half = view.file_sizes.get(pipeline, int(metadata.properties.get(TARGET_SIZE) or DEFAULT_TARGET_SIZE)) / 2
    return Status(
        pipeline=pipeline,
        table=table.name,
        batch=record.batch if record.batch >= 0 else None,
        snapshot=record.snapshot,
        committed=snapshot.timestamp if snapshot is not None else None,
        rows=int(snapshot.summary.get("added-records") or 0) if snapshot is not None else None,
        behind=lag.snapshots if lag is not None and reads_tables else None,
        seconds=round(lag.seconds, 1) if lag is not None else None,
        behind_files=lag.files if lag is not None else None,
        behind_bytes=lag.bytes if lag is not None else None,
        behind_records=lag.records if lag is not None else None,
        files=len(files),
        small=_small(files, half),
        audit=waits.batch if waits is not None else None,
        aside=set_aside,
        notes=tuple(notes),
        reads_once=record.reads_once,
        sources=tuple(entry.source for entry in recorded_entries(record.position)),
    )


def unfinished(statuses: Sequence[Status]) -> list[Status]:
    """The statuses of a table, except those of finished repairs that have no notes.

    A repair reads a source once. It is finished when a pipeline that follows the source has committed later.
    """
    return [
        status
        for status in statuses
        if status.notes or not status.reads_once or not _has_later_follower(status, statuses)
    ]


def _has_later_follower(status: Status, statuses: Sequence[Status]) -> bool:
    followers = (other for other in statuses if not other.reads_once and set(status.sources) & set(other.sources))
    return any(status.committed and other.committed and other.committed > status.committed for other in followers)


def _set_aside(metadata: TableMetadata, pipeline: str, record: Record) -> tuple[int, ...]:
    """The numbers of a pipeline's discarded batches: those whose snapshots have tags, and perhaps the last batch."""
    from helios.table.quarantine import TAG

    tagged = (summary_of(metadata, ref.snapshot_id) for name, ref in metadata.refs.items() if name.startswith(TAG))
    batches = {int(stamps["helios.batch"]) for stamps in tagged if stamps.get("helios.pipeline") == pipeline}
    last = summary_of(metadata, record.snapshot).get("helios.batch") if record.snapshot is not None else None
    if record.aside or (record.batch >= 0 and last not in (None, str(record.batch))):
        batches.add(record.batch)
    return tuple(sorted(batches))


def _notes_of_lost_batch(table: Table, record: Record, branch: str | None) -> Iterator[str]:
    """A note if a pipeline's branch has lost its last batch, or if nothing proves that the batch is there."""
    if record.snapshot is None:
        return
    metadata = table.iceberg.metadata
    landing = Landing(batch=record.batch, snapshot=record.snapshot, sequence=record.sequence)
    branch = branch or record.branch or MAIN
    heads = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.snapshot_ref_type.value == "branch"}
    present = presence_in(table, heads.get(branch), landing)
    landed = f"batch {record.batch}" if record.batch >= 0 else f"snapshot {record.snapshot}"
    if present is Presence.UNKNOWN:
        yield f"nothing proves that {landed} is still in the table's history: the next run looks further"
    elif present is Presence.GONE:
        yield f"rolled back: {landed} is no longer in the table's history, and the next run stops"


def _files(table: Table) -> list[tuple[str, int]]:
    """The partition and the size in bytes of each data file of a table."""
    with translating_errors(table, "reading its manifests"):
        files = [task.file for task in table.iceberg.scan().plan_files()]
        return [(f"{file.spec_id} {file.partition}", file.file_size_in_bytes) for file in files]


def _small(files: Sequence[tuple[str, int]], below: float) -> int:
    """The number of files that a compaction could merge; if a partition has only one, it does not count.

    Examples:
        >>> _small([("a", 1), ("a", 2), ("b", 1), ("b", 9)], 5)
        2
    """
    counts = Counter(partition for partition, size in files if size < below)
    return sum(count for count in counts.values() if count > 1)


# the lag


def _lags(pipeline: str, record: Record, view: View, notes: list[str]) -> list[Lag]:
    """The lags of a pipeline behind its sources, without those that are unknown."""
    lags: list[Lag] = []
    for entry in recorded_entries(record.position):
        if entry.unknown_kind:
            notes.append(f"the lag behind {entry.source} is unknown: no installed package has its kind of source")
        if entry.kind is None or entry.kind.lag is None:
            continue
        try:
            lag = resolve_name(entry.kind.lag)(pipeline, entry, view, notes)
        except Exception as error:  # any client's error: the status of the other sources is still shown
            notes.append(f"the lag behind {entry.source} is unknown: {error}")
            continue
        if lag is not None:
            lags.append(lag)
    return lags


def _total(lags: Sequence[Lag]) -> Lag | None:
    """The lag of a pipeline behind all its sources together; None if no lag is known."""
    if not lags:
        return None
    files = [lag.files for lag in lags if lag.files is not None]
    sizes = [lag.bytes for lag in lags if lag.bytes is not None]
    records = [lag.records for lag in lags if lag.records is not None]
    return Lag(
        sum(lag.snapshots for lag in lags),
        max(lag.seconds for lag in lags),
        files=sum(files) if files else None,
        bytes=sum(sizes) if sizes else None,
        records=sum(records) if records else None,
    )
