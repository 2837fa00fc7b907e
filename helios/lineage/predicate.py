"""Parses the condition of a command with PyIceberg, and checks it against the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import islice, product
from math import isnan
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from helios.errors import InputError
from helios.lineage.fitted import check_like, fitted, pyiceberg_expression
from helios.model.values import caller

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`([^`]+)`|\b(?:DATE|TIMESTAMP_NTZ|TIMESTAMP)\s+(?=')", re.IGNORECASE)
SYNTAX = (
    "write comparisons of columns with values, such as \"id = 42\", \"name = 'ann' AND day >= '2026-01-05'\", "
    '"id IN (1, 2)" or "note IS NULL"; write texts and times in single quotes.'
)
MAX_COMBINATIONS = 20
"""The maximum number of combinations of values that `value_combinations` returns."""
MAX_PAIRS = 10_000
"""The maximum number of pairs of values that an AND compares."""


def parse_condition(text: str, schema: Schema, table: str) -> BooleanExpression:
    """Parses a text into a condition over the columns of a table.

    Args:
        text: Comparisons of columns with values, IN, BETWEEN, LIKE 'x%', IS NULL, AND, OR, NOT.
        table: The name of the table, for messages.

    Raises:
        InputError: The text does not parse, has an unknown column, or compares with a value of another type.

    Examples:
        >>> from pyiceberg.schema import Schema
        >>> from pyiceberg.types import LongType, NestedField
        >>> columns = Schema(NestedField(1, "id", LongType()))
        >>> parse_condition("`id` = 42", columns, "a.t")
        EqualTo(term=Reference(name='id'), literal=LongLiteral(42))
    """
    from pyiceberg.expressions import parser
    from pyiceberg.expressions.visitors import bind
    from pyparsing import ParseBaseException

    check_like(text)
    try:
        condition = parser.parse(_TOKEN.sub(_pyiceberg_token, text))
    except (ParseBaseException, ValueError) as error:
        raise InputError(f"the condition {text!r} does not parse.", where=caller(), fix=SYNTAX) from error
    condition = fitted(condition, schema, text, table)
    try:
        bind(schema, condition, case_sensitive=True)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InputError(f"{text!r} does not fit the columns: {error}.", where=caller(), fix=SYNTAX) from error
    return condition


def _pyiceberg_token(token: re.Match[str]) -> str:
    """Rewrites a token for PyIceberg's parser: double quotes replace backticks, and words such as DATE are dropped."""
    text, name = token[0], token[1]
    if name is not None:
        return f'"{name}"'
    return text if text.startswith(("'", '"')) else ""


def value_combinations(condition: BooleanExpression) -> list[dict[str, Any]]:
    """The combinations of column values to which a condition limits the matching rows, such as `id IN (1, 2)`.

    At most `MAX_COMBINATIONS` are returned; none if the condition limits no column to listed values.

    Examples:
        >>> from pyiceberg.expressions.parser import parse
        >>> value_combinations(parse("id IN (1, 2) AND day > '2026-01-01'"))
        [{'id': 1}, {'id': 2}]
        >>> value_combinations(parse("id = 1 OR id > 7")), value_combinations(parse("id IN (1, 2) AND id IN (2, 3)"))
        ([], [{'id': 2}])
    """
    return (_limited_to(condition) or [])[:MAX_COMBINATIONS]


def _limited_to(condition: BooleanExpression) -> list[dict[str, Any]] | None:
    """The combinations of values, each once; None if the condition limits no column, and empty if no row meets it."""
    from pyiceberg.expressions import And, EqualTo, In, Or

    if isinstance(condition, EqualTo):
        return [{condition.term.name: condition.literal.value}]  # type: ignore[attr-defined]
    if isinstance(condition, In):
        values = sorted((literal.value for literal in condition.literals), key=repr)
        return [{condition.term.name: value} for value in values]  # type: ignore[attr-defined]
    if not isinstance(condition, (And, Or)):
        return None
    left, right = _limited_to(condition.left), _limited_to(condition.right)
    if isinstance(condition, Or):
        return _distinct([*left, *right]) if left is not None and right is not None else None
    if left is None or right is None:
        return left if right is None else right
    pairs = islice(product(left, right), MAX_PAIRS)
    return _distinct({**a, **b} for a, b in pairs if all(a[name] == b[name] for name in a.keys() & b.keys()))


def _distinct(keys: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({tuple(sorted(key.items(), key=itemgetter(0))): key for key in keys}.values())


def rows_with_values_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> BooleanExpression:
    """Makes the condition for rows whose values in some columns equal those of one of the given rows."""
    from pyiceberg.expressions import And, Or

    if len(columns) > 1:
        return reduce(Or, (reduce(And, (rows_with_values_of([row], [name]) for name in columns)) for row in rows))
    name = columns[0]
    values = [row[name] for row in rows]
    without_nan = [value for value in values if not (isinstance(value, float) and isnan(value))]
    comparable_values = {value for value in without_nan if value is not None}
    parts = [pyiceberg_expression("In", name, comparable_values)] if comparable_values else []
    parts += [pyiceberg_expression("IsNull", name)] if None in values else []
    parts += [pyiceberg_expression("IsNaN", name)] if len(without_nan) < len(values) else []
    return reduce(Or, parts)


def comparable(schema: Schema) -> list[str]:
    """The columns of a table that can be compared with a value: all but structs, lists and maps."""
    from pyiceberg.types import PrimitiveType

    return [field.name for field in schema.fields if isinstance(field.field_type, PrimitiveType)]
