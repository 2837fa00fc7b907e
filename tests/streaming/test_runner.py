"""Several pipelines in one session, sessions that are passed in, and what other readers see."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from helios import Iceberg, Memory, where, with_columns
from tests.suite.waiting import PATIENCE, until

pytestmark = [pytest.mark.promise("several"), pytest.mark.short]


def test_a_fan_out_fills_both_targets(world: Any) -> None:
    stream = Memory.source([{"id": 1}, {"id": 2}]) >> where("id > 1")
    runner = world.runner(stream >> [world.sink("a.one"), world.sink("a.two")], once=True)
    assert runner.run(), runner.status()
    assert world.ids("a.one") == world.ids("a.two") == [2]


def test_pipelines_run_in_the_order_of_their_tables(world: Any) -> None:
    first = Memory.source([{"id": 1}, {"id": 2}]) >> world.sink("a.one")
    second = world.source("a.one").incremental() >> with_columns(n="id + 1") >> world.sink("a.two")
    third = world.source("a.two") >> world.sink("a.three")
    runner = world.runner([third, second, first], once=True)
    assert runner.run()
    assert world.ids("a.three") == [1, 2]
    finished = [event.pipeline for event in world.events if event.kind == "finished"]
    assert finished == ["local.a.one", "local.a.two", "local.a.three"]


def test_when_one_fails_the_others_go_on(world: Any) -> None:
    bad = Memory.source([{"id": 0}]) >> with_columns(x="1 div id") >> world.sink("a.bad")
    good = Memory.source([{"id": 1}]) >> world.sink("a.good")
    runner = world.runner([bad, good], once=True)
    assert not runner.run()
    states = {status["target"]: status["state"] for status in runner.status()}
    assert states == {"local.a.bad": "failed", "local.a.good": "finished"}
    assert world.ids("a.good") == [1]


def test_fail_fast_stops_the_others(world: Any) -> None:
    world.fill("a.s", [1])
    bad = Memory.source([{"id": 0}]) >> with_columns(x="1 div id") >> world.sink("a.bad")
    endless = world.source("a.s").incremental(poll="200ms") >> world.sink("a.t")
    assert not world.runner([bad, endless], fail_fast=True).run()


def test_a_stop_ends_a_followed_pipeline_after_its_batch(world: Any) -> None:
    world.fill("a.s", [1])
    runner = world.runner([world.source("a.s").incremental(poll="200ms") >> world.sink("a.t")])
    thread = threading.Thread(target=runner.run)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while "batch" not in world.kinds() and time.monotonic() < deadline:
        time.sleep(0.05)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert runner.status()[0]["state"] == "stopped"
    assert world.ids("a.t") == [1]


@pytest.mark.promise("sessions")
def test_the_handle_of_a_pipeline_and_a_session_that_is_passed_in(world: Any) -> None:
    conf = dict(world.spark.conf.getAll)
    pipeline = Memory.source([{"id": 1}]) >> Iceberg.sink("a.t", catalog=world.catalog)
    handle = pipeline.run(once=True, spark=world.spark)
    assert handle.await_termination(60)
    assert handle.status()["state"] == "finished"
    assert handle.status()["rows"] == 1
    assert dict(world.spark.conf.getAll) == conf
    assert world.ids("a.t") == [1]


@pytest.mark.promise("readers")
def test_duckdb_and_polars_read_what_was_written(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is another package
    import duckdb
    import polars

    world.run(Memory.source([{"id": i, "name": f"n{i}"} for i in range(5)]) >> world.sink("a.t"))
    table = world.catalog.load("a.t").iceberg
    connection = table.scan().to_duckdb("t")
    assert connection.sql("SELECT count(*), sum(id) FROM t").fetchall() == [(5, 10)]
    assert duckdb.__version__
    assert polars.scan_iceberg(table).select(polars.col("id").sum()).collect().item() == 10


def test_pipelines_that_read_each_others_targets_begin(world: Any) -> None:
    world.fill("a.x", [1])
    world.fill("a.y", [2])
    there = (world.source("a.x").incremental(poll="200ms") >> where("id < 2") >> world.sink("a.y")).named("there")
    back = (world.source("a.y").incremental(poll="200ms") >> where("id = 2") >> world.sink("a.x")).named("back")
    runner = world.runner([there, back])
    thread = threading.Thread(target=runner.run)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while world.kinds().count("batch") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert world.ids("a.x") == world.ids("a.y") == [1, 2]


def test_a_stop_before_the_first_batch_is_no_failure(world: Any) -> None:
    run = world.start(Memory.source([{"id": 1}]) >> world.sink("a.t"))
    run.stop()
    assert run.await_termination(60)
    assert run.state == "stopped"


def test_a_table_of_a_followed_pipeline_is_read_once_beside_it(world: Any) -> None:
    world.fill("a.s", [1, 2])
    writer = world.source("a.s").incremental(poll="200ms") >> world.sink("a.one")
    reader = world.source("a.one") >> world.sink("a.two")
    runner = world.runner([reader, writer])
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        until(lambda: ("local.a.two", "finished") in {(event.pipeline, event.kind) for event in world.events})
    finally:
        runner.stop()
        thread.join(60)
    assert world.ids("a.two") == [1, 2]
    assert {status["pipeline"]: status["state"] for status in runner.status()} == {
        "local.a.two": "finished",
        "local.a.one": "stopped",
    }
