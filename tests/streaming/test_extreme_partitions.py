"""Partition transforms at the ends of their types, where Iceberg's overflow: rows are read, upserted, replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from helios import Memory, select, step, where
from helios.errors import RunError
from tests.streaming.native_cases import set_engine

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("pushdown")]

SEEDS = int(os.environ.get("EXTREME_SEEDS", "1"))
"""Draws of each kind of table."""

INTS, LONGS = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)

Test = Callable[[Any], bool]


def around(low: int, high: int) -> list[str]:
    near = [low, low + 1, low + 7, low + 9, low + 20, -100, -1, 0, 5, 99, 100, 101, high - 20, high - 9, high - 1, high]
    return [str(one) for one in near]


def timestamp(micros: int) -> str:
    return f"timestamp_micros({micros}L)"


HOUR = 3_600_000_000
TIMES = [-(2**63) + 10 * HOUR, -(2**31) * HOUR - 1, -(2**31) * HOUR, -1, 0, 1_700_000_000_000_000]
TIMES += [253_402_300_799_999_999, 2**31 * HOUR - 1, 2**31 * HOUR, 2**63 - 1]

TEXTS = ["''", "'a'", "'ab'", "'abc'", "'ab\\uffff'", "'ab😀'", "'😀😀😀'", "'ÿÿ'"]
BYTES = ["X''", "X'00'", "X'0000'", "X'ffff'", "X'ffffff'", "X'80'", "X'7fff01'"]
DAYS = ["DATE'0001-01-01'", "DATE'1969-12-31'", "DATE'9999-12-31'", "date_from_unix_date(2147483647)"]

KINDS: dict[str, tuple[str, tuple[str, ...], list[str]]] = {
    "int": ("int", ("truncate(10, x)", "truncate(3, x)", "truncate(16, x)", "bucket(4, x)", "x"), around(*INTS)),
    "wide": ("int", ("truncate(2000000000, x)",), around(*INTS)),
    "bigint": (
        "bigint",
        ("truncate(10, x)", "truncate(1000, x)", "bucket(4, x)"),
        [f"{v}L" for v in around(*LONGS)[1:]],
    ),
    "decimal": ("decimal(4,2)", ("truncate(10, x)", "truncate(3000, x)"), ["-89.99", "-89.9", "0", "1.05", "99.99"]),
    "timestamp": ("timestamp", ("hours(x)", "days(x)", "months(x)", "years(x)"), list(map(timestamp, TIMES))),
    "string": ("string", ("truncate(2, x)", "bucket(4, x)"), TEXTS),
    "binary": ("binary", ("truncate(2, x)",), BYTES),
    "date": ("date", ("days(x)", "months(x)", "years(x)"), DAYS),
}
"""By a kind of columns: its type, the transforms, and values as Spark SQL."""

COMPARISONS = ("<", "<=", ">", ">=", "=", "<>")

WAYS: dict[str, Callable[[Any, str], Any]] = {
    "once": lambda source, condition: source >> where(condition),
    "of the source": lambda source, condition: source.where(condition),
    "followed": lambda source, condition: source.incremental(poll=1).where(condition),
    "callable": lambda source, condition: source >> step(lambda df: df.where(condition)),
}


def fill(world: Any, table: str, kind: str, transform: str, literals: list[str]) -> None:
    """A table with a row for each value, its place as `k`, in two commits."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql(
        f"CREATE TABLE local.{table} (k int, x {kind}) USING iceberg PARTITIONED BY ({transform}) "
        "TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
    )
    rows = [f"({k}, CAST({literal} AS {kind}))" for k, literal in enumerate(literals)]
    for part in (rows[::2], rows[1::2]):
        world.sql(f"INSERT INTO local.{table} VALUES {', '.join(part)}")


def expected(world: Any, kind: str, literals: list[str], condition: str) -> list[int]:
    """The places of the values that meet a condition, by Spark without a table."""
    rows = ", ".join(f"({k}, CAST({literal} AS {kind}))" for k, literal in enumerate(literals))
    return sorted(row.k for row in world.sql(f"SELECT k FROM VALUES {rows} AS t(k, x) WHERE {condition}"))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.cases(landing="0-bigint")
