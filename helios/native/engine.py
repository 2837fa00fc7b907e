"""Runs programs as Polars expressions with Spark's semantics; `OPS` builds the expression of each operator.

Polars compares as Spark does: NaN equals NaN and is the largest number, -0.0 equals 0.0, text and bytes by their bytes,
and nulls follow three-valued logic. A row is marked if Spark's ANSI mode may fail on the row, as by an overflow.
Spark then writes the batch, or fails with Spark's own message.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from helios.native.program import Operation, Project, Term, decimal_digits

if TYPE_CHECKING:
    import polars as pl

FAILS = "__helios_fails"
"""The column of a frame that marks rows on which Spark may fail."""

RANGES = {"int": (-(2**31), 2**31 - 1), "bigint": (-(2**63), 2**63 - 1)}
EPOCH = datetime.datetime(1970, 1, 1)


def polars_type(kind: str) -> Any:
    """The Polars type of a flat Spark type; None for a type that the engine does not know."""
    import polars as pl

    if kind.startswith("decimal("):
        return pl.Decimal(*decimal_digits(kind))
    plain = {
        "boolean": pl.Boolean, "int": pl.Int32, "bigint": pl.Int64, "float": pl.Float32, "double": pl.Float64,
        "string": pl.String, "binary": pl.Binary, "date": pl.Date, "timestamp": pl.Datetime("us", "UTC"),
        "timestamp_ntz": pl.Datetime("us"),
    }  # fmt: skip
    return plain.get(kind)


def apply_steps(steps: Sequence[Operation], frame: pl.LazyFrame, kept: Sequence[str] = ()) -> pl.LazyFrame:
    """Applies steps to rows. The result has `FAILS` as its last column.

    Args:
        kept: Columns that no step reads, but that the result has, too.
    """
    import polars as pl

    frame = frame.with_columns(pl.lit(False).alias(FAILS))
    for step in steps:
        builder = _Builder()
        if not isinstance(step, Project):
            condition = builder.build(step.condition)
            fails = builder.fails()
            if fails is not None:
                frame = frame.with_columns((pl.col(FAILS) | fails).alias(FAILS))
            has_marks = fails is not None or len(steps) > 1
            frame = frame.filter(condition | pl.col(FAILS) if has_marks else condition)
        else:
            columns = [builder.build(term).alias(name) for name, term in step.columns]
            fails = builder.fails()
            mark = pl.col(FAILS) if fails is None else (pl.col(FAILS) | fails).alias(FAILS)
            frame = frame.select(*columns, *kept, mark)
    return frame


class _Builder:
    """Builds the expressions of one step, and collects the conditions under which Spark may fail on a row."""

    def __init__(self) -> None:
        self.failing: list[pl.Expr] = []

    def build(self, term: Term) -> pl.Expr:
        return OPS[term.op](self, term)

    def fails(self) -> pl.Expr | None:
        """An expression that is true for rows on which Spark may fail; None if there can be none."""
        if not self.failing:
            return None
        return reduce(lambda a, b: a | b, [failing.fill_null(False) for failing in self.failing])


def _column(builder: _Builder, term: Term) -> pl.Expr:
    import polars as pl

    return pl.col(str(term.text))


def _literal(builder: _Builder, term: Term) -> pl.Expr:
    import polars as pl

    dtype = polars_type(term.kind)
    if term.text is None:
        return pl.lit(None, dtype=dtype)
    if term.kind.startswith("decimal"):
        return pl.lit(Decimal(term.text)).cast(dtype)
    return pl.lit(_VALUES[term.kind](term.text), dtype=dtype)


_VALUES: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: text == "true",
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "string": str,
    "date": datetime.date.fromisoformat,
    "timestamp": lambda text: datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC),
    "timestamp_ntz": datetime.datetime.fromisoformat,
}
"""Parses the text of a literal, by its type."""


def _binary(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[_Builder, Term], pl.Expr]:
    def built(builder: _Builder, term: Term) -> pl.Expr:
        left, right = map(builder.build, term.args)
        return combine(left, right)

    return built


def _arithmetic(combine: Callable[[Any, Any], Any]) -> Callable[[_Builder, Term], pl.Expr]:
    """Builds exact sums, differences and products of whole numbers. An overflow marks the row."""

    def built(builder: _Builder, term: Term) -> pl.Expr:
        left, right = map(builder.build, term.args)
        return _narrowed(builder, combine(_wide(left), _wide(right)), term.kind)

    return built


def _wide(value: pl.Expr | int) -> pl.Expr:
    import polars as pl

    return pl.lit(value, pl.Int128) if isinstance(value, int) else value.cast(pl.Int128)


def _narrowed(builder: _Builder, wide: pl.Expr, kind: str) -> pl.Expr:
    """Casts a 128-bit number to a narrower type. A number outside of the narrower range marks the row."""
    low, high = RANGES[kind]
    builder.failing.append((wide < _wide(low)) | (wide > _wide(high)))
    return wide.cast(polars_type(kind), strict=False)


def _negated(builder: _Builder, term: Term) -> pl.Expr:
    (value,) = map(builder.build, term.args)
    return _narrowed(builder, _wide(0) - _wide(value), term.kind)


def _cast(builder: _Builder, term: Term) -> pl.Expr:
    (operand,) = term.args
    value = builder.build(operand)
    if term.kind == "int" and operand.kind == "bigint":
        return _narrowed(builder, _wide(value), "int")
    return value.cast(polars_type(term.kind))


def _case(builder: _Builder, term: Term) -> pl.Expr:
    """Builds a `CASE`. The arguments of the term are conditions and values in turn, then the value of ELSE."""
    import polars as pl

    *branches, result = map(builder.build, term.args)
    conditions, values = branches[::2], branches[1::2]
    for condition, value in reversed(list(zip(conditions, values, strict=True))):
        result = pl.when(condition).then(value).otherwise(result)
    return result


def _coalesced(builder: _Builder, term: Term) -> pl.Expr:
    import polars as pl

    return pl.coalesce([builder.build(arg) for arg in term.args])


def _text_test(method: str) -> Callable[[_Builder, Term], pl.Expr]:
    """Builds the test of a string that a method of Polars makes."""

    def built(builder: _Builder, term: Term) -> pl.Expr:
        (value,) = map(builder.build, term.args)
        literal = {"literal": True} if method == "contains" else {}
        result: pl.Expr = getattr(value.str, method)(term.text, **literal)
        return result

    return built


OPS: dict[str, Callable[[_Builder, Term], pl.Expr]] = {
    "col": _column,
    "lit": _literal,
    "cast": _cast,
    "eq": _binary(lambda a, b: a == b),
    "ne": _binary(lambda a, b: a != b),
    "lt": _binary(lambda a, b: a < b),
    "le": _binary(lambda a, b: a <= b),
    "gt": _binary(lambda a, b: a > b),
    "ge": _binary(lambda a, b: a >= b),
    "same": _binary(lambda a, b: a.eq_missing(b)),
    "and": _binary(lambda a, b: a & b),
    "or": _binary(lambda a, b: a | b),
    "not": lambda builder, term: ~builder.build(term.args[0]),
    "null": lambda builder, term: builder.build(term.args[0]).is_null(),
    "add": _arithmetic(lambda a, b: a + b),
    "sub": _arithmetic(lambda a, b: a - b),
    "mul": _arithmetic(lambda a, b: a * b),
    "neg": _negated,
    "case": _case,
    "coalesce": _coalesced,
    "starts": _text_test("starts_with"),
    "ends": _text_test("ends_with"),
    "contains": _text_test("contains"),
}
"""Builds the expression of a term, by its operator."""
