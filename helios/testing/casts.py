"""Casts values of a test to Spark SQL types. Only floats and doubles may lose digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING, Any

from helios.errors import InputError, near_miss
from helios.plan.typing.schema import Column, Schema, from_rows
from helios.plan.typing.types import SparkType, struct
from helios.testing.diff import hidden

if TYPE_CHECKING:
    import pyarrow as pa

__tracebackhide__ = hidden

HOW_TO_DECLARE = 'as in lake.table("shop.orders", "id bigint, ...") or Files.source(..., schema="id bigint, ...").'
"""The end of a fix: how to declare columns in a test, or in the source of a script."""
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
FLOAT_DIGITS, DOUBLE_DIGITS = 6, 12
"""The significant digits with which floats and doubles are compared. Their sums depend on the order of the rows."""


class Misfit(ValueError):
    """A value does not fit a type. The message says why."""


def cast(value: Any, kind: SparkType) -> Any:
    """Casts a value to the Python value that Arrow takes for a type; None stays None.

    Raises:
        Misfit: The value does not fit.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> cast("12.50", parse_type("decimal(10,2)")), cast("2026-01-01T09:00Z", parse_type("timestamp")).hour
        (Decimal('12.50'), 9)
    """
    if value is None:
        return None
    caster = CASTERS.get(kind.name)
    return caster(value, kind) if caster is not None else value


def _integer(value: Any, kind: SparkType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Misfit(f"{value!r} is not a whole number")
    try:
        number = int(value)
        exact = number == (Decimal(value) if isinstance(value, str) else value)
    except (ValueError, OverflowError, InvalidOperation):
        exact = False
    if not exact:
        raise Misfit(f"{value!r} is not a whole number")
    if not -(1 << BITS[kind.name] - 1) <= number < 1 << BITS[kind.name] - 1:
        raise Misfit(f"{value!r} is out of the range of {kind}")
    return number


def _float(value: Any, kind: SparkType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Misfit(f"{value!r} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise Misfit(f"{value!r} is not a number") from None


def _decimal(value: Any, kind: SparkType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Misfit(f"{value!r} is not a number")
    precision, scale = kind.numbers or (10, 0)
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
        with localcontext(prec=76):  # by default Decimal keeps 28 digits, and a decimal may have 38
            rounded = exact.quantize(Decimal(1).scaleb(-scale))
            is_large = abs(rounded) >= Decimal(10) ** (precision - scale)
    except InvalidOperation:
        raise Misfit(f"{value!r} is not a number that fits {kind}") from None
    if rounded != exact or is_large:
        raise Misfit(f"{value!r} has more digits than {kind}")
    return rounded


def _boolean(value: Any, kind: SparkType) -> bool:
    flag = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(flag, bool):
        raise Misfit(f"{value!r} is neither True nor False")
    return flag


def _string(value: Any, kind: SparkType) -> str:
    if not isinstance(value, str):
        raise Misfit(f"{value!r} is not text; did you mean {str(value)!r}?")
    return value


def _binary(value: Any, kind: SparkType) -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise Misfit(f"{value!r} is not bytes")
    return bytes(value)


def _date(value: Any, kind: SparkType) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit(f"{value!r} is not a date; write '2026-01-01'") from None


def _datetime(value: Any) -> datetime:
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit(f"{value!r} is not a time; write '2026-01-01T09:00Z'") from None


def _timestamp(value: Any, kind: SparkType) -> datetime:
    """A time in UTC; a time without a zone is taken as UTC."""
    time = _datetime(value)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _timestamp_ntz(value: Any, kind: SparkType) -> datetime:
    time = _datetime(value)
    if time.tzinfo is not None:
        raise Misfit(f"{value!r} has a zone, and {kind} has none")
    return time


def _array(value: Any, kind: SparkType) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Misfit(f"{value!r} is not a list")
    return [cast(element, kind.parts[0]) for element in value]


def _map(value: Any, kind: SparkType) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise Misfit(f"{value!r} is not a mapping")
    key_type, value_type = kind.parts
    return [(cast(key, key_type), cast(mapped, value_type)) for key, mapped in pairs]


def _struct(value: Any, kind: SparkType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit(f"{value!r} is not a struct; write a dict of {', '.join(kind.fields)}")
    known = {name.lower(): name for name in kind.fields}
    for name in value:
        if str(name).lower() not in known:
            raise Misfit(f"{value!r} has the field {name!r}, and {kind} does not. {near_miss(str(name), kind.fields)}")
    by_name = {known[str(name).lower()]: field for name, field in value.items()}
    return {name: cast(by_name.get(name), part) for name, part in zip(kind.fields, kind.parts, strict=True)}


CASTERS: Mapping[str, Callable[[Any, SparkType], Any]] = {
    **dict.fromkeys(BITS, _integer),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "boolean": _boolean,
    "string": _string,
    "char": _string,
    "varchar": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "array": _array,
    "map": _map,
    "struct": _struct,
}
"""The cast for each type. Values of other types are not cast."""


def cast_rows(rows: Sequence[Mapping[str, Any]], schema: Schema, rows_name: str) -> list[dict[str, Any]]:
    """Casts rows to the types of columns. A column that a row lacks is not added.

    Messages name the table or source of the rows by `rows_name`, such as "orders".

    Raises:
        InputError: A row is not a mapping, has an unknown column, or has a value that does not fit.
    """
    return [_cast_row(row, schema, f"{rows_name}, row {number}") for number, row in enumerate(rows, 1)]


def _cast_row(row: Any, schema: Schema, row_name: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"{row_name}: {row!r} is not a row.", fix='write a dict: {"id": 1}.')
    values: dict[str, Any] = {}
    for name, value in row.items():
        column = schema.get(str(name))
        if column is None:
            raise InputError(f"{row_name} has no column {name!r}. {near_miss(str(name), schema.names)}")
        try:
            values[column.name] = cast(value, column.kind)
        except Misfit as misfit:
            raise InputError(f"{row_name}, column {column.name!r} ({column.type}): {misfit}.") from None
    return values


def canonical(value: Any, kind: SparkType) -> Any:
    """A cast value in a hashable form that can be compared; floating-point numbers are rounded.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> canonical(0.1 + 0.2, parse_type("double"))
        0.3
    """
    if value is None:
        return None
    if kind.name in ("float", "double"):
        digits = DOUBLE_DIGITS if kind.name == "double" else FLOAT_DIGITS
        return "NaN" if math.isnan(value) else float(f"{value:.{digits}g}")
    if kind.name == "array":
        return tuple(canonical(element, kind.parts[0]) for element in value)
    if kind.name == "map":
        key_type, value_type = kind.parts
        pairs = [(canonical(key, key_type), canonical(mapped, value_type)) for key, mapped in value]
        return tuple(sorted(pairs, key=lambda pair: repr(pair[0])))  # NaN has no order
    if kind.name == "struct":
        return tuple(canonical(value.get(name), part) for name, part in zip(kind.fields, kind.parts, strict=True))
    return str(value) if kind.name in ("variant", "unknown") else value


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of columns whose types are known.

    Raises:
        InputError: A column has a type of which a test cannot create columns.
    """
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _arrow(column), nullable=column.nullable) for column in schema.columns])


