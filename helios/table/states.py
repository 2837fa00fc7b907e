"""The two table states of a comparison: finds the states, chooses the columns that identify a row, compares files.

No JVM is started, and no data file is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.errors import InputError, NotFound, near_miss
from helios.model.values import Point, caller
from helios.table.compared_columns import compared_columns
from helios.table.ledger import records
from helios.table.refs import ATTEMPT, MAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from helios.table.snapshots import Table

UNGROUPABLE = re.compile(r"\b(map<|variant\b)")
"""Matches the text of a PyIceberg type if Spark cannot group rows by columns of this type."""


@dataclass(frozen=True)
class State:
    """A state of a table.

    Attributes:
        snapshot: The id of the snapshot; None for the state before the first commit.
        schema: The columns of the state. For a branch, these are the table's current columns; otherwise the columns of
            the snapshot.
        text: The name of the state in messages.
        is_branch_head: Whether the state is the head of a branch other than main.
    """

    table: Table
    snapshot: int | None
    schema: Schema
    text: str
    is_branch_head: bool = False

    def same_table(self, other: State) -> bool:
        """True if both states are of the same table. Columns are then matched by field id."""
        return self.table.iceberg.metadata.table_uuid == other.table.iceberg.metadata.table_uuid


@dataclass(frozen=True, kw_only=True)
class RowDiff:
    """The difference between the rows of two states.

    Attributes:
        added: The number of rows that only the later state has. Each duplicate counts.
        removed: The number of rows that only the earlier state has. Each duplicate counts.
        changed: The number of rows whose key is in both states, with other values.
        sample_changed: Some of the changed rows, each before and after the change.
        files: The number of data files that were read.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    sample_added: Sequence[Mapping[str, Any]] = ()
    sample_removed: Sequence[Mapping[str, Any]] = ()
    sample_changed: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = ()
    files: int = 0

    @property
    def differs(self) -> bool:
        return bool(self.added or self.removed or self.changed)


# states


def state_at(table: Table, point: Point | None) -> State:
    """The state of a table at a snapshot id, time, branch or tag, by default the head of main. Raises `NotFound`."""
    if point is None or point == MAIN:
        current = table.current_snapshot()
        return State(table, current.id if current else None, table.iceberg.schema(), MAIN)
    snapshot = table.find(point)
    if isinstance(point, str) and point in table.branches():
        return State(table, snapshot.id, table.iceberg.schema(), f"branch {point}", is_branch_head=True)
    state_name = point if isinstance(point, int) or point in table.tags() else f"{point} (snapshot {snapshot.id})"
    kind = "snapshot" if isinstance(point, int) else "tag" if point in table.tags() else "time"
    return State(table, snapshot.id, _schema_of(table.iceberg.metadata, snapshot.schema_id), f"{kind} {state_name}")


def state_before(later: State) -> State:
    """The state before the commit that made `later`. All snapshots of a batch count as one commit.

    Raises:
        NotFound: The earlier state has expired.
    """
    table, metadata = later.table, later.table.iceberg.metadata
    if later.snapshot is None:
        return State(table, None, later.schema, "before the first commit")
    first = table.snapshot(later.snapshot)
    attempt = first.summary.get(ATTEMPT)
    known = {snapshot.id: snapshot for snapshot in table.snapshots()}
    while first.parent_id in known and attempt is not None and known[first.parent_id].summary.get(ATTEMPT) == attempt:
        first = known[first.parent_id]
    before = first.parent_id
    if before is None:
        return State(table, None, _schema_of(metadata, first.schema_id), "before the first commit")
    if before not in known:
        raise NotFound(
            f"the state before {later.text} of {table.name} has expired: it was snapshot {before}.",
            where=caller(),
            fix=f"name a retained state with --from; `helios snapshots {table.name}` lists them.",
        )
    return State(table, before, _schema_of(metadata, known[before].schema_id), f"snapshot {before} (the commit before)")


def _schema_of(metadata: TableMetadata, id: int | None) -> Schema:
    by_id = {schema.schema_id: schema for schema in metadata.schemas}
    return by_id[metadata.current_schema_id if id is None or id not in by_id else id]


