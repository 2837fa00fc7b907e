"""The tables of a mirror: the database table of each, and its key.

<checkpoint>/helios/mirror.json

It is written before a table is made: no other table of the database gets its name, and its key stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from helios.errors import CheckpointError
from helios.plan.nodes import VERSION
from helios.spark.checkpoint.files import Checkpoint

FILE = "helios/mirror.json"

LogPosition: TypeAlias = "tuple[int, int]"
"""A position in the database's log: the file of a binlog (else 0), and the position."""


@dataclass(frozen=True)
class NewestSchema:
    """The newest columns of a table of the database, by its changes.

    Attributes:
        columns: Their types.
        since: The position of the log from which on changes have these columns.
        kept: Columns that the table of the mirror has, and that of the database has no more.
        taken: The positions of its snapshots, but for incremental ones.
    """

    columns: Mapping[str, str]
    since: LogPosition
    kept: tuple[str, ...] = ()
    taken: tuple[LogPosition, ...] = ()


@dataclass(frozen=True)
class Mirrored:
    """A table of a mirror.

    Attributes:
        source: The table of the database that it is of: prefix of the topics, database, schema and table.
        keys: Its key columns.
        newest: Its newest columns; None where no change has said their position in the log.
        waits: Since which position of the log a snapshot is awaited (`.on_schema_change("snapshot")`); None if none is.
    """

    source: tuple[str, str, str, str]
    keys: tuple[str, ...]
    newest: NewestSchema | None = None
    waits: LogPosition | None = None


class MirroredTables:
    """The tables of a mirror, by their names.

    Args:
        checkpoint: The pipeline's checkpoint.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._known: dict[str, Mirrored] | None = None

    def load(self) -> dict[str, Mirrored]:
        """The tables that are known.

        Raises:
            CheckpointError: The file is damaged.
        """
        if self._known is None:
            text = self._checkpoint.files.read(FILE)
            try:
                self._known = _parsed(json.loads(text)) if text is not None else {}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._error(f"is damaged ({error!r})") from error
        return self._known

    def add(self, tables: Mapping[str, Mirrored]) -> None:
        """Adds tables before they are made, and newer columns of tables before those are written."""
        if tables:
            self._known = {**self.load(), **tables}
            shown = {name: _shown(table) for name, table in self._known.items()}
            self._checkpoint.files.write(FILE, json.dumps({"v": VERSION, "tables": shown}))

    def verify(self, made: Mapping[str, object]) -> None:
        """Refuses a checkpoint that does not name the database table of a mirrored table.

        Raises:
            CheckpointError: It does not.
        """
        missing = next((name for name in made if name not in self.load()), None)
        if missing is not None:
            raise self._error(f"does not say which table of the database {missing} is of")

    def _error(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self._checkpoint.location}/{FILE} {why}; nothing was written.", fix="restore the file from a backup."
        )


def _shown(table: Mirrored) -> dict[str, object]:
    shown: dict[str, object] = {"source": list(table.source), "keys": list(table.keys)}
    if table.newest is not None:
        newest = table.newest
        shown["newest"] = {
            "columns": dict(newest.columns),
            "since": list(newest.since),
            "kept": list(newest.kept),
            "taken": [list(place) for place in newest.taken],
        }
    if table.waits is not None:
        shown["waits"] = list(table.waits)
    return shown


def _parsed(found: Mapping[str, Any]) -> dict[str, Mirrored]:
    if found["v"] != VERSION:
        raise ValueError(f"version {found['v']}")
    tables: dict[str, Mirrored] = {}
    for name, one in found["tables"].items():
        prefix, db, schema, table = one["source"]
        newest = None
        if (said := one.get("newest")) is not None:
            file, position = said["since"]
            taken = tuple((int(taken), int(at)) for taken, at in said["taken"])
            newest = NewestSchema(dict(said["columns"]), (int(file), int(position)), tuple(said["kept"]), taken)
        waits = (int(one["waits"][0]), int(one["waits"][1])) if "waits" in one else None
        tables[name] = Mirrored((prefix, db, schema, table), tuple(one["keys"]), newest, waits)
    return tables
