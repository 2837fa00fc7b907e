"""The tables of a mirror, each with its source table in the database and its key.

<checkpoint>/helios/mirror.json

Helios writes the file before it creates a table. A table of the same name with another source table or another key is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from helios.errors import CheckpointError
from helios.plan.nodes import VERSION
from helios.spark.checkpoint.files import Checkpoint

FILE = "helios/mirror.json"

LogPosition: TypeAlias = "tuple[int, int]"
"""A position in the database's log: the number of the binlog file (0 without binlogs), and the position in it."""


@dataclass(frozen=True)
class NewestSchema:
    """The newest columns of a table of the database, as its change events show them.

    Attributes:
        columns: The type of each column, by name.
        start: The log position from which changes have these columns.
        kept: Columns that the database has dropped, and that the table of the mirror keeps.
        snapshots: The log positions of Debezium's snapshots of the table, except incremental ones.
    """

    columns: Mapping[str, str]
    start: LogPosition
    kept: tuple[str, ...] = ()
    snapshots: tuple[LogPosition, ...] = ()


@dataclass(frozen=True)
class Mirrored:
    """A table of a mirror.

    Attributes:
        source: Its table in the database: prefix of the topics, database, schema and table.
        keys: Its key columns.
        newest: Its newest columns; None until a change has had a position in the log.
        waits_since: The log position since which the table waits for a Debezium snapshot, with
            `.on_schema_change("snapshot")`; None if it waits for none.
    """

    source: tuple[str, str, str, str]
    keys: tuple[str, ...]
    newest: NewestSchema | None = None
    waits_since: LogPosition | None = None


class MirroredTables:
    """The tables of a mirror, by their names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._known: dict[str, Mirrored] | None = None

    def load(self) -> dict[str, Mirrored]:
        """The tables that the file names; raises `CheckpointError` if the file is damaged."""
        if self._known is None:
            text = self._checkpoint.files.read(FILE)
            try:
                self._known = _parsed(json.loads(text)) if text is not None else {}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._error(f"is damaged ({error!r})") from error
        return self._known

    def add(self, tables: Mapping[str, Mirrored]) -> None:
        """Stores tables before they are created, and newer columns before rows with them are written."""
        if tables:
            self._known = {**self.load(), **tables}
            entries = {name: _entry(table) for name, table in self._known.items()}
            self._checkpoint.files.write(FILE, json.dumps({"v": VERSION, "tables": entries}))

    def verify(self, tables: Mapping[str, object]) -> None:
        """Raises `CheckpointError` if the checkpoint does not name the database table of each of `tables`."""
        missing = next((name for name in tables if name not in self.load()), None)
        if missing is not None:
            raise self._error(f"does not say which table of the database {missing} mirrors")

    def _error(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self._checkpoint.location}/{FILE} {why}; nothing was written.", fix="restore the file from a backup."
        )


def _entry(table: Mirrored) -> dict[str, object]:
    entry: dict[str, object] = {"source": list(table.source), "keys": list(table.keys)}
    if table.newest is not None:
        newest = table.newest
        entry["newest"] = {
            "columns": dict(newest.columns),
            "since": list(newest.start),
            "kept": list(newest.kept),
            "taken": [list(position) for position in newest.snapshots],
        }
    if table.waits_since is not None:
        entry["waits"] = list(table.waits_since)
    return entry


def _parsed(content: Mapping[str, Any]) -> dict[str, Mirrored]:
    if content["v"] != VERSION:
        raise ValueError(f"version {content['v']}")
    tables: dict[str, Mirrored] = {}
    for name, entry in content["tables"].items():
        prefix, db, schema, table = entry["source"]
        fields = entry.get("newest")
        newest = None
        if fields is not None:
            taken = tuple(map(_position, fields["taken"]))
            newest = NewestSchema(dict(fields["columns"]), _position(fields["since"]), tuple(fields["kept"]), taken)
        waits = _position(entry["waits"]) if "waits" in entry else None
        tables[name] = Mirrored((prefix, db, schema, table), tuple(entry["keys"]), newest, waits)
    return tables


def _position(pair: Sequence[int]) -> LogPosition:
    file, position = pair
    return int(file), int(position)
