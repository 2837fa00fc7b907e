"""The manifest of a routed batch: which tables it writes is known before the first of them is committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Pipeline, where
from helios.errors import HeliosError
from helios.spark.sinks import route
from helios.spark.sinks.protocol import Absent, Found, Outcome, Partial
from helios.spark.sinks.table import TableSink

pytestmark = pytest.mark.promise("route")


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What the look-ups of routed batches answer."""
    real: Callable[..., Outcome] = route.RoutedSink.find
    found: list[Outcome] = []

    def find(self: route.RoutedSink, batch: Any) -> Outcome:
        found.append(real(self, batch))
        return found[-1]

    monkeypatch.setattr(route.RoutedSink, "find", find)
    return found


def routed(world: Any, condition: str = "true") -> Pipeline:
    pipeline: Pipeline = world.source("a.s").incremental() >> where(condition) >> world.sink("a.t").route(by="k")
    return pipeline


def manifest(world: Any, pipeline: Pipeline, batch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world.checkpoint(pipeline) / f"helios/routes/{batch}.json").read_text())
    return found


@pytest.mark.landing
def test_a_batch_that_all_its_tables_have_is_found(
    world: Any, outcomes: list[Outcome], forget_commit: Callable[[Path, int], None]
) -> None:
    world.fill("a.s", range(4), k="if(id < 2, 'x', 'y')")
    pipeline = routed(world)
    world.run(pipeline)
    assert manifest(world, pipeline, 0)["values"] == ["x", "y"]
    forget_commit(world.checkpoint(pipeline), 0)
    world.run(pipeline)
    assert isinstance(outcomes[0], Absent)
    assert isinstance(outcomes[-1], Found)
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([0, 1], [2, 3])
    assert world.kinds().count("skipped") == 1


@pytest.mark.short
def test_a_driver_that_dies_between_two_tables_leaves_a_part(
    world: Any, outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill("a.s", range(4), k="if(id < 2, 'x', 'y')")
    pipeline = routed(world)
    real = TableSink._commit

    def commit(self: TableSink, staged: Any) -> Any:
        if self.name.table == "t_y":
            raise RuntimeError("the driver died")
        return real(self, staged)

    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "_commit", commit)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline)
    assert world.ids("a.t_x") == [0, 1]
    world.run(pipeline)
    assert [outcome.tables for outcome in outcomes if isinstance(outcome, Partial)] == [("local.a.t_x",)]
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([0, 1], [2, 3])


def test_a_manifest_of_other_sources_counts_for_nothing(
    world: Any, outcomes: list[Outcome], forget_commit: Callable[[Path, int], None]
) -> None:
    world.fill("a.s", range(2), k="'x'")
    pipeline = routed(world)
    world.run(pipeline)
    folder = world.checkpoint(pipeline)
    written = manifest(world, pipeline, 0)
    (folder / "helios/routes/0.json").write_text(json.dumps({**written, "sources": [{"source": "other"}]}))
    (folder / "helios/routes/.0.json.crc").unlink(missing_ok=True)
    forget_commit(folder, 0)
    world.run(pipeline)
    assert isinstance(outcomes[-1], Absent)
    assert world.ids("a.t_x") == [0, 1]


def test_a_batch_pipeline_is_found_by_what_it_read_last(world: Any) -> None:
    world.fill("a.s", range(2), k="'x'")
    pipeline = world.source("a.s") >> world.sink("a.t").route(by="k")
    for _ in range(2):
        world.run(pipeline)
    assert world.ids("a.t_x") == [0, 1]
    assert world.kinds().count("skipped") == 1
    world.fill("a.s", [7], k="'z'")
    world.run(pipeline)
    assert world.ids("a.t_z") == [7]
    assert world.ids("a.t_x") == [0, 0, 1, 1]


def test_a_branch_of_a_routed_table_keeps_its_record_by_its_stamps(world: Any) -> None:
    """A record that somebody has removed is that of the branch, not of main."""
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").route(by="k").branch("b")
    for ids in ([0, 1], [2, 3]):
        world.fill("a.s", ids, k="'x'")
        world.run(pipeline)
        world.sql(f"ALTER TABLE local.a.t_x UNSET TBLPROPERTIES ('helios.ledger.{world.plan(pipeline).pipeline}')")
    world.fill("a.s", [4], k="'x'")
    world.run(pipeline)
    rows = world.sql("SELECT id FROM local.a.t_x VERSION AS OF 'b' ORDER BY id")
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4]
