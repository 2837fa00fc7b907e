"""The PyIceberg partition spec of declared partition fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from helios.errors import DeclarationError, NotFound, near_miss
from helios.model.partition import PartitionField, identity
from helios.model.values import caller

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


def partition_spec(table: str, schema: Schema, fields: Sequence[PartitionField | str]) -> PartitionSpec:
    """The spec of some fields over a schema.

    Args:
        table: The table's name, for messages.
        schema: Its columns, with their ids.
        fields: Transforms, or bare column names.

    Raises:
        NotFound: A field names a column that does not exist.
        DeclarationError: A transform does not fit its column, or a field occurs twice.
    """
    from pyiceberg.partitioning import PartitionField as SpecField
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.transforms import parse_transform

    spec = []
    for position, given in enumerate(fields):
        item = identity(given) if isinstance(given, str) else given
        if not isinstance(item, PartitionField):
            raise DeclarationError(
                f"table {table}: partition_by takes transforms or column names, not {item!r}.",
                where=caller(),
                fix='write partition_by=[day("ts"), "country"].',
            )
        if item.column not in schema.column_names:
            raise NotFound(
                f"table {table}: partition_by({item}): no column {item.column!r}. "
                f"{near_miss(item.column, schema.column_names)}",
                where=caller(),
            )
        column = schema.find_field(item.column)
        transform = parse_transform(item.transform + (f"[{item.width}]" if item.width is not None else ""))
        if not transform.can_transform(column.field_type):
            raise DeclarationError(
                f"table {table}: partition_by({item}): {item.transform} does not take {column.field_type}.",
                where=caller(),
                fix="choose another transform, or another column.",
            )
        spec.append(SpecField(column.field_id, 1000 + position, transform, item.name))
    names = [field.name for field in spec]
    if len(set(names)) != len(names):
        raise DeclarationError(f"table {table}: partition_by has a field twice.", where=caller())
    return PartitionSpec(*spec)
