"""Operands that Spark refuses are problems, and those that it takes are none."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from helios import select, sql, where, with_columns
from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Transform
from helios.plan.typing.infer import infer
from helios.plan.typing.schema import from_ddl

pytestmark = pytest.mark.promise("typing")

COLUMNS = from_ddl(
    "i int, ti tinyint, id bigint, amount double, price decimal(10,2), name string, ts timestamp, tn timestamp_ntz, "
    "d date, flag boolean, bin binary, arr array<int>, m map<string,bigint>, s struct<a:int>"
)
TAKEN = {
    tuple(left.split()): set(right.split())
    for line in (Path(__file__).parent / "spark_operands.txt").read_text().splitlines()
    if not line.startswith("#")
    for left, right in [line.split(" => ")]
}
BINARY = sorted({key[0] for key in TAKEN if len(key) == 2})
NUMBERS, TIMES = ("i", "ti", "id", "amount", "price"), ("ts", "tn", "d")


def problems(transform: Transform) -> list[HeliosError]:
    (step,) = transform.steps
    return infer(step, COLUMNS)[1]


@pytest.mark.parametrize("sign", BINARY)
def test_what_spark_takes_is_no_problem(sign: str) -> None:
    pairs = product(COLUMNS.names, repeat=2)
    found = {(left, right) for left, right in pairs if problems(select(f"{left} {sign} {right} AS x"))}
    assert {pair for pair in found if pair[1] in TAKEN.get((sign, pair[0]), ())} == set()
    refused = {pair for pair in product(NUMBERS, TIMES) if pair[1] not in TAKEN.get((sign, pair[0]), ())}
    assert refused <= found


@pytest.mark.parametrize("sign", ["not", "-"])
def test_one_operand(sign: str) -> None:
    found = {name for name in COLUMNS.names if problems(select(f"{sign} {name} AS x"))}
    assert found & TAKEN[(sign,)] == set()
    assert {"ts", "tn", "d", "arr"} <= found


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        (with_columns(x="amount + ts"), "(x=amount + ts): Spark has no double + timestamp, as in 'amount + ts'."),
        (where("amount > ts"), "where(amount > ts): Spark has no double > timestamp, as in 'amount > ts'."),
        (where("id AND flag"), "where(id AND flag): Spark has no bigint AND boolean, as in 'id AND flag'."),
        (select("-ts AS x"), "select(-ts AS x): Spark has no - timestamp, as in '-ts'."),
        (select("sum(ts * 2) AS x"), "Spark has no timestamp * int, as in 'ts * 2'."),
        (sql("SELECT amount + d AS x FROM input"), "Spark has no double + date, as in 'amount + d'."),
        (sql("SELECT id FROM input WHERE ts = 1"), "Spark has no timestamp = int, as in 'ts = 1'."),
    ],
    ids=lambda value: value.text() if isinstance(value, Transform) else "",
)  # fmt: skip
def test_the_message_names_the_types_and_the_part(transform: Transform, what: str) -> None:
    (problem,) = problems(transform)
    assert isinstance(problem, DeclarationError)
    assert what in problem.what
    assert problem.fix
    assert problem.where is not None


@pytest.mark.parametrize(
    "expression",
    [
        "ts + interval 1 hour", "ts - ts", "d + 1", "1 + d", "d - 1", "ts - interval '1' day", "ts > '2026-01-01'",
        "transform(arr, ts -> ts + 1)", "name + 1", "amount + bround(ts)", "amount + unix_timestamp(ts)", "ts + null",
        "id IN (SELECT max(id) FROM t WHERE amount > ts)", "flag = 1", "not (ts is null)", "id NOT BETWEEN 1 AND 2",
        "d = current_date", "ts < now() - interval 7 days", "amount * -1", "case id when 1 then flag end and flag",
    ],
)  # fmt: skip
def test_what_fits_or_may_fit_is_no_problem(expression: str) -> None:
    assert problems(select(f"{expression} AS x")) == []
