"""Replays that died in the midst, before what the rest of the pipeline does: another name, another quarantine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Pipeline, expect
from helios.catalog.names import TableName
from helios.cli.quarantine import _summary
from helios.errors import InputError, LedgerError
from helios.spark.replay.replay import Replay, Replayed
from helios.spark.run.rename_table import rename
from helios.spark.sinks.table import TableSink
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = [pytest.mark.promise("quarantine"), pytest.mark.sampled(2)]


def small(world: Any, most: int, target: str = "a.t", quarantine: str = "a.bad") -> Pipeline:
    """Rejects all ids that are not small."""
    steps = world.source("a.s").incremental(poll=1) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
    pipeline: Pipeline = steps >> world.sink(target).quarantine(quarantine)
    return pipeline


def replay(world: Any, pipeline: Pipeline) -> Replayed:
    return Replay(world.plan(pipeline), world.spark).run()


def held(world: Any, table: str = "a.bad") -> Counter[str]:
    return Counter({payload: n for (payload,), n in world.rows(table, "payload").items()})


@pytest.fixture
def filled(world: Any) -> None:
    world.fill("a.s", [1, 100, 200])
    world.run(small(world, 10))


def named(world: Any, table: str) -> TableName:
    return TableName(world.catalog, ("a",), table)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("owner", [Replay, TableSink], ids=["behind its commit", "before its commit"])
@pytest.mark.parametrize("way", ["rename", "named"])
@pytest.mark.cases(short="rename-behind its commit")
def test_one_is_finished_under_the_name_that_its_pipeline_has_now(world: Any, way: str, owner: type) -> None:
    with dies_at(owner, "_finish" if owner is Replay else "_commit"):
        replay(world, small(world, 150))
    if way == "rename":
        rename(world.spark, named(world, "t"), named(world, "u"), [named(world, "bad")])

    def pipeline(most: int) -> Pipeline:
        if way == "rename":
            return small(world, most, "a.u")
        return small(world, most).named("later", was="local.a.t")

    target = "a.u" if way == "rename" else "a.t"
    if way == "named":
        world.run(pipeline(10))  # moves the checkpoint, in which the notes of the replay are
    assert replay(world, pipeline(150)).resumed is (owner is Replay)
    assert (world.ids(target), held(world)) == ([1, 100], Counter({'{"id":200}': 1}))
    world.fill("a.s", [2, 300])
    world.run(pipeline(150))
    assert replay(world, pipeline(250)).taken == 1
    assert replay(world, pipeline(350)).taken == 1
    assert (world.ids(target), held(world)) == ([1, 2, 100, 200, 300], Counter())


@pytest.mark.usefixtures("filled")
def test_one_is_finished_before_its_quarantine_has_another_name(world: Any) -> None:
    with dies_at(Replay, "_finish"):
        replay(world, small(world, 150))
    moved = small(world, 150, quarantine="a.other")
    world.fill("a.s", [2, 300])
    world.run(moved)
    with pytest.raises(InputError, match=r"from local\.a\.bad died before its end") as refused:
        replay(world, moved)
    assert "put .quarantine() back to local.a.bad and replay" in str(refused.value)
    assert replay(world, small(world, 150)).resumed
    assert replay(world, small(world, 350, quarantine="a.other")).taken == 1
    assert (world.ids("a.t"), held(world)) == ([1, 2, 100, 300], Counter({'{"id":200}': 1}))


@pytest.mark.usefixtures("filled")
def test_a_new_checkpoint_does_not_accept_a_quarantine_that_is_rolled_back_behind_a_replay(world: Any) -> None:
    before = world.load("a.bad").current_snapshot().id
    replay(world, small(world, 150))
    world.sql(f"CALL local.system.rollback_to_snapshot('a.bad', {before})")
    world.fill("a.s", [2, 300])
    for new_checkpoint in (False, True):
        with pytest.raises(LedgerError, match=r"rolled back .*replay") as refused:
            world.run(small(world, 10), new_checkpoint=new_checkpoint)
        assert "give .quarantine() a table of another name" in str(refused.value)
    for new_checkpoint in (False, True):
        world.run(small(world, 10, quarantine="a.other"), new_checkpoint=new_checkpoint)
    assert (world.ids("a.t"), held(world, "a.other")) == ([1, 2, 100], Counter({'{"id":300}': 1}))
    assert replay(world, small(world, 350, quarantine="a.other")).taken == 1


def test_a_batch_that_has_not_landed_is_not_replayed_and_is_said_to_wait(world: Any) -> None:
    world.fill("a.s", [100, 200])
    with dies_before_commit():
        world.run(small(world, 10))
    done = replay(world, small(world, 150))
    assert (done.taken, done.stayed, done.waiting) == (0, 0, 2)
    assert "has nothing to replay; 2 rows of an unfinished batch wait: run the pipeline first" in _summary(done)
    world.run(small(world, 10))
    done = replay(world, small(world, 150))
    assert (done.taken, done.stayed, done.waiting) == (1, 1, 0)
    assert (world.ids("a.t"), held(world)) == ([100], Counter({'{"id":200}': 1}))
