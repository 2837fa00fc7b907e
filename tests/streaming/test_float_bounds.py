"""Predicates over floating-point columns.

Iceberg's bounds know neither NaN nor the sign of zero, and Spark's own read of a table misses rows for it.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from helios import select, sql, step, where
from tests.streaming.native_cases import set_engine

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("pushdown")]

SEEDS = int(os.environ.get("FLOAT_SEEDS", "1"))
"""Draws of each kind of table."""
NAN, INF = math.nan, math.inf
VALUES = (NAN, NAN, -0.0, 0.0, -1.0, 5.0, 6.5, INF, -INF, None)


def order(x: float) -> tuple[bool, float]:
    """Spark's: NaN is the largest and equal to itself, -0.0 is 0.0."""
    return (True, 0.0) if math.isnan(x) else (False, x + 0.0)


def compares(test: Callable[[tuple[bool, float]], bool]) -> Callable[[float], bool]:
    return lambda x: test(order(x))


TRUE_OF: dict[str, Callable[[float], bool]] = {
    "x > 0": compares(lambda x: x > order(0.0)),
    "x >= 0": compares(lambda x: x >= order(0.0)),
    "x > 100": compares(lambda x: x > order(100.0)),
    "x < 0": compares(lambda x: x < order(0.0)),
    "x <= -0.0D": compares(lambda x: x <= order(0.0)),
    "x = 0": compares(lambda x: x == order(0.0)),
    "x <=> -0.0D": compares(lambda x: x == order(0.0)),
    "0 <= x": compares(lambda x: x >= order(0.0)),
    "x <> 0": compares(lambda x: x != order(0.0)),
    "x <> 5": compares(lambda x: x != order(5.0)),
    "x IN (0, 5)": compares(lambda x: x in (order(0.0), order(5.0))),
    "x NOT IN (0, 5)": compares(lambda x: x not in (order(0.0), order(5.0))),
    "NOT (x < 5)": compares(lambda x: x >= order(5.0)),
    "NOT (x <= 5 AND k >= 0)": compares(lambda x: x > order(5.0)),
    "x BETWEEN 0 AND 5": compares(lambda x: order(0.0) <= x <= order(5.0)),
    "x > 5 OR k < 0": compares(lambda x: x > order(5.0)),
    "x = double('NaN')": compares(lambda x: x == order(NAN)),
    "x < double('NaN')": compares(lambda x: x < order(NAN)),
    "x >= double('NaN')": compares(lambda x: x >= order(NAN)),
    "isnan(x)": compares(lambda x: x == order(NAN)),
}


TABLES = {
    "plain": "TBLPROPERTIES ('write.parquet.row-group-limit' = '2')",
    "partitioned": "PARTITIONED BY (x)",
    "orc": "TBLPROPERTIES ('write.format.default' = 'orc')",
    "without bounds": "TBLPROPERTIES ('write.metadata.metrics.default' = 'none')",
}
"""What is declared of the tables, by what sets them apart."""


def fill(world: Any, random: Random, kind: str, table: str) -> list[tuple[int, float | None]]:
    """A table of three files of one to five rows, in columns `k`, `x` and `s.x`."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql(f"CREATE TABLE local.a.s (k int, x {kind}, s struct<x: {kind}>) USING iceberg {TABLES[table]}")
    arrow = {"float": pa.float32(), "double": pa.float64()}[kind]
    made: list[tuple[int, float | None]] = []
    iceberg = world.load("a.s").iceberg
    for _ in range(3):
        rows = [(len(made) + i, random.choice(VALUES)) for i in range(random.randint(1, 5))]
        made += rows
        if table in ("orc", "partitioned"):  # PyIceberg finds no rows of the partition NaN
            values = ", ".join(f"({k}, {written(kind, x)}, named_struct('x', {written(kind, x)}))" for k, x in rows)
            world.sql(f"INSERT INTO local.a.s VALUES {values}")
            continue
        columns = {
            "k": pa.array([k for k, _ in rows], pa.int32()),
            "x": pa.array([x for _, x in rows], arrow),
            "s": pa.array([{"x": x} for _, x in rows], pa.struct([("x", arrow)])),
        }
        iceberg.append(pa.table(columns))
    return made


def written(kind: str, x: float | None) -> str:
    return "null" if x is None else f"{kind}('{x}')"


WAYS: dict[str, Callable[[Any, str], Any]] = {
    "once": lambda source, condition: source >> where(condition),
    "of the source": lambda source, condition: source.where(condition),
    "followed": lambda source, condition: source.incremental(poll=1) >> where(condition),
    "callable": lambda source, condition: source >> step(lambda df: df.where(condition)),
    "sql": lambda source, condition: source >> sql(f"SELECT * FROM input WHERE {condition}"),
    "changes": lambda source, condition: source.incremental(poll=1).changes(keys=["k"]) >> where(condition),
}


def expected(rows: list[tuple[int, float | None]], condition: str) -> list[int]:
    return [k for k, x in rows if x is not None and TRUE_OF[condition](x)]


def found(world: Any, condition: str, way: str, *, engine: str, field: str, name: str) -> list[int]:
    """The keys that a pipeline copies."""
    set_engine(world, engine)
    text = re.sub(r"\bx\b", field, condition)
    world.run(WAYS[way](world.source("a.s"), text) >> select("k") >> world.sink(name))
    return sorted(row.k for row in world.sql(f"SELECT k FROM local.{name}"))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.cases(landing="0-plain")
def test_predicates_find_nan_and_both_zeros(world: Any, table: str, seed: int) -> None:
    random = Random(f"{table} {seed}")
    rows = fill(world, random, random.choice(("float", "double")), table)
    for i in range(6):
        condition, way, field = random.choice(list(TRUE_OF)), random.choice(list(WAYS)), random.choice(("x", "s.x"))
        for engine in ("off", "auto"):
            got = found(world, condition, way, engine=engine, field=field, name=f"a.{engine}{i}")
            assert got == expected(rows, condition), (condition, way, field, engine, rows)


@pytest.mark.short
def test_files_of_one_commit_after_another(world: Any) -> None:
    """A followed table's new files are left out by their bounds, too."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (k int, x double) USING iceberg")
    for engine in ("off", "auto"):
        set_engine(world, engine)
        pipeline = world.source("a.s").incremental(poll=1) >> where("x >= 0") >> world.sink(f"a.{engine}")
        world.run(pipeline)
        world.sql("INSERT INTO local.a.s VALUES (1, double('NaN')), (2, -1.0D)")
        world.run(pipeline)
        world.sql("INSERT INTO local.a.s VALUES (3, -0.0D)")
        world.sql("INSERT INTO local.a.s VALUES (4, -1.0D)")
        world.run(pipeline)
        assert Counter(row.k for row in world.sql(f"SELECT k FROM local.a.{engine}")) == {1: 1, 3: 1}
        world.sql("DELETE FROM local.a.s")


