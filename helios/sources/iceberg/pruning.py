"""Translates predicates into PyIceberg's expressions, to find the files that a scan skips. No JVM is needed.

`helios.spark.iceberg.filters` does the same for a run. A predicate is split at its ANDs. A part that PyIceberg cannot
express is left out. The plan then counts too many files, never too few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from helios.plan.typing.expression import UnparsedExpression, parse
from helios.plan.typing.rules import Node

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_SWAPPED = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}


class _Unknown(Exception):
    """A part of a predicate that PyIceberg cannot express."""


def row_filter(predicates: Iterable[str], schema: Schema) -> BooleanExpression:
    """One expression of PyIceberg for all predicates, joined with AND.

    The predicates are Spark SQL over the table's columns. The parts that PyIceberg cannot express are left out.
    """
    from pyiceberg.expressions import AlwaysTrue, And

    conjunction: BooleanExpression = AlwaysTrue()
    for predicate in predicates:
        try:
            node = parse(predicate, "where", None)
        except UnparsedExpression:
            continue
        for conjunct in _conjuncts(node):
            try:
                conjunction = And(conjunction, _expression(conjunct, schema))
            except (_Unknown, ValueError, TypeError, ArithmeticError):
                continue
    return conjunction


def _conjuncts(node: Node) -> Iterator[Node]:
    """The conditions that a predicate joins with AND."""
    while type(node).__name__ == "Paren":
        node = node.this
    if type(node).__name__ != "And":
        yield node
        return
    yield from _conjuncts(node.this)
    yield from _conjuncts(node.expression)


def _expression(node: Node, schema: Schema) -> BooleanExpression:
    rule = _RULES.get(type(node).__name__)
    if rule is None:
        raise _Unknown
    return rule(node, schema)


# the parts of a predicate


def _make(class_name: str, *parts: Any) -> BooleanExpression:
    """Creates an expression of PyIceberg. A type checker does not understand the signatures of PyIceberg's classes."""
    from pyiceberg import expressions

    return getattr(expressions, class_name)(*parts)  # type: ignore[no-any-return]


def _and_or(node: Node, schema: Schema) -> BooleanExpression:
    return _make(type(node).__name__, _expression(node.this, schema), _expression(node.expression, schema))


def _not(node: Node, schema: Schema) -> BooleanExpression:
    return _make("Not", _expression(node.this, schema))


def _comparison(node: Node, schema: Schema) -> BooleanExpression:
    """The expression for a comparison of a column with a literal."""
    operator, left, right = type(node).__name__, node.this, node.expression
    if type(left).__name__ != "Column":
        operator, left, right = _SWAPPED.get(operator, operator), right, left
    name, column_type = _column(left, schema)
    return _compared(operator, name, column_type, right)


def _compared(operator: str, name: str, column_type: IcebergType, literal: Node) -> BooleanExpression:
    comparison = _make(_COMPARISONS[operator], name, _value(literal, column_type))
    if type(column_type).__name__ not in ("FloatType", "DoubleType"):
        return comparison
    # In Spark, NaN is greater than any number. Iceberg's bounds of a column leave NaN out.
    if operator in ("GT", "GTE"):
        return _make("Or", comparison, _make("IsNaN", name))
    # In Spark, NOT (x < 1) is true for NaN. So x < 1 becomes x < 1 AND NotNaN(x). PyIceberg negates that to
    # x >= 1 OR IsNaN(x), which keeps files with NaN.
    if operator in ("LT", "LTE"):
        return _make("And", comparison, _make("NotNaN", name))
    return comparison


def _between(node: Node, schema: Schema) -> BooleanExpression:
    name, column_type = _column(node.this, schema)
    low = _compared("GTE", name, column_type, node.args["low"])
    return _make("And", low, _compared("LTE", name, column_type, node.args["high"]))


def _is(node: Node, schema: Schema) -> BooleanExpression:
    if type(node.expression).__name__ != "Null":
        raise _Unknown
    name, _ = _column(node.this, schema)
    return _make("IsNull", name)


def _in(node: Node, schema: Schema) -> BooleanExpression:
    if not node.expressions:  # a subquery
        raise _Unknown
    name, column_type = _column(node.this, schema)
    return _make("In", name, {_value(value, column_type) for value in node.expressions})


def _like(node: Node, schema: Schema) -> BooleanExpression:
    name, column_type = _column(node.this, schema)
    pattern = str(_value(node.expression, column_type))
    if not re.fullmatch(r"[^%_\\]+%", pattern):
        raise _Unknown
    return _make("StartsWith", name, pattern[:-1])


