"""Schema evolution: changes a table's schema with Iceberg's Java API, and aligns a batch's columns with the table's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from helios.errors import CheckFailed, DeclarationError, InputError, Origin, RunError, first_line
from helios.model.retry import CommitRetries, Retry
from helios.plan.evolution.changes import Add, Change, Drop, Relax, Rename, Widen
from helios.plan.evolution.evolve import Policy, Target, evolve
from helios.plan.evolution.fields import Cell, Field, Fields, Path, cast_plan, sql_path
from helios.plan.typing.types import SparkType, TypeProblem, parse_type
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_class, java_message
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSchema, JavaTable, JavaType
from helios.spark.jvm.types.updates import JavaUpdateSchema

RETRYABLE = ("CommitFailedException", "CommitStateUnknownException")
"""Failures after which the schemas are compared again: another writer committed, or the commit may have succeeded."""


def names_by_id(schema: JavaSchema) -> dict[int, str]:
    """The names of the columns and nested fields of a schema, by field id."""
    return {id: schema.findColumnName(id) for id in schema.idToName().keySet()}


def fields_of(schema: StructType) -> Fields:
    """The fields of a schema, in the form in which the planner compares schemas."""
    return tuple(_field(f.name, f.dataType, f.nullable, f.metadata) for f in schema.fields)


def _field(name: str, kind: DataType, nullable: bool, metadata: Mapping[str, str]) -> Field:
    parts: Fields = ()
    if isinstance(kind, StructType):
        spark_type, parts = SparkType("struct"), fields_of(kind)
    elif isinstance(kind, ArrayType):
        spark_type, parts = SparkType("array"), (_field("element", kind.elementType, kind.containsNull, {}),)
    elif isinstance(kind, MapType):
        value = _field("value", kind.valueType, kind.valueContainsNull, {})
        spark_type, parts = SparkType("map"), (_field("key", kind.keyType, False, {}), value)
    else:
        spark_type = _parsed(kind.simpleString())
    return Field(name, spark_type, nullable, parts, metadata.get("CURRENT_DEFAULT"), metadata.get("comment"))


def _parsed(text: str) -> SparkType:
    try:
        return parse_type(text)
    except TypeProblem:
        return SparkType(text)  # a type that the planner does not know is equal only to itself


def target_of(table: JavaTable, name: str, sorted_by: Iterable[str] = ()) -> Target:
    """A table's schema, partitioning and sort order, in the form in which the planner compares schemas.

    Args:
        name: The table's name, for messages.
        sorted_by: Columns by which the writer sorts, in addition to those of the table's own sort order.

    Raises:
        InputError: The table has a column of a type that Spark cannot write.
    """
    iceberg, schema = classes().org.apache.iceberg, table.schema()
    try:
        columns = iceberg.spark.SparkSchemaUtil.convert(schema)
    except (Py4JJavaError, PySparkException) as error:
        raise InputError(f"{name} cannot be written: {_java_error(error)[1]}.") from error
    partitions = [f for f in listed(table.spec().fields()) if not f.transform().isVoid()]
    sort_fields = listed(table.sortOrder().fields())
    return Target(
        name=name,
        fields=fields_of(StructType.fromJson(json.loads(columns.json()))),
        partitioned_by=frozenset(str(schema.findColumnName(f.sourceId())) for f in partitions),
        sorted_by=frozenset(str(schema.findColumnName(f.sourceId())) for f in sort_fields).union(sorted_by),
        identifiers=frozenset(map(str, listed(schema.identifierFieldNames()))),
        format_version=int(iceberg.TableUtil.formatVersion(table)),
    )


# changes of the table's schema


def apply_changes(
    spark: SparkSession,
    table: JavaTable,
    diff: Callable[[], Sequence[Change]],
    retry: Retry,
) -> Sequence[Change]:
    """Commits the schema changes that a comparison finds, all in one commit.

    Args:
        table: Iceberg's table object; it has the new schema afterwards.
        diff: Compares the stream with the table's current schema, and returns the changes that the table needs. It
            raises an error if the schemas do not fit. It is called again if another writer committed first, or if the
            outcome of a commit is unknown.

    Returns:
        The changes that the last comparison found; empty if the table already had them.

    Raises:
        RunError: Iceberg or the catalog refused the changes, or none of the tries could commit.
    """
    retries = CommitRetries(retry)
    while True:
        table.refresh()
        changes = diff()
        if not changes:
            return changes
        try:
            commit_changes(spark, table, changes)
            return changes
        except (Py4JJavaError, PySparkException) as error:
            exception_class, message = _java_error(error)
            if exception_class not in RETRYABLE:
                requested = "; ".join(map(str, changes))
                raise RunError(
                    f"{table.name()} could not be changed ({requested}): {exception_class}: {message}"
                ) from error
            if not retries.wait():
                tries = f"{retries.used + 1} tr{'ies' if retries.used else 'y'}"
                raise RunError(
                    f"the schema of {table.name()} could not be changed in {tries}: {exception_class}: {message}; no "
                    "rows were written.",
                    fix="run again when the table is quieter: changes that were made already are kept.",
                ) from error


def _java_error(error: Py4JJavaError | PySparkException) -> tuple[str, str]:
    """The class and the message of a Java exception; pyspark raises some of them as classes of its own."""
    if isinstance(error, Py4JJavaError):
        return java_class(error), java_message(error)
    return type(error).__name__, first_line(error)


def commit_changes(spark: SparkSession, table: JavaTable, changes: Sequence[Change]) -> None:
    """Commits schema changes, all in one commit.

    Args:
        changes: The changes, in the order of `Evolution.changes`.

    Raises:
        Py4JJavaError: Iceberg refuses a change, or the commit failed.
        PySparkException: The same, if pyspark has its own class for the Java exception.
    """
    update = table.updateSchema()
    renamed: dict[Path, Path] = {}
    for change in changes:
        _CHANGES[type(change)](update, _former_path(change.path, renamed), change)
        if isinstance(change, Rename):
            renamed[(*change.path[:-1], change.new)] = change.path
    update.commit()


def _former_path(path: Path, renamed: Mapping[Path, Path]) -> Path:
    """The path with the names from before the update, which Iceberg uses until the commit."""
    prefix = next((new for new in renamed if path[: len(new)] == new), ())
    return renamed.get(prefix, ()) + path[len(prefix) :]


def _iceberg_type(kind: SparkType) -> JavaType:
    jvm = classes()
    row = jvm.org.apache.spark.sql.types.StructType.fromDDL(f"c {kind}")
    converted: JavaType = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(row).findField("c").type()
    return converted


def _add(update: JavaUpdateSchema, path: Path, change: Change) -> None:
    assert isinstance(change, Add)
    update.addColumn(".".join(path[:-1]) or None, path[-1], _iceberg_type(change.type), change.doc, None)


def _widen(update: JavaUpdateSchema, path: Path, change: Change) -> None:
    assert isinstance(change, Widen)
    update.updateColumn(".".join(path), _iceberg_type(change.type))


def _relax(update: JavaUpdateSchema, path: Path, change: Change) -> None:
    update.makeColumnOptional(".".join(path))


def _rename(update: JavaUpdateSchema, path: Path, change: Change) -> None:
    assert isinstance(change, Rename)
    update.renameColumn(".".join(path), change.new)


def _drop(update: JavaUpdateSchema, path: Path, change: Change) -> None:
    update.deleteColumn(".".join(path))


_Apply: TypeAlias = "Callable[[JavaUpdateSchema, Path, Change], None]"

_CHANGES: dict[type[Change], _Apply] = {Add: _add, Widen: _widen, Relax: _relax, Rename: _rename, Drop: _drop}
"""The function that adds a change to Iceberg's schema update, by kind of change; its path comes from `_former_path`."""


