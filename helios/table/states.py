"""Two states of tables beside each other: which states are meant, how their columns differ, whether their files do.

No JVM is started, and no data file is read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.errors import InputError, NotFound, near_miss
from helios.model.values import Point, caller
from helios.table.ledger import records
from helios.table.refs import ATTEMPT, MAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

    from helios.table.snapshots import Table


@dataclass(frozen=True)
class State:
    """A state of a table.

    Attributes:
        table: The table.
        snapshot: The snapshot; None for the state before the first commit.
        schema: The columns of the state: of a branch the table's columns now, else those of the snapshot.
        text: How the state is called.
        branch: Whether it is the head of a branch beside main.
    """

    table: Table
    snapshot: int | None
    schema: Schema
    text: str
    branch: bool = False

    def same_table(self, other: State) -> bool:
        """True if both are states of one table, so that columns are known by their field ids."""
        return self.table.iceberg.metadata.table_uuid == other.table.iceberg.metadata.table_uuid


@dataclass(frozen=True, kw_only=True)
class ColumnChange:
    """One difference between the columns of two states.

    Attributes:
        change: added, removed, renamed, type, or nulls.
        column: The column, with dots for a nested one: its name in the later state, or of a removed one in the earlier.
        before: The name, the type, or "required" or "optional", in the earlier state.
        after: The same in the later state.
    """

    change: str
    column: str
    before: str | None = None
    after: str | None = None

    def text(self) -> str:
        """The change in words.

        Examples:
            >>> ColumnChange(change="renamed", column="total", before="amount", after="total").text()
            'total: renamed from amount'
            >>> ColumnChange(change="type", column="total", before="int", after="long").text()
            'total: int, now long'
        """
        if self.change in ("added", "removed"):
            return f"{self.column} {self.after or self.before}: {self.change}"
        return f"{self.column}: " + (
            f"renamed from {self.before}" if self.change == "renamed" else f"{self.before}, now {self.after}"
        )


@dataclass(frozen=True, kw_only=True)
class RowDiff:
    """The difference of the rows of two states.

    Attributes:
        added: How many rows the later state has more, each as often as it is there.
        removed: How many it has less.
        changed: How many rows of one key have other values.
        sample_added: Some of the added rows.
        sample_removed: Some of the removed rows.
        sample_changed: Some of the changed rows, as they were and as they are.
        files: How many data files were read.
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
    """The state of a table at an id, a time, a branch or a tag; by default main as it is now.

    Raises:
        NotFound: There is no such snapshot, time, branch or tag.
    """
    if point is None or point == MAIN:
        current = table.current_snapshot()
        return State(table, current.id if current else None, table.iceberg.schema(), MAIN)
    found = table.find(point)
    if isinstance(point, str) and point in table.branches():
        return State(table, found.id, table.iceberg.schema(), f"branch {point}", branch=True)
    named = point if isinstance(point, int) or point in table.tags() else f"{point} (snapshot {found.id})"
    kind = "snapshot" if isinstance(point, int) else "tag" if point in table.tags() else "time"
    return State(table, found.id, _schema_of(table.iceberg.metadata, found.schema_id), f"{kind} {named}")


def state_before(later: State) -> State:
    """The state before the commit of another one; all snapshots of one batch are one commit.

    Raises:
        NotFound: It has expired.
    """
    table, metadata = later.table, later.table.iceberg.metadata
    if later.snapshot is None:
        return State(table, None, later.schema, "before the first commit")
    made = table.snapshot(later.snapshot)
    attempt = made.summary.get(ATTEMPT)
    known = {snapshot.id: snapshot for snapshot in table.snapshots()}
    while made.parent_id in known and attempt is not None and known[made.parent_id].summary.get(ATTEMPT) == attempt:
        made = known[made.parent_id]
    before = made.parent_id
    if before is None:
        return State(table, None, _schema_of(metadata, made.schema_id), "before the first commit")
    if before not in known:
        raise NotFound(
            f"the state before {later.text} of {table.name} has expired: it was snapshot {before}.",
            where=caller(),
            fix=f"name a state that is there with --from; `helios snapshots {table.name}` lists them.",
        )
    return State(table, before, _schema_of(metadata, known[before].schema_id), f"snapshot {before} (the commit before)")


def _schema_of(metadata: TableMetadata, id: int | None) -> Schema:
    by_id = {schema.schema_id: schema for schema in metadata.schemas}
    return by_id[metadata.current_schema_id if id is None or id not in by_id else id]


# keys


