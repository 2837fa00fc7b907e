"""The plans of a script, with what they have in common said once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from helios import Files, Iceberg, Memory, join, where
from helios.plan import Context, Plan, compile_pipelines
from helios.plan.text import lines
from helios.plan.together import NAME_PLACEHOLDER, OPTIONAL, render_all

pytestmark = pytest.mark.promise("commands")

ORDERS = Iceberg.source("a.orders")
NINE = [
    Memory.source([{"id": 1}]) >> Iceberg.sink("a.made"),
    *(ORDERS.incremental() >> where(f"id > {n}") >> Iceberg.sink(f"a.t{n}").maintain(expire="5d") for n in range(7)),
    ORDERS.incremental() >> Iceberg.sink("a.newest").upsert("id", order_by="ts").table_properties({"x": "y"}),
]


def plans_of(context: Context, pipelines: Sequence[Any]) -> list[Plan]:
    plans, problems = compile_pipelines(pipelines, context)
    assert [str(problem) for problem in problems] == []
    return plans


def test_what_is_alike_is_said_once(context: Context) -> None:
    common, texts = render_all(plans_of(context, NINE))
    assert [line.split()[0] for line in common.splitlines()] == [
        "in", "path", "engine", "write", "parquet", "maintain", "schema", "trigger", "progress", "jars"
    ]  # fmt: skip
    assert common.startswith("in common  (9 pipelines; each difference is shown below)\n  path      snapshot ranges: ")
    assert f"/checkpoints/{NAME_PLACEHOLDER}\n" in common
    assert [line.split()[0] for line in texts[1].splitlines()[1:]] == [
        "read",
        "local.a.orders,",
        "pushed:",
        "step",
        "write",
    ]
    alone = "\n".join(map(str, plans_of(context, NINE)))
    assert len(common.splitlines()) + sum(len(text.splitlines()) for text in texts) < len(alone.splitlines()) * 0.6


def test_a_plan_that_lacks_what_the_others_have_says_so(context: Context) -> None:
    _, texts = render_all(plans_of(context, NINE))
    assert texts[0].endswith("\n  maintain  none\n  trigger   none")
    assert "\n            properties x=y\n" in texts[-1]


def test_every_line_of_each_plan_is_its_own_or_common(context: Context) -> None:
    plans = plans_of(context, NINE)
    common, texts = render_all(plans)
    for plan, text in zip(plans, texts, strict=True):
        own = {line.strip() for line in text.splitlines()}
        labels = {line[2:12].strip() for line in text.splitlines()}
        for label, line in lines(plan):
            both = f"{label:<10}{line}".strip() if not label.startswith("_") else line
            said = common.replace(NAME_PLACEHOLDER, plan.pipeline)
            assert both in own or (both in said and label not in labels), (both, text)


def test_two_plans_are_those_of_each(context: Context) -> None:
    plans = plans_of(context, NINE[:2])
    assert render_all(plans) == ("", [str(plan) for plan in plans])


def test_the_settings_of_sources_are_common_by_their_kind(context: Context) -> None:
    read = [Files.source(f"x{n}", "csv", schema="id bigint") for n in range(3)]
    joined = ORDERS >> join(read[2].on_bad_row("drop"), on="id")
    common, texts = render_all(
        plans_of(context, [flow >> Iceberg.sink(f"a.f{n}") for n, flow in enumerate([*read[:2], joined])])
    )
    first = "  read      files: rows that do not parse, and files that cannot be read, stop the run\n"
    assert f"{first}            other columns stop the run\n" in common
    assert "rows that do not parse" not in texts[0]
    assert texts[2].count("rows that do not parse") == 1


def test_a_part_that_some_plans_cannot_have_is_not_common(context: Context) -> None:
    """`retry` is the default where a plan has no such line, and not `none`."""
    assert "retry" not in OPTIONAL
    sinks = [Iceberg.sink("a.x").retry(5), Iceberg.sink("a.y").retry(5), Iceberg.sink("a.z")]
    common, texts = render_all(plans_of(context, [ORDERS >> sink for sink in sinks]))
    assert "retry" not in common
    assert ["  retry  " in text for text in texts] == [True, True, False]
