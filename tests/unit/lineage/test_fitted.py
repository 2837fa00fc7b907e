"""Conditions of `helios why` compare as SQL does, or are refused: each type's values, and drawn numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from helios.errors import InputError
from helios.lineage.predicate import parse_condition

pytestmark = pytest.mark.promise("why")

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "price", DecimalType(10, 2)),
    NestedField(4, "name", StringType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "local", TimestampType()),
    NestedField(8, "A", LongType()),
    NestedField(9, "a", LongType()),
    NestedField(10, "st", StructType(NestedField(11, "y", LongType()))),
    NestedField(12, "wide", DecimalType(38, 8)),
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "small": 1, "price": Decimal("1.50"), "name": "ab", "A": 2, "a": 3, "day": date(2026, 1, 1),
     "at": datetime(2026, 1, 1, tzinfo=UTC), "local": datetime(2026, 1, 1),
     "wide": Decimal("123456789012345678901234567890.12345678")},
    {"id": 2, "small": 2**31 - 1, "price": Decimal("1.51"), "name": "a_", "A": 3, "a": 2, "day": date(2026, 1, 2),
     "at": datetime(2026, 1, 1, 12, 30, tzinfo=UTC), "local": datetime(2026, 1, 1, 12, 30), "wide": Decimal(0)},
    {"id": None, "small": None, "price": None, "name": None, "A": None, "a": None, "day": None, "at": None,
     "local": None, "wide": None},
]  # fmt: skip


def matching(condition: str, rows: list[dict[str, Any]] = ROWS) -> list[Any]:
    """The ids of the rows that a condition finds."""
    bound = bind(SCHEMA, parse_condition(condition, SCHEMA, "a.t"), case_sensitive=True)
    table = pa.Table.from_pylist(rows, schema=SCHEMA.as_arrow())
    return table.filter(expression_to_pyarrow(bound)).column("id").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id = 1.5", []),
        ("id < 1.5", [1]),
        ("id <= 1.5", [1]),
        ("id > 1.5", [2]),
        ("id >= 1.5", [2]),
        ("id != 1.5", [1, 2]),
        ("NOT (id = 1.5)", [1, 2]),
        ("id = 2.0", [2]),
        ("id BETWEEN 0.5 AND 1.5", [1]),
        ("id NOT IN (1, 7)", [2]),
        ("small = 3000000000", []),
        ("small < 3000000000", [1, 2]),
        ("small >= -3000000000", [1, 2]),
        ("small > 3000000000", []),
        ("price = 1.5", [1]),
        ("price = '1.50'", [1]),
        ("price = 1.505", []),
        ("price > 1.505", [2]),
        ("price <= 1.505", [1]),
        ("price < 99999999999", [1, 2]),
        ("id < 1000000000000000000000000000000", [1, 2]),
        ("wide = '123456789012345678901234567890.12345678'", [1]),
        ("wide > 0.000000001", [1]),
        ("wide < '123456789012345678901234567890.123456789'", [1, 2]),
        ("name LIKE 'a%'", [1, 2]),
        ("day = '2026-01-01'", [1]),
        ("at = '2026-01-01'", [1]),
        ("at >= '2026-01-01 12:30'", [2]),
        ("at = '2026-01-01T12:30Z'", [2]),
        ("at = '2026-01-01T13:30:00+01:00'", [2]),
        ("local = '2026-01-01 12:30'", [2]),
        ("A = 2", [1]),
        ("a = 2", [2]),
        ("ID = 1", [1]),
        ("id IS NULL", [None]),
    ],
)
def test_a_condition_finds_the_rows_that_sql_finds(condition: str, ids: list[int | None]) -> None:
    assert matching(condition) == ids


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("name LIKE 'a_'", r"LIKE 'a_': only prefixes are compared"),
        ("name LIKE '%a'", r"LIKE '%a': only prefixes are compared"),
        ("name LIKE 'a%b%'", "only prefixes"),
        ("st.y = 1", "'st.y' is inside of a column"),
        ("idd = 1", "Did you mean 'id'"),
        ("day = '2026-01-01T10:00:00'", "is not a date such as '2026-01-05'"),
        ("at = '1 May'", "is not a time such as"),
        ("at = '2026-01-01T00:00:00.0000001Z'", "digits beyond microseconds"),
        ("local = '2026-01-01T00:00:00Z'", "has an offset, and the column has no zone"),
        ("id = 'x'", "'x' is not a number"),
        ("price = true", "True is not a number"),
        ("id LIKE '1%'", "LIKE compares text, and id is a long"),
        ("id NOT LIKE '1.5%'", "LIKE compares text, and id is a long"),
        ("day LIKE '2026%'", "LIKE compares text, and day is a date"),
    ],
)
def test_what_cannot_be_compared_is_refused(condition: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_condition(condition, SCHEMA, "a.t")


def test_names_that_differ_by_case_alone_need_the_exact_one() -> None:
    schema = Schema(NestedField(1, "Id", LongType()), NestedField(2, "iD", LongType()))
    with pytest.raises(InputError, match=r"a\.t has the columns Id, iD, and none is 'id'"):
        parse_condition("id = 1", schema, "a.t")


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@given(
    st.sampled_from(["id", "small", "price"]),
    st.sampled_from(list(OPERATORS)),
    st.decimals(-(10**11), 10**11, places=3),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    st.booleans(),
)
def test_numbers_compare_as_in_python(column: str, op: str, value: Decimal, stored: list[int], near: bool) -> None:
    if near:  # a value beside a stored one
        value = Decimal(stored[0]) + value % 2
    rows = [{"id": n, "small": n, "price": Decimal(n).scaleb(-2)} for n in stored] + [{"id": None}]
    expected = [row["id"] for row in rows[:-1] if OPERATORS[op](row[column], value)]
    assert matching(f"{column} {op} '{value}'", rows) == expected