# alignment of the rows


def align(df: DataFrame, target: StructType) -> DataFrame:
    """The batch with exactly the table's columns and types; fields are matched by name at every level, ignoring case.

    A column or nested field that the batch lacks gets the table's default value, or null. A column that already has the
    right name and type is selected without a cast. Spark's writer refuses a null in a required field; see
    `null_violation_error`.

    Raises:
        CheckFailed: The table lacks columns or types of the batch: evolve the table first. No column of the batch is
            silently dropped.
    """
    stream, table = fields_of(df.schema), fields_of(target)
    evolution = evolve(stream, Target(name="the table", fields=table), Policy())
    if evolution.problems:
        raise CheckFailed(evolution.problems)
    if evolution.changes:
        missing_columns = ", ".join(sql_path(change.path) for change in evolution.changes)
        raise CheckFailed([DeclarationError(f"the table lacks columns of the batch: {missing_columns}.")])
    cells = cast_plan(stream, table)
    if all(cell.unchanged for cell in cells) and list(target.names) == df.columns:
        return df
    return df.select(*[_column(cell) for cell in cells])


def _column(cell: Cell) -> Column:
    if cell.source is None:
        return _default_of(cell).alias(cell.name)
    value = _value(cell, F.col(quoted(cell.source)))
    return value if cell.unchanged and cell.source == cell.name else value.alias(cell.name)


def _default_of(cell: Cell) -> Column:
    value = F.expr(cell.default) if cell.default is not None else F.lit(None)
    return value.cast(str(cell.type))


def _value(cell: Cell, value: Column) -> Column:
    if cell.unchanged:
        return value
    return _NESTED[cell.type.name](cell, value) if cell.parts else value.cast(str(cell.type))


def _struct(cell: Cell, value: Column) -> Column:
    fields = [
        (_default_of(part) if part.source is None else _value(part, value.getField(part.source))).alias(part.name)
        for part in cell.parts
    ]
    return F.when(value.isNotNull(), F.struct(*fields))


def _array(cell: Cell, value: Column) -> Column:
    (element,) = cell.parts
    return F.transform(value, lambda item: _value(element, item))


def _map(cell: Cell, value: Column) -> Column:
    key, entry = cell.parts
    if not key.unchanged:
        value = F.transform_keys(value, lambda name, _: _value(key, name))
    return value if entry.unchanged else F.transform_values(value, lambda _, item: _value(entry, item))


_NESTED: dict[str, Callable[[Cell, Column], Column]] = {"struct": _struct, "array": _array, "map": _map}
"""For each nested type, the function that rebuilds a value from its parts."""


def null_violation_error(error: PySparkException, table: str, where: Origin | None = None) -> RunError | None:
    """The error for the user when Spark refuses to write a null into a required field; None for any other error."""
    if error.getCondition() != "NOT_NULL_ASSERT_VIOLATION":
        return None
    path = (error.getMessageParameters() or {}).get("walkedTypePath", "")
    column = sql_path(tuple(path.split()))
    return RunError(
        f"a row has null in {column}, which {table} requires; nothing of its batch was committed.",
        where=where,
        fix='keep such rows out with expect(...), or make the column optional with .evolve_schema("full").',
    )
