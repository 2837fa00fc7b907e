"""Fits the comparisons of a condition to a table: exact names of columns, and values of the columns' types."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING, Any

from helios.errors import InputError, near_miss
from helios.model.values import caller

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

INT_BITS, LONG_BITS = 32, 64
PRECISION = 200
"""The digits with which numbers are compared. Python's default of 28 is too small for decimal(38)."""

NANOS = re.compile(r"\.\d{7,}")
"""Digits beyond microseconds, which `fromisoformat` drops silently."""

LIKE = re.compile(r"\bLIKE\s+'((?:[^']|'')*)'", re.IGNORECASE)


def check_like(text: str) -> None:
    """Refuses a LIKE whose pattern is not a prefix: in others, PyIceberg takes `%` and `_` literally, or fails.

    Raises:
        InputError: A pattern has `_`, or a `%` that is not at its end.
    """
    for pattern in LIKE.findall(text):
        plain = pattern.replace(r"\%", "")
        if "_" in plain or "%" in plain[:-1]:
            raise InputError(
                f"LIKE '{pattern}': only prefixes are compared, such as LIKE 'ann%'.",
                where=caller(),
                fix="write a prefix, or compare other columns.",
            )


def fitted(condition: BooleanExpression, schema: Schema, text: str, table: str) -> BooleanExpression:
    """Returns a condition with the exact names of columns, and with values of their types.

    A comparison with a value that the column's type does not have, such as 1.5 for whole numbers, becomes another one
    that matches the same rows: `id < 1.5` becomes `id <= 1`, and no row matches `id = 1.5`.

    Args:
        condition: An unbound condition.
        text: The condition as the user wrote it.

    Raises:
        InputError: A column is unknown, ambiguous or nested, or is compared with a value of another kind, such as text.
    """
    from pyiceberg.expressions.visitors import rewrite_not

    return _fitted(rewrite_not(condition), _Columns(schema, text, table).compared)


def _fitted(condition: Any, fit: Callable[[str, str, Any], BooleanExpression]) -> BooleanExpression:
    from pyiceberg.expressions import And, LiteralPredicate, Or, SetPredicate, UnboundPredicate

    if isinstance(condition, (And, Or)):
        return type(condition)(_fitted(condition.left, fit), _fitted(condition.right, fit))
    if isinstance(condition, LiteralPredicate):
        return fit(condition.term.name, type(condition).__name__, [condition.literal.value])  # type: ignore[attr-defined]
    if isinstance(condition, SetPredicate):
        values = [literal.value for literal in condition.literals]
        return fit(condition.term.name, type(condition).__name__, values)  # type: ignore[attr-defined]
    if isinstance(condition, UnboundPredicate):
        return fit(condition.term.name, type(condition).__name__, [])  # type: ignore[attr-defined]
    return condition  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Columns:
    """Fits the comparisons of one condition to the columns of a table."""

    schema: Schema
    text: str
    table: str

    def compared(self, name: str, op: str, values: list[Any]) -> BooleanExpression:
        field = self._field(name)
        try:
            return _of_type(field, op, values)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InputError(f"{self.text!r} does not fit the columns: {error}", where=caller()) from error

    def _field(self, name: str) -> NestedField:
        """The column with exactly this name, or else the only column whose name differs only by case."""
        fields = {field.name: field for field in self.schema.fields}
        if name in fields:
            return fields[name]
        same_but_case = [field for other, field in fields.items() if other.lower() == name.lower()]
        if len(same_but_case) == 1:
            return same_but_case[0]
        message = f"{self.text!r}: {self.table} has no column {name!r}. {near_miss(name, list(fields))}"
        if same_but_case:
            names = ", ".join(field.name for field in same_but_case)
            message = f"{self.text!r}: {self.table} has the columns {names}, and none is {name!r}."
        elif name.partition(".")[0] in fields:
            message = f"{self.text!r}: {name!r} is inside of a column, and only whole columns are compared."
        raise InputError(message, where=caller())


