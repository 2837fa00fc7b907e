"""The description of a table in Debezium's records: the versions of its schema, and its key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Row

from helios.sources.changes.spark import types as connect_types
from helios.sources.changes.spark.types import Json, Kind
from helios.spark.checkpoint.mirrored import LogPosition


@dataclass(frozen=True)
class Version:
    """A schema of the records, and its texts in the records.

    Attributes:
        fields: The columns and their types.
        texts: The schema parts.
        first: The first change of a row that has it, in the order of the log; None where none says its position.
        last: The last one.
        filled: The columns that rows from before have a value in, where they are new: with a default, or required.
        taken: Where in the log a snapshot that has it was taken, but for incremental ones; None without one.
    """

    fields: tuple[tuple[str, Kind], ...]
    texts: tuple[str, ...]
    first: LogPosition | None = None
    last: LogPosition | None = None
    filled: frozenset[str] = frozenset()
    taken: LogPosition | None = None


@dataclass(frozen=True)
class TableVersions:
    """The description of a table in its records.

    Attributes:
        versions: The schemas, the oldest first.
        keys: The key columns; empty where no record has any.
        others: Whether there are records that none of the versions is of.
        snapshot: Whether some are rows of a snapshot.
        begins: The operation of the first one in its topic; None where that is not among them.
        ended: Where in the log a snapshot was taken whose last row is among the records; None without one.
    """

    versions: tuple[Version, ...] = ()
    keys: tuple[str, ...] = ()
    others: bool = True
    snapshot: bool = False
    begins: str | None = None
    ended: LogPosition | None = None


def versions_of(rows: Iterable[Row]) -> TableVersions:
    """The description of one table from the rows of `kinds`."""
    rows = list(rows)
    versions: dict[tuple[tuple[str, Kind], ...], list[Row]] = {}
    for row in rows:
        fields = columns_of(row["schema"]) if row["good"] and row["schema"] is not None else ()
        if fields:
            versions.setdefault(fields, []).append(row)
    keys = next((tuple(row["names"]) for row in reversed(rows) if row["good"] and row["names"]), ())
    known = {row["schema"] for same in versions.values() for row in same}
    others = any(row["schema"] not in known for row in rows)
    snapshot = any(row["good"] and row["snapshot"] for row in rows)
    begin = min((row["begin"] for row in rows if row["good"]), default=None)
    begins = str(begin["op"]) if begin is not None and begin["offset"] == 0 else None
    made = tuple(_version(fields, same) for fields, same in versions.items())
    ended = max(_places([row for row in rows if row["good"]], "ended"), default=None)
    return TableVersions(made, keys, others, snapshot, begins, ended)


def _version(fields: tuple[tuple[str, Kind], ...], rows: list[Row]) -> Version:
    """A version, of the rows of `kinds` that say it."""
    texts = tuple(dict.fromkeys(row["schema"] for row in rows))
    firsts = [((int(row["first"][0]), int(row["first"][1])), row["schema"]) for row in rows if row["first"] is not None]
    first, schema = min(firsts, default=(None, texts[0]))
    last, taken = max(_places(rows, "last"), default=None), min(_places(rows, "taken"), default=None)
    return Version(fields, texts, first, last, _filled(schema), taken)


def _places(rows: list[Row], name: str) -> list[LogPosition]:
    return [(int(file), int(at)) for file, at in (row[name] for row in rows if row[name] is not None)]


def _filled(schema: str) -> frozenset[str]:
    """The columns with a default or NOT NULL, by the schema part of a record."""
    return frozenset(
        str(field["field"]) for field in _after(schema) if field.get("default") is not None or not field.get("optional")
    )


def columns_of(schema: str) -> tuple[tuple[str, Kind], ...]:
    """The columns in the schema part of a record; empty if it is not an envelope's schema."""
    try:
        return tuple((field["field"], connect_types.of_connect(field)) for field in _after(schema))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()  # its records say why they are bad


def _after(schema: str) -> Sequence[Json]:
    """The columns of a row, by the schema part of a record."""
    fields = {field.get("field"): field for field in json.loads(schema).get("fields", [])}
    row: Sequence[Json] = fields["after"]["fields"]
    return row