def test_predicates_find_what_meets_them(world: Any, name: str, seed: int) -> None:
    random = Random(f"{name} {seed}")
    kind, transforms, literals = KINDS[name]
    transform = random.choice(transforms)
    fill(world, "a.s", kind, transform, literals)
    for i in range(5):
        operator, literal, way = random.choice(COMPARISONS), random.choice(literals), random.choice(list(WAYS))
        condition = f"x {operator} CAST({literal} AS {kind})"
        if random.random() < 0.3:
            condition += f" AND x >= CAST({random.choice(literals)} AS {kind})"
        meets = expected(world, kind, literals, condition)
        for engine in ("off", "auto"):
            set_engine(world, engine)
            target = f"a.{engine}{i}"
            world.run(WAYS[way](world.source("a.s"), condition) >> select("k") >> world.sink(target))
            found = sorted(row.k for row in world.sql(f"SELECT k FROM local.{target}"))
            assert found == meets, (transform, condition, way, engine)


@pytest.mark.short
def test_the_least_keys_are_found(world: Any) -> None:
    """The partition of the least ids is the greatest one."""
    fill(world, "a.s", "bigint", "truncate(10, x)", ["-9223372036854775807L", "5L", "200L"])
    for way, target in (("once", "a.once"), ("followed", "a.followed")):
        world.run(WAYS[way](world.source("a.s"), "x < 100") >> world.sink(target))
        assert sorted(row.k for row in world.sql(f"SELECT k FROM local.{target}")) == [0, 1], way
    world.run(world.source("a.s").where("x > 100") >> world.sink("a.more"))
    assert [row.k for row in world.sql("SELECT k FROM local.a.more")] == [2]


def test_a_column_that_is_renamed_between_two_reads(world: Any) -> None:
    fill(world, "a.s", "bigint", "truncate(10, x)", ["5L", "-9223372036854775807L", "200L"])
    first, last = (snapshot.id for snapshot in world.load("a.s").snapshots())
    for name, called in (("x", "y"), ("y", "z")):
        world.run(world.source("a.s").between(first, last).where(f"{name} < 100") >> world.sink(f"a.{name}"))
        assert [row.k for row in world.sql(f"SELECT k FROM local.a.{name}")] == [1], name
        world.sql(f"ALTER TABLE local.a.s RENAME COLUMN {name} TO {called}")


@pytest.mark.parametrize("engine", ["off", "auto"])
@pytest.mark.parametrize("name", ["int", "bigint", "timestamp", "decimal", "string"])
@pytest.mark.cases(short="bigint-off")
def test_upserts_replace_them(world: Any, name: str, engine: str) -> None:
    kind, transforms, literals = KINDS[name]
    for number, transform in enumerate(transforms):
        table = f"a.t{number}"
        fill(world, table, kind, transform, literals)
        world.sql(f"CREATE TABLE local.a.s{number} (k int, x {kind}) USING iceberg")
        rows = ", ".join(f"({k + 100}, CAST({literal} AS {kind}))" for k, literal in enumerate(literals))
        world.sql(f"INSERT INTO local.a.s{number} VALUES {rows}")
        set_engine(world, engine)
        world.run(world.source(f"a.s{number}") >> world.sink(table).upsert("x"))
        found = sorted(row.k for row in world.sql(f"SELECT k FROM local.{table}"))
        assert found == [k + 100 for k in range(len(literals))], transform


def test_an_overwrite_by_such_a_column_is_refused(world: Any) -> None:
    fill(world, "a.t", "bigint", "truncate(10, x)", ["-9223372036854775807L", "5L", "200L"])
    rows = Memory.source([{"k": 9, "x": 300}], schema="k int, x bigint")
    with pytest.raises(RunError, match="has values of x whose partition has overflowed"):
        world.run(rows >> world.sink("a.t").overwrite("x > 100"))
    world.run(rows >> world.sink("a.t").overwrite("k = 9"))
    assert sorted(row.k for row in world.sql("SELECT k FROM local.a.t")) == [0, 1, 2, 9]
