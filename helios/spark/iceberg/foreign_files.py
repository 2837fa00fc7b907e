"""Data files that other writers have added to a table, and that may not fit its schema.

Iceberg's readers believe the table: a null in a required column comes out as 0, and nanoseconds as microseconds. The
manifests count the nulls: whoever plans files for a read asks for the counts too, and of a target each manifest is read
once in a process. Footers tell the types. They are opened where a table has a name mapping, as `add_files` leaves it,
each once in a process.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from pyspark.sql import SparkSession

from helios.errors import Origin, RunError
from helios.native.parquet_types import BATCHES, DICTIONARIES, ROWS, readers
from helios.plan.typing.types import quoted
from helios.spark.iceberg.file_metadata import (
    CODECS,
    THREE_LEVELS,
    Counted,
    Leaf,
    counts,
    footers,
    manifests,
    no_codec,
)
from helios.spark.iceberg.scan_tasks import plan_tasks
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaFileScanTask, JavaScan
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList

ScanOf = TypeVar("ScanOf", bound=JavaScan)

NAME_MAPPING, ENCRYPTED = "schema.name-mapping.default", "encryption.key-id"
VECTORIZED, VECTORIZES = "spark.sql.iceberg.vectorization.enabled", "read.parquet.vectorization.enabled"
"""The setting of a session and the property of a table that have files read by rows."""
MOST_KNOWN = 200_000
"""Files whose footers have been looked at that are remembered."""
_SEEN: OrderedDict[tuple[str, str], None] = OrderedDict()
"""Files whose columns are all read right, by what is asked of them."""
_LOOKS: dict[tuple[str, str, str | None], Look | None] = {}


class Required(NamedTuple):
    """A column without nulls.

    Attributes:
        name: Its name, with dots.
        filled: Whether it has a default for files without it.
    """

    name: str
    filled: bool


@dataclass(frozen=True)
class Look:
    """The checks of the files of a table.

    Attributes:
        key: Identifies it.
        required: The required columns whose nulls are counted, by field id.
        mapping: The name mapping; None where the files have field ids.
        identifiers: The columns that identify a row.
        flat: The flat columns.
        nested: Whether there are others.
    """

    key: str
    required: Mapping[int, Required]
    mapping: str | None
    identifiers: frozenset[int]
    flat: frozenset[int]
    nested: bool


@dataclass(frozen=True)
class Reading:
    """The table and the columns that are read.

    Attributes:
        name: What messages call the table.
        where: The line to blame.
        columns: The columns that are read; none for all.
        by_bounds: Whether Iceberg finds the files by their bounds, which it takes for those of the table's types.
    """

    name: str
    where: Origin | None = None
    columns: Sequence[str] = ()
    by_bounds: bool = False


def with_counts(table: JavaTable, scan: ScanOf) -> ScanOf:
    """A scan whose tasks keep the counts of nulls that `verify` asks for.

    Args:
        table: The table.
        scan: A scan of its current schema: an older snapshot that it goes to may lack the names.
    """
    look = _look(table)
    if look is None or not look.required:
        return scan
    names = classes().java.util.ArrayList()
    for column in look.required.values():
        names.add(column.name)
    return scan.includeColumnStats(names)


def asks(table: JavaTable) -> bool:
    """True if the files of a table are checked: it has required columns, or a name mapping."""
    return _look(table) is not None


def has_mapping(table: JavaTable) -> bool:
    """True if a table has a name mapping: its files may be another writer's, without field ids."""
    return table.properties().get(NAME_MAPPING) is not None


def verify(spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], reading: Reading) -> None:
    """Refuses files whose values would be misread.

    Args:
        spark: The session.
        table: The table.
        tasks: Tasks of its files, of a scan `with_counts`.
        reading: What is read of them.

    Raises:
        RunError: One of them has a null in a required column, or a column of a type that is read as something else.
    """
    look = _look(table)
    if look is None or not tasks.size():
        return
    files = _Files(spark, table, look, reading)
    mapped = files.verify_counts(tasks)
    if mapped and table.properties().get(ENCRYPTED) is None:  # else nobody but a writer of tables has written them
        files.verify_footers(mapped)


