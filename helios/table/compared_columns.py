"""The columns of two table states: how they differ, and which of them are used to compare rows; without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.errors import InputError
from helios.model.values import caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

    from helios.table.states import State


@dataclass(frozen=True, kw_only=True)
class ColumnChange:
    """One difference between the columns of two states.

    Attributes:
        change: added, removed, renamed, type, or nulls.
        column: The column's name in the later state, or in the earlier state if it was removed; nested names are joined
            by dots.
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


def compared_columns(before: State, after: State) -> list[str]:
    """The columns that are used to compare rows, by their names in the later state.

    For two states of one table: all columns of the later state, since a file that lacks a column gives null or the
    default. For two tables: the common columns for which one type can represent all values of the other type.
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
"""Pairs of types. The second type can represent all values of the first."""


def incomparable_columns(before: State, after: State) -> list[str]:
    """The common columns of two tables whose types cannot be compared."""
    names = {field.name for field in before.schema.fields}
    compared = compared_columns(before, after)
    return [field.name for field in after.schema.fields if field.name in names and field.name not in compared]


def common_type(one: IcebergType, other: IcebergType) -> str | None:
    """The type that represents all values of two types exactly; None if there is none.

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
    """A type as JSON, without the parts that may differ between equal types: field ids, comments and nullability."""

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(item) for item in value]
        if not isinstance(value, dict):
            return value
        ignored = ("id", "element-id", "key-id", "value-id", "doc", "required", "element-required", "value-required")
        return {key: strip(item) for key, item in value.items() if key not in ignored}

    return json.dumps(strip(json.loads(kind.model_dump_json())), sort_keys=True)


def fields_to_read(before: State, after: State) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The columns that are read to compare the rows of two states, as JSON of Iceberg's fields, for each state.

    Both lists are the columns of `compared_columns`, in the same order and under the same names. Their types are wide
    enough for all files that the table has ever had.

    Raises:
        InputError: Two tables have no column that can be compared, or the names of two columns differ by case alone.
    """
    names = compared_columns(before, after)
    first = {name.lower(): name for name in reversed(names)}
    twin = next((name for name in names if first[name.lower()] != name), None)
    if twin is not None:
        raise InputError(
            f"{after.table.name} at {after.text} has the columns {first[twin.lower()]!r} and {twin!r}: their names "
            "differ by case alone, and Spark, which compares the rows, does not distinguish them.",
            where=caller(),
            fix="rename one of them: columns are read by their names in the later state.",
        )
    if not names:
        raise InputError(
            f"{before.table.name} and {after.table.name} have no common column with comparable types.",
            where=caller(),
            fix=f"compare two states of one table: `helios diff {before.table.name} --from STATE`.",
        )
    return _fields(after if before.same_table(after) else before, names), _fields(after, names)


def _fields(state: State, names: Sequence[str]) -> list[dict[str, Any]]:
    widest: dict[int, str] = {}
    schemas = sorted(state.table.iceberg.metadata.schemas, key=lambda schema: schema.schema_id)
    for schema in (*schemas, state.table.iceberg.schema()):
        widest.update((column.id, column.type) for column in _columns(schema) if not column.has_children)
    fields = {field.name: json.loads(field.model_dump_json()) for field in state.schema.fields}
    return [_widened(fields[name], widest) for name in names]


def _widened(value: Any, widest: Mapping[int, str]) -> Any:
    """A field as JSON, with its primitive types replaced by the widest ones."""
    if isinstance(value, list):
        return [_widened(item, widest) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _widened(item, widest) for key, item in value.items()}
    for kind, id in (("type", "id"), ("element", "element-id"), ("key", "key-id"), ("value", "value-id")):
        if id in result and isinstance(result.get(kind), str):
            result[kind] = widest.get(result[id], result[kind])
    return result


@dataclass(frozen=True)
class _Column:
    id: int
    parent: int | None
    last_name: str
    name: str  # with the names of the columns around it
    type: str
    required: bool
    has_children: bool


def column_changes(before: State, after: State) -> list[ColumnChange]:
    """The differences between the columns of two states, matched by field id in one table, by name in two tables."""
    same = before.same_table(after)
    old = {(column.id if same else column.name): column for column in _columns(before.schema)}
    new = {(column.id if same else column.name): column for column in _columns(after.schema)}
    removed = {column.id for key, column in old.items() if key not in new}
    added = {column.id for key, column in new.items() if key not in old}
    return [
        *(ColumnChange(change="removed", column=c.name, before=c.type) for c in old.values()
          if c.id in removed and c.parent not in removed),
        *(ColumnChange(change="added", column=c.name, after=c.type) for c in new.values()
          if c.id in added and c.parent not in added),
        *(change for key, c in new.items() if key in old for change in _differences(old[key], c)),
    ]  # fmt: skip


def _differences(old: _Column, new: _Column) -> Iterator[ColumnChange]:
    if old.last_name != new.last_name:
        yield ColumnChange(change="renamed", column=new.name, before=old.name, after=new.name)
    if old.type != new.type:
        yield ColumnChange(change="type", column=new.name, before=old.type, after=new.type)
    if old.required != new.required:
        words = ["required" if column.required else "optional" for column in (old, new)]
        yield ColumnChange(change="nulls", column=new.name, before=words[0], after=words[1])


def _columns(schema: Schema) -> Iterator[_Column]:
    """All columns; nested columns follow the one that contains them."""
    from pyiceberg.types import ListType, MapType, NestedField, StructType

    def walk(field: NestedField, parent: _Column | None) -> Iterator[_Column]:
        kind = field.field_type
        name = f"{parent.name}.{field.name}" if parent is not None else field.name
        has_children = isinstance(kind, (StructType, ListType, MapType))
        shown = type(kind).__name__.removesuffix("Type").lower() if has_children else str(kind)
        parent_id = parent.id if parent is not None else None
        column = _Column(field.field_id, parent_id, field.name, name, shown, field.required, has_children)
        yield column
        inner: list[NestedField] = []
        if isinstance(kind, StructType):
            inner = list(kind.fields)
        elif isinstance(kind, ListType):
            inner = [kind.element_field]
        elif isinstance(kind, MapType):
            inner = [kind.key_field, kind.value_field]
        for child in inner:
            yield from walk(child, column)

    for field in schema.fields:
        yield from walk(field, None)
