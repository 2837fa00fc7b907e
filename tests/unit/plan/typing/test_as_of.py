"""Joins by event time, as the check sees them: with a table as it was, and of two streams within bounds."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from helios import (
    Catalog,
    Iceberg,
    Memory,
    aggregate,
    cast,
    drop,
    expect,
    join,
    rename,
    select,
    step,
    union,
    watermark,
    where,
    window,
)
from helios.cli.graph import draw, mermaid
from helios.plan import Context

pytestmark = pytest.mark.promise("typing")

ORDERS = Iceberg.source("a.orders")
FOLLOWED = ORDERS.incremental()
PRICES = Iceberg.source("a.prices")
PLAIN = Iceberg.source("a.plain")
SINK = Iceberg.sink("a.t")
UTC = pa.timestamp("us", tz="UTC")


@pytest.fixture(autouse=True)
def tables(catalog: Catalog) -> None:
    price, day = ("price", pa.float64()), pa.date32()
    catalog.create_table("a.prices", pa.schema([("id", pa.int64()), price, ("valid_from", UTC), ("valid_to", UTC)]))
    catalog.create_table("a.days", pa.schema([("id", pa.int64()), ("valid_from", day), ("Valid_To", day)]))
    catalog.create_table(
        "a.numbered", pa.schema([("id", pa.int64()), ("valid_from", pa.int64()), ("valid_to", pa.int64())])
    )
    catalog.create_table("a.begun", pa.schema([("id", pa.int64()), ("valid_from", UTC)]))
    catalog.create_table("a.plain", pa.schema([("id", pa.int64()), price]))


@pytest.mark.parametrize(
    ("right", "way"),
    [
        (PRICES, "by valid_from and valid_to"),
        (Iceberg.source("a.days"), "by valid_from and valid_to"),
        (Iceberg.source("a.numbered") >> cast(valid_from="timestamp", valid_to="timestamp"), "by valid_from and"),
        (PLAIN, "by the table's commit times"),
        (Iceberg.source("a.begun") >> drop("valid_from"), "by the table's commit times"),
        (PLAIN >> where("price > 0") >> aggregate("id", price="max(price)"), "by the table's commit times"),
        (
            PRICES >> step(lambda df: df),
            "by valid_from and valid_to if it has them, else by",
        ),
    ],
    ids=["history", "days", "cast", "plain", "dropped", "aggregated", "opaque"],
)
@pytest.mark.parametrize("left", [ORDERS, FOLLOWED], ids=["batch", "followed"])
def test_the_plan_says_how_the_table_is_read_as_it_was(planned: Any, left: Any, right: Any, way: str) -> None:
    plan = planned(left >> join(right, on="id", how="left", as_of="ts") >> SINK)
    assert f"joined as of ts: {way}" in str(plan)
    assert plan.as_json()["sources"][1]["joined"].startswith(f"as of ts: {way}")
    assert "joined" not in plan.as_json()["sources"][0]
    assert "on=id, how=left, as_of=ts)" in str(plan)


def test_the_columns_are_those_of_a_join(planned: Any, context: Context) -> None:
    pipeline = ORDERS >> join(PRICES, on="ID", how="left", as_of="ts") >> SINK
    schema = planned(pipeline).schema
    assert [(c.name, c.type) for c in schema.columns] == [
        ("id", "bigint"), ("name", "string"), ("ts", "timestamp"), ("price", "double"), ("valid_from", "timestamp"),
        ("valid_to", "timestamp"),
    ]  # fmt: skip
    assert "left join on ID as of ts" in mermaid(draw([pipeline], context))


@pytest.mark.parametrize(
    ("left", "right", "as_of", "what"),
    [
        (ORDERS, PRICES, "tss", r"the left side has no column 'tss'\. Did you mean 'ts'"),
        (ORDERS, PRICES, "name", r"'name' of the left side is string, not a timestamp\..*to_timestamp"),
        (ORDERS, Iceberg.source("a.numbered"), "ts", "'valid_from' of the right side is bigint, not a timestamp"),
        (ORDERS, Iceberg.source("a.begun"), "ts", r"has 'valid_from' and no 'valid_to'\..*lead\(valid_from\)"),
        (ORDERS, PRICES.incremental(), "ts", r"is followed, and as_of= joins a table as it was\..*\.incremental\(\)"),
        (ORDERS, Memory.source([{"id": 1, "price": 2.0}]), "ts", r"Memory.source\(1 rows\) keeps no earlier states"),
        (ORDERS, PLAIN >> expect({"p": "price > 0"}), "ts", r"expect\(.* does not work on earlier states of a table"),
        (ORDERS, PLAIN >> union(PLAIN), "ts", r"union\(.* does not work on earlier states of a table"),
    ],
    ids=["column", "type", "border", "half", "followed", "memory", "expect", "union"],
)
def test_a_join_that_cannot_go_by_time_is_refused(problems: Any, left: Any, right: Any, as_of: str, what: str) -> None:
    (problem,) = problems(left >> join(right, on="id", as_of=as_of) >> SINK)
    assert f"join(on=id, as_of={as_of}): " in problem
    assert re.search(what, problem, re.DOTALL), problem
    assert "test_as_of.py:" in problem


def test_a_stateful_stream_cannot_choose_commits(problems: Any) -> None:
    marked = FOLLOWED >> watermark("ts", "1 hour")
    windows = window("ts", "1 hour").group_by("id").agg(top="max(price)")
    (problem,) = problems(marked >> join(PLAIN, on="id", as_of="ts") >> windows >> SINK)
    assert "Spark plans this stateful stream only once" in problem
    assert problems(marked >> join(PRICES, on="id", as_of="ts") >> windows >> SINK) == []


OTHER = rename({"ts": "seen", "name": "n"})


def test_two_streams_within_bounds_need_a_watermark_on_both_sides(problems: Any) -> None:
    left, right = FOLLOWED >> watermark("ts", "1 hour"), FOLLOWED >> OTHER
    (problem,) = problems(left >> join(right, on="id", within="1 hour") >> SINK)
    assert "inner join on id within 1 h: within= is a span between two event times" in problem
    assert "of the right side" in problem
    marked = right >> watermark("seen", "1 hour")
    assert problems(left >> join(marked, on="id", how="left", within=(0, "1 hour")) >> SINK) == []
    (problem,) = problems(FOLLOWED >> join(marked, on="id", within="1 hour") >> select("id") >> SINK)
    assert "of the left side" in problem