def verify_state(
    spark: SparkSession, table: JavaTable, snapshot: JavaSnapshot | None, *, by_bounds: bool = False
) -> None:
    """Refuses files of a state that Spark lists itself, and would rewrite with other values.

    Of a table with a name mapping all files are looked up once more, as bounds of another type would hide one. Of any
    other, the manifests count the nulls of its required columns.

    Args:
        spark: The session.
        table: The table.
        snapshot: The state; None for an empty one.
        by_bounds: As for `Reading`.

    Raises:
        RunError: One of them would be.
    """
    if snapshot is None:
        return
    if has_mapping(table):
        tasks = plan_tasks(spark, with_counts(table, table.newBatchScan()).useSnapshot(snapshot.snapshotId()))
        verify(spark, table, tasks, Reading(str(table.name()), by_bounds=by_bounds))
        return
    look = _look(table)
    found = manifests(spark, table, tuple(look.required), snapshot).nulls if look is not None else ()
    if look is not None and found:
        _Files(spark, table, look, Reading(str(table.name()))).refuse_nulls(found[0])


def verify_bounds(spark: SparkSession, table: JavaTable, snapshot: JavaSnapshot | None, condition: str) -> None:
    """Refuses files of a state that a condition replaces unread, where bounds or nulls are not what the table says.

    Args:
        spark: The session.
        table: The table.
        snapshot: The state; None for an empty one.
        condition: The condition.

    Raises:
        RunError: One of them holds something else than the table says.
    """
    if has_mapping(table) or asks_for_nulls(table, condition):
        verify_state(spark, table, snapshot, by_bounds=True)


def asks_for_nulls(table: JavaTable, condition: str) -> bool:
    """True if a condition may ask a required column for nulls, which Iceberg takes for known: there are none."""
    look = _look(table)
    names = [column.name for column in look.required.values()] if look is not None else []
    return re.search(r"\bnull", condition, re.IGNORECASE) is not None and bool(named_in([condition], names))


