"""Expressions as values: Python operators over columns, which print as Spark SQL.

Every argument that takes SQL text also takes an `Expression`, of which it stores the text: plans, checks and
checkpoints have only text. The nodes are sqlglot's, which is imported at the first use (0.3 s).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.errors import DeclarationError
from helios.model.values import caller

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = "Expression | bool | int | float | Decimal | str | date | None"
SqlText: TypeAlias = "str | Expression"
"""A Spark SQL expression: as text, or as a value."""

PRECEDENCE = {"Mul": 2, "Div": 2, "Mod": 2, "Add": 1, "Sub": 1}
"""The precedence of operators, by sqlglot's class names. All other operators have precedence 0."""
HIGHEST = 9
"""A precedence above all operators: with it, every operand that has an operator gets parentheses."""

LONG_END = 1 << 63
"""The smallest positive whole number that does not fit a long, so that it is a decimal in Spark."""


class Expression:
    """A Spark SQL expression. Made by `col`, `lit` and `fn`, and by the operators of Python between them.

    `+ - * / %`, comparisons, and `& | ~` for AND, OR and NOT, which need parentheses around comparisons:
    `(col("amount") > 0) & (col("country") == "IS")`. `==` compares as SQL does: null is not equal to null.

    Args:
        node: The node of sqlglot.

    Examples:
        >>> from helios import col, fn, lit
        >>> print((col("price") * col("qty") > 100) & ~col("country").isin("IS", "NO"))
        price * qty > 100 AND NOT country IN ('IS', 'NO')
        >>> print(fn.coalesce(col("unit price"), lit(0)) / (col("qty") + 1))
        coalesce(`unit price`, 0) / (qty + 1)
    """

    __slots__ = ("_node",)
    __hash__ = None  # type: ignore[assignment]  # `==` is SQL's

    def __init__(self, node: Any) -> None:
        self._node = node

    def __str__(self) -> str:
        from sqlglot.dialects.spark import Spark

        return str(self._node.sql(dialect=Spark, normalize_functions=False))

    def __repr__(self) -> str:
        return f"Expression({str(self)!r})"

    def __bool__(self) -> bool:
        raise DeclarationError(
            f"{self} has no truth value before the pipeline runs: `and`, `or`, `not`, `in` and chains such as "
            "0 < x < 9 need one.",
            where=caller(),
            fix="write & | ~ with parentheses around comparisons, .isin(...) and .between(...).",
        )

    # arithmetic

    def __add__(self, other: Value) -> Expression:
        return self._operation("Add", other)

    def __radd__(self, other: Value) -> Expression:
        return lit(other)._operation("Add", self)

    def __sub__(self, other: Value) -> Expression:
        return self._operation("Sub", other)

    def __rsub__(self, other: Value) -> Expression:
        return lit(other)._operation("Sub", self)

    def __mul__(self, other: Value) -> Expression:
        return self._operation("Mul", other)

    def __rmul__(self, other: Value) -> Expression:
        return lit(other)._operation("Mul", self)

    def __truediv__(self, other: Value) -> Expression:
        return self._operation("Div", other)

    def __rtruediv__(self, other: Value) -> Expression:
        return lit(other)._operation("Div", self)

    def __mod__(self, other: Value) -> Expression:
        return self._operation("Mod", other)

    def __rmod__(self, other: Value) -> Expression:
        return lit(other)._operation("Mod", self)

    def __neg__(self) -> Expression:
        return Expression(_nodes().Neg(this=_parenthesized(self._node)))

    # conditions

    def __eq__(self, other: Value) -> Expression:  # type: ignore[override]
        return self._comparison("EQ", other)

    def __ne__(self, other: Value) -> Expression:  # type: ignore[override]
        return self._comparison("NEQ", other)

    def __lt__(self, other: Value) -> Expression:
        return self._comparison("LT", other)

    def __le__(self, other: Value) -> Expression:
        return self._comparison("LTE", other)

    def __gt__(self, other: Value) -> Expression:
        return self._comparison("GT", other)

    def __ge__(self, other: Value) -> Expression:
        return self._comparison("GTE", other)

    def __and__(self, other: Value) -> Expression:
        return Expression(_nodes().and_(self._node.copy(), lit(other)._node.copy()))

    def __or__(self, other: Value) -> Expression:
        return Expression(_nodes().or_(self._node.copy(), lit(other)._node.copy()))

    def __rand__(self, other: Value) -> Expression:
        return lit(other) & self

    def __ror__(self, other: Value) -> Expression:
        return lit(other) | self

    def __invert__(self) -> Expression:
        return Expression(_nodes().not_(self._node.copy()))

    def isin(self, *values: Value) -> Expression:
        """True if the expression equals one of the values, which are given one by one or as one list."""
        listed = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        nodes = [lit(value)._node.copy() for value in listed]
        if not nodes:
            raise DeclarationError("isin() needs at least one value.", where=caller())
        return Expression(_nodes().In(this=_parenthesized(self._node), expressions=nodes))

    def between(self, low: Value, high: Value) -> Expression:
        """True if the expression lies between two values, both included."""
        low_node, high_node = _parenthesized(lit(low)._node), _parenthesized(lit(high)._node)
        return Expression(_nodes().Between(this=_parenthesized(self._node), low=low_node, high=high_node))

    def is_null(self) -> Expression:
        """True if the expression is null."""
        return Expression(_nodes().Is(this=_parenthesized(self._node), expression=_nodes().Null()))

    def is_not_null(self) -> Expression:
        """True if the expression is not null."""
        return ~self.is_null()

    def like(self, pattern: str) -> Expression:
        """True if the expression matches a SQL pattern with `%` and `_`."""
        return self._operation("Like", pattern)

    # types and names

    def cast(self, type: str) -> Expression:
        """Converts to a type, named as in Spark: `col("amount").cast("decimal(10, 2)")`."""
        from sqlglot.dialects.spark import Spark
        from sqlglot.errors import SqlglotError

        try:
            return Expression(_nodes().cast(self._node.copy(), type, dialect=Spark))
        except SqlglotError:
            raise DeclarationError(f"cast({type!r}): there is no such type.", where=caller()) from None

    def alias(self, name: str) -> Expression:
        """Names the expression, for `select`: `(col("price") * col("qty")).alias("total")`."""
        return Expression(_nodes().alias_(self._node.copy(), _identifier(name)))

    def _operation(self, operator: str, other: Value) -> Expression:
        node_class, precedence = getattr(_nodes(), operator), PRECEDENCE.get(operator, 0)
        left, right = _parenthesized(self._node, precedence or 1), _parenthesized(lit(other)._node, precedence + 1)
        return Expression(node_class(this=left, expression=right))

    def _comparison(self, operator: str, other: Value) -> Expression:
        if other is None:
            raise DeclarationError(
                f"{self} is compared with None, and nothing equals null in SQL.",
                where=caller(),
                fix="write .is_null() or .is_not_null().",
            )
        return self._operation(operator, other)


