"""Finds column changes that a mirror cannot follow, by comparing the schemas of Debezium's records.

The log has only changed rows. If a schema lacks a column of an earlier schema, or has the column with another type,
then the database has changed all rows of the table. Debezium has not sent all of them, so the log lacks their new
values. Debezium may send changes again with an older schema. These have older log positions, and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from helios.sources.changes.spark.tables import ChangesByTable, SourceTable
from helios.sources.changes.spark.types import ConnectType
from helios.sources.changes.spark.versions import Version
from helios.spark.checkpoint.mirrored import LogPosition, Mirrored, NewestSchema

ENUM = "string of io.debezium.data.Enum"
TEXTS = (ENUM, *(f"string of io.debezium.data.{name}" for name in ("Json", "Ltree", "Uuid", "Xml")))
TIMES = ("string of millis", "string of micros", "string of nanos")
TIMESTAMPS = ("timestamp_ntz of millis", "timestamp_ntz", "timestamp_ntz of nanos")

SAME_VALUES = {
    *(("int", "bigint"), ("bigint", "int"), ("float", "double")),
    # A time of any unit may become one in micros or nanos: no database stores digits beyond micros, so none are lost.
    *((old, new) for units in (TIMES, TIMESTAMPS) for old in units for new in units[1:]),
    *((text, "string") for text in (*TEXTS, *TIMES, "string of any scale")),
    ("string", ENUM),
}
"""Pairs of an old and a new type of a column whose values stay the same when the type changes.

