"""Columns that a source's table has renamed: a follower does not split their values over two columns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Pipeline, rename
from helios.errors import CheckFailed
from tests.suite.waiting import until

pytestmark = pytest.mark.promise("evolve")


def follower(world: Any, **renames: str) -> Pipeline:
    sink = world.sink("a.t")
    if renames:
        sink = sink.evolve_schema("full").renames(renames)
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> sink
    return pipeline


@pytest.fixture
def renamed(world: Any) -> None:
    world.fill("a.s", [1, 2], price="id * 10")
    world.run(follower(world))
    world.sql("ALTER TABLE local.a.s RENAME COLUMN price TO cost")
    world.fill("a.s", [3], cost="id * 10")


@pytest.mark.usefixtures("renamed")
def test_it_stops_and_both_fixes_that_it_names_go_on(world: Any) -> None:
    with pytest.raises(CheckFailed, match="its source has renamed price, which would be null") as refused:
        world.plan(follower(world))
    assert 'rename({"cost": "price"})' in str(refused.value)
    assert '.evolve_schema("full").renames({"price": "cost"})' in str(refused.value)
    world.run(world.source("a.s").incremental(poll=1) >> rename({"cost": "price"}) >> world.sink("a.t"))
    assert world.rows("a.t", "id", "price") == Counter({(1, 10): 1, (2, 20): 1, (3, 30): 1})
    world.fill("a.s", [4], cost="id * 10")
    world.run(follower(world, price="cost"))
    assert world.load("a.t").iceberg.schema().column_names == ["id", "cost"]
    assert world.rows("a.t", "id", "cost") == Counter({(1, 10): 1, (2, 20): 1, (3, 30): 1, (4, 40): 1})
    world.fill("a.s", [5], cost="id * 10")
    world.run(follower(world))
    assert world.ids("a.t") == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("renamed")
def test_a_column_that_the_target_has_already_is_filled(world: Any) -> None:
    world.sql("ALTER TABLE local.a.t ADD COLUMN cost bigint")
    world.run(follower(world))
    assert world.rows("a.t", "id", "price", "cost") == Counter({(1, 10, None): 1, (2, 20, None): 1, (3, None, 30): 1})


def test_a_run_that_is_going_on_stops(world: Any) -> None:
    world.fill("a.s", [1], price="id * 10")
    run = world.start(follower(world))
    until(lambda: "batch" in world.kinds())
    world.sql("ALTER TABLE local.a.s RENAME COLUMN price TO cost")
    world.fill("a.s", [2], cost="id * 10")
    until(lambda: run.state == "failed")
    assert "its source has renamed price" in str(run.error)
    assert world.load("a.t").iceberg.schema().column_names == ["id", "price"]