class _Files:
    """The checked files of a table."""

    def __init__(self, spark: SparkSession, table: JavaTable, look: Look, reading: Reading) -> None:
        self._spark = spark
        self._table = table
        self._look = look
        self._reading = reading
        self._schema = table.schema()
        setting = spark.conf.get(VECTORIZED, None) or table.properties().get(VECTORIZES)
        self._by_rows = str(setting).lower() == "false"
        self._names = {name.lower() for name in reading.columns}
        self._columns: dict[int, tuple[str, str] | None] = {}

    def verify_counts(self, tasks: JavaList[JavaFileScanTask]) -> dict[str, list[int]]:
        """Checks the counts in the table's metadata.

        Returns:
            The files whose footers are to be looked at, with the required columns of which no count is known.
        """
        required, mapped = self._look.required, self._look.mapping is not None
        asked = [id for id, column in required.items() if self._reads(column.name)]
        nulls = {}
        for counted in counts(self._spark, tasks, asked, mapped) if asked or mapped else ():
            self.refuse_nulls(counted)
            if counted.format == "PARQUET":
                nulls[counted.location] = [id for id in counted.unknown if not required[id].filled]
        return nulls

    def refuse_nulls(self, file: Counted) -> None:
        """Raises if a file has nulls."""
        for id, count in file.nulls:
            raise self._null(file.location, id, f"{count:,} null{'s' * (count > 1)}")

    def verify_footers(self, files: Mapping[str, Sequence[int]]) -> None:
        """Checks the footers that are not checked yet."""
        by_bounds = self._reading.by_bounds
        key = "\n".join((self._look.key, str(self._by_rows), str(by_bounds), *sorted(self._names)))
        new = [location for location in files if (key, location) not in _SEEN]
        for location, leaves in footers(self._spark, self._table, self._look.mapping, new):
            for leaf in leaves:
                column = self._column(leaf.id)
                if column is not None:
                    if leaf.unread:
                        raise self._unread(location, leaf, column[0])
                    read = readers(column[1], leaf.physical, leaf.annotation)
                    if not self._needed(leaf) <= read or (by_bounds and "MILLIS" in leaf.annotation):
                        raise self._type(location, leaf, column)
            present = {leaf.id: leaf for leaf in leaves}
            for id in files[location]:
                at = present.get(id)
                if at is None or (at.optional and at.nulls != 0):
                    many = f"{at.nulls:,} null{'s' * (at.nulls > 1)}" if at is not None and at.nulls else None
                    raise self._null(location, id, many or ("no values" if at is None else "perhaps nulls"))
            _SEEN[key, location] = None
            if len(_SEEN) > MOST_KNOWN:
                _SEEN.popitem(last=False)

    def _needed(self, leaf: Leaf) -> Set[str]:
        """The readers that may read a column: with nested columns it depends on the columns that Spark reads."""
        if self._by_rows or leaf.id not in self._look.flat:
            return {ROWS}
        plain = {BATCHES, ROWS} if self._look.nested else {BATCHES}
        return plain | {DICTIONARIES} if leaf.dictionary else plain

    def _reads(self, name: str) -> bool:
        return not self._names or name.split(".", 1)[0].lower() in self._names

    def _column(self, id: int) -> tuple[str, str] | None:
        """The name and the type of a column that is read; None of any other."""
        if id not in self._columns:
            field = self._schema.findField(id)
            name = str(self._schema.findColumnName(id)) if field is not None else ""
            self._columns[id] = (name, str(field.type())) if field is not None and self._reads(name) else None
        return self._columns[id]

    def _null(self, location: str, id: int, has: str) -> RunError:
        name, column = self._reading.name, self._look.required[id].name
        table, field = (".".join(map(quoted, text.split("."))) for text in (name, column))
        keyed = id in self._look.identifiers
        first = f"ALTER TABLE {table} DROP IDENTIFIER FIELDS {field}, and then " if keyed else ""
        return RunError(
            f"{name}: the file {location} has {has} in the column {column}, which the table requires; they would be "
            "read as values. Deleted rows count, too.",
            where=self._reading.where,
            fix=f"let the column be null ({first}ALTER TABLE {table} ALTER COLUMN {field} DROP NOT NULL), or replace "
            "the file by one without nulls.",
        )

    def _unread(self, location: str, leaf: Leaf, name: str) -> RunError:
        levels = leaf.unread == "levels"
        why = "as a list of two levels, which Iceberg does not read." if levels else no_codec(leaf.unread)
        how = THREE_LEVELS if levels else CODECS
        return RunError(
            f"{self._reading.name}: the file {location} has the column {name} {why}",
            where=self._reading.where,
            fix=f"replace the file by one that is written {how}, or read the other columns: .select(...).",
        )

    def _type(self, location: str, leaf: Leaf, column: tuple[str, str]) -> RunError:
        name, kind = column
        return RunError(
            f"{self._reading.name}: the file {location} has the column {name} as "
            f"{f'{leaf.physical} {leaf.annotation}'.rstrip()}, which Iceberg does not read as the table's {kind}.",
            where=self._reading.where,
            fix=f"replace the file by one that has {name} as {kind}, or read the other columns: .select(...).",
        )


# what is asked, and what files say


def _look(table: JavaTable) -> Look | None:
    """The checks of the files of a table; None if there are none."""
    schema, mapping = table.schema(), table.properties().get(NAME_MAPPING)
    # The text of a schema, as another table of the same UUID may have another one under its id.
    key = (str(table.uuid()), str(schema), str(mapping) if mapping is not None else None)
    if key not in _LOOKS:
        parsed = json.loads(str(classes().org.apache.iceberg.SchemaParser.toJson(schema)))
        required = dict(_required(parsed["fields"], ""))
        flat = frozenset(field["id"] for field in parsed["fields"] if isinstance(field["type"], str))
        look = Look(
            key="\n".join(map(str, key)),
            required=required,
            mapping=key[2],
            identifiers=frozenset(parsed.get("identifier-field-ids", ())),
            flat=flat,
            nested=len(flat) < len(parsed["fields"]),
        )
        _LOOKS[key] = look if required or mapping is not None else None
    return _LOOKS[key]


def _required(fields: Sequence[Mapping[str, object]], path: str) -> Iterator[tuple[int, Required]]:
    """The required columns that are in no optional struct, list or map: the nulls of those count as theirs."""
    for field in fields:
        if not field["required"]:
            continue
        name, kind = f"{path}{field['name']}", field["type"]
        if isinstance(kind, str):
            yield cast("int", field["id"]), Required(name, "initial-default" in field)
        elif isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _required(kind["fields"], f"{name}.")


def named_in(conditions: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns that conditions name, or may name."""
    words = {word.lower() for condition in conditions for word in re.findall(r"\w+", condition)}
    return [column for column in columns if words & set(re.findall(r"\w+", column.lower()))]
