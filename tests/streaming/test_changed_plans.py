"""A plan tells how it differs from that of the last run, and what that means."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from helios import Cdc, Iceberg, Kafka, aggregate, step, watermark, where, window, with_columns
from helios.cli import main
from helios.cli.run import _confirm_changes
from helios.errors import InputError
from helios.plan.changed import as_text, plan_difference
from helios.testing import Lake

pytestmark = pytest.mark.promise("kept-plans")


def parts(world: Any, pipeline: Any) -> dict[str, tuple[tuple[str, ...], bool]]:
    found = plan_difference(world.plan(pipeline))
    assert found is not None
    return {one.part: (one.lines, one.additive) for one in found.changes}


@pytest.mark.landing
def test_each_difference_is_told_once_it_has_run(world: Any) -> None:
    world.fill("a.s", [1, 2])
    rows = world.source("a.s").incremental()
    copy = (rows >> where("id < 100") >> world.sink("a.t")).named("copy")
    assert plan_difference(world.plan(copy)) is None
    world.run(copy)
    assert parts(world, copy) == {}
    world.fill("a.s", [3])
    assert parts(world, copy) == {}, "what waits is no change of the plan"

    other = (rows >> where("id < 50") >> with_columns(twice="id * 2") >> world.sink("a.t")).named("copy")
    assert parts(world, other) == {
        "step": (("- where(id < 100)", "+ where(id < 50)", "+ with_columns(twice=id * 2)"), False),
        "column": (("+ twice bigint",), True),
    }
    tuned = (rows >> where("id < 100") >> world.sink("a.t").compression("gzip").upsert("id")).named("copy")
    assert parts(world, tuned)["mode"] == (("- append", "+ upsert by id"), False)
    assert parts(world, tuned)["writer"][1]
    world.fill("a.r", [1])
    moved = (world.source("a.r").incremental() >> where("id < 100") >> world.sink("a.t")).named("copy")
    assert parts(world, moved)["source"] == (("- local.a.s", "+ local.a.r"), False)

    world.run(other)
    assert parts(world, other) == {}
    assert "step" in parts(world, copy)
    world.run(copy)
    assert parts(world, copy) == {}, "the last run counts, and not the newest plan"


@step
def once_each(rows: Any) -> Any:
    return rows.dropDuplicates(["id"])


def as_changes(table: Any) -> Any:
    return table.incremental().changes(keys="id")


UNCHANGED = {
    "upsert": lambda table, sink: table.incremental() >> sink.upsert("id", order_by="v"),
    "view": lambda table, sink: as_changes(table) >> aggregate("v", n="count(*)") >> sink.upsert("v"),
    "state in a callable": lambda table, sink: table.incremental() >> once_each >> sink,
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_an_unchanged_script_changes_nothing(world: Any, case: str) -> None:
    world.fill("a.s", [1, 2], v="id % 2")
    pipeline = UNCHANGED[case](world.source("a.s"), world.sink("a.t"))
    world.run(pipeline)
    assert parts(world, pipeline) == {}
    world.run(pipeline)
    assert parts(world, pipeline) == {}


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_unchanged_changes_of_a_database_change_nothing(
    tmp_path: Path, shared_spark: Any, keys: tuple[str, ...]
) -> None:
    source = Cdc.debezium(Kafka.source("shop.public.orders").servers("b:9092"), key="id").incremental()
    with Lake(tmp_path / "lake") as lake:
        test = lake.test(source >> Iceberg.sink("local.shop.t").upsert(*keys))
        test.batch(orders=[("c", None, {"id": 1, "name": "ann"})])
        [plan] = test.stage.plans()
        found = plan_difference(plan)
        assert found is not None
        assert found.changes == ()


def test_a_source_that_the_first_run_makes_is_no_change(world: Any) -> None:
    world.fill("a.s", [1, 2])
    first = world.source("a.s").incremental() >> world.sink("a.m").format_version(3)
    second = world.source("a.m").incremental() >> where("id < 2") >> world.sink("a.t")
    assert world.runner([first, second], once=True).run()
    assert parts(world, first) == {}
    assert parts(world, second) == {}


def test_a_state_that_does_not_fit_is_told_before_the_run(world: Any) -> None:
    world.fill("a.s", [1], ts="timestamp'2026-01-01 00:00:00'")

    def hourly(size: str) -> Any:
        rows = world.source("a.s").incremental() >> watermark("ts", "1h") >> window("ts", size).agg(n="count(*)")
        return (rows >> world.sink("a.t")).named("hourly")

    world.run(hourly("1h"))
    found = plan_difference(world.plan(hourly("2h")))
    assert found is not None
    (state,) = (one for one in found.changes if one.part == "state")
    assert state.means.startswith("refused: the checkpoint has the state of the last run")
    assert not state.additive
    assert "=> refused" in as_text(found)


def test_the_command_exits_with_2_where_something_changed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    path = json.dumps(str(world.catalog.option("path")))
    (world.folder / "helios.toml").write_text(f'[catalogs.local]\ntype = "local"\npath = {path}\n')
    world.fill("a.s", [1])
    script = world.folder / "p.py"

    def declare(most: int) -> None:
        script.write_text(
            "from helios import Iceberg, where\n"
            'rows = Iceberg.source("local.a.s").incremental()\n'
            f'p = (rows >> where("id < {most}") >> Iceberg.sink("local.a.t")).named("copy")\n'
        )

    def plan(*more: str) -> Any:
        return CliRunner().invoke(main, ["plan", "p.py", "--exit-code", *more], prog_name="helios")

    declare(100)
    assert (plan().exit_code, "changed" in plan().output) == (0, False)
    world.run((world.source("a.s").incremental() >> where("id < 100") >> world.sink("a.t")).named("copy"))
    declare(50)
    told = plan()
    assert (told.exit_code, "+ where(id < 50)" in told.output) == (2, True)
    (found,) = json.loads(plan("--json").output)
    assert [one["part"] for one in found["changed"]["changes"]] == ["step"]
    assert plan("--offline").exit_code == 0
    wrong = plan("--profile", "nope")
    assert (wrong.exit_code, told.stdout != "", wrong.stdout) == (2, True, ""), "standard output tells the two apart"
    assert "error" in json.loads(plan("--profile", "nope", "--json").stdout)


def test_a_run_asks_where_more_than_additions_changed(world: Any) -> None:
    world.fill("a.s", [1])
    rows = world.source("a.s").incremental()
    world.run((rows >> where("id < 100") >> world.sink("a.t")).named("copy"))
    added = world.plan((rows >> where("id < 100") >> world.sink("a.t").compression("gzip")).named("copy"))
    _confirm_changes([added])
    other = world.plan((rows >> where("id < 50") >> world.sink("a.t")).named("copy"))
    with pytest.raises(InputError, match="there is no terminal to ask on; nothing was run"):
        _confirm_changes([other])
    for answer, refused in (("y\n", False), ("n\n", True)):
        ran = CliRunner().invoke(_asking(other), input=answer)
        assert isinstance(ran.exception, InputError) is refused
        assert "+ where(id < 50)" in ran.output


def _asking(plan: Any) -> click.Command:
    @click.command()
    def ask() -> None:
        sys.stdin.isatty = lambda: True  # type: ignore[method-assign]
        _confirm_changes([plan])

    return ask
