"""Frames of pandas, Polars and pyarrow as rows in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helios.errors import DeclarationError
from helios.model.values import caller
from helios.plan.typing.schema import from_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(frame: Any) -> tuple[str, tuple[tuple[Any, ...], ...]]:
    """The columns of a frame as Spark SQL DDL, and its rows; the index of pandas is left out.

    Args:
        frame: A pandas or Polars DataFrame, a `pyarrow.Table`, or whatever else gives Arrow's stream.

    Raises:
        DeclarationError: A column has a type, or values, that Spark has no rows for.

    Examples:
        >>> import pyarrow as pa
        >>> rows_of(pa.table({"id": [1, None], "name": ["a", "b"]}))
        ('`id` bigint, `name` string', ((1, 'a'), (None, 'b')))
    """
    table = _microseconds(_arrow(frame))
    schema = from_arrow(table.schema)
    for column, field in zip(schema.columns, table.schema, strict=True):
        if column.type == "unknown":
            raise DeclarationError(
                f"Memory.source: column {field.name!r} has the type {field.type}, which Spark has no rows for.",
                where=caller(),
                fix="cast it in the frame first.",
            )
    ddl = ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in schema.columns)
    columns = [table.column(i).to_pylist(maps_as_pydicts="strict") for i in range(table.num_columns)]
    return ddl, tuple(zip(*columns, strict=True))


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

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", tz=field.type.tz)
            try:
                made = table.column(place).cast(kind)
            except pa.ArrowInvalid:
                raise DeclarationError(
                    f"Memory.source: column {field.name!r} has times between two microseconds, and Spark has none.",
                    where=caller(),
                    fix="round them in the frame first.",
                ) from None
            table = table.set_column(place, pa.field(field.name, kind, field.nullable), made)
    return table