# keys


def row_key_columns(before: State, after: State, given: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that identify a row in two states, by their names in the later state.

    The result is empty if no column is named or declared, if the earlier state lacks one of the columns, or if a
    declared column cannot be compared.

    Args:
        given: The columns that the user names. If empty, the table's identifier fields are used. If the table has no
            identifier fields, the keys of the pipelines that upsert into it are used, if all these pipelines have the
            same keys.

    Raises:
        NotFound: The later state has no column of a given name.
        InputError: A given column is a map or a variant, or has no comparable column in the earlier state.
    """
    compared = compared_columns(before, after)
    by_lower = {name.lower(): name for name in compared}
    for key in given:
        if key.lower() not in by_lower:
            if key.lower() in {field.name.lower() for field in after.schema.fields}:
                raise InputError(
                    f"--key {key}: {before.table.name} at {before.text} has no column that can be compared with the "
                    f"column {key!r} of {after.table.name} at {after.text}.",
                    where=caller(),
                    fix="name a column that both states have, with comparable types.",
                )
            raise NotFound(
                f"--key {key}: {after.table.name} at {after.text} has no column {key!r}. {near_miss(key, compared)}",
                where=caller(),
            )
    types = {field.name: str(field.field_type) for field in after.schema.fields}
    for name in (by_lower[key.lower()] for key in given):
        if UNGROUPABLE.search(types[name]):
            raise InputError(
                f"--key {name}: the column is of type {types[name]}, and a map or a variant cannot identify a row.",
                where=caller(),
                fix="name a column of another type.",
            )
    chosen = [by_lower[key.lower()] for key in given] or _declared_keys(after)
    both = set(_common_columns(before, after))
    return tuple(chosen) if chosen and all(key.lower() in by_lower and key in both for key in chosen) else ()


def _declared_keys(state: State) -> list[str]:
    own = sorted(state.schema.identifier_field_names())
    if own:
        return own
    declared_keys = {
        tuple(record.upserts["keys"])
        for record in records(state.table.iceberg.metadata.properties, state.table.name).values()
        if record.upserts is not None and record.upserts.get("keys")
    }
    names = {field.name.lower(): field.name for field in state.schema.fields}
    keys = next(iter(declared_keys)) if len(declared_keys) == 1 else ()
    return [names[key] for key in keys] if all(key in names for key in keys) else []


def _common_columns(before: State, after: State) -> list[str]:
    """The top-level columns of the later state that are also in the earlier state."""
    if before.same_table(after):
        ids = {field.field_id for field in before.schema.fields}
        return [field.name for field in after.schema.fields if field.field_id in ids]
    names = {field.name for field in before.schema.fields}
    return [field.name for field in after.schema.fields if field.name in names]


# files


def same_files(before: State, after: State) -> bool:
    """True if two states of one table have the same live files, and so the same rows.

    A manifest that both states name is not read.
    """
    if before.snapshot == after.snapshot:
        return True
    manifests = [_manifests(state) for state in (before, after)]
    shared = manifests[0].keys() & manifests[1].keys()
    entries: list[Counter[tuple[Any, ...]]] = []
    for state, own in zip((before, after), manifests, strict=True):
        io = state.table.iceberg.io
        unshared = [manifest for path, manifest in own.items() if path not in shared]
        live = (entry for manifest in unshared for entry in manifest.fetch_manifest_entry(io))
        entries.append(Counter(_identity(entry) for entry in live))
    return entries[0] == entries[1]


def _manifests(state: State) -> Mapping[str, Any]:
    raw = state.table.iceberg.metadata.snapshot_by_id(state.snapshot) if state.snapshot is not None else None
    return {file.manifest_path: file for file in raw.manifests(state.table.iceberg.io)} if raw is not None else {}


def _identity(entry: Any) -> tuple[Any, ...]:
    file = entry.data_file
    # One Puffin file has the deletion vectors of many data files.
    more = [getattr(file, name, None) for name in ("referenced_data_file", "content_offset")]
    return (file.content, file.file_path, entry.sequence_number, *more)
