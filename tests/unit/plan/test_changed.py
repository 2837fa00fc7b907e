"""The differences to the plan of the last run, each with what it means."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Files, Iceberg, join, select, union, where, with_columns
from helios.plan import Plan
from helios.plan.changed import Change, PlanDifference, as_text, differences
from helios.table.plans import KeptPlan, lasting_fields
from helios.version import VERSION
from tests.unit.plan.conftest import SCHEMA

pytestmark = pytest.mark.promise("kept-plans")

Changes = Callable[[Any, Any], list[Change]]
ORDERS = Iceberg.source("a.orders")
FOLLOWED = ORDERS.incremental(poll="10s")
OTHER = Iceberg.source("a.other")
SINK = Iceberg.sink("a.t")


def kept(plan: Plan) -> KeptPlan:
    """A plan as a run keeps it."""
    values = json.loads(json.dumps(lasting_fields(plan.as_json(), plan.state_texts), default=str))
    return KeptPlan(steps=plan.fingerprint, version=VERSION, at=datetime(2026, 1, 5, tzinfo=UTC), plan=values)


@pytest.fixture
def changes(catalog: Catalog, planned: Any) -> Changes:
    """The differences between two pipelines, of which the first one has run."""
    for name in ("a.other", "a.t", "a.u"):
        catalog.create_table(name, SCHEMA)
    return lambda ran, now: list(differences(kept(planned(ran)), planned(now)))


INNER = "Iceberg.source(a.other) >> "
SMALL = ORDERS.where("id < 5").incremental(poll="10s")
BOTH = FOLLOWED >> union(OTHER.incremental(poll="10s"))
ROWS = {
    "read": (
        SMALL,
        ORDERS.where("id < 6").incremental(poll="10s"),
        Change(
            "source",
            ("local.a.orders", '- where: ["id < 5"]', '+ where: ["id < 6"]'),
            "applies only to later",
            additive=False,
        ),
    ),
    "union": (FOLLOWED, BOTH, Change("source", ("+ local.a.other",), "refused: the checkpoint", additive=False)),
    "once": (FOLLOWED, ORDERS, Change("path", ("- snapshot ranges", "+ batch"), "refused: the pos", additive=False)),
    "followed": (
        ORDERS,
        FOLLOWED,
        Change("source", ("local.a.orders", "- read once", "+ followed"), "refused: the checkpoint", additive=False),
    ),
    "joined": (
        FOLLOWED >> join(OTHER >> select("id"), on="id"),
        FOLLOWED >> join(OTHER >> where("id < 5") >> select("id"), on="id"),
        Change(
            "step",
            (
                f"- join({INNER}select(id), on=id, how=inner)",
                f"+ join({INNER}where(id < 5) >> select(id), on=id, how=inner)",
            ),
            "the checkpoint is kept, and earlier rows stay as they are; `helios rehearse` shows",
            additive=False,
        ),
    ),
    "added": (
        FOLLOWED,
        FOLLOWED >> with_columns(n="1"),
        Change("column", ("+ n int",), "ADD COLUMN n int; new columns"),
    ),
    "dropped": (
        FOLLOWED,
        FOLLOWED >> select("id", "ts"),
        Change("column", ("- name string",), "the table keeps the column, which is null in later", additive=False),
    ),
    "retyped": (
        FOLLOWED,
        FOLLOWED >> with_columns(id="cast(id as int)"),
        Change("column", ("- id bigint", "+ id int"), "the column keeps its old type", additive=False),
    ),
    "trigger": (
        FOLLOWED,
        ORDERS.incremental(poll="30s", max_files=3),
        Change(
            "trigger",
            (
                "- every 10 s (the smallest poll of the sources)",
                "+ every 30 s (the smallest poll of the sources), at most 3 files a batch (incremental(max_files=))",
            ),
            "applies from the next run on",
        ),
    ),
}
"""The rows of the last run and of the next, with a difference and how its meaning begins."""
TARGETS = {
    "table": (
        SINK,
        Iceberg.sink("a.u"),
        Change("table", ("- local.a.t", "+ local.a.u"), "refused, unless the table was renamed", additive=False),
    ),
    "partitions": (
        SINK,
        SINK.partition_by("name", evolve=True),
        Change("layout", ("+ partition by name from now on",), "applies only to new files; `helios compact`"),
    ),
    "order": (
        SINK,
        SINK.sort_by("id"),
        Change("layout", ("+ sort by id asc from now on",), "applies only to new files"),
    ),
    "stamps": (
        SINK,
        SINK.snapshot_properties({"a": "b"}),
        Change("snapshot_properties", ("+ a: b",), "applies only to later"),
    ),
    "properties": (
        SINK.table_properties({"a.b": "c"}),
        SINK,
        Change("properties", ("- a.b: c",), "applies only to tables that are created later"),
    ),
    "codec": (
        SINK,
        SINK.compression("gzip"),
        Change("writer", ("+ write.parquet.compression-codec: gzip",), "applies only to new files"),
    ),
    "maintenance": (
        SINK.maintain(expire="5d"),
        SINK.maintain(expire="9d", compact=True),
        Change(
            "maintenance",
            (
                "- expire snapshots after 5 d",
                "+ compact small files to the target file size, expire snapshots after 9 d",
            ),
            "applies from the next run on",
        ),
    ),
    "mode": (
        SINK,
        SINK.upsert("id"),
        Change(
            "mode", ("- append", "+ upsert by id"), "later batches are written in the new mode; earlier", additive=False
        ),
    ),
    "branch": (
        SINK,
        SINK.branch("b"),
        Change("branch", ("- none", "+ b"), "later batches go to the new branch; if", additive=False),
    ),
}
"""The target of the last run and of the next, with a difference and how its meaning begins."""


def has(found: list[Change], wanted: Change) -> bool:
    """Whether a difference is there, with a meaning that begins as the wanted one."""
    return any(
        replace(one, means="") == replace(wanted, means="") and one.means.startswith(wanted.means) for one in found
    )


@pytest.mark.parametrize("case", ROWS)
def test_a_change_of_the_rows_tells_its_meaning(changes: Changes, case: str) -> None:
    ran, now, wanted = ROWS[case]
    found = changes(ran >> SINK, now >> SINK)
    assert has(found, wanted), found


@pytest.mark.parametrize("case", TARGETS)
def test_a_change_of_the_target_tells_its_meaning(changes: Changes, case: str) -> None:
    ran, now, wanted = TARGETS[case]
    found = changes((FOLLOWED >> ran).named("p"), (FOLLOWED >> now).named("p"))
    assert [one.part for one in found if one.part != "engine"] == [wanted.part]
    assert has(found, wanted), found


def test_the_engine_is_told_in_the_words_of_the_plan(changes: Changes) -> None:
    files = Files.source("in", "csv", schema="id bigint, name string, ts timestamp").incremental()
    (engine,) = (one for one in changes(files >> SINK, files >> SINK.quarantine("a.bad")) if one.part == "engine")
    assert engine.lines == (
        "- native, and spark for batches of less than 8 MB",
        "+ spark, because the sink has a quarantine",
    )


def test_what_is_refused_is_not_said_to_go_on(changes: Changes) -> None:
    (step,) = (one for one in changes(FOLLOWED >> SINK, BOTH >> SINK) if one.part == "step")
    assert step.means == "the next run is refused, see below"


def test_what_comes_in_is_no_change(catalog: Catalog, planned: Any) -> None:
    catalog.create_table("a.t", SCHEMA)
    for rows in (ORDERS, FOLLOWED):
        before = kept(planned(rows >> SINK))
        catalog.load("a.orders").iceberg.append(SCHEMA.empty_table())
        assert not list(differences(before, planned(rows >> SINK)))


@pytest.mark.parametrize(
    "mode", ["the groups of id", "upsert by id, newest by __helios_log, delete when __helios_gone"]
)
def test_a_plan_with_the_mode_of_a_run_is_no_change(catalog: Catalog, planned: Any, mode: str) -> None:
    catalog.create_table("a.t", SCHEMA)
    plan = planned(FOLLOWED >> SINK.upsert("id"))
    values = json.loads(kept(plan).as_json())
    values["plan"]["target"]["mode"] = mode
    values["plan"] |= {"path": "stateful stream", "state": ["local.a.orders"]}
    early = KeptPlan.parse(json.dumps(values))
    assert early is not None
    assert list(differences(early, plan)) == []


def test_a_table_that_did_not_exist_yet_is_no_change(changes: Changes, planned: Any) -> None:
    plan = planned(FOLLOWED >> SINK)
    unknown = replace(plan.reads[0], uuid=None, format_version=None, branch=None)
    before = kept(replace(plan, reads=(unknown,)))
    assert [one.part for one in differences(before, plan)] == []


def test_a_branch_that_has_moved_is_no_change(changes: Changes, planned: Any) -> None:
    plan = planned(ORDERS >> SINK)

    def at(source: Any, state: int) -> Plan:
        return replace(plan, reads=(replace(plan.reads[0], source=source, state=state),))

    branch = ORDERS.at_ref("main")
    assert list(differences(kept(at(branch, 6)), at(branch, 7))) == []
    (source,) = differences(kept(at(branch, 6)), at(ORDERS.at_ref("old"), 6))
    assert source.lines == ("local.a.orders", "- at: at_ref('main')", "+ at: at_ref('old')")


def test_the_declared_columns_of_a_folder_are_compared(tmp_path: Path, changes: Changes) -> None:
    def ids(kind: str) -> Any:
        rows = Files.source(str(tmp_path / "in"), "csv", schema=f"id {kind}").incremental()
        return rows >> with_columns(id="cast(id AS bigint)") >> SINK

    (tmp_path / "in").mkdir()
    (source,) = (one for one in changes(ids("bigint"), ids("double")) if one.part == "source")
    assert source.lines[1:] == ("- schema: id bigint", "+ schema: id double")
    assert not source.additive


def test_a_callable_is_said_to_be_left_out(planned: Any) -> None:
    text = as_text(PlanDifference(kept(planned(FOLLOWED >> SINK)), (), ("call(clean)",)))
    assert text.splitlines() == [
        "  changed   nothing since the plan of 2026-01-05 00:00:00 UTC, with which it last ran",
        "                      not compared: the code of call(clean)",
    ]