def col(name: str) -> Expression:
    """A column, or a field of a struct: `col("address.city")`. A name with a dot needs backticks: col("`a.b`").

    Raises:
        DeclarationError: The name is not text, or empty.
    """
    if not isinstance(name, str) or not name.strip() or name.strip() == "*":
        raise DeclarationError(f"col({name!r}) needs the name of a column.", where=caller())
    parts = _path_parts(name)
    nodes = _nodes()
    first = nodes.Column(this=_identifier(parts[0]))
    return Expression(nodes.Dot.build([first, *map(_identifier, parts[1:])]) if parts[1:] else first)


def lit(value: Value) -> Expression:
    """A Python value as an expression; an expression is returned unchanged.

    A float becomes a double, a `Decimal` a decimal. A datetime without a zone is in UTC.

    Raises:
        DeclarationError: Expressions do not take values of this type.
    """
    nodes = _nodes()
    if isinstance(value, Expression):
        return value
    if value is None:
        return Expression(nodes.Null())
    if isinstance(value, bool):
        return Expression(nodes.Boolean(this=value))
    if isinstance(value, str):
        return Expression(nodes.Literal.string(value))
    if isinstance(value, int) and -LONG_END <= value < LONG_END:
        return Expression(_number_literal(abs(value), value < 0))
    if isinstance(value, Decimal) and value.is_finite():
        return Expression(_number_literal(f"{abs(value):f}", value.is_signed() and value != 0))
    if isinstance(value, float):
        text = repr(value) if math.isfinite(value) else str(value)
        return Expression(nodes.cast(nodes.Literal.string(text), "double"))
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return Expression(nodes.cast(nodes.Literal.string(moment.isoformat(" ")), "timestamptz"))
    if isinstance(value, date):
        return Expression(nodes.cast(nodes.Literal.string(value.isoformat()), "date"))
    raise DeclarationError(
        f"{value!r} cannot be a value in an expression.",
        where=caller(),
        fix="pass text, a number (a Decimal if it does not fit 64 bits), a date, a datetime, True, False, None, or an "
        "expression.",
    )


