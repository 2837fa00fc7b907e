"""Checks data files that other writers have added to a table, because they may not fit the table's schema.

Iceberg's readers trust the table's schema: they return a null in a required column as 0, and nanoseconds as
microseconds. Helios finds nulls by the null counts in manifests. When a table is read, its scan keeps these counts in
the scan tasks. When a table is written, each of its manifests is read once per process. Helios finds the types of
columns in the footers of files. It reads each footer once per process, and only if the table has a name mapping, which
`add_files` sets.
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
from helios.native.parquet_types import BATCH_READER, DICTIONARY_READER, ROW_READER, readers
from helios.plan.typing.types import quoted
from helios.spark.iceberg.file_metadata import (
    CODECS,
    THREE_LEVELS,
    FileNulls,
    Leaf,
    footers,
    manifests,
    no_codec,
    null_counts,
)
from helios.spark.iceberg.scan_tasks import plan_tasks
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaFileScanTask, JavaScan
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList

ScanOf = TypeVar("ScanOf", bound=JavaScan)

NAME_MAPPING, ENCRYPTED = "schema.name-mapping.default", "encryption.key-id"
SESSION_VECTORIZATION = "spark.sql.iceberg.vectorization.enabled"
TABLE_VECTORIZATION = "read.parquet.vectorization.enabled"
"""The session setting and the table property that turn vectorized reads of parquet files on or off."""
MAX_REMEMBERED = 200_000
"""The maximum number of files in `_VERIFIED`, which limits its memory."""
_VERIFIED: OrderedDict[tuple[str, str], None] = OrderedDict()
"""Files whose columns are all read correctly, by the key of the checks and the file's location; oldest first."""
_CHECKS: dict[tuple[str, str, str | None], Checks | None] = {}
"""The checks of each table, by its UUID, schema and name mapping."""


class Required(NamedTuple):
    """A column that must have no nulls.

    Attributes:
        name: Its name, with dots.
        has_default: Whether it has a default, which readers return for files that lack the column.
    """

    name: str
    has_default: bool


@dataclass(frozen=True)
class Checks:
    """The checks of the files of a table.

    Attributes:
        key: A text that identifies the checks.
        required: The required columns whose nulls are counted, by field id.
        mapping: The name mapping; None for a table without a name mapping, whose files have field ids.
        identifiers: The field ids of the identifier fields.
        flat: The field ids of the columns that are not nested.
        has_nested: Whether the table has nested columns.
    """

    key: str
    required: Mapping[int, Required]
    mapping: str | None
    identifiers: frozenset[int]
    flat: frozenset[int]
    has_nested: bool


@dataclass(frozen=True)
class Reading:
    """Describes a read for the checks: the table and its columns.

    Attributes:
        name: The table's name, for messages.
        where: The line of the source, for messages; None if no source reads the table.
        columns: The columns that are read; empty for all.
        by_bounds: Whether Iceberg selects files by column bounds, which it decodes as values of the table's types.
    """

    name: str
    where: Origin | None = None
    columns: Sequence[str] = ()
    by_bounds: bool = False


def with_counts(table: JavaTable, scan: ScanOf) -> ScanOf:
    """A scan whose tasks keep the counts of nulls that `verify` needs.

    Args:
        scan: A scan of the current schema. Choose an older snapshot only afterwards: its schema may lack the columns.
    """
    checks = _checks(table)
    if checks is None or not checks.required:
        return scan
    names = classes().java.util.ArrayList()
    for column in checks.required.values():
        names.add(column.name)
    return scan.includeColumnStats(names)


def has_checks(table: JavaTable) -> bool:
    """True if the files of a table are checked: it has required columns, or a name mapping."""
    return _checks(table) is not None


def has_mapping(table: JavaTable) -> bool:
    """True if a table has a name mapping. Its files may then come from another writer, and have no field ids."""
    return table.properties().get(NAME_MAPPING) is not None


def verify(spark: SparkSession, table: JavaTable, tasks: JavaList[JavaFileScanTask], reading: Reading) -> None:
    """Refuses files whose values would be misread.

    Args:
        tasks: The tasks of a scan that `with_counts` has returned.

    Raises:
        RunError: A file has a null in a required column, or a column of a type that Iceberg misreads.
    """
    checks = _checks(table)
    if checks is None or not tasks.size():
        return
    files = _Files(spark, table, checks, reading)
    unchecked = files.verify_counts(tasks)
    if unchecked and table.properties().get(ENCRYPTED) is None:  # only Iceberg's writers write encrypted files
        files.verify_footers(unchecked)


