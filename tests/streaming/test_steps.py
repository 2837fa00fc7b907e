"""Each declared step gives on Spark what it says, in batches and in streams."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from helios import (
    Iceberg,
    Memory,
    aggregate,
    cast,
    col,
    dedupe,
    drop,
    explode,
    fn,
    join,
    lit,
    rename,
    sample,
    select,
    sql,
    step,
    union,
    where,
    with_columns,
)
from helios.errors import DeclarationError, InputError

pytestmark = [pytest.mark.promise("steps"), pytest.mark.short]

ROWS = [{"id": i, "kind": "ab"[i % 2], "unit price": float(i)} for i in range(6)]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (where("id > 3"), {(4, "a", 4.0): 1, (5, "b", 5.0): 1}),
        (select("id", "`unit price` * 2 AS x") >> where("id = 1"), {(1, 2.0): 1}),
        (where("id = 1") >> with_columns(id="id + 1", n="id"), {(2, "b", 1.0, 1): 1}),
        (where("id = 1") >> rename({"unit price": "price"}) >> select("price"), {(1.0,): 1}),
        (where("id = 1") >> drop("unit price"), {(1, "b"): 1}),
        (where("id = 1") >> cast({"unit price": "int"}), {(1, "b", 1): 1}),
        (
            where((col("unit price") >= 4.0) & ~col("kind").isin("a'\\"))
            >> select("id", (-col("id") - -1).alias("a b")),
            {(4, -3): 1, (5, -4): 1},
        ),
        (
            where(col("id") == 1)
            >> select(
                (lit(date(2026, 1, 2)) > date(2026, 1, 1)).alias("later"),
                fn.coalesce(lit(None), lit("it's \\n") == "it's \\n").alias("text"),
                (lit(datetime(2026, 1, 2)) == datetime(2026, 1, 2, tzinfo=UTC)).alias("moment"),
                fn.typeof(lit(0.1)).alias("double"),
                (lit(Decimal("1.10")) * 2).cast("string").alias("decimal"),
            ),
            {(True, True, True, "double", "2.20"): 1},
        ),
        (sql("SELECT kind, sum(id) AS s FROM input GROUP BY kind"), {("a", 6): 1, ("b", 9): 1}),
        (aggregate("kind", n="count(*)", top="max(id)"), {("a", 3, 4): 1, ("b", 3, 5): 1}),
        (select("kind") >> dedupe("kind"), {("a",): 1, ("b",): 1}),
        (select("id") >> union(Memory.source([{"id": 0}])) >> where("id < 1"), {(0,): 2}),
        (step(lambda df: df.where("id = 2")) >> select("id"), {(2,): 1}),
        (
            select("id", "kind") >> join(Memory.source([{"kind": "a", "name": "A"}]), on="kind", how="left"),
            {("a", i, "A"): 1 for i in (0, 2, 4)} | {("b", i, None): 1 for i in (1, 3, 5)},
        ),
        (select("id") >> join(Memory.source([{"id": 3}]), on=["id"], how="semi"), {(3,): 1}),
        (where("id = 0") >> select("id") >> join(Memory.source([{"x": 7}]), on=[], how="cross"), {(0, 7): 1}),
        (
            where("id < 3 AND id > 0") >> select("id", "sequence(1, id) AS a") >> explode("a", as_="e") >> drop("a"),
            {(1, 1): 1, (2, 1): 1, (2, 2): 1},
        ),
        (
            where("id < 2") >> select("id", "filter(array(id), x -> x > 0) AS `a b`") >> explode("a b", as_="a b"),
            {(1, 1): 1},
        ),
        (
            where("id < 2")
            >> select("id", "filter(array(id), x -> x > 0) AS a")
            >> explode("a", as_="a", keep_empty=True),
            {(0, None): 1, (1, 1): 1},
        ),
        (select("id", "map('k', id) AS m") >> sample(1, seed=1) >> select("id"), {(i,): 1 for i in range(6)}),
        (sample(0, seed=1), {}),
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else "",
)
@pytest.mark.promise("memory")
def test_a_step_in_a_batch(world: Any, transform: Any, expected: dict[tuple[Any, ...], int]) -> None:
    stream = Memory.source(ROWS) >> transform
    pipeline = stream >> world.sink("a.t")
    known = world.plan(pipeline).schema
    world.run(pipeline)
    assert world.rows("a.t") == Counter(expected)
    if known is not None:
        assert list(known.names) == world.catalog.load("a.t").iceberg.scan().to_arrow().column_names


def test_explode_behind_a_callable_replaces_no_other_column(world: Any) -> None:
    lists = Memory.source([{"qty": 5, "items": [7, 8]}]) >> step(lambda df: df)
    with pytest.raises(DeclarationError, match="there is a column 'qty' already"):
        world.run(lists >> explode("items", as_="Qty") >> world.sink("a.t"))
    with pytest.raises(DeclarationError, match=r"'m' is map<int,int>, not an array.*map_entries\(m\)"):
        world.run(lists >> (lambda df: df.selectExpr("map(1, 2) AS m")) >> explode("m", as_="e") >> world.sink("a.t"))
    world.run(lists >> explode("items", as_="items") >> world.sink("a.t"))
    assert world.rows("a.t", "qty", "items") == Counter({(5, 7): 1, (5, 8): 1})


@pytest.mark.promise("memory")
def test_rows_that_do_not_fit_their_columns_are_wrong_input(world: Any) -> None:
    rows = Memory.source([("2026-01-05 09:00",)], "at timestamp")
    with pytest.raises(
        InputError, match=r"test_steps\.py:\d+: the rows of Memory\.source do not fit .*at.*Fix: give values"
    ):
        world.run(rows >> Iceberg.sink("a.t"))
    world.run(Memory.source([("2026-01-05 09:00",)], "at string") >> cast(at="timestamp") >> Iceberg.sink("a.t"))
    assert world.rows("a.t") == Counter([(datetime(2026, 1, 5, 9, tzinfo=UTC),)])


@pytest.mark.promise("joins")
def test_a_joined_table_is_read_anew_by_each_batch_and_stamped(world: Any) -> None:
    world.fill("a.s", [1])
    world.fill("a.names", [1], name="'old'")
    pipeline = (
        world.source("a.s").incremental(poll=1)
        >> join(world.source("a.names"), on="id", how="left")
        >> world.sink("a.t")
    )
    world.run(pipeline)
    world.fill("a.names", [2], name="'new'")
    world.fill("a.s", [2])
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == {(1, "old"): 1, (2, "new"): 1}
    pinned = world.catalog.load("a.names").current_snapshot().id
    assert str(pinned) in world.catalog.load("a.t").current_snapshot().summary["helios.position"]


def test_a_sample_with_a_seed_keeps_the_same_rows_however_they_are_cut(world: Any) -> None:
    world.fill("a.s", range(300))
    world.fill("a.s", range(250, 1000))  # 50 of them twice
    source, part = world.source("a.s"), sample(0.3, seed=7)
    world.run(source >> part >> world.sink("a.t"))
    world.run(source.incremental(poll=1, max_files=1) >> part >> world.sink("a.u").exactly_once())
    kept = world.rows("a.t", "id")
    assert kept == world.rows("a.u", "id")
    assert 250 < kept.total() < 390  # of 1,050: the mean is 315, and 7 standard deviations are 104
    assert all(kept[id,] in (0, 2) for id in range(250, 300))
    world.run(source >> sample(0.3, seed=8) >> world.sink("a.v"))
    assert world.rows("a.v", "id") != kept


def test_a_union_of_two_followed_tables(world: Any) -> None:
    world.fill("a.one", [1, 2])
    world.fill("a.two", [2, 3])
    pipeline = (
        world.source("a.one").incremental(poll=1)
        >> union(world.source("a.two").incremental(poll=1))
        >> world.sink("a.t")
    )
    world.run(pipeline)
    world.fill("a.two", [4])
    world.run(pipeline)
    world.fill("a.one", [5])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 2, 3, 4, 5]


def test_steps_of_a_stream_see_one_batch_at_a_time_and_keep_their_meaning(world: Any) -> None:
    world.fill("a.s", range(6), kind="if(id % 2 = 0, 'a', 'b')")
    shape = (
        sql("SELECT id, kind FROM input WHERE id >= 2")
        >> with_columns(n="id * 10")
        >> rename({"n": "ten times"})
        >> step(lambda df: df.where("`ten times` < 50"))
    )
    world.run(world.source("a.s").incremental(poll=1) >> shape >> world.sink("a.t"))
    assert world.rows("a.t", "id", "kind", "ten times") == {(2, "a", 20): 1, (3, "b", 30): 1, (4, "a", 40): 1}


@pytest.mark.promise("preview")
def test_preview_and_schema(world: Any) -> None:
    stream = Memory.source(ROWS) >> where("id > 1") >> select("id")
    assert stream.schema().names == ("id",)
    previewed = stream.preview(2, spark=world.spark)
    assert previewed.column_names == ["id"]
    assert previewed.num_rows == 2
    pipeline = stream >> world.sink("a.previewed")
    assert sorted(pipeline.preview(9, spark=world.spark)["id"].to_pylist()) == sorted(
        r["id"] for r in ROWS if r["id"] > 1
    )
    assert not world.catalog.exists("a.previewed")
    shown = world.run(pipeline)._repr_html_()
    assert ">finished</td>" in shown
    assert ">local.a.previewed</td>" in shown
