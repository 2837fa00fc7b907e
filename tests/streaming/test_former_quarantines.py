"""A script that names another quarantine: what the pipeline set aside in the former one is not brought twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Pipeline, expect
from helios.spark.replay.replay import Replay
from tests.suite.deaths import dies_before_commit

pytestmark = [pytest.mark.promise("quarantine"), pytest.mark.sampled(2)]


def small(world: Any, quarantine: str | None, most: int = 10) -> Pipeline:
    """Rejects all ids that are not small."""
    sink = world.sink("a.t").quarantine(f"local.a.{quarantine}") if quarantine else world.sink("a.t")
    source = world.source("a.s").incremental(poll=1)
    made: Pipeline = source >> expect({"small": f"id < {most}"}, on_fail="quarantine" if quarantine else "drop") >> sink
    return made


def held(world: Any, quarantine: str) -> Counter[str]:
    return Counter({payload: n for (payload,), n in world.rows(f"a.{quarantine}", "payload").items()})


def payloads(*ids: int) -> Counter[str]:
    return Counter(f'{{"id":{id}}}' for id in ids)


@pytest.mark.short
@pytest.mark.parametrize("renamed", [False, True], ids=["named", "renamed"])
def test_a_full_refresh_empties_the_quarantines_of_former_scripts(world: Any, renamed: bool) -> None:
    world.fill("a.s", [1, 100])
    world.run(small(world, "bad"))
    world.run(small(world, "worse"))
    world.fill("a.s", [2, 200])
    world.run(small(world, "worse"))
    assert (held(world, "bad"), held(world, "worse")) == (payloads(100), payloads(200))
    if renamed:
        world.run(small(world, "third").named("other", was="local.a.t"))
    anew = small(world, "third", 150)
    world.run(anew.named("other", was="local.a.t") if renamed else anew, full_refresh=True)
    assert (held(world, "bad"), held(world, "worse"), held(world, "third")) == ({}, {}, payloads(200))
    assert world.ids("a.t") == [1, 2, 100]


@pytest.mark.parametrize("then", ["worse", None])
def test_a_batch_that_is_done_again_leaves_no_rows_in_the_former_quarantine(world: Any, then: str | None) -> None:
    world.fill("a.s", [1])
    world.run(small(world, "bad"))
    world.fill("a.s", [2, 100])
    with dies_before_commit():
        world.run(small(world, "bad"))
    assert held(world, "bad") == payloads(100)
    world.run(small(world, then, 150))
    assert world.ids("a.t") == [1, 2, 100]
    assert held(world, "bad") == {}
    Replay(world.plan(small(world, "bad", 150)), world.spark).run()
    assert world.ids("a.t") == [1, 2, 100]


def test_a_batch_that_is_done_again_with_the_former_quarantine_sets_its_rows_aside_again(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(small(world, "bad"))
    world.fill("a.s", [2, 100])
    for quarantine in ("bad", "worse"):
        with dies_before_commit():
            world.run(small(world, quarantine))
    assert (held(world, "bad"), held(world, "worse")) == ({}, payloads(100))
    world.run(small(world, "bad"))
    assert (held(world, "bad"), held(world, "worse")) == (payloads(100), {})
    assert world.ids("a.t") == [1, 2]


def test_a_new_checkpoint_leaves_no_rows_in_the_former_quarantine(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(small(world, "bad"))
    world.fill("a.s", [2, 100])
    with dies_before_commit():
        world.run(small(world, "bad"))
    world.run(small(world, "worse"), new_checkpoint=True)
    assert (held(world, "bad"), held(world, "worse")) == ({}, payloads(100))
    assert world.ids("a.t") == [1, 2]


def test_rolled_back_batches_are_given_up_in_the_former_quarantine(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(small(world, "bad"))
    before = world.load("a.t").snapshots()[-1].id
    world.fill("a.s", [2, 100])
    world.run(small(world, "bad"))
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {before})")
    world.run(small(world, "worse"), new_checkpoint=True)
    replayed = Replay(world.plan(small(world, "bad", 150)), world.spark).run()
    assert replayed.taken == 0
