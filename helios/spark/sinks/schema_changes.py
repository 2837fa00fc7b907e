"""Columns that the tables of a mirror lose: what the schemas of their changes say, in the order of the database's log.

The log has changed rows alone. A schema without a column that an earlier one had tells that the column was renamed or
dropped, and nothing tells what became of the rows that did not change. Changes that Debezium sends again, with an
older schema, stand at older positions of the log and lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helios.spark.checkpoint.mirrored import Mirrored, NewestSchema, Place
from helios.spark.sources.debezium_tables import ChangesByTable, SourceTable
from helios.spark.sources.debezium_versions import Version


@dataclass(frozen=True)
class SchemaChange:
    """How the columns of a table have changed with a batch.

    Attributes:
        lost: The columns that were renamed or dropped.
        returned: Columns that were lost in an earlier batch, and that newer changes have again.
        gained: The columns that came since.
        newest: The newest schema; None where no change says its position.
    """

    lost: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()
    newest: NewestSchema | None = None


@dataclass(frozen=True)
class _Schema:
    columns: Mapping[str, str]
    first: Place
    last: Place

    def has(self, column: str) -> bool:
        return column.lower() in {name.lower() for name in self.columns}


def compared(versions: Iterable[Version], before: NewestSchema | None) -> SchemaChange:
    """Compares the schemas of a batch with each other, and with the newest one before.

    Args:
        versions: The schemas of the batch.
        before: The newest schema of earlier batches.
    """
    schemas = [
        _Schema({name: kind.made.simpleString() for name, kind in version.fields}, version.first, version.last)
        for version in versions
        if version.first is not None and version.last is not None
    ]
    if before is not None:
        schemas.append(_Schema(before.columns, before.since, before.since))
    if not schemas:
        return SchemaChange()
    newest = max(schemas, key=lambda schema: schema.last)
    kept = before.kept if before is not None else ()
    all_lost = _lost(schemas)
    lost = tuple(name for name in all_lost if name not in kept)
    returned = tuple(name for name in kept if newest.has(name))
    former = [schema for schema in schemas if any(schema.has(name) for name in lost) and schema is not newest]
    gained = tuple(name for name in newest.columns if former and not any(schema.has(name) for schema in former))
    # The position from which on changes have it: older ones come after it only where they are sent again.
    since = max(newest.first, *(schema.last for schema in schemas if schema is not newest), (0, 0))
    if before is not None and newest.columns == before.columns and not lost:
        since = before.since
    kept = tuple(name for name in dict.fromkeys((*kept, *lost)) if not newest.has(name))
    return SchemaChange(lost, returned, gained, NewestSchema(dict(newest.columns), since, kept))


def told(change: SchemaChange, table: SourceTable, here: str) -> tuple[str, str, str]:
    """What has changed, what becomes of the rows that are there, and how they differ from the database's."""
    if change.returned:
        what = f"{table} has {_named(change.returned)} again, which it had lost"
        stays = f"{here} keeps the former values in rows that do not change"
        return what, stays, "rows that do not change would keep the values from before"
    since = f" (and new: {', '.join(change.gained)})" if change.gained else ""
    return (
        f"{table} no longer has {_named(change.lost)}{since}: renamed, dropped, or left out by Debezium",
        f"{here} keeps {'it' if len(change.lost) == 1 else 'them'}, null in new and changed rows",
        "rows that do not change would lack the values of a renamed column, and keep those of a dropped one",
    )


def _named(names: Sequence[str]) -> str:
    return f"the column {names[0]}" if len(names) == 1 else f"the columns {', '.join(names)}"


def twins(new: Mirrored, known: Mapping[str, Mirrored], changes: ChangesByTable) -> list[str]:
    """The tables of a mirror that a new one may be the new name of.

    They have its columns and its key, and no change since it began.

    Args:
        new: The new table.
        known: The tables of the mirror, by their names.
        changes: The changes of the batch.
    """
    if new.newest is None or changes.found[SourceTable(*new.source)].snapshot:
        return []
    alive = {
        (table.prefix, table.db, table.schema, table.table)
        for table, seen in changes.found.items()
        if table is not None
        and any(version.last is not None and version.last > new.newest.since for version in seen.versions)
    }
    return [
        name
        for name, one in known.items()
        if one.newest is not None
        and (one.keys, one.source[:2], list(one.newest.columns.items()))
        == (new.keys, new.source[:2], list(new.newest.columns.items()))
        and one.source not in alive
    ]


def _lost(schemas: Iterable[_Schema]) -> list[str]:
    """The columns that a schema lacks and an earlier one had."""
    schemas = list(schemas)
    names = {name.lower(): name for schema in schemas for name in schema.columns}
    lost = []
    for name in names.values():
        first = min(schema.first for schema in schemas if schema.has(name))
        if any(schema.last > first for schema in schemas if not schema.has(name)):
            lost.append(name)
    return lost
