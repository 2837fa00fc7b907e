"""Which pipelines upsert the groups of their aggregate: those whose later steps leave the group columns as they are."""

from __future__ import annotations

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
    sample,
    select,
    sql,
    union,
    watermark,
    where,
    with_columns,
)
from helios.model.flow import as_step
from helios.model.step import Traits
from helios.plan.typing.aggregates import upserts_groups
from helios.plan.typing.filtered_groups import filtered_group_problems
from helios.plan.views import view_problems
from helios.steps.where import Where

pytestmark = pytest.mark.promise("stateful")

COUNTED = Iceberg.source("a.s").incremental() >> aggregate("id", n="count(*)")


@pytest.mark.parametrize(
    ("step", "key", "upserts"),
    [
        (with_columns(double="n * 2"), "id", True),
        (rename({"id": "number"}), "number", True),
        (select("id AS number", "n"), "number", True),
        (select("id", "n + 1 AS n"), "id", True),
        (with_columns(id="id % 10"), "id", False),
        (with_columns(ID="id % 10"), "id", False),
        (cast(id="int"), "id", False),
        (select("id % 10 AS id", "n"), "id", False),
        (select("*", "id AS copy"), "id", True),
        (select("n AS id", "id AS gone"), "id", False),
        (select("`id` AS `the id`", "n"), "the id", True),
        (explode("array(n)", as_="id"), "id", False),
        (rename({"id": "a", "a": "b"}), "b", True),
        (sql("SELECT id AS number, n FROM input"), "number", True),
        (sql("SELECT *, n + 1 AS more FROM input"), "id", True),
        (sql("SELECT (id) AS id, n FROM input"), "id", True),
        (sql("SELECT id % 10 AS id, n FROM input"), "id", False),
    ],
)
def test_a_step_that_changes_a_group_column(step: Any, key: str, upserts: bool) -> None:
    pipeline = COUNTED >> step >> Iceberg.sink("a.t").upsert(key)
    assert upserts_groups(pipeline.stream, pipeline.sink) is upserts


def test_a_step_that_does_not_say_which_columns_it_keeps_may_change_the_groups() -> None:
    class Silent(Where):  # no step of its own: other tests ask for all of them
        traits = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    silent = as_step(Silent(condition="true"))
    for stream, kept in ((COUNTED, True), (COUNTED >> silent, False)):
        pipeline = stream >> Iceberg.sink("a.t").upsert("id")
        assert upserts_groups(pipeline.stream, pipeline.sink) is kept
    changes = Iceberg.source("a.s").incremental().changes(keys="id") >> aggregate("id", n="count(*)") >> silent
    (problem,) = view_problems(changes >> Iceberg.sink("a.t").upsert("id"))
    assert "a later step changes or drops one of them" in str(problem)


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (where("id > 1"), "id"),
        (sample(0.5, seed=1), "id"),
        (dedupe("n"), "id"),
        (watermark("ts", "1 hour"), "id"),
        (expect({"positive": "id > 0"}), "id"),
        (union(Iceberg.source("a.o")), "id"),
        (join(Iceberg.source("a.o"), on="id", how="left"), "id"),
        (join(Iceberg.source("a.o"), on="id", how="full"), None),
        (drop("Id"), None),
        (drop("n"), "id"),
        (cast(n="int"), "id"),
        (explode("list", as_="one"), "id"),
        (aggregate(["id", "n"], m="count(*)"), "id"),
        (aggregate("n", m="count(*)"), None),
        (sql("SELECT id FROM input"), None),
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else str(value),
)
def test_the_name_of_a_column_after_each_step(step: Any, name: str | None) -> None:
    assert step.steps[0].name_after("id") == name


TOTAL = Iceberg.source("a.s").incremental() >> aggregate("g", n="count(*)")


@pytest.mark.parametrize(
    ("stream", "refused"),
    [
        (TOTAL >> where("n > 3"), True),
        (TOTAL >> where("g > 3 AND n > 3"), True),
        (TOTAL >> where("g > 3"), False),
        (TOTAL >> where("rand() > 0.5"), True),
        (TOTAL >> rename({"g": "k"}) >> where("k > 3"), False),
        (TOTAL >> sample(0.5, seed=7), True),
        (TOTAL >> expect({"some": "n > 0"}, on_fail="drop"), True),
        (TOTAL >> expect({"some": "n > 0"}), False),
        (TOTAL >> expect({"known": "g > 0"}, on_fail="quarantine"), False),
        (TOTAL >> sql("SELECT * FROM input WHERE n > 3"), True),
        (TOTAL >> sql("SELECT * FROM input WHERE g > 3"), False),
        (TOTAL, False),
        (TOTAL >> join(Iceberg.source("a.o"), on="n"), True),
        (TOTAL >> join(Iceberg.source("a.o"), on="g", how="anti"), False),
        (TOTAL >> join(Iceberg.source("a.o"), on="n", how="left"), False),
        (TOTAL >> sql("SELECT * FROM (SELECT * FROM input WHERE n > 5)"), True),
        (TOTAL >> sql("SELECT * FROM input LIMIT 3"), True),
        (TOTAL >> where("g > day(current_date())"), True),
        (TOTAL >> where("n.g > 1"), True),
        (TOTAL >> where("input.g.part > 1"), False),
        (TOTAL >> select("g AS k", "g", "n") >> where("g > 1"), False),
    ],
)
def test_a_filter_behind_upserted_groups(stream: Any, refused: bool) -> None:
    key = "k" if "rename" in stream.text() else "g"
    pipeline = stream >> Iceberg.sink("a.t").upsert(key)
    problems = filtered_group_problems(pipeline.stream, pipeline.sink)
    assert [("with its former values" in str(problem)) for problem in problems] == [True] * refused
    appended = stream >> Iceberg.sink("a.t")
    assert filtered_group_problems(appended.stream, appended.sink) == []


@pytest.mark.parametrize(("having", "refused"), [("count(*) > 3", True), ("n > 3", True), ("g > 3", False)])
def test_a_query_that_drops_groups(having: str, refused: bool) -> None:
    counted = Iceberg.source("a.s").incremental() >> where("v > 1")
    pipeline = counted >> sql(f"SELECT g, count(*) AS n FROM input WHERE v < 9 GROUP BY g HAVING {having}")
    pipeline = pipeline >> Iceberg.sink("a.t").upsert("g")
    assert len(filtered_group_problems(pipeline.stream, pipeline.sink)) == refused


@pytest.mark.parametrize("group", ["g", "year(ts)"])
def test_a_query_that_drops_groups_by_their_expression(group: str) -> None:
    counted = Iceberg.source("a.s").incremental() >> sql(
        f"SELECT {group} AS k, count(*) AS n FROM input GROUP BY {group} HAVING {group} > 3"
    )
    pipeline = counted >> Iceberg.sink("a.t").upsert("k")
    assert filtered_group_problems(pipeline.stream, pipeline.sink) == []


def test_a_query_may_group_by_all_columns_that_are_no_aggregate() -> None:
    counted = Iceberg.source("a.s").incremental() >> sql("SELECT id, day, count(*) AS n FROM input GROUP BY ALL")
    for keys in (["id", "day"], ["id"]):
        pipeline = counted >> Iceberg.sink("a.t").upsert(*keys)
        assert upserts_groups(pipeline.stream, pipeline.sink) is (keys == ["id", "day"])