def _arrow(column: Column) -> pa.DataType:
    try:
        return arrow_type(column.kind)
    except KeyError:
        raise InputError(
            f"column {column.name!r}: a test cannot create a column of type {column.type}.",
            fix=f"declare another type, {HOW_TO_DECLARE}",
        ) from None


def arrow_type(kind: SparkType) -> pa.DataType:
    """The Arrow type of a Spark SQL type.

    Raises:
        KeyError: Arrow has no such type.
    """
    import pyarrow as pa

    if kind.name == "decimal":
        return pa.decimal128(*(kind.numbers or (10, 0)))
    if kind.name == "array":
        return pa.list_(arrow_type(kind.parts[0]))
    if kind.name == "map":
        return pa.map_(arrow_type(kind.parts[0]), arrow_type(kind.parts[1]))
    if kind.name == "struct":
        fields = zip(kind.fields, kind.parts, strict=True)
        return pa.struct([pa.field(name, arrow_type(part)) for name, part in fields])
    plain = {
        "tinyint": pa.int32(), "smallint": pa.int32(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "char": pa.string(),
        "varchar": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return plain[kind.name]


def inferred(rows: Sequence[Mapping[str, Any]], rows_name: str) -> Schema:
    """The columns of rows without a declared schema, inferred from the values.

    Raises:
        InputError: A column has no values, or values of several types.
    """
    names = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    without_mappings = from_rows(names, [tuple(_no_mapping(row.get(name)) for name in names) for row in rows])
    schema = Schema(tuple(Column(column.name, _type_with_structs(rows, column)) for column in without_mappings.columns))
    untyped_column = next(
        (column for column in schema.columns if "void" in column.type or column.type == "unknown"), None
    )
    if untyped_column is not None:
        raise InputError(
            f"{rows_name}: the type of column {untyped_column.name!r} is not clear from its values.",
            fix=f"declare the columns, {HOW_TO_DECLARE}",
        )
    return schema


def _no_mapping(value: Any) -> Any:
    """None for a mapping, since `_type_with_structs` infers its type; any other value unchanged."""
    return None if isinstance(value, Mapping) else value


def _type_with_structs(rows: Sequence[Mapping[str, Any]], column: Column) -> str:
    """The type of a column: a struct if its values are mappings. Only a declared schema makes a mapping a map."""
    nested = [row[column.name] for row in rows if isinstance(row.get(column.name), Mapping)]
    if not nested:
        return column.type
    fields = inferred(nested, column.name).columns
    return str(struct((field.name, field.kind) for field in fields))