class _Functions:
    """Spark's functions by name: `fn.coalesce(col("a"), 0)`, `fn.sum(col("amount"))`, `fn.count("*")`.

    A function whose name is a Python keyword gets an underscore at its end: `fn.if_(col("a") > 0, 1, 2)`.
    """

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: _function_call(name.rstrip("_"), arguments)


fn = _Functions()
"""Spark's functions by name: `fn.coalesce(col("a"), 0)`, `fn.sum(col("amount"))`, `fn.count("*")`. Text as an
argument is refused, since it could mean a column or a value: write `col("a")` or `lit("a")`."""


def _function_call(name: str, arguments: tuple[Any, ...]) -> Expression:
    nodes = _nodes()
    argument_nodes = []
    for argument in arguments:
        if isinstance(argument, str) and argument == "*":
            argument_nodes.append(nodes.Star())
        elif isinstance(argument, str):
            raise DeclarationError(
                f"fn.{name}({argument!r}): a text could mean a column or a value.",
                where=caller(),
                fix=f'write fn.{name}(col("{argument}")) for the column, or fn.{name}(lit("{argument}")) for the text.',
            )
        else:
            argument_nodes.append(lit(argument)._node.copy())
    return Expression(nodes.Anonymous(this=name, expressions=argument_nodes))


def sql_text(value: SqlText) -> str:
    """The text of an expression; text is returned unchanged."""
    return str(value) if isinstance(value, Expression) else value


def _nodes() -> Any:
    from sqlglot import exp

    return exp


def _number_literal(digits: object, negative: bool) -> Any:
    literal = _nodes().Literal.number(str(digits))
    return _nodes().Neg(this=literal) if negative else literal


def _parenthesized(node: Any, min_precedence: int = HIGHEST) -> Any:
    """Copies an operand, in parentheses if its operator has a lower precedence than `min_precedence`."""
    nodes = _nodes()
    compound = isinstance(node, (nodes.Binary, nodes.Not, nodes.In, nodes.Between, nodes.Neg, nodes.Alias))
    if not compound or isinstance(node, nodes.Dot) or PRECEDENCE.get(type(node).__name__, 0) >= min_precedence:
        return node.copy()
    return nodes.Paren(this=node.copy())


def _identifier(name: str) -> Any:
    from sqlglot.dialects.spark import Spark

    keywords = {keyword.partition(" ")[0] for keyword in Spark.Tokenizer.KEYWORDS}
    plain = name.isascii() and name.isidentifier() and name.upper() not in keywords
    return _nodes().to_identifier(name, quoted=not plain)


def _path_parts(name: str) -> list[str]:
    """Splits a dotted name at the dots that are outside of backticks. Inside of them, two backticks are one.

    Raises:
        DeclarationError: A backtick is not closed.
    """
    parts = [""]
    for quoted, piece in re.findall(r"`((?:[^`]|``)*)`(?!`)|(\.|`|[^`.]+)", name):
        if piece == "`":
            raise DeclarationError(
                f"col({name!r}): a backtick is not closed.",
                where=caller(),
                fix='write col("`a b`"), or col("a b") without backticks.',
            )
        if piece == ".":
            parts.append("")
        else:
            parts[-1] += quoted.replace("``", "`") or piece
    return parts