The database refuses a new type to which the values do not fit.
"""

DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
ENUM_VALUES = re.compile(rf"({re.escape(ENUM)})\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class SchemaChange:
    """The changes of a table's columns in a batch.

    Attributes:
        lost: The columns that were renamed or dropped.
        gained: The new columns, which may be the lost columns under new names.
        returned: The columns that were lost in an earlier schema, and that a newer schema has again.
        moved: The columns at another ordinal position. PostgreSQL moves no columns, so they were renamed, or dropped
            and added again.
        retyped: The columns whose values may have changed with their type: name, former type and new type.
        filled: The new columns in which the rows from before have a value, too, such as a default.
        newest: The newest schema; None if no change has a log position.
    """

    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    retyped: tuple[tuple[str, str, str], ...] = ()
    filled: tuple[str, ...] = ()
    newest: NewestSchema | None = None

    @property
    def unsent(self) -> bool:
        """True if the database has changed rows without sending them."""
        return bool(self.lost or self.returned or self.moved or self.retyped or self.filled)


@dataclass(frozen=True)
class _Schema:
    """A schema, with types as `type_text` writes them, and the log positions of its first and last change.

    `snapshot` is the log position of a Debezium snapshot with this schema, if any. For `filled`, see
    `Version.filled_columns`.
    """

    columns: Mapping[str, str]
    first: LogPosition
    last: LogPosition
    filled: frozenset[str] = frozenset()
    snapshot: LogPosition | None = None

    def has(self, column: str) -> bool:
        return column.lower() in self.types

    @property
    def types(self) -> dict[str, str]:
        return {name.lower(): kind for name, kind in self.columns.items()}


def compared(versions: Iterable[Version], before: NewestSchema | None) -> SchemaChange:
    """Compares the schemas of a batch with each other, and with the newest schema of earlier batches (`before`)."""
    schemas = _schemas(versions)
    taken = {schema.snapshot for schema in schemas if schema.snapshot is not None}
    restored: list[_Schema] = []
    if before is not None:
        restored, before = _restored(schemas, before)
        known = _Schema(before.columns, before.start, before.start)
        known_columns = list(before.columns.items())
        # A schema at older positions that is not the known one was sent again: its changes were reported before.
        schemas = [s for s in schemas if s.last > before.start or list(s.columns.items()) == known_columns] + [known]
        taken.update(before.snapshots)
    if not schemas:
        return SchemaChange()
    newest = max(restored or schemas, key=lambda schema: schema.last)
    kept = before.kept if before is not None else ()
    gone = _lost(schemas)
    lost = tuple(name for name in gone if name not in kept and not newest.has(name))
    returned = tuple(name for name in dict.fromkeys((*kept, *gone)) if newest.has(name))
    former = [schema for schema in schemas if any(schema.has(name) for name in lost) and schema is not newest]
    gained = tuple(name for name in newest.columns if former and not any(schema.has(name) for schema in former))
    pairs = [(a, b) for a, b in permutations(schemas, 2) if _is_before(a, b)]
    moved = dict.fromkeys(name for a, b in pairs for name in _moved(a, b, returned) if name not in returned)
    retyped = dict.fromkeys(change for a, b in pairs for change in _retyped(a, b))
    # All changes after this position have the newest schema, except older changes that are sent again.
    since = max(newest.first, *(schema.last for schema in schemas if schema is not newest), (0, 0))
    if before is not None and list(newest.columns.items()) == known_columns and not (lost or returned):
        since = before.start
    kept = tuple(name for name in dict.fromkeys((*kept, *lost)) if not newest.has(name))
    last = NewestSchema(dict(newest.columns), since, kept, tuple(sorted(taken)))
    return SchemaChange(lost, gained, returned, tuple(moved), tuple(retyped), _filled(schemas), last)


def _schemas(versions: Iterable[Version]) -> list[_Schema]:
    """The schemas of a batch whose log positions are known."""
    return [
        _Schema(
            {name: type_text(kind) for name, kind in version.fields},
            version.first_position,
            version.last_position,
            version.filled_columns,
            version.snapshot_position,
        )
        for version in versions
        if version.first_position is not None and version.last_position is not None
    ]


def _restored(schemas: Sequence[_Schema], before: NewestSchema) -> tuple[list[_Schema], NewestSchema]:
    """The schemas of snapshots after a restore of the database server, and the known schema before these snapshots.

    A new snapshot at a log position before the known schema shows that the server was restored: its log continues from
    there. The known schema is then moved to a position before the first of these snapshots.
    """
    known, start = before.snapshots, before.start
    restored = [s for s in schemas if s.snapshot is not None and s.snapshot < start and s.snapshot not in known]
    first = min((s.snapshot for s in restored if s.snapshot is not None), default=None)
    if first is None:
        return restored, before
    file, position = first
    return restored, replace(before, start=(file, position - 1))


def _is_before(a: _Schema, b: _Schema) -> bool:
    """True if schema `a` comes before schema `b`; changes that are sent again do not count."""
    return a.first < b.last and (a.first < b.first or a.last < b.last)


def type_text(kind: ConnectType) -> str:
    """A type as text. It includes the scale, time unit or schema name, which also decide how values are written.

    Examples:
        >>> from helios.sources.changes.spark.types import of_connect
        >>> type_text(of_connect({"type": "array", "items": {"type": "int64", "name": "io.debezium.time.MicroTime"}}))
        'array<string of micros>'
    """
    name = kind.column_type.simpleString()
    if kind.rule == "array":
        return f"array<{type_text(kind.inner[0][1])}>"
    if kind.rule == "any scale":
        return f"{name} of any scale"
    if kind.rule == "decimal" and name == "string":
        return f"{name} of scale {kind.scale}"
    if kind.unit is None or (kind.unit == "micros" and name != "string"):
        return name
    return f"{name} of {kind.unit}({kind.allowed})" if kind.allowed else f"{name} of {kind.unit}"


def _lost(schemas: Sequence[_Schema]) -> list[str]:
    """The columns that a schema lacks although an earlier schema has them."""
    names = {name.lower(): name for schema in schemas for name in schema.columns}
    lost = []
    for name in names.values():
        first = min(schema.first for schema in schemas if schema.has(name))
        if any(schema.last > first for schema in schemas if not schema.has(name)):
            lost.append(name)
    return lost


def _moved(a: _Schema, b: _Schema, returned: Sequence[str]) -> list[str]:
    """The columns of both schemas that have another ordinal position in the later one."""
    a_binlog, b_binlog = a.last[0], b.last[0]
    if a_binlog or b_binlog:  # a database with binlogs can move columns, and their values move along
        return []
    old_order = [name for name in a.columns if b.has(name)]
    new_order = [name for name in b.columns if a.has(name)]
    moved = [old for old, new in zip(old_order, new_order, strict=True) if old.lower() != new.lower()]
    if moved or any(not b.has(name) for name in a.columns):  # a column that is renamed keeps its position
        return moved
    # PostgreSQL adds columns at the end. So a column after a new one is new, too, even if a former column had its name.
    new_ordinals = [i for i, name in enumerate(b.columns) if not a.has(name) and name not in returned]
    first_new = min(new_ordinals, default=len(b.columns))
    return [name for name in list(b.columns)[first_new:] if a.has(name)]


def _retyped(a: _Schema, b: _Schema) -> list[tuple[str, str, str]]:
    """The columns whose values may have changed with their type: name, old type and new type."""
    later = b.types
    pairs = [(name, kind, later[name.lower()]) for name, kind in a.columns.items() if b.has(name)]
    return [(name, old, new) for name, old, new in pairs if not _same_values(old, new)]


def _same_values(old: str, new: str) -> bool:
    """True if a column's values stay when its type changes."""
    if old.startswith("array<") and new.startswith("array<"):
        old_element, new_element = (text.removeprefix("array<").removesuffix(">") for text in (old, new))
        return _same_values(old_element, new_element)
    old_decimal, new_decimal = DECIMAL.fullmatch(old), DECIMAL.fullmatch(new)
    if old_decimal and new_decimal:  # a database refuses a precision that is too small for a value
        return old_decimal.group(2) == new_decimal.group(2)
    old_enum, new_enum = ENUM_VALUES.fullmatch(old), ENUM_VALUES.fullmatch(new)
    if old_enum and new_enum:
        old_values, new_values = (set(enum.group(2).split(",")) for enum in (old_enum, new_enum))
        if not (old_values <= new_values or new_values <= old_values):
            return False  # a value was renamed
    old, new = (ENUM_VALUES.sub(r"\1", text) for text in (old, new))
    if old.startswith("string of scale ") and new in ("string", "string of any scale"):
        return True
    return old == new or (old, new) in SAME_VALUES