def keys_between(before: State, after: State, given: Sequence[str]) -> tuple[str, ...]:
    """The columns that identify a row in two states, by their names in the later one; none where nothing says it.

    Args:
        before: The earlier state.
        after: The later state.
        given: The columns that the user names; else the table's identifier fields count, else the keys by which all
            pipelines of the table upsert.

    Raises:
        NotFound: A column that the user names is not in both states.
        InputError: It is a nested one, or the other table has it by another type.
    """
    compared = compared_columns(before, after)
    by_lower = {name.lower(): name for name in compared}
    for key in given:
        if key.lower() not in by_lower:
            kinds = {field.name.lower(): field.field_type for state in (before, after) for field in state.schema.fields}
            if key.lower() in kinds and key.lower() in {f.name.lower() for f in after.schema.fields}:
                raise InputError(
                    f"--key {key}: {before.table.name} at {before.text} has no such column, or one of another type.",
                    where=caller(),
                    fix="name a column that both states have.",
                )
            raise NotFound(
                f"--key {key}: {after.table.name} at {after.text} has no column {key!r}. {near_miss(key, compared)}",
                where=caller(),
            )
    chosen = [by_lower[key.lower()] for key in given] or _declared_keys(after)
    both = set(_shared(before, after))
    return tuple(chosen) if chosen and all(key.lower() in by_lower and key in both for key in chosen) else ()


def _declared_keys(state: State) -> list[str]:
    own = sorted(state.schema.identifier_field_names())
    if own:
        return own
    found = {
        tuple(record.upserts["keys"])
        for record in records(state.table.iceberg.metadata.properties, state.table.name).values()
        if record.upserts is not None and record.upserts.get("keys")
    }
    names = {field.name.lower(): field.name for field in state.schema.fields}
    keys = next(iter(found)) if len(found) == 1 else ()
    return [names[key] for key in keys] if all(key in names for key in keys) else []


def _shared(before: State, after: State) -> list[str]:
    """The top-level columns of the later state that the earlier one has, too."""
    if before.same_table(after):
        there = {field.field_id for field in before.schema.fields}
        return [field.name for field in after.schema.fields if field.field_id in there]
    names = {field.name for field in before.schema.fields}
    return [field.name for field in after.schema.fields if field.name in names]


# columns


def compared_columns(before: State, after: State) -> list[str]:
    """The columns by which rows are compared, by their names in the later state.

    Of one table all columns of the later state: files that lack one give null, or its default. Of two tables those
    that both have, by types of which one takes the values of the other.
    """
    if before.same_table(after):
        return [field.name for field in after.schema.fields]
    kinds = {field.name: field.field_type for field in before.schema.fields}
    return [
        field.name
        for field in after.schema.fields
        if field.name in kinds and common_type(kinds[field.name], field.field_type) is not None
    ]


WIDER = (("int", "long"), ("float", "double"))


def not_compared(before: State, after: State) -> list[str]:
    """The columns that both of two tables have by types that cannot be compared."""
    names = {field.name for field in before.schema.fields}
    compared = compared_columns(before, after)
    return [field.name for field in after.schema.fields if field.name in names and field.name not in compared]


def common_type(one: IcebergType, other: IcebergType) -> str | None:
    """The type that takes the values of two types exactly; None where there is none.

    Examples:
        >>> from pyiceberg.types import DecimalType, IntegerType, LongType, StringType
        >>> common_type(IntegerType(), LongType()), common_type(IntegerType(), StringType())
        ('long', None)
        >>> common_type(DecimalType(10, 2), DecimalType(12, 2)), common_type(DecimalType(10, 2), DecimalType(10, 3))
        ('decimal(12, 2)', None)
    """
    from pyiceberg.types import DecimalType

    texts = (_bare(one), _bare(other))
    if texts[0] == texts[1]:
        return str(one)
    if isinstance(one, DecimalType) and isinstance(other, DecimalType) and one.scale == other.scale:
        return str(max(one, other, key=lambda kind: kind.precision))
    return next((wide for narrow, wide in WIDER if {str(one), str(other)} == {narrow, wide}), None)


def _bare(kind: IcebergType) -> str:
    """A type as JSON, without what differs from table to table: field ids, and whether nulls are allowed."""

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(one) for one in value]
        if not isinstance(value, dict):
            return value
        gone = ("id", "element-id", "key-id", "value-id", "doc", "required", "element-required", "value-required")
        return {key: strip(one) for key, one in value.items() if key not in gone}

    return json.dumps(strip(json.loads(kind.model_dump_json())), sort_keys=True)


