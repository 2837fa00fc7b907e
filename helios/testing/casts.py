"""Values of a test as values of Spark SQL types: text and numbers are cast where nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from helios.errors import InputError, near_miss
from helios.plan.typing.schema import Column, Schema, from_rows
from helios.plan.typing.types import SparkType, struct

if TYPE_CHECKING:
    import pyarrow as pa

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DIGITS = 12
"""Significant digits by which floating numbers are compared: their sums depend on the order."""


class Misfit(ValueError):
    """A value that does not fit a type; the text says why."""


def cast(value: Any, kind: SparkType) -> Any:
    """A value as Arrow takes it for a type; null stays null.

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
        raise Misfit(f"{value!r} is no whole number")
    try:
        number = int(value)
        exact = number == (Decimal(value) if isinstance(value, str) else value)
    except (ValueError, OverflowError, InvalidOperation):
        exact = False
    if not exact:
        raise Misfit(f"{value!r} is no whole number")
    if not -(1 << BITS[kind.name] - 1) <= number < 1 << BITS[kind.name] - 1:
        raise Misfit(f"{value!r} is out of the range of {kind}")
    return number


def _float(value: Any, kind: SparkType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Misfit(f"{value!r} is no number")
    try:
        return float(value)
    except ValueError:
        raise Misfit(f"{value!r} is no number") from None


def _decimal(value: Any, kind: SparkType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Misfit(f"{value!r} is no number")
    precision, scale = kind.numbers or (10, 0)
    try:
        given = Decimal(repr(value) if isinstance(value, float) else value)
        fitted = given.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        raise Misfit(f"{value!r} is no number that fits {kind}") from None
    if fitted != given or abs(fitted) >= Decimal(10) ** (precision - scale):
        raise Misfit(f"{value!r} has more digits than {kind}")
    return fitted


def _boolean(value: Any, kind: SparkType) -> bool:
    found = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Misfit(f"{value!r} is neither True nor False")
    return found


def _string(value: Any, kind: SparkType) -> str:
    if not isinstance(value, str):
        raise Misfit(f"{value!r} is no text; did you mean {str(value)!r}?")
    return value


def _binary(value: Any, kind: SparkType) -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise Misfit(f"{value!r} is no bytes")
    return bytes(value)


def _date(value: Any, kind: SparkType) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit(f"{value!r} is no date; write '2026-01-01'") from None


def _moment(value: Any) -> datetime:
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit(f"{value!r} is no time; write '2026-01-01T09:00Z'") from None


def _timestamp(value: Any, kind: SparkType) -> datetime:
    """A moment; without a zone it is of UTC."""
    found = _moment(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _timestamp_ntz(value: Any, kind: SparkType) -> datetime:
    found = _moment(value)
    if found.tzinfo is not None:
        raise Misfit(f"{value!r} has a zone, and {kind} has none")
    return found


def _array(value: Any, kind: SparkType) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Misfit(f"{value!r} is no list")
    return [cast(one, kind.parts[0]) for one in value]


def _map(value: Any, kind: SparkType) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise Misfit(f"{value!r} is no mapping")
    return [(cast(key, kind.parts[0]), cast(one, kind.parts[1])) for key, one in pairs]


def _struct(value: Any, kind: SparkType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit(f"{value!r} is no struct; write a dict of {', '.join(kind.fields)}")
    known = {name.lower(): name for name in kind.fields}
    for name in value:
        if name.lower() not in known:
            raise Misfit(f"{value!r} has the field {name!r}, and {kind} does not. {near_miss(name, kind.fields)}")
    given = {known[name.lower()]: one for name, one in value.items()}
    return {name: cast(given.get(name), part) for name, part in zip(kind.fields, kind.parts, strict=True)}


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
"""By the name of a type; a value of any other type is taken as it is."""


def cast_rows(rows: Sequence[Mapping[str, Any]], schema: Schema, what: str) -> list[dict[str, Any]]:
    """Rows cast to the types of columns. A column that a row lacks stays away.

    Args:
        rows: The rows, by column.
        schema: The columns.
        what: What the rows are of, for errors: `orders`.

    Raises:
        InputError: A row is no mapping, has an unknown column, or a value that does not fit; names the near miss.
    """
    return [_cast_row(row, schema, f"{what}, row {number}") for number, row in enumerate(rows, 1)]


def _cast_row(row: Any, schema: Schema, what: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"{what}: {row!r} is no row.", fix='write a dict: {"id": 1}.')
    made: dict[str, Any] = {}
    for name, value in row.items():
        column = schema.get(str(name))
        if column is None:
            raise InputError(f"{what} has no column {name!r}. {near_miss(str(name), schema.names)}")
        try:
            made[column.name] = cast(value, column.kind)
        except Misfit as misfit:
            raise InputError(f"{what}, column {column.name!r} ({column.type}): {misfit}.") from None
    return made


def canonical(value: Any, kind: SparkType) -> Any:
    """A cast value in a form that can be compared and counted: floating numbers to twelve digits.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> canonical(0.1 + 0.2, parse_type("double"))
        0.3
    """
    if value is None:
        return None
    if kind.name in ("float", "double"):
        return "NaN" if math.isnan(value) else float(f"{value:.{DIGITS if kind.name == 'double' else 6}g}")
    if kind.name == "array":
        return tuple(canonical(one, kind.parts[0]) for one in value)
    if kind.name == "map":
        return tuple(sorted((canonical(k, kind.parts[0]), canonical(v, kind.parts[1])) for k, v in value))
    if kind.name == "struct":
        return tuple(canonical(value.get(name), part) for name, part in zip(kind.fields, kind.parts, strict=True))
    return str(value) if kind.name in ("variant", "unknown") else value


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of columns whose types are known.

    Raises:
        InputError: Iceberg has no such type.
    """
    import pyarrow as pa

    return pa.schema([pa.field(one.name, _arrow(one), nullable=one.nullable) for one in schema.columns])


def _arrow(column: Column) -> pa.DataType:
    try:
        return arrow_type(column.kind)
    except KeyError:
        raise InputError(
            f"column {column.name!r}: the kit makes no column of type {column.type}.",
            fix='say its type: lake.table("shop.orders", "id bigint, ...").',
        ) from None


def arrow_type(kind: SparkType) -> pa.DataType:
    """The Arrow type of a Spark SQL type.

    Raises:
        KeyError: There is none.
    """
    import pyarrow as pa

    if kind.name == "decimal":
        return pa.decimal128(*(kind.numbers or (10, 0)))
    if kind.name == "array":
        return pa.list_(arrow_type(kind.parts[0]))
    if kind.name == "map":
        return pa.map_(arrow_type(kind.parts[0]), arrow_type(kind.parts[1]))
    if kind.name == "struct":
        return pa.struct([pa.field(n, arrow_type(t)) for n, t in zip(kind.fields, kind.parts, strict=True)])
    plain = {
        "tinyint": pa.int32(), "smallint": pa.int32(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "char": pa.string(),
        "varchar": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return plain[kind.name]


def inferred(rows: Sequence[Mapping[str, Any]], what: str) -> Schema:
    """The columns of rows without a declared schema, by their values.

    Raises:
        InputError: A column has no values, or values of several types.
    """
    names = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    found = from_rows(names, [tuple(_plain(row.get(name)) for name in names) for row in rows])
    made = Schema(tuple(Column(one.name, _of_structs(rows, one)) for one in found.columns))
    unclear = next((one for one in made.columns if "void" in one.type or one.type == "unknown"), None)
    if unclear is not None:
        raise InputError(
            f"{what}: the type of column {unclear.name!r} is not clear from its values.",
            fix='declare the columns: lake.table("shop.orders", "id bigint, ...").',
        )
    return made


def _plain(value: Any) -> Any:
    """A value whose mappings are structs: in a test a dict stands for one, unless a schema says a map."""
    return None if isinstance(value, Mapping) else value


def _of_structs(rows: Sequence[Mapping[str, Any]], column: Column) -> str:
    nested = [row[column.name] for row in rows if isinstance(row.get(column.name), Mapping)]
    if not nested:
        return column.type
    inner = inferred(nested, column.name)
    return str(struct((one.name, one.kind) for one in inner.columns))
