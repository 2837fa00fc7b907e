"""The commits of a table can be read with what each read and by which plan, without a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import helios
from helios import select, where
from helios.cli import main
from helios.sources.iceberg.offsets import IcebergOffset
from helios.table.commits import commit_of, commits
from helios.table.readers import warehouses

pytestmark = pytest.mark.promise("kept-plans")


@pytest.mark.landing
def test_each_commit_has_its_spans_and_its_plan(world: Any) -> None:
    world.fill("a.s", [1, 2])
    first = (world.source("a.s").incremental() >> where("id < 100") >> world.sink("a.t")).named("copy")
    world.run(first)
    world.fill("a.s", [3])
    world.run(first)
    world.fill("a.t", [1000])  # somebody else
    second = (world.source("a.s").incremental() >> where("id < 50") >> world.sink("a.t")).named("copy")
    world.fill("a.s", [4, 99])
    world.run(second)
    sources = [one.id for one in world.load("a.s").snapshots()]

    fourth, third, two, one = commits(world.load("a.t"), warehouses([world.catalog]))
    assert [(c.pipeline, c.batch, c.added, c.removed) for c in (one, two, third, fourth)] == [
        ("copy", 0, 2, 0), ("copy", 1, 1, 0), (None, None, 1, 0), ("copy", 2, 1, 0)
    ]  # fmt: skip
    assert {c.version for c in (one, two, fourth)} == {helios.__version__}
    assert third.plan is None
    ends = [[read.position for read in c.reads] for c in (one, two, fourth)]
    assert [end.snapshot for (end,) in ends] == sources
    [span] = two.spans
    assert (IcebergOffset.of(span.start).snapshot, IcebergOffset.of(span.end).snapshot) == (sources[0], sources[1])
    [span] = one.spans
    assert span.start is None
    for made, steps in ((one, ["where(id < 100)"]), (two, ["where(id < 100)"]), (fourth, ["where(id < 50)"])):
        assert made.plan is not None
        assert (made.plan.plan["steps"], made.plan.steps) == (steps, made.steps)
    assert commit_of(world.load("a.t"), two.snapshot, warehouses([world.catalog])) == two


def test_the_first_commit_under_a_new_name_begins_where_the_former_ended(world: Any) -> None:
    followed = world.source("a.s").incremental() >> world.sink("a.t")
    world.fill("a.s", [1])
    world.run(followed.named("copy"))
    world.fill("a.s", [2])
    world.run(followed.named("mirror", was="copy"))
    [second, first] = commits(world.load("a.t"), warehouses([world.catalog]))
    assert (first.pipeline, second.pipeline) == ("copy", "mirror")
    [span] = second.spans
    assert IcebergOffset.of(span.start).snapshot == world.load("a.s").snapshots()[0].id


def test_the_command_tells_it(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fill("a.s", [1, 2])
    world.run((world.source("a.s").incremental() >> where("id < 100") >> world.sink("a.t")).named("copy"))
    world.fill("a.s", [3])
    world.run((world.source("a.s").incremental() >> where("id < 50") >> world.sink("a.t")).named("copy"))
    monkeypatch.chdir(world.folder)
    (world.folder / "helios.toml").write_text(
        f'[catalogs.local]\ntype = "local"\npath = "{world.catalog.option("path")}"\n'
    )
    told = CliRunner().invoke(main, ["history", "local.a.t"], prog_name="helios")
    assert told.exit_code == 0, told.output
    old, new = (snapshot.id for snapshot in world.load("a.s").snapshots())
    assert f"local.a.s: after snapshot {old} to {new}" in told.output
    assert f"local.a.s: up to snapshot {old}" in told.output
    assert "  - where(id < 100)\n  + where(id < 50)\n" in told.output
    found = json.loads(CliRunner().invoke(main, ["history", "local.a.t", "--last", "1", "--json"]).output)
    assert [(one["batch"], one["added"], one["steps_changed"]) for one in found] == [
        (1, 1, ["- where(id < 100)", "+ where(id < 50)"])
    ]
    assert found[0]["plan"]["steps"] == ["where(id < 50)"]


def test_a_plan_is_kept_once_and_again_where_it_changes(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = (world.source("a.s").incremental() >> world.sink("a.t")).named("copy")
    world.run(pipeline)
    [kept] = (world.checkpoint(pipeline) / "helios/plans").glob("*.json")
    before = kept.read_text()
    world.fill("a.s", [2])
    world.run(pipeline)
    assert kept.read_text() == before, "what waits in a source is no part of it"
    world.run((world.source("a.s").incremental() >> world.sink("a.t").compression("gzip")).named("copy"))
    assert json.loads(kept.read_text())["plan"]["target"]["writer"] != json.loads(before)["plan"]["target"]["writer"]
    world.run((world.source("a.s").incremental() >> select("id") >> world.sink("a.t")).named("copy"))
    assert len(list(kept.parent.glob("*.json"))) == 2


def test_plans_outlive_a_new_checkpoint(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = (world.source("a.s").incremental() >> world.sink("a.t")).named("copy")
    world.run(pipeline)
    world.fill("a.s", [2])
    world.run(pipeline, new_checkpoint=True)
    assert all(c.plan is not None for c in commits(world.load("a.t"), warehouses([world.catalog])))


@pytest.mark.short
def test_no_engine_is_loaded(tmp_path: Path) -> None:
    code = "import helios.table.commits, sys; print([m for m in ('pyspark', 'py4j') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