def read_fields(before: State, after: State) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The columns in which the files of two states are read to compare rows, as the JSON of Iceberg's fields.

    Both are those of `compared_columns`, in one order and by one name. Their types take the values of all files that
    the table has ever had.

    Raises:
        InputError: Two tables have no column that can be compared.
    """
    names = compared_columns(before, after)
    if not names:
        raise InputError(
            f"{before.table.name} and {after.table.name} have no column of one name and type: no row can be compared.",
            where=caller(),
            fix=f"compare two states of one table: `helios diff {before.table.name} --from STATE`.",
        )
    earlier = after if before.same_table(after) else before
    return _fields(earlier, names), _fields(after, names)


def _fields(state: State, names: Sequence[str]) -> list[dict[str, Any]]:
    widest: dict[int, str] = {}
    schemas = sorted(state.table.iceberg.metadata.schemas, key=lambda schema: schema.schema_id)
    for schema in (*schemas, state.table.iceberg.schema()):
        widest.update((column.id, column.type) for column in _columns(schema) if not column.nested)
    found = {field.name: json.loads(field.model_dump_json()) for field in state.schema.fields}
    return [_widened(found[name], widest) for name in names]


def _widened(value: Any, widest: Mapping[int, str]) -> Any:
    """A field as JSON, whose primitive types are replaced by wider ones."""
    if isinstance(value, list):
        return [_widened(one, widest) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: _widened(one, widest) for key, one in value.items()}
    for kind, id in (("type", "id"), ("element", "element-id"), ("key", "key-id"), ("value", "value-id")):
        if id in made and isinstance(made.get(kind), str):
            made[kind] = widest.get(made[id], made[kind])
    return made


@dataclass(frozen=True)
class _Column:
    id: int
    parent: int | None
    own: str
    name: str
    type: str
    required: bool
    nested: bool


def column_changes(before: State, after: State) -> list[ColumnChange]:
    """How the columns of two states differ: of one table by field id, of two tables by name."""
    same = before.same_table(after)
    old = {(column.id if same else column.name): column for column in _columns(before.schema)}
    new = {(column.id if same else column.name): column for column in _columns(after.schema)}
    gone = {column.id for key, column in old.items() if key not in new}
    came = {column.id for key, column in new.items() if key not in old}
    return [
        *(ColumnChange(change="removed", column=c.name, before=c.type) for c in old.values()
          if c.id in gone and c.parent not in gone),
        *(ColumnChange(change="added", column=c.name, after=c.type) for c in new.values()
          if c.id in came and c.parent not in came),
        *(change for key, c in new.items() if key in old for change in _between(old[key], c)),
    ]  # fmt: skip


def _between(old: _Column, new: _Column) -> Iterator[ColumnChange]:
    if old.own != new.own:
        yield ColumnChange(change="renamed", column=new.name, before=old.name, after=new.name)
    if old.type != new.type:
        yield ColumnChange(change="type", column=new.name, before=old.type, after=new.type)
    if old.required != new.required:
        words = ["required" if column.required else "optional" for column in (old, new)]
        yield ColumnChange(change="nulls", column=new.name, before=words[0], after=words[1])


def _columns(schema: Schema) -> Iterator[_Column]:
    """All columns, nested ones behind the one that holds them."""
    from pyiceberg.types import ListType, MapType, NestedField, StructType

    def walk(field: NestedField, parent: _Column | None) -> Iterator[_Column]:
        kind = field.field_type
        name = f"{parent.name}.{field.name}" if parent is not None else field.name
        nested = isinstance(kind, (StructType, ListType, MapType))
        shown = type(kind).__name__.removesuffix("Type").lower() if nested else str(kind)
        above = parent.id if parent is not None else None
        column = _Column(field.field_id, above, field.name, name, shown, field.required, nested)
        yield column
        inner: list[NestedField] = []
        if isinstance(kind, StructType):
            inner = list(kind.fields)
        elif isinstance(kind, ListType):
            inner = [kind.element_field]
        elif isinstance(kind, MapType):
            inner = [kind.key_field, kind.value_field]
        for one in inner:
            yield from walk(one, column)

    for field in schema.fields:
        yield from walk(field, None)


# files


def same_files(before: State, after: State) -> bool:
    """True if two states of one table have the same live files, so that their rows are the same.

    Manifests that both states name are not read.
    """
    if before.snapshot == after.snapshot:
        return True
    manifests = [_manifests(state) for state in (before, after)]
    shared = manifests[0].keys() & manifests[1].keys()
    entries: list[Counter[tuple[Any, ...]]] = []
    for state, own in zip((before, after), manifests, strict=True):
        io = state.table.iceberg.io
        live = (entry for path, one in own.items() if path not in shared for entry in one.fetch_manifest_entry(io))
        entries.append(Counter(_identity(entry) for entry in live))
    return entries[0] == entries[1]


def _manifests(state: State) -> Mapping[str, Any]:
    raw = state.table.iceberg.metadata.snapshot_by_id(state.snapshot) if state.snapshot is not None else None
    return {one.manifest_path: one for one in raw.manifests(state.table.iceberg.io)} if raw is not None else {}


def _identity(entry: Any) -> tuple[Any, ...]:
    file = entry.data_file
    # One Puffin file has the deletion vectors of many data files.
    more = [getattr(file, name, None) for name in ("referenced_data_file", "content_offset")]
    return (file.content, file.file_path, entry.sequence_number, *more)