def verify_state(
    spark: SparkSession, table: JavaTable, snapshot: JavaSnapshot | None, *, by_bounds: bool = False
) -> None:
    """Refuses files that Spark would rewrite with wrong values, before an operation whose scan Spark plans itself.

    If the table has a name mapping, Helios checks all of its files: Spark's scan may skip a file whose bounds have
    another type. Without a name mapping, the manifests show which files have nulls in required columns.

    Args:
        snapshot: The snapshot; None for an empty table.
        by_bounds: See `Reading`.

    Raises:
        RunError: Spark would rewrite a file with wrong values.
    """
    if snapshot is None:
        return
    if has_mapping(table):
        tasks = plan_tasks(spark, with_counts(table, table.newBatchScan()).useSnapshot(snapshot.snapshotId()))
        verify(spark, table, tasks, Reading(str(table.name()), by_bounds=by_bounds))
        return
    checks = _checks(table)
    if checks is None:
        return
    with_nulls = manifests(spark, table, tuple(checks.required), snapshot).with_nulls
    if with_nulls:
        _Files(spark, table, checks, Reading(str(table.name()))).refuse_nulls(with_nulls[0])


def verify_bounds(spark: SparkSession, table: JavaTable, snapshot: JavaSnapshot | None, condition: str) -> None:
    """Refuses files whose bounds or nulls contradict the table's schema, before an overwrite selects files by bounds.

    Args:
        snapshot: The snapshot; None for an empty table.
        condition: The condition of the overwrite. An overwrite selects files by it, and reads no rows.

    Raises:
        RunError: A file contradicts the table's schema.
    """
    if has_mapping(table) or may_test_null(table, condition):
        verify_state(spark, table, snapshot, by_bounds=True)


def may_test_null(table: JavaTable, condition: str) -> bool:
    """True if a condition may test a required column for null. Iceberg assumes that such a column has no nulls."""
    checks = _checks(table)
    names = [column.name for column in checks.required.values()] if checks is not None else []
    return re.search(r"null", condition, re.IGNORECASE) is not None and bool(named_in([condition], names))


class _Files:
    """Checks the files of a table."""

    def __init__(self, spark: SparkSession, table: JavaTable, checks: Checks, reading: Reading) -> None:
        self._spark = spark
        self._table = table
        self._checks = checks
        self._reading = reading
        self._schema = table.schema()
        setting = spark.conf.get(SESSION_VECTORIZATION, None) or table.properties().get(TABLE_VECTORIZATION)
        self._row_reader_only = str(setting).lower() == "false"
        self._names = {name.lower() for name in reading.columns}
        self._columns: dict[int, tuple[str, str] | None] = {}

    def verify_counts(self, tasks: JavaList[JavaFileScanTask]) -> dict[str, list[int]]:
        """Checks the counts of nulls in the table's metadata.

        Returns:
            The files whose footers must be checked, each with the required columns whose nulls are not counted.
        """
        required, mapped = self._checks.required, self._checks.mapping is not None
        columns = [id for id, column in required.items() if self._reads(column.name)]
        if not columns and not mapped:
            return {}
        uncounted = {}
        for file in null_counts(self._spark, tasks, columns, mapped):
            self.refuse_nulls(file)
            if file.format == "PARQUET":
                uncounted[file.location] = [id for id in file.unknown if not required[id].has_default]
        return uncounted

    def refuse_nulls(self, file: FileNulls) -> None:
        if file.nulls:
            id, count = file.nulls[0]
            raise self._null_error(file.location, id, _nulls(count))

    def verify_footers(self, files: Mapping[str, Sequence[int]]) -> None:
        """Checks the footers of the files that this process has not checked yet."""
        by_bounds = self._reading.by_bounds
        key = "\n".join((self._checks.key, str(self._row_reader_only), str(by_bounds), *sorted(self._names)))
        new = [location for location in files if (key, location) not in _VERIFIED]
        for location, leaves in footers(self._spark, self._table, self._checks.mapping, new):
            for leaf in leaves:
                column = self._column(leaf.id)
                if column is None:
                    continue
                name, kind = column
                if leaf.unreadable:
                    raise self._unreadable_error(location, leaf, name)
                correct_readers = readers(kind, leaf.physical, leaf.annotation)
                if not self._possible_readers(leaf) <= correct_readers or (by_bounds and "MILLIS" in leaf.annotation):
                    raise self._type_error(location, leaf, column)
            present = {leaf.id: leaf for leaf in leaves}
            for id in files[location]:
                if id not in present:
                    raise self._null_error(location, id, "no values")
                nulls = present[id].nulls
                if present[id].optional and nulls != 0:
                    raise self._null_error(location, id, _nulls(nulls) if nulls is not None else "perhaps nulls")
            _VERIFIED[key, location] = None
            if len(_VERIFIED) > MAX_REMEMBERED:
                _VERIFIED.popitem(last=False)

    def _possible_readers(self, leaf: Leaf) -> Set[str]:
        """The readers that Spark may use for a column. Each of them must read the column correctly."""
        if self._row_reader_only or leaf.id not in self._checks.flat:
            return {ROW_READER}
        # If a read includes a nested column, Spark reads all its columns with the row reader, the flat ones, too.
        possible = {BATCH_READER, ROW_READER} if self._checks.has_nested else {BATCH_READER}
        return possible | {DICTIONARY_READER} if leaf.dictionary else possible

    def _reads(self, name: str) -> bool:
        """True if a column, or the column around a nested field, is read."""
        return not self._names or name.split(".", 1)[0].lower() in self._names

    def _column(self, id: int) -> tuple[str, str] | None:
        """The name and the type of a column; None if the column is not read."""
        if id not in self._columns:
            field = self._schema.findField(id)
            name = str(self._schema.findColumnName(id)) if field is not None else ""
            self._columns[id] = (name, str(field.type())) if field is not None and self._reads(name) else None
        return self._columns[id]

    def _null_error(self, location: str, id: int, contents: str) -> RunError:
        name, column = self._reading.name, self._checks.required[id].name
        table, field = (".".join(map(quoted, text.split("."))) for text in (name, column))
        is_identifier = id in self._checks.identifiers
        drop_identifier = f"ALTER TABLE {table} DROP IDENTIFIER FIELDS {field}, and then " if is_identifier else ""
        return RunError(
            f"{name}: the file {location} has {contents} in the column {column}, which the table requires. Iceberg "
            "would read nulls as values. Nulls in deleted rows count, too.",
            where=self._reading.where,
            fix=f"let the column be null ({drop_identifier}ALTER TABLE {table} ALTER COLUMN {field} DROP NOT NULL), or "
            "replace the file by one without nulls.",
        )

    @property
    def _or_select(self) -> str:
        return ", or read the other columns: .select(...)" if self._reading.where is not None else ""

    def _unreadable_error(self, location: str, leaf: Leaf, name: str) -> RunError:
        two_levels = leaf.unreadable == "levels"
        why = "as a list of two levels, which Iceberg does not read." if two_levels else no_codec(leaf.unreadable)
        how = THREE_LEVELS if two_levels else CODECS
        return RunError(
            f"{self._reading.name}: the file {location} has the column {name} {why}",
            where=self._reading.where,
            fix=f"replace the file by one that is written {how}{self._or_select}.",
        )

    def _type_error(self, location: str, leaf: Leaf, column: tuple[str, str]) -> RunError:
        name, kind = column
        return RunError(
            f"{self._reading.name}: the file {location} has the column {name} as "
            f"{f'{leaf.physical} {leaf.annotation}'.rstrip()}, which Iceberg does not read as the table's {kind}.",
            where=self._reading.where,
            fix=f"replace the file by one that has {name} as {kind}{self._or_select}.",
        )


