"""Builds PyIceberg's partition spec from declared partition fields."""

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
    """The PyIceberg partition spec for declared partition fields.

    Raises:
        NotFound: A field names a column that does not exist.
        DeclarationError: A transform does not fit its column, or a field occurs twice.
    """
    from pyiceberg.partitioning import PartitionField as SpecField
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.transforms import parse_transform

    spec = []
    for position, declared in enumerate(fields):
        field = identity(declared) if isinstance(declared, str) else declared
        if not isinstance(field, PartitionField):
            raise DeclarationError(
                f"table {table}: partition_by takes transforms or column names, not {field!r}.",
                where=caller(),
                fix='write partition_by=[day("ts"), "country"].',
            )
        if field.column not in schema.column_names:
            raise NotFound(
                f"table {table}: partition_by({field}): no column {field.column!r}. "
                f"{near_miss(field.column, schema.column_names)}",
                where=caller(),
            )
        column = schema.find_field(field.column)
        width = f"[{field.width}]" if field.width is not None else ""
        transform = parse_transform(f"{field.transform}{width}")
        if not transform.can_transform(column.field_type):
            raise DeclarationError(
                f"table {table}: partition_by({field}): {field.transform} does not take {column.field_type}.",
                where=caller(),
                fix="choose another transform, or another column.",
            )
        # Iceberg's partition field ids begin at 1000.
        spec.append(SpecField(column.field_id, 1000 + position, transform, field.name))
    names = [field.name for field in spec]
    if len(set(names)) != len(names):
        raise DeclarationError(f"table {table}: partition_by has a field twice.", where=caller())
    return PartitionSpec(*spec)