def test_files_that_hold_neither_are_left_out(world: Any) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (k int, x double) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1) >> where("x > 5") >> world.sink("a.t")
    world.run(pipeline)
    for k, x in enumerate((1.0, 6.0, 2.0, 7.0)):
        world.sql(f"INSERT INTO local.a.s VALUES ({k}, {x}D)")
    done = world.run(pipeline).metrics().snapshot()
    assert (done.files_matched, done.files_skipped) == (2, 2)
    never = world.run(world.source("a.s").incremental(poll=1) >> where("1 = 0") >> world.sink("a.n"))
    assert never.metrics().snapshot().files_matched == 0


@pytest.mark.parametrize("engine", ["off", "auto"])
def test_names_in_another_case_and_fields_that_take_no_null(world: Any, engine: str) -> None:
    """Spark takes names in any case; the values and the types of what is read stay as they are."""
    set_engine(world, engine)
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    columns = "k int NOT NULL, `Rate 1` double NOT NULL, s struct<x: double, y: int NOT NULL>, t struct<x: float>"
    for table in ("s", "followed", "once"):
        world.sql(f"CREATE TABLE local.a.{table} ({columns}) USING iceberg")
    sources = {"followed": world.source("a.s").incremental(poll=1, max_files=1), "once": world.source("a.s")}
    for _ in range(2):
        for k, x in enumerate(("NaN", "-0.0", "-1.0")):
            world.sql(
                f"INSERT INTO local.a.s VALUES ({k}, double('{x}'), named_struct('x', double('{x}'), 'y', 1), "
                f"named_struct('x', float('{x}')))"
            )
        sink = world.sink("a.followed")
        world.run(sources["followed"] >> where("`rate 1` >= 0") >> where("T.X >= 0") >> sink)
    world.run(sources["once"].where("`RATE 1` >= 0") >> step(lambda df: df.where("T.x >= 0")) >> world.sink("a.once"))
    wanted = Counter(str(row) for row in world.sql("SELECT * FROM local.a.s WHERE k < 2"))
    for table in ("followed", "once"):
        assert Counter(str(row) for row in world.sql(f"SELECT * FROM local.a.{table}")) == wanted, table


@pytest.mark.parametrize("engine", ["off", "auto"])
@pytest.mark.parametrize("kind", ["int", "double"])
@pytest.mark.cases(short="int-off")
def test_a_field_is_not_taken_for_the_column_of_its_name(world: Any, kind: str, engine: str) -> None:
    set_engine(world, engine)
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql(f"CREATE TABLE local.a.s (k int, x {kind}, s struct<x: {kind}>, a struct<s: int>) USING iceberg")
    source = world.source("a.s")
    followed = source.incremental(poll=1, max_files=1)
    conditions = {"field": ("s.x > 1", {2, 3}), "space": ("a.s > 1", {2, 3}), "both": ("s.x > 1 AND x > -3", {2})}
    for rows in (range(2), range(2, 4)):
        for k in rows:
            values = f"{k}, {-k}, named_struct('x', {k}), named_struct('s', {k})"
            world.sql(f"INSERT INTO local.a.s VALUES ({values})")
        for name, (condition, keys) in conditions.items():
            world.run(followed >> where(condition) >> select("k") >> world.sink(f"a.{name}"))
            there = sorted(row.k for row in world.sql(f"SELECT k FROM local.a.{name}"))
            assert there == sorted(keys & set(range(rows.stop))), condition
    for name, (condition, keys) in conditions.items():
        world.run(source.where(condition) >> select("k") >> world.sink(f"a.{name}_once"))
        assert sorted(row.k for row in world.sql(f"SELECT k FROM local.a.{name}_once")) == sorted(keys), condition
