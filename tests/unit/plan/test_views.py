"""One aggregate over followed changes is a view; nothing else that keeps state is possible over them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helios import (
    Iceberg,
    aggregate,
    cast,
    dedupe,
    drop,
    expect,
    explode,
    join,
    rename,
    select,
    sql,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.plan import ReadPath
from helios.plan.views import view_of

pytestmark = pytest.mark.promise("views")

ORDERS = Iceberg.source("a.orders")
CHANGED = ORDERS.incremental().changes("id")
SINK = Iceberg.sink("a.t")
COUNT = aggregate("name", n="count(*)")
KEPT = SINK.upsert("name")


@pytest.mark.parametrize(
    ("pipeline", "before", "after"),
    [
        (CHANGED >> COUNT >> KEPT, 0, 0),
        (CHANGED >> COUNT >> SINK.upsert("NAME"), 0, 0),
        (CHANGED >> where("id > 1") >> select("id", "name") >> COUNT >> KEPT, 2, 0),
        (CHANGED >> rename({"name": "who"}) >> aggregate("who", n="count(*)") >> SINK.upsert("who"), 1, 0),
        (CHANGED >> drop("ts") >> cast(id="string") >> with_columns(x="1") >> COUNT >> KEPT, 3, 0),
        (CHANGED >> step(lambda df: df) >> COUNT >> KEPT, 1, 0),
        (CHANGED >> where("name <> '_change_type'") >> COUNT >> KEPT, 1, 0),
        (CHANGED >> COUNT >> select("n", "name AS who") >> SINK.upsert("who"), 0, 1),
        (CHANGED >> COUNT >> select("*", "n * 2 AS m") >> cast(n="int") >> with_columns(k="n") >> KEPT, 0, 3),
        (CHANGED >> COUNT >> rename({"name": "a", "n": "b"}) >> select("`a`", "b") >> SINK.upsert("a"), 0, 2),
        (
            CHANGED >> aggregate(["name", "year(ts) AS y"], s="sum(id)", m="max(id)") >> SINK.upsert("y", "name"),
            0,
            0,
        ),
        (CHANGED.where("id > 1").select("id", "name") >> COUNT >> KEPT.branch("b").quarantine("a.q"), 0, 0),
        (ORDERS.incremental(start="earliest", max_rows=5).changes() >> COUNT >> KEPT.tune("balanced"), 0, 0),
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else "",
)
def test_a_view(planned: Any, pipeline: Any, before: int, after: int) -> None:
    plan = planned(pipeline)
    assert (plan.path, plan.output_mode) == (ReadPath.RANGES, "append")
    assert plan.why == "a view: groups with changed rows are recomputed at each batch's last snapshot"
    view = plan.view
    assert (len(view.before), len(view.after)) == (before, after)
    assert (*view.before, view.aggregate, *view.after) == pipeline.stream.steps


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        # the sink
        (CHANGED >> COUNT >> SINK, r'upserted by exactly its groups\. Fix: write \.upsert\("name"\)'),
        (CHANGED >> COUNT >> SINK.upsert("n"), r"upserted by exactly its groups"),
        (CHANGED >> COUNT >> SINK.upsert("name", "n"), r"upserted by exactly its groups"),
        (CHANGED >> COUNT >> Iceberg.sink("a.orders").delete("name"), r"upserted by exactly its groups"),
        (CHANGED >> COUNT >> SINK.upsert("name", order_by="n"), r"so order_by= has no effect"),
        (CHANGED >> COUNT >> SINK.upsert("name", delete_when="n = 0"), r"so delete_when= has no effect"),
        (CHANGED >> COUNT >> SINK.upsert("name", order_by="n", history=True), r"order_by= has no effect"),
        (CHANGED >> COUNT >> KEPT.route(by="name"), r"one table, without route\(\)"),
        (CHANGED >> COUNT >> KEPT.audit({"some": "count(*) > 0"}).publish(), r"one table, without audit\(\)"),
        (CHANGED >> aggregate([], n="count(*)") >> SINK.upsert("n"), r"needs groups"),
        # steps around it
        (CHANGED >> expect({"p": "id > 0"}) >> COUNT >> KEPT, r"expect\(.*cannot come before the aggregate"),
        (CHANGED >> join(ORDERS.select("id"), on="id") >> COUNT >> KEPT, r"join\(.*cannot come before"),
        (CHANGED >> union(CHANGED) >> COUNT >> KEPT, r"union\(.*cannot come before"),
        (CHANGED >> sql("SELECT name FROM input") >> COUNT >> KEPT, r"sql\(.*cannot come before"),
        (CHANGED >> COUNT >> where("n > 1") >> KEPT, r"where\(n > 1\): this cannot come after the aggregate"),
        (CHANGED >> COUNT >> step(lambda df: df) >> KEPT, r"call\(.*cannot come after the aggregate"),
        (CHANGED >> COUNT >> explode("n", as_="e") >> KEPT, r"use cast, drop, rename, select, with_columns; put the"),
        (CHANGED >> COUNT >> drop("name") >> KEPT, r"a later step changes or drops one"),
        (CHANGED >> where("_change_type = 'INSERT'") >> COUNT >> KEPT, r"_change_type is not a column of a view"),
        (CHANGED >> aggregate("name", n="max(_change_ordinal)") >> KEPT, r"_change_ordinal is not a column of a view"),
        (CHANGED >> COUNT >> with_columns(name="upper(name)") >> KEPT, r"a later step changes or drops one"),
        (CHANGED >> COUNT >> cast(name="binary") >> KEPT, r"a later step changes or drops one"),
        (CHANGED >> COUNT >> select("upper(name) AS name", "n") >> KEPT, r"a later step changes or drops one"),
        (CHANGED >> COUNT >> select("n") >> SINK.upsert("n"), r"a later step changes or drops one"),
        # other state
        (
            CHANGED >> dedupe("id") >> SINK.upsert("id"),
            r"dedupe\(id\): followed changes remove rows as well as add them",
        ),
        (CHANGED >> dedupe("id") >> COUNT >> KEPT, r"dedupe\(id\): followed changes"),
        (CHANGED >> COUNT >> aggregate("n", m="count(*)") >> SINK.upsert("n"), r"only one aggregate"),
        (CHANGED >> window("ts", "1h").agg(n="count(*)") >> SINK.upsert("window_start"), r"without a time window"),
        (CHANGED >> watermark("ts", "1h") >> window("ts", "1h").agg(n="count(*)") >> SINK, r"watermark\("),
        (CHANGED >> sql("SELECT name, count(*) AS n FROM input GROUP BY name") >> KEPT, r"sql\(.*only one aggregate"),
        (CHANGED >> join(CHANGED.select("id"), on="id", how="semi") >> SINK, r"join\(.*: followed changes"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.text(),
)
def test_what_is_no_view_is_refused(problems: Any, pipeline: Any, message: str) -> None:
    found = problems(pipeline)
    assert any(re.search(message, problem) for problem in found), found
    assert all(re.search(r"test_views\.py:\d+: ", problem) for problem in found), found
    assert view_of(pipeline) is None


def test_a_column_that_is_no_group_may_be_dropped(planned: Any) -> None:
    counted = CHANGED >> aggregate("name", n="count(*)", m="max(id)")
    assert planned(counted >> drop("m") >> KEPT).view is not None


def test_without_followed_changes_there_is_no_view(planned: Any) -> None:
    for pipeline, path in (
        (ORDERS.incremental() >> COUNT >> KEPT, ReadPath.STATEFUL),
        (ORDERS >> COUNT >> KEPT, ReadPath.BATCH),
        (CHANGED >> select("id") >> SINK, ReadPath.RANGES),
    ):
        plan = planned(pipeline)
        assert (plan.path, plan.view) == (path, None)


def test_another_step_makes_another_view(planned: Any) -> None:
    """Groups that do not change would keep what the former steps made of them."""
    plans = [
        planned(source >> made >> COUNT >> KEPT)
        for source, made in (
            (CHANGED, where("id > 1")),
            (CHANGED, where("id > 2")),
            (CHANGED.where("id > 1"), where("id > 1")),
            (CHANGED.select("id", "name"), where("id > 1")),
        )
    ]
    assert len({plan.state_texts for plan in plans}) == len(plans)
    assert planned(CHANGED >> where("id > 1") >> COUNT >> KEPT.flush(rows=5)).state_texts == plans[0].state_texts
    assert planned(CHANGED >> where("id > 1") >> SINK).state_texts == ()
