"""A streaming aggregate is appended after a watermark, or upserted by its group columns."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helios import (
    Files,
    Iceberg,
    aggregate,
    dedupe,
    drop,
    join,
    rename,
    select,
    sql,
    union,
    watermark,
    where,
    window,
)
from helios.plan import ReadPath
from helios.plan.typing.aggregates import group_columns
from helios.steps.sql import Sql

pytestmark = pytest.mark.promise("typing")

FOLLOWED = Iceberg.source("a.orders").incremental()
SINK = Iceberg.sink("a.t")
COUNTED = FOLLOWED >> aggregate("name", n="count(*)")
HOURLY = FOLLOWED >> window("ts", "1h").group_by("name").agg(n="count(*)")
MARKED = FOLLOWED >> watermark("ts", "1h") >> window("ts", "1h").group_by("name").agg(n="count(*)")

BOUNDED = watermark("ts", "1h") >> dedupe("id", "ts")


@pytest.mark.parametrize(
    "pipeline",
    [
        COUNTED >> SINK.upsert("name"),
        COUNTED >> SINK.upsert("NAME", order_by="n"),
        COUNTED >> rename({"name": "who"}) >> SINK.upsert("who"),
        COUNTED >> select("name AS who", "n") >> SINK.upsert("who"),
        COUNTED >> where("name > 'a'") >> sql("SELECT name, n FROM input") >> SINK.upsert("name"),
        COUNTED >> join(Iceberg.source("a.orders") >> select("name"), on="name") >> SINK.upsert("name"),
        FOLLOWED >> BOUNDED >> aggregate("name", n="count(*)") >> SINK.upsert("name"),
        FOLLOWED >> aggregate(["name", "year(ts) AS y"], n="count(*)") >> SINK.upsert("y", "name"),
        FOLLOWED >> sql("SELECT name, count(*) AS n FROM input GROUP BY name") >> SINK.upsert("name"),
        FOLLOWED >> sql("SELECT upper(name) AS k, max(id) FROM input GROUP BY upper(name)") >> SINK.upsert("k"),
        FOLLOWED
        >> sql("SELECT name AS k, id % 4 AS m, max(id) AS t FROM input GROUP BY 1, m")
        >> SINK.upsert("k", "m"),
        HOURLY >> SINK.upsert("window_start", "window_end", "name"),
        MARKED >> SINK.upsert("window_start", "window_end", "name"),
    ],
    ids=lambda pipeline: pipeline.text(),
)
def test_upserted_by_its_groups_it_needs_no_watermark(planned: Any, pipeline: Any) -> None:
    plan = planned(pipeline)
    assert plan.path is ReadPath.STATEFUL
    assert plan.output_mode == "update"
    assert "update" in plan.state_texts
    assert "whose groups are upserted" in str(plan)


@pytest.mark.parametrize(
    "pipeline",
    [
        MARKED >> SINK,
        MARKED >> SINK.upsert("name", order_by="window_end"),
        MARKED >> drop("window_start") >> SINK.overwrite_partitions().partition_by("name"),
        FOLLOWED >> BOUNDED >> SINK.upsert("id"),
        FOLLOWED
        >> watermark("ts", "1h")
        >> sql("SELECT count(*) AS n FROM input GROUP BY date_trunc('hour', ts)")
        >> SINK,
        FOLLOWED >> SINK.upsert("name"),
    ],
    ids=lambda pipeline: pipeline.text(),
)
def test_otherwise_it_is_appended(planned: Any, pipeline: Any) -> None:
    plan = planned(pipeline)
    assert plan.output_mode == "append"
    assert "update" not in plan.state_texts


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (COUNTED >> SINK, 'are never final.*append after a watermark: .*or upsert by the group columns: .ups.*"name".'),
        (COUNTED >> SINK.upsert("n"), "are never final.*after a watermark.*upsert by the group columns"),
        (COUNTED >> SINK.upsert("name", "n"), "are never final.*after a watermark.*upsert by the group columns"),
        (COUNTED >> Iceberg.sink("a.orders").delete("name"), "are never final"),
        (
            FOLLOWED >> sql("SELECT name AS k, count(*) AS n FROM input GROUP BY name") >> SINK,
            'are never final.*after a watermark: .*upsert by the group columns: .upsert."k".',
        ),
        (FOLLOWED >> sql("SELECT max(id) AS m FROM input GROUP BY name") >> SINK.upsert("m"), "are never final"),
        (HOURLY >> SINK.upsert("name"), 'are never final.*upsert."window_start", "window_end", "name".'),
        (COUNTED >> dedupe("name") >> SINK.upsert("name"), "are never final"),
        (COUNTED >> aggregate("n", m="count(*)") >> SINK.upsert("n"), "are never final"),
        (
            FOLLOWED >> watermark("ts", "1h") >> aggregate("name", n="count(*)") >> SINK,
            "only the groups of a time window become final.*or upsert by the group columns",
        ),
        (FOLLOWED >> select("name") >> union(COUNTED >> select("name")) >> SINK.upsert("name"), "are never final"),
        (FOLLOWED >> aggregate("1 +", n="count(*)") >> SINK.upsert("n"), "or group by columns and upsert"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.text(),
)
def test_anything_else_names_both_ways(problems: Any, pipeline: Any, message: str) -> None:
    assert any(re.search(message, problem) for problem in problems(pipeline)), problems(pipeline)


COUNTS = {
    "aggregate": FOLLOWED >> aggregate("name", n="count(DISTINCT id)") >> SINK.upsert("name"),
    "within": FOLLOWED >> aggregate("name", n="1 + sum(DISTINCT id)") >> SINK.upsert("name"),
    "window": FOLLOWED
    >> watermark("ts", "1h")
    >> window("ts", "1h").group_by("name").agg(n="count(DISTINCT id)")
    >> SINK,
    "sql": FOLLOWED >> sql("SELECT name, count(DISTINCT id) AS n FROM input GROUP BY name") >> SINK.upsert("name"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_distinct_values_are_not_counted_in_a_stream(problems: Any, name: str) -> None:
    [problem] = problems(COUNTS[name])
    assert re.match(r".*test_aggregates\.py:\d+: .*: Spark cannot aggregate distinct values, as in '", problem), problem
    assert ("approx_count_distinct(id)" in problem) == (name != "within")


def test_distinct_values_elsewhere_are_no_matter(planned: Any) -> None:
    once = Iceberg.source("a.orders") >> aggregate("name", n="count(DISTINCT id)")
    planned(once >> SINK)
    planned(FOLLOWED >> BOUNDED >> join(once, on="name") >> SINK)
    planned(FOLLOWED >> aggregate("name", n="approx_count_distinct(id)") >> SINK.upsert("name"))
    view = Iceberg.source("a.orders").changes("id").incremental()
    planned(view >> aggregate("name", n="count(DISTINCT id)") >> SINK.upsert("name"))


def test_an_aggregate_of_a_batch_is_no_matter(planned: Any) -> None:
    plan = planned(Iceberg.source("a.orders") >> aggregate("name", n="count(*)") >> SINK.upsert("name"))
    assert (plan.path, plan.output_mode) == (ReadPath.BATCH, "append")
    side = Iceberg.source("a.orders") >> aggregate("name", n="count(*)")
    joined = FOLLOWED >> BOUNDED >> join(side, on="name") >> SINK.upsert("name")
    assert planned(joined).output_mode == "append"
    files = Files.source("x", "csv", schema="name string").incremental()
    assert planned(files >> aggregate("name", n="count(*)") >> SINK.upsert("name")).output_mode == "update"


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("SELECT a, count(*) AS n FROM input GROUP BY a", ("a",)),
        ("SELECT a AS b, upper(c) AS d FROM input GROUP BY a, upper(c)", ("b", "d")),
        ("SELECT a AS b, c FROM input GROUP BY 1, 2", ("b", "c")),
        ("SELECT count(*) AS n FROM input GROUP BY upper(a)", ("UPPER(a)",)),
        ("SELECT a AS `group` FROM input", None),
        ("SELECT ( FROM input GROUP BY", None),
        ("SELECT a FROM input GROUP BY a UNION SELECT b FROM input", None),
    ],
)
def test_the_groups_of_a_query(query: str, groups: tuple[str, ...] | None) -> None:
    assert group_columns(Sql(query=query)) == groups
