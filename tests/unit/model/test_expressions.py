"""Expressions as values: their text, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios import Iceberg, aggregate, col, expect, fn, lit, select, where, window, with_columns
from helios.errors import DeclarationError
from helios.model.expressions import Expression

pytestmark = pytest.mark.promise("compose")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (col("a") + 1 * col("b"), "a + 1 * b"),
        ((col("a") + 1) * col("b"), "(a + 1) * b"),
        (col("a") - (col("b") - col("c")), "a - (b - c)"),
        (col("a") - col("b") - col("c"), "a - b - c"),
        (1 - col("a") / 2 % 3, "1 - a / 2 % 3"),
        (-col("a") - -1 + +2, "(-a) - (-1) + 2"),
        (col("price") * col("qty") > 100, "price * qty > 100"),
        ((col("a") > 0) & (col("b") == "x'y\\z"), r"a > 0 AND b = 'x\'y\\z'"),
        (((col("a") > 0) | (col("b") != 1)) & ~(col("c") <= 1), "(a > 0 OR b <> 1) AND NOT c <= 1"),
        ((col("a") > 1) == (col("b") > 1), "(a > 1) = (b > 1)"),
        (col("a").isin([1, 2]) & ~col("b").isin("x"), "a IN (1, 2) AND NOT b IN ('x')"),
        (col("a").is_null() | col("b").is_not_null(), "a IS NULL OR NOT b IS NULL"),
        (col("a").between(1, col("b") + 1), "a BETWEEN 1 AND (b + 1)"),
        (col("a").like("x%"), "a LIKE 'x%'"),
        (col("address.city"), "address.city"),
        (col("`a.b`"), "`a.b`"),
        (col("`a``b`.c"), "`a``b`.c"),
        (col("```a```"), "```a```"),
        (5 % col("a"), "5 % a"),
        (True & (col("a") > 1), "TRUE AND a > 1"),
        (col("unit price"), "`unit price`"),
        (col("größe"), "`größe`"),
        (col("order"), "`order`"),
        (lit(1.5), "CAST('1.5' AS DOUBLE)"),
        (lit(Decimal("1.10")), "1.10"),
        (lit(-(2**63)), "-9223372036854775808"),
        (lit(None), "NULL"),
        (lit(True), "TRUE"),
        (lit(date(2026, 1, 2)), "CAST('2026-01-02' AS DATE)"),
        (lit(datetime(2026, 1, 2, 3)), "CAST('2026-01-02 03:00:00+00:00' AS TIMESTAMP)"),
        (
            lit(datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3)))),
            "CAST('2026-01-02 00:00:00+00:00' AS TIMESTAMP)",
        ),
        (fn.coalesce(col("a"), 0), "coalesce(a, 0)"),
        (fn.count("*"), "count(*)"),
        (fn.if_(col("a") > 1, lit("x"), None), "if(a > 1, 'x', NULL)"),
        (col("a").cast("decimal(10, 2)") + 1, "CAST(a AS DECIMAL(10, 2)) + 1"),
        ((col("a") * 2).alias("my x"), "a * 2 AS `my x`"),
    ],
)
def test_an_expression_prints_as_sql(made: Expression, text: str) -> None:
    assert str(made) == text


numbers = st.integers(-9, 9)
leaves = st.sampled_from(["a", "b", "c"]).map(lambda name: (col(name), lambda row: row[name]))


def _combined(operands: Any) -> Any:
    operators: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
        (lambda x, y: x + y, lambda x, y: x + y),
        (lambda x, y: x - y, lambda x, y: x - y),
        (lambda x, y: x * y, lambda x, y: x * y),
    ]
    pairs = st.tuples(st.sampled_from(operators), operands, operands)
    return pairs.map(lambda p: (p[0][0](p[1][0], p[2][0]), lambda row: p[0][1](p[1][1](row), p[2][1](row))))


@given(st.recursive(leaves, _combined, max_leaves=12), st.fixed_dictionaries(dict.fromkeys("abc", numbers)))
def test_parentheses_keep_the_order_of_python(
    made: tuple[Expression, Callable[[Any], int]], row: dict[str, int]
) -> None:
    expression, value = made
    columns = ", ".join(f"{number} AS {name}" for name, number in row.items())
    found = duckdb.sql(f"SELECT {expression} FROM (SELECT {columns})").fetchall()
    assert found == [(value(row),)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: bool(col("a") > 0), r"a > 0 has no truth value before the pipeline runs(.|\n)*write & \| ~ with"),
        (lambda: 0 < col("a") < 9, r"chains such as 0 < x < 9"),
        (lambda: col("a") == None, r"a is compared with None(.|\n)*is_null"),  # noqa: E711
        (lambda: col(""), r"needs the name of a column"),
        (lambda: col("*"), r"needs the name of a column"),
        (lambda: lit(object()), r"cannot be a value in an expression"),  # type: ignore[arg-type]
        (lambda: col("a") > 2**70, r"cannot be a value in an expression"),
        (lambda: fn.upper("name"), r'write fn\.upper\(col\("name"\)\) for the column, or fn\.upper\(lit\("name"\)\)'),
        (lambda: col("a").cast("nope"), r"there is no such type"),
        (lambda: col("a").isin(), r"at least one value"),
    ],
)
def test_what_has_no_place_in_sql_is_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        wrong()


WINDOW = window("ts", "1h")


def test_each_place_of_an_expression_takes_a_value() -> None:
    amount = col("amount")
    steps = [
        (where(amount > 0), where("amount > 0")),
        (with_columns(twice=amount * 2), with_columns(twice="amount * 2")),
        (select("id", (amount * 2).alias("twice")), select("id", "amount * 2 AS twice")),
        (aggregate(fn.year(col("ts")), n=fn.count("*")), aggregate("year(ts)", n="count(*)")),
        (WINDOW.group_by(col("id")).agg(n=fn.sum(amount)), WINDOW.group_by("id").agg(n="sum(amount)")),
        (expect({"positive": amount > 0}), expect({"positive": "amount > 0"})),
    ]
    for made, written in steps:
        assert made.text() == written.text()
    source = Iceberg.source("local.a.t")
    assert source.where(amount > 0).conditions == source.where("amount > 0").conditions
    sink = Iceberg.sink("local.a.t")
    assert sink.overwrite(col("day") == date(2026, 1, 2)).mode.filter == "day = CAST('2026-01-02' AS DATE)"  # type: ignore[union-attr]
    upsert = sink.upsert("id", order_by=col("ts"), delete_when=col("op") == "d").mode
    assert (upsert.order_by, upsert.delete_when) == ("ts", "op = 'd'")  # type: ignore[union-attr]
    assert sink.audit({"some": fn.count("*") > 0}).audits == (("some", "count(*) > 0"),)


def test_the_parser_is_loaded_at_the_first_use() -> None:
    code = "import sys, helios; assert 'sqlglot' not in sys.modules; helios.col('a'); assert 'sqlglot' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