def _boolean_column(node: Node, schema: Schema) -> BooleanExpression:
    name, column_type = _column(node, schema)
    if type(column_type).__name__ != "BooleanType":
        raise _Unknown
    return _make("EqualTo", name, True)


_COMPARISONS = {
    "EQ": "EqualTo",
    "NullSafeEQ": "EqualTo",
    "NEQ": "NotEqualTo",
    "LT": "LessThan",
    "LTE": "LessThanOrEqual",
    "GT": "GreaterThan",
    "GTE": "GreaterThanOrEqual",
}
"""PyIceberg's class for each comparison class of sqlglot."""

_RULES: dict[str, Callable[[Node, Schema], BooleanExpression]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    "And": _and_or,
    "Or": _and_or,
    "Not": _not,
    "Paren": lambda node, schema: _expression(node.this, schema),
    "Between": _between,
    "Is": _is,
    "In": _in,
    "Like": _like,
    "Column": _boolean_column,
}
"""The function that translates a node, by the node's class of sqlglot."""


# columns and values


def _column(node: Node, schema: Schema) -> tuple[str, Any]:
    """The name and the type of a column. The name of a field of a struct is its path, with dots."""
    if type(node).__name__ != "Column":
        raise _Unknown
    field = schema.find_field(".".join(part.name for part in node.parts), case_sensitive=False)
    return schema.find_column_name(field.field_id) or field.name, field.field_type


def _value(node: Node, column_type: Any) -> Any:
    """A literal as a value of a column's type.

    Raises:
        _Unknown: Spark would cast the column to the type of the literal instead.
    """
    kind, text = _literal(node)
    convert = _VALUES.get((type(column_type).__name__, kind))
    if convert is None:
        raise _Unknown
    return convert(text, column_type)


def _literal(node: Node) -> tuple[str, Any]:
    """The kind of a literal, and the text of the literal. For a boolean, the value instead of the text."""
    name = type(node).__name__
    if name == "Boolean":
        return "boolean", bool(node.this)
    if name == "Neg":
        kind, text = _literal(node.this)
        if kind not in ("int", "decimal"):
            raise _Unknown
        return kind, f"-{text}"
    if name == "Literal" and node.is_string:
        return "string", node.this
    if name == "Literal":
        return ("int" if node.this.isdigit() else "decimal"), node.this
    if name in ("Cast", "TryCast") and type(node.this).__name__ == "Literal":
        kind = _CASTS.get(str(getattr(node.to.this, "name", "")), "")
        # Only a number is accepted in a cast to BIGINT, and only a string in any other cast.
        casts_text = kind != "int"
        if kind and casts_text == bool(node.this.is_string):
            return kind, node.this.this
    raise _Unknown


_CASTS = {
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp",
    "BIGINT": "int",
}
"""The kind of a literal in a cast, by the name that sqlglot gives the type."""


def _decimal(text: str, column_type: Any) -> Decimal:
    """A decimal with the scale of the column.

    Raises:
        _Unknown: The scale of the column is too small for the decimal.
    """
    value = Decimal(text)
    try:
        exact = value.quantize(Decimal(1).scaleb(-column_type.scale))
    except InvalidOperation:
        raise _Unknown from None
    if exact != value:  # Spark would cast the column to a wider decimal
        raise _Unknown
    return exact


def _day(text: str, column_type: Any) -> date:
    return date.fromisoformat(text)


def _moment(text: str, column_type: Any) -> datetime:
    """A time. A text without an offset is in UTC, as in every session of Helios."""
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment if type(column_type).__name__ == "TimestamptzType" else moment.replace(tzinfo=None)


_VALUES: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("BooleanType", "boolean"): lambda text, column_type: text,
    ("IntegerType", "int"): lambda text, column_type: int(text),
    ("LongType", "int"): lambda text, column_type: int(text),
    ("FloatType", "int"): lambda text, column_type: float(text),
    ("DoubleType", "int"): lambda text, column_type: float(text),
    ("DoubleType", "decimal"): lambda text, column_type: float(text),
    ("DecimalType", "int"): _decimal,
    ("DecimalType", "decimal"): _decimal,
    ("StringType", "string"): lambda text, column_type: text,
    ("DateType", "date"): _day,
    ("DateType", "string"): _day,
    **{
        (column_type, kind): _moment
        for column_type in ("TimestampType", "TimestamptzType")
        for kind in ("timestamp", "date", "string")
    },
}
"""The conversion of a literal, by PyIceberg's class of the column's type and the kind of the literal."""
