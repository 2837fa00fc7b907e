"""Records of topics, and change events in the format of Debezium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from helios.errors import InputError, near_miss
from helios.testing.json_text import json_text

__tracebackhide__ = True

OPERATIONS = {"c": "c", "r": "r", "u": "u", "d": "d", "insert": "c", "snapshot": "r", "update": "u", "delete": "d"}
CONNECT_TYPES = {bool: "boolean", int: "int64", float: "double", str: "string", bytes: "bytes"}
"""The Kafka Connect type of each Python type, for the schema part of a record."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a topic, as a producer would send it.

    Attributes:
        value: The value: bytes, text, a mapping that becomes JSON, or None for a tombstone.
        key: The key: bytes, text, a mapping that becomes JSON, or None for a record without a key.
        partition: The number of the partition.
        at: The timestamp: a datetime, or text in ISO format; by default 1970-01-01.
        headers: The name and the bytes of each header.
    """

    value: Any = None
    key: Any = None
    partition: int = 0
    at: datetime | str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, content: Any) -> Record:
        """Makes a record whose key and value are bytes. `content` is a record, or the value of a record without a key.

        Examples:
            >>> Record.of({"id": 1}).value, Record.of(None).value
            (b'{"id": 1}', None)
        """
        record = content if isinstance(content, Record) else cls(value=content)
        return replace(record, value=as_bytes(record.value), key=as_bytes(record.key))


def as_bytes(value: Any) -> bytes | None:
    """A value as bytes. Bytes and None are unchanged, text becomes UTF-8, and any other value becomes JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json_text(value).encode()


def envelope(change: Any, *, keys: Sequence[str], topic: str, number: int, with_schema: bool) -> Record:
    """The record that Debezium writes for a change of a row.

    Args:
        change: `(op, before, after)`: the operation, the row before the change, and the row after the change. A
            `Record`, bytes or None becomes a record without Debezium's envelope.
        keys: The key columns; by default the first column.
        topic: The topic. The last two parts of its name are the schema and the name of the table.
        number: The position (LSN) of the change in the database's log.
        with_schema: Whether the key and the value have the schema part of Kafka Connect's JSON.

    Raises:
        InputError: `change` is not a change, or the type of a column is not clear from its value.
    """
    if isinstance(change, Record | bytes) or change is None:
        return Record.of(change)
    if not isinstance(change, tuple | list) or len(change) != 3:
        raise InputError(
            f"{topic}: {change!r} is not a change.", fix='write (op, before, after): ("c", None, {"id": 1}).'
        )
    op, before, after = change
    if op not in OPERATIONS:
        raise InputError(f"{topic}: {op!r} is not an operation of a change. {near_miss(str(op), OPERATIONS)}")
    row = after if after is not None else before
    if not isinstance(row, Mapping) or not row:
        raise InputError(f"{topic}: the change {op!r} has no row: before or after must be a dict of columns.")
    key_columns = keys or (next(iter(row)),)
    prefix, _, rest = topic.partition(".")
    schema, _, table = rest.rpartition(".")
    source = {
        "version": "3.6.0.Final", "connector": "postgresql", "name": prefix, "ts_ms": 0, "db": "postgres",
        "snapshot": "true" if OPERATIONS[op] == "r" else "false", "lsn": number, "sequence": f'[null,"{number}"]',
        "schema": schema or "public", "table": table or topic,
    }  # fmt: skip
    value: dict[str, Any] = {
        "before": before, "after": after, "source": source, "transaction": None, "op": OPERATIONS[op], "ts_ms": 1,
        "ts_us": 1000, "ts_ns": 1000000,
    }  # fmt: skip
    key: dict[str, Any] = {name: row.get(name) for name in key_columns}
    if with_schema:
        fields = _fields({**(before or {}), **(after or {})}, topic)
        key_fields = [{**field, "optional": False} for field in fields if field["field"] in key_columns]
        key = {"schema": {"type": "struct", "fields": key_fields, "optional": False, "name": "Key"}, "payload": key}
        value = {"schema": _schema(fields), "payload": value}
    return Record(value=as_bytes(value), key=as_bytes(key))


def _fields(row: Mapping[str, Any], topic: str) -> list[dict[str, Any]]:
    unclear = next((name for name, value in row.items() if type(value) not in CONNECT_TYPES), None)
    if unclear is not None:
        raise InputError(
            f"{topic}: the type of column {unclear!r} is not clear from {row[unclear]!r}.",
            fix='declare the columns: Cdc.debezium(..., schema="id bigint, ..."), or give raw bytes.',
        )
    return [{"type": CONNECT_TYPES[type(value)], "optional": True, "field": name} for name, value in row.items()]


def _schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "fields": fields, "optional": True, "name": "Value"}
    parts = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": [], "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
    ]
    return {"type": "struct", "fields": parts, "optional": False, "name": "Envelope"}
