"""Converts data frames of pandas, Polars and pyarrow to rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helios.errors import DeclarationError, near_miss
from helios.model.values import caller
from helios.plan.typing.schema import from_arrow, from_ddl

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(frame: Any, declared: str | None = None) -> tuple[str, tuple[tuple[Any, ...], ...]]:
    """The columns of a frame as Spark SQL DDL, and its rows; the index of pandas is left out.

    Args:
        frame: A pandas or Polars DataFrame, a `pyarrow.Table`, or an object with Arrow's stream interface.
        declared: The columns to take, with types, as Spark SQL DDL; None for all columns with the frame's types.

    Raises:
        DeclarationError: A column has a type, or values, that Spark does not support, or the frame does not have each
            declared column exactly once.

    Examples:
        >>> import pyarrow as pa
        >>> rows_of(pa.table({"id": [1, None], "name": ["a", "b"]}))
        ('`id` bigint, `name` string', ((1, 'a'), (None, 'b')))
    """
    table = _microseconds(_arrow(frame))
    if declared is not None:
        table = _selected(table, from_ddl(declared, caller()).names)
    schema = from_arrow(table.schema)
    for column, field in zip(schema.columns, table.schema, strict=True):
        if column.type == "unknown":
            raise DeclarationError(
                f"Memory.source: column {field.name!r} has the type {field.type}, which Spark does not support.",
                where=caller(),
                fix="cast it in the frame first.",
            )
    ddl = ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in schema.columns)
    columns = [table.column(i).to_pylist(maps_as_pydicts="strict") for i in range(table.num_columns)]
    return declared or ddl, tuple(zip(*columns, strict=True))


def _selected(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with only the named columns, in the order of the names."""
    for name in names:
        count = table.column_names.count(name)
        if count > 1:
            raise DeclarationError(
                f"Memory.source: the frame has {count} columns {name!r}: it is not clear which one the schema means.",
                where=caller(),
                fix="rename all but one of them in the frame.",
            )
        if count == 0:
            raise DeclarationError(
                f"Memory.source: the frame has no column {name!r}. {near_miss(name, table.column_names)}",
                where=caller(),
                fix="write the schema with the names of the frame's columns.",
            )
    return table.select(list(names))


def _arrow(frame: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if type(frame).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    return pa.table(frame)


def _microseconds(table: pa.Table) -> pa.Table:
    """The table with times in microseconds, as Spark has them; pandas has nanoseconds."""
    import pyarrow as pa

    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", tz=field.type.tz)
            try:
                column = table.column(index).cast(kind)
            except pa.ArrowInvalid:
                raise DeclarationError(
                    f"Memory.source: column {field.name!r} has times finer than a microsecond, which Spark lacks.",
                    where=caller(),
                    fix="round them in the frame first.",
                ) from None
            table = table.set_column(index, pa.field(field.name, kind, field.nullable), column)
    return table
