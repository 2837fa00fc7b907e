"""Converts the values of rows for JSON and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType


def plain_values(row: Row, fields: Sequence[StructField]) -> dict[str, object]:
    """The values of some columns of a row, by name, for JSON or a terminal."""
    return {field.name: _plain(row[field.name], field.dataType) for field in fields}


def _plain(value: object, kind: DataType) -> object:
    """A struct as a dict, a timestamp in UTC with its offset, bytes as hex digits."""
    if isinstance(kind, StructType) and isinstance(value, Row):
        return plain_values(value, kind.fields)
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [_plain(element, kind.elementType) for element in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return {str(_plain(key, kind.keyType)): _plain(entry, kind.valueType) for key, entry in value.items()}
    if isinstance(kind, TimestampType) and isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()  # Spark returns it in the zone of the machine
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, (bytes, bytearray)) else value
