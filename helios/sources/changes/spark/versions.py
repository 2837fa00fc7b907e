"""The versions of a table's schema, and the table's key, from Debezium's records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Row

from helios.sources.changes.spark import types as connect_types
from helios.sources.changes.spark.types import ConnectType, Json
from helios.spark.checkpoint.mirrored import LogPosition


@dataclass(frozen=True)
class Version:
    """A version of a table's schema.

    Attributes:
        fields: The columns and their types.
        schema_parts: The schema parts of records with this version, as texts.
        first_position: The position in the log of the first change with this version; None if no change has a position.
        last_position: The position of the last change with this version.
        filled_columns: The columns with a default, or NOT NULL. If such a column is new, older rows have a value of it.
        snapshot_position: The position at which a snapshot was taken with this version; None if there is none.
            Incremental snapshots do not count.
    """

    fields: tuple[tuple[str, ConnectType], ...]
    schema_parts: tuple[str, ...]
    first_position: LogPosition | None = None
    last_position: LogPosition | None = None
    filled_columns: frozenset[str] = frozenset()
    snapshot_position: LogPosition | None = None


@dataclass(frozen=True)
class TableVersions:
    """The schema versions, the key and the snapshots of a table, from its records in a batch.

    Attributes:
        versions: The versions, the oldest first.
        key_columns: The key columns; empty if no record has a key.
        has_other_records: Whether some records have none of the versions.
        has_snapshot_rows: Whether some records are rows of a snapshot.
        first_operation: The operation of the first record of the topic; None if that record is not in the batch.
        snapshot_end: The position of a snapshot whose last row is in the batch; None if there is no such row.
    """

    versions: tuple[Version, ...] = ()
    key_columns: tuple[str, ...] = ()
    has_other_records: bool = True
    has_snapshot_rows: bool = False
    first_operation: str | None = None
    snapshot_end: LogPosition | None = None


def versions_of(rows: Iterable[Row]) -> TableVersions:
    """The versions of one table, from the rows that `rows.schema_rows` returns for it."""
    rows = list(rows)
    by_fields: dict[tuple[tuple[str, ConnectType], ...], list[Row]] = {}
    for row in rows:
        fields = columns_of(row["schema"]) if row["good"] and row["schema"] is not None else ()
        if fields:
            by_fields.setdefault(fields, []).append(row)
    versions = tuple(_version(fields, same_fields) for fields, same_fields in by_fields.items())
    keys = next((tuple(row["names"]) for row in reversed(rows) if row["good"] and row["names"]), ())
    known = {text for version in versions for text in version.schema_parts}
    # Also True without rows: the table then has only tombstones in the batch.
    others = not versions or any(row["schema"] not in known for row in rows)
    snapshot = any(row["good"] and row["snapshot"] for row in rows)
    first_record = min((row["begin"] for row in rows if row["good"]), default=None)
    begins = str(first_record["op"]) if first_record is not None and first_record["offset"] == 0 else None
    ended = max((_position(row["ended"]) for row in rows if row["good"] and row["ended"] is not None), default=None)
    return TableVersions(versions, keys, others, snapshot, begins, ended)


def _version(fields: tuple[tuple[str, ConnectType], ...], rows: list[Row]) -> Version:
    """The schema version with these fields, from the rows of `rows.schema_rows` that have the fields."""
    texts = tuple(dict.fromkeys(row["schema"] for row in rows))
    firsts = [(_position(row["first"]), row["schema"]) for row in rows if row["first"] is not None]
    first, schema = min(firsts, default=(None, texts[0]))
    last = max((_position(row["last"]) for row in rows if row["last"] is not None), default=None)
    taken = min((_position(row["taken"]) for row in rows if row["taken"] is not None), default=None)
    return Version(fields, texts, first, last, _filled(schema), taken)


def _position(place: Row) -> LogPosition:
    return int(place["file"]), int(place["position"])


def _filled(schema: str) -> frozenset[str]:
    """The columns with a default, or NOT NULL, in the schema part of a record."""
    return frozenset(
        str(field["field"]) for field in _after(schema) if field.get("default") is not None or not field.get("optional")
    )


def columns_of(schema: str) -> tuple[tuple[str, ConnectType], ...]:
    """The columns in the schema part of a record; empty if the part is not an envelope's schema."""
    try:
        return tuple((field["field"], connect_types.of_connect(field)) for field in _after(schema))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()  # each record with this schema part is bad, and says why


def _after(schema: str) -> Sequence[Json]:
    """The schemas of a row's columns, in the schema part of a record."""
    fields = {field.get("field"): field for field in json.loads(schema).get("fields", [])}
    row: Sequence[Json] = fields["after"]["fields"]
    return row