def _filled(schemas: Sequence[_Schema]) -> tuple[str, ...]:
    """The new columns in which earlier rows have a value, too, according to the first schema that has the column."""
    filled = []
    for name in dict.fromkeys(name for schema in schemas for name in schema.filled):
        earliest = min((schema for schema in schemas if schema.has(name)), key=lambda schema: schema.first)
        if name in earliest.filled and any(s.first < earliest.first and not s.has(name) for s in schemas):
            filled.append(name)
    return tuple(filled)


def messages_of(change: SchemaChange, table: SourceTable, target: str) -> tuple[str, str, str]:
    """The change, its effect on the rows of `target`, and how these would differ from the database; as three texts."""
    gained = f" (and new: {', '.join(change.gained)})" if change.gained else ""
    types = [f"{name} was {old} and is {new}" for name, old, new in change.retyped]
    former = f"{target} keeps the former values in rows that do not change"
    before = "rows that do not change would keep the values from before"
    parts = [
        (
            change.lost,
            f"no longer has {_named(change.lost)}{gained}: renamed, dropped, or left out by Debezium",
            f"{target} keeps {'it' if len(change.lost) == 1 else 'them'}, null in new and changed rows",
            "rows that do not change would lack the values of a renamed column, and keep those of a dropped one",
        ),
        (change.returned, f"has {_named(change.returned)} again, which it had lost", former, before),
        (
            change.moved,
            f"has {_named(change.moved)} in another place: renamed, recreated, or after one that was left out before",
            former,
            before,
        ),
        (change.retyped, f"has columns of another type: {', '.join(types)}", former, before),
        (
            change.filled,
            f"has added {_named(change.filled)}, NOT NULL or with a default, and earlier rows have values there",
            f"{target} has null there in rows that do not change",
            "rows that do not change would have null there",
        ),
    ]
    texts = [words for columns, *words in parts if columns]
    what, stays, values = (", and ".join(dict.fromkeys(column)) for column in zip(*texts, strict=True))
    return f"{table} {what}", stays, values


def _named(names: Sequence[str]) -> str:
    return f"the column {names[0]}" if len(names) == 1 else f"the columns {', '.join(names)}"


def possible_former_tables(name: str, mirror: Mapping[str, Mirrored], changes: ChangesByTable) -> list[str]:
    """The tables of a mirror that the database may have renamed to a new table.

    They have the columns and the key of the new table, and no change after the first change of the new table.

    Args:
        mirror: All tables of the mirror, with the new ones, by their names.
    """
    new = mirror[name]
    if new.newest is None or changes.tables[SourceTable(*new.source)].has_snapshot_rows:
        return []
    changed_since = {
        table
        for table, seen in changes.tables.items()
        if any(
            version.last_position is not None and version.last_position > new.newest.start for version in seen.versions
        )
    }
    return [
        other
        for other, mirrored in mirror.items()
        if other != name
        and mirrored.newest is not None
        and (mirrored.keys, mirrored.source[:2]) == (new.keys, new.source[:2])
        and _alike(mirrored.newest, new.newest)
        and SourceTable(*mirrored.source) not in changed_since
    ]


def _alike(schema: NewestSchema, other: NewestSchema) -> bool:
    """True if two tables have the same columns; the values of enums may differ."""
    columns, others = (
        [(name, ENUM_VALUES.sub(r"\1", kind)) for name, kind in newest.columns.items()] for newest in (schema, other)
    )
    return columns == others