# the checks of a table


def _nulls(count: int) -> str:
    return f"{count:,} nulls" if count > 1 else f"{count:,} null"


def _checks(table: JavaTable) -> Checks | None:
    """The checks of the files of a table; None if there are none."""
    schema, mapping = table.schema(), table.properties().get(NAME_MAPPING)
    # The key has the schema's text, not its id: tables with the same UUID may have different schemas with one id.
    key = (str(table.uuid()), str(schema), str(mapping) if mapping is not None else None)
    if key not in _CHECKS:
        parsed = json.loads(str(classes().org.apache.iceberg.SchemaParser.toJson(schema)))
        required = dict(_required(parsed["fields"], ""))
        flat = frozenset(field["id"] for field in parsed["fields"] if isinstance(field["type"], str))
        checks = Checks(
            key="\n".join(map(str, key)),
            required=required,
            mapping=key[2],
            identifiers=frozenset(parsed.get("identifier-field-ids", ())),
            flat=flat,
            has_nested=len(flat) < len(parsed["fields"]),
        )
        _CHECKS[key] = checks if required or mapping is not None else None
    return _CHECKS[key]


def _required(fields: Sequence[Mapping[str, object]], path: str) -> Iterator[tuple[int, Required]]:
    """The required columns by field id, except those in an optional struct, a list or a map.

    If a struct is null, Iceberg counts a null for each of its fields.
    """
    for field in fields:
        if not field["required"]:
            continue
        name, kind = f"{path}{field['name']}", field["type"]
        if isinstance(kind, str):
            yield cast("int", field["id"]), Required(name, "initial-default" in field)
        elif isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _required(kind["fields"], f"{name}.")


def named_in(conditions: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns that conditions may refer to, which are those that share a word with a condition."""
    words = {word.lower() for condition in conditions for word in re.findall(r"\w+", condition)}
    return [column for column in columns if words & set(re.findall(r"\w+", column.lower()))]
