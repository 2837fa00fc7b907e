"""Expires snapshots without a JVM: finds those that may expire, and removes them from a table's metadata."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helios.config import load
from helios.errors import DeclarationError, InputError
from helios.model.retry import COMMIT_TRIES
from helios.model.values import caller, duration
from helios.table.readers import Reader, Warehouse, readers_of, snapshots_needed_by, warehouses
from helios.table.refs import ancestors, refresh, refuse_unwritable, translating_errors
from helios.table.snapshot import Snapshot, as_moment, as_snapshot

if TYPE_CHECKING:
    import pyiceberg.table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.update import RemoveSnapshotsUpdate

    from helios.table.snapshots import Table


# The retention that a table declares: the names and defaults of Iceberg's TableProperties.
GC_ENABLED = "gc.enabled"
MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_KEPT = "history.expire.min-snapshots-to-keep"
DEFAULT_MAX_AGE_MS = 5 * 24 * 3600 * 1000
DEFAULT_MIN_KEPT = 1


@dataclass(frozen=True)
class KeptForReader:
    """Snapshots that would expire, but are kept for a reader."""

    reader: Reader
    snapshots: tuple[int, ...]


@dataclass(frozen=True)
class Expiry:
    """An expiry, planned or done.

    Attributes:
        snapshots: The snapshots that expire, oldest first.
        held: The snapshots that would expire, but are kept for a reader; one entry per reader.
        lost: The readers whose position has left the table's history, so that nothing can be kept for them.
        needed: All snapshots that some reader needs.
    """

    snapshots: tuple[Snapshot, ...]
    held: tuple[KeptForReader, ...]
    lost: tuple[Reader, ...]
    needed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Retention:
    """The rule for the snapshots that an expiry keeps. Settings of a branch override the rule on that branch.

    Attributes:
        before: Only snapshots before this time (in ms since 1970) may expire.
        last: The number of newest snapshots of every branch that stay in any case.
    """

    before: int
    last: int


def retention(
    metadata: TableMetadata, older_than: datetime | str | timedelta | float | None, retain_last: int | None
) -> Retention:
    """Returns the retention that the arguments request.

    Args:
        metadata: The table's metadata, whose properties give the defaults.
        older_than: A time, or an age: "7d", a timedelta, or seconds. If only `retain_last` is given, no age counts.
        retain_last: How many snapshots of every branch stay, whatever their age.

    Raises:
        DeclarationError: A value is invalid.
    """
    if retain_last is not None and (isinstance(retain_last, bool) or not isinstance(retain_last, int)):
        raise DeclarationError(f"retain_last={retain_last!r} is not a whole number.", where=caller())
    if retain_last is not None and retain_last < 1:
        raise DeclarationError(
            f"retain_last={retain_last}: the current snapshot always stays.", where=caller(), fix="write 1 or more."
        )
    now = int(time.time() * 1000)
    if older_than is not None:
        before = _cutoff(older_than, now)
    elif retain_last is not None:
        before = now + 1
    else:
        before = now - _number_property(metadata, MAX_AGE, DEFAULT_MAX_AGE_MS)
    return Retention(before, retain_last or _number_property(metadata, MIN_KEPT, DEFAULT_MIN_KEPT))


def _cutoff(older_than: datetime | str | timedelta | float, now: int) -> int:
    if isinstance(older_than, datetime):
        return int(as_moment(older_than).timestamp() * 1000)
    if isinstance(older_than, str):
        try:
            moment = datetime.fromisoformat(older_than)
        except ValueError:
            pass  # an age
        else:
            return int(as_moment(moment).timestamp() * 1000)
    return now - int(duration(older_than, "older_than") * 1000)


def _number_property(metadata: TableMetadata, key: str, default: int) -> int:
    text = metadata.properties.get(key)
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise InputError(f"the table property {key} is {text!r}, which is not a number.", fix="correct it.") from error


def plan_expiry(metadata: TableMetadata, rule: Retention, readers: Iterable[Reader] = ()) -> Expiry:
    """Returns the snapshots that may expire.

    The rules are Iceberg's own (`RemoveSnapshots`). The heads of branches and tags stay. On each branch, young
    snapshots and the last ones stay. Of the snapshots that are on no branch, young ones stay. In addition, snapshots
    that a reader needs stay.

    Raises:
        InputError: The table property `gc.enabled` is false.
    """
    if metadata.properties.get(GC_ENABLED, "true").lower() == "false":
        raise InputError(
            "the table property gc.enabled is false: other tables may share the table's files, so nothing expires.",
            fix="set gc.enabled to true if no other table shares its files.",
        )
    parents = {raw.snapshot_id: raw.parent_snapshot_id for raw in metadata.snapshots}
    expirable = parents.keys() - _retained(metadata, rule)
    held, lost = [], []
    needed_snapshots: frozenset[int] = frozenset()
    for reader in readers:
        needed_by_reader = snapshots_needed_by(reader, parents)
        needed_snapshots |= needed_by_reader
        if not needed_by_reader and parents:
            lost.append(reader)
        kept_for_reader = needed_by_reader & expirable
        if kept_for_reader:
            held.append(KeptForReader(reader, tuple(id for id in parents if id in kept_for_reader)))
    expiring = [as_snapshot(raw) for raw in metadata.snapshots if raw.snapshot_id in expirable - needed_snapshots]
    return Expiry(
        tuple(sorted(expiring, key=lambda snapshot: snapshot.timestamp)), tuple(held), tuple(lost), needed_snapshots
    )


def _retained(metadata: TableMetadata, rule: Retention) -> set[int]:
    times = {raw.snapshot_id: raw.timestamp_ms for raw in metadata.snapshots}
    stays = {ref.snapshot_id for ref in metadata.refs.values()}
    in_branches = set(stays)
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type.value == "branch":
            history = list(ancestors(metadata, ref.snapshot_id))
            in_branches |= set(history)
            stays |= set(_retained_of_branch(history, times, ref, rule))
    return stays | {id for id, ms in times.items() if id not in in_branches and ms >= rule.before}


def _retained_of_branch(
    history: Sequence[int], times: dict[int, int], ref: SnapshotRef, rule: Retention
) -> Iterator[int]:
    """The snapshots of a branch that stay: from its head back to the first that may expire, as in Iceberg."""
    age = ref.max_snapshot_age_ms
    before = int(time.time() * 1000) - age if age is not None else rule.before
    last = ref.min_snapshots_to_keep or rule.last
    for index, id in enumerate(history):
        if index >= last and times[id] < before:
            return
        yield id


def default_expiry_plan(
    table: Table,
    older_than: datetime | str | timedelta | float | None,
    retain_last: int | None,
    readers: Sequence[str],
) -> Expiry:
    """The plan for an expiry with the readers of the configured catalogs; the arguments are those of `Table.expire`."""
    script = caller().file
    folders = {Path.cwd(), Path(script).resolve().parent if os.path.exists(script) else Path.cwd()}
    places = [place for folder in folders for place in warehouses(load(folder).catalogs.values())]
    refresh(table)
    with translating_errors(table, "reading its catalog"):
        properties = dict(table.iceberg.catalog.properties)
    uri = str(properties.get("warehouse", ""))
    if "://" in uri or uri.startswith(("/", "file:")):
        places.append(Warehouse(table.name.partition(".")[0], uri, properties))
    return expiry_plan(table, older_than, retain_last, readers, places)


def expiry_plan(
    table: Table,
    older_than: datetime | str | timedelta | float | None,
    retain_last: int | None,
    readers: Sequence[str],
    places: Sequence[Warehouse],
) -> Expiry:
    """The plan for an expiry. Readers are searched only in the warehouses `places`, and at `readers`."""
    metadata = table.iceberg.metadata
    rule = retention(metadata, older_than, retain_last)
    return plan_expiry(metadata, rule, readers_of(table.name, metadata, places, readers))


def expire(
    table: Table,
    older_than: datetime | str | timedelta | float | None,
    retain_last: int | None,
    readers: Sequence[str],
) -> Expiry:
    """Expires snapshots in the metadata only; see `Table.expire`."""
    from pyiceberg.exceptions import CommitFailedException

    refuse_unwritable(table, f"run `helios expire {table.name}`, which uses Spark.")
    tries = COMMIT_TRIES
    while True:
        expiry = default_expiry_plan(table, older_than, retain_last, readers)
        if not expiry.snapshots:
            return expiry
        tries -= 1
        with translating_errors(table, "the expiry"):
            try:
                remove_snapshots(table.iceberg, [snapshot.id for snapshot in expiry.snapshots])
            except CommitFailedException:
                if not tries:
                    raise
                continue
        return expiry


def remove_snapshots(table: pyiceberg.table.Table, snapshots: Sequence[int]) -> None:
    """Removes snapshots from a table's metadata; their files stay on the storage.

    Raises:
        CommitFailedException: A branch or a tag has moved meanwhile.
    """
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    refs = table.metadata.refs.items()
    unmoved = (AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id}) for name, ref in refs)
    # PyIceberg's own builder sets no requirements, and does not use the update of `_remove_snapshots_update`.
    table.catalog.commit_table(
        table,
        (AssertTableUUID(uuid=table.metadata.table_uuid), *unmoved),
        (_remove_snapshots_update().model_validate({"snapshot-ids": list(snapshots)}),),
    )
    table.refresh()


@cache
def _remove_snapshots_update() -> type[RemoveSnapshotsUpdate]:
    """PyIceberg's update, but applied by the rules of Iceberg's Java library. (A REST server applies its own rules.)

    PyIceberg itself drops the parent id of a snapshot whose parent expires. A reader at that parent could then not find
    its position, and a history with a gap would look complete.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import RemoveSnapshotsUpdate, _apply_table_update

    class RemoveSnapshots(RemoveSnapshotsUpdate):
        pass

    @_apply_table_update.register(RemoveSnapshots)
    def _(update: RemoveSnapshots, base: TableMetadata, context: Any) -> TableMetadata:
        expired = set(update.snapshot_ids)
        if any(ref.snapshot_id in expired for ref in base.refs.values()):
            raise CommitFailedException("a branch or a tag has moved to a snapshot that was to expire")
        context.add_update(update)
        changes: dict[str, Any] = {
            "snapshots": [raw for raw in base.snapshots if raw.snapshot_id not in expired],
            "statistics": [file for file in base.statistics if file.snapshot_id not in expired],
            "partition_statistics": [file for file in base.partition_statistics if file.snapshot_id not in expired],
        }
        retained = {raw.snapshot_id for raw in changes["snapshots"]}
        log = list(base.snapshot_log)
        gaps = [index for index, entry in enumerate(log) if entry.snapshot_id not in retained]
        # The log is kept only after its last gap: a time in a gap would give a wrong state.
        changes["snapshot_log"] = log[gaps[-1] + 1 :] if gaps else log
        return base.model_copy(update=changes)

    return RemoveSnapshots