def _of_type(field: NestedField, op: str, values: list[Any]) -> BooleanExpression:
    from pyiceberg.types import (
        DateType,
        DecimalType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
        TimestamptzType,
    )

    kind, name = field.field_type, field.name
    if op in {"StartsWith", "NotStartsWith"} and not isinstance(kind, StringType):
        raise TypeError(f"LIKE compares text, and {name} is a {kind}.")
    if isinstance(kind, (IntegerType, LongType)):
        limit = 2 ** ((INT_BITS if isinstance(kind, IntegerType) else LONG_BITS) - 1)
        return _Numbers(Decimal(1), Decimal(-limit), Decimal(limit - 1)).compared(name, op, values)
    if isinstance(kind, DecimalType):
        unit = Decimal(1).scaleb(-kind.scale)
        largest = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return _Numbers(unit, -largest, largest).compared(name, op, values)
    if isinstance(kind, DateType):
        values = [_day(value) for value in values]
    elif isinstance(kind, (TimestampType, TimestamptzType)):
        values = [_moment(value, zoned=isinstance(kind, TimestamptzType)) for value in values]
    return _comparison(op, name, values)


def _comparison(op: str, name: str, values: list[Any]) -> BooleanExpression:
    """Makes a PyIceberg expression from the class name of its operator. NULL is treated as in SQL."""
    if op == "NotIn":  # PyIceberg's NotIn also matches null, and SQL's NOT IN does not
        not_null, not_in = pyiceberg_expression("NotNull", name), pyiceberg_expression("NotIn", name, set(values))
        return pyiceberg_expression("And", not_null, not_in)
    return pyiceberg_expression(op, name, set(values)) if op == "In" else pyiceberg_expression(op, name, *values)


def pyiceberg_expression(kind: str, *parts: Any) -> BooleanExpression:
    """Makes a PyIceberg expression by its class name, as type checkers do not understand the classes' signatures."""
    from pyiceberg import expressions

    return getattr(expressions, kind)(*parts)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Numbers:
    """The values of a column of numbers: the multiples of a unit between two bounds."""

    unit: Decimal
    smallest: Decimal
    largest: Decimal

    def compared(self, name: str, op: str, values: list[Any]) -> BooleanExpression:
        numbers = [_number(value) for value in values]
        with localcontext(prec=PRECISION):
            return self._compared(name, op, numbers)

    def _compared(self, name: str, op: str, numbers: list[Decimal]) -> BooleanExpression:
        from pyiceberg.expressions import AlwaysFalse

        exact = [number for number in numbers if self.smallest <= number <= self.largest and number % self.unit == 0]
        if op in {"In", "EqualTo"}:
            return _comparison("In", name, self._stored(exact)) if exact else AlwaysFalse()
        if op in {"NotIn", "NotEqualTo"}:
            return _comparison("NotIn", name, self._stored(exact)) if exact else _comparison("NotNull", name, [])
        if not numbers:
            return _comparison(op, name, [])
        (value,) = numbers
        below = op.startswith("Less")
        if value < self.smallest or value > self.largest:  # all values of the column are on one side of this value
            return _comparison("NotNull", name, []) if below == (value > self.largest) else AlwaysFalse()
        if exact:
            return _comparison(op, name, self._stored(exact))
        nearest = (value / self.unit).to_integral_value(ROUND_FLOOR if below else ROUND_CEILING) * self.unit
        return _comparison("LessThanOrEqual" if below else "GreaterThanOrEqual", name, self._stored([nearest]))

    def _stored(self, values: list[Decimal]) -> list[Any]:
        return [int(value) if self.unit == 1 else value.quantize(self.unit) for value in values]


def _number(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError(f"{value} is not a number.")
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number.") from error
    if not number.is_finite():
        raise ValueError(f"{value!r} is not a number of this column's type.")
    return number


def _day(value: Any) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{value!r} is not a date such as '2026-01-05'.") from error


def _moment(value: Any, *, zoned: bool) -> str:
    """A time as PyIceberg parses it; a time without an offset is in UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{value!r} is not a time such as '2026-01-05 09:30:00'.") from error
    if NANOS.search(value):
        raise ValueError(f"{value!r} has digits beyond microseconds, which the column does not store.")
    if zoned:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if moment.tzinfo is not None:
        raise ValueError(f"{value!r} has an offset, and the column has no zone.")
    return moment.isoformat()
