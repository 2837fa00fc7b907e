"""Sinks that are no tables: rows in memory, and on standard output."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Console, Files, Memory, expect, watermark, where, window
from helios.errors import CheckFailed, InputError, NotFound, RunError
from helios.model.output import MEMORY_ROWS
from tests.suite.waiting import until

pytestmark = pytest.mark.promise("outputs")

ROWS = [{"id": number, "name": f"n{number}"} for number in range(5)]


def ids(name: str) -> Counter[Any]:
    return Counter(row["id"] for row in Memory.rows(name))


@pytest.mark.landing
def test_the_rows_of_a_run_are_read_back(world: Any) -> None:
    pipeline = Memory.source(ROWS) >> where("id > 2") >> Memory.sink("big")
    run = world.run(pipeline)
    assert Memory.rows("big") == ROWS[3:]
    assert (run.rows, run.metrics().records_written, run.last.snapshot) == (2, 2, None)
    world.run(pipeline)  # each run starts from the beginning
    assert Memory.rows("big") == ROWS[3:]
    world.run(Memory.source(ROWS) >> where("id > 9") >> Memory.sink("big"))
    assert Memory.rows("big") == []
    world.run((Memory.source(ROWS) >> Memory.sink("both")).named("one"))
    world.run((Memory.source(ROWS) >> Memory.sink("both")).named("two"))
    assert ids("both") == Counter([*range(5)] * 2)
    with pytest.raises(NotFound, match=r"no pipeline of this process has written to it. Did you mean 'big'\?"):
        Memory.rows("bg")


def test_rows_of_a_followed_source_come_batch_by_batch(world: Any) -> None:
    world.fill("a.s", range(3))
    pipeline = world.source("a.s").incremental(poll=0.1) >> Memory.sink("followed")
    run = world.start(pipeline)
    try:
        until(lambda: "followed" in MEMORY_ROWS and ids("followed") == Counter(range(3)))
        world.fill("a.s", range(3, 7))
        until(lambda: ids("followed") == Counter(range(7)))
    finally:
        run.stop()
        assert run.await_termination(60)
    assert run.batches == 2
    world.run(pipeline)  # and from the start again
    assert ids("followed") == Counter(range(7))


def test_a_window_over_a_followed_source(world: Any) -> None:
    world.fill("a.s", range(100), at="timestamp_seconds(id * 10)")
    counted = window("at", "100 seconds").agg(n="count(*)")
    world.run(world.source("a.s").incremental() >> watermark("at", "1 second") >> counted >> Memory.sink("windows"))
    assert Counter(row["n"] for row in Memory.rows("windows")) == Counter({10: 9})  # the last one is still open


def test_an_expectation_that_fails_delivers_nothing(world: Any) -> None:
    with pytest.raises(RunError, match="small"):
        world.run(Memory.source(ROWS) >> expect({"small": "id < 4"}) >> Memory.sink("failed"))
    assert Memory.rows("failed") == []
    run = world.run(Memory.source(ROWS) >> expect({"small": "id < 4"}, on_fail="drop") >> Memory.sink("failed"))
    assert ids("failed") == Counter(range(4))
    assert run.metrics().records_failed == 1


@pytest.mark.landing
def test_rows_are_printed_and_what_is_left_out_is_told(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    world.run((Memory.source(ROWS) >> Console.sink(rows=2)).named("look"))
    out = capsys.readouterr().out
    assert "look, batch 0: 5 rows, of which the first 2\n" in out
    assert "|0  |n0  |\n|1  |n1  |\n" in out
    assert "n2" not in out


def test_what_these_sinks_cannot_keep_is_refused(world: Any, tmp_path: Any) -> None:
    for sink in (Memory.sink("m"), Console.sink()):
        with pytest.raises(CheckFailed, match=r"cannot keep .exactly_once\(\): it does not record"):
            world.plan(Memory.source(ROWS) >> sink.exactly_once())
        with pytest.raises(CheckFailed, match="has no quarantine for rejected rows"):
            world.plan(Memory.source(ROWS) >> expect({"x": "id > 1"}, on_fail="quarantine") >> sink)
        files = Files.source(str(tmp_path), format="json", schema="id int").on_bad_row("quarantine")
        with pytest.raises(CheckFailed, match="has no quarantine for rejected rows"):
            world.plan(files >> sink)
    pipeline = Memory.source(ROWS) >> Memory.sink("m")
    for option in ("new_checkpoint", "full_refresh"):
        with pytest.raises(InputError, match="keeps no record"):
            world.run(pipeline, **{option: True})


def test_the_plan_says_at_least_once(world: Any) -> None:
    world.fill("a.s", [1])
    plan = world.plan(world.source("a.s").incremental() >> Console.sink())
    text = str(plan)
    assert "console:stdout, Console.sink(), at least once: each run starts from the beginning" in text
    assert "a temporary folder (each run starts from the beginning)" in text
    target = plan.as_json()["target"]
    assert (target["kind"], target["delivery"], target["table"]) == ("console", "at least once", "console:stdout")
