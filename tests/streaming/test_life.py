"""What a running pipeline keeps of the JVM's objects: nothing of a batch that has ended."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j import clientserver
from py4j.finalizer import ThreadSafeFinalizer

from helios.spark.iceberg import history
from helios.spark.jvm.classes import allow_callbacks, classes
from helios.spark.jvm.proxies import Proxy, free_with_last_reference
from helios.spark.run.run import PipelineRun
from helios.table import growth
from tests.streaming.conftest import World
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("long-runs")

SOAK = Path(__file__).parents[2] / "perf" / "soak.py"


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Switches Python's collection of cycles off."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.cases(short="append")
def test_batches_leave_no_objects_in_the_jvm(world: World, no_collection: None, mode: str) -> None:
    world.fill("a.s", [0], text="'row'")
    sink = world.sink("a.t").upsert("id") if mode == "upsert" else world.sink("a.t")
    run = world.start(world.source("a.s").incremental(poll="100ms") >> sink)
    source = world.load("a.s").iceberg
    alive = []
    for number in range(1, 11):
        wait(run, number)
        alive.append(len(ThreadSafeFinalizer.finalizers))
        source.append(pa.table({"id": pa.array([number], pa.int64()), "text": ["row"]}))
    run.stop()
    assert run.await_termination(60)
    # A batch makes more than 200 objects; which few of them are under way is a matter of the moment.
    assert max(alive[5:]) - max(alive[:5]) < 60, alive


def wait(run: PipelineRun, batches: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while run.batches < batches:
        assert run.error is None, run.error
        assert time.monotonic() < deadline, run.status()
        time.sleep(0.05)


class Fresh:
    """A `java.util.function.Supplier` whose objects Python has no other reference to."""

    def get(self) -> Any:
        made = classes().java.util.ArrayList()
        made.add("here")
        return made

    class Java:
        implements = ("java.util.function.Supplier",)


@pytest.mark.short
def test_an_object_that_a_callback_returns_outlives_its_way_to_the_jvm(
    world: World, no_collection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = clientserver.ClientServerConnection._call_proxy

    def slowly(connection: Any, callback: str, stream: Any) -> Any:
        answered = answer(connection, callback, stream)
        time.sleep(0.02)  # the proxy is gone, and its id not yet sent
        return answered

    monkeypatch.setattr(clientserver.ClientServerConnection, "_call_proxy", slowly)
    monkeypatch.setattr(clientserver, "DEFAULT_WORKER_SLEEP_TIME", 0)  # the JVM forgets at once
    free_with_last_reference()
    allow_callbacks()
    assert type(classes().java.lang.Object()) is Proxy
    time.sleep(1.1)  # the worker sleeps as long as before
    made = list(classes().java.util.stream.Stream.generate(Fresh()).limit(20).toArray())
    # The JVM takes an id that it has forgotten for null.
    assert [one is not None and list(one) for one in made] == [["here"]] * 20


FOLLOWED = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}


def test_a_followed_table_keeps_few_metadata_files(world: World) -> None:
    def properties(table: str) -> dict[str, str]:
        return {key: value for key, value in world.load(table).iceberg.properties.items() if "metadata." in key}

    for number in range(5):
        world.fill("a.s", [number])
    source = world.source("a.s")
    world.run(source >> world.sink("a.once"))
    world.run(source.incremental() >> world.sink("a.followed"))
    few = {"write.metadata.previous-versions-max": "2"}
    world.run(source.incremental(max_files=1) >> world.sink("a.few").table_properties(few))
    assert (properties("a.once"), properties("a.followed"), properties("a.few")) == ({}, FOLLOWED, FOLLOWED | few)
    folder = Path(world.load("a.few").iceberg.location().removeprefix("file://")) / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) == 3
    assert world.ids("a.few") == [0, 1, 2, 3, 4]
    # A table that was there keeps its properties.
    world.sql("CREATE TABLE local.a.there (id bigint) USING iceberg")
    world.run(source.incremental() >> world.sink("a.there"))
    assert properties("a.there") == {}


def test_a_run_tells_once_of_a_long_history_unless_it_expires(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (history, growth):
        monkeypatch.setattr(module, "MANY", 3)
    for number in range(5):
        world.fill("a.s", [number])
    source = world.source("a.s").incremental(max_files=1)
    world.run(source >> world.sink("a.expires").maintain(expire="5d"))
    assert "noted" not in world.kinds()
    world.run(source >> world.sink("a.t"))
    [told] = [event.message for event in world.events if event.kind == "noted"]
    assert told.startswith("local.a.t has 3 snapshots, about ")
    assert '.maintain(expire="5d")' in told


@pytest.mark.timeout(400)
def test_a_soak_keeps_heap_and_copies_of_metadata_flat(tmp_path: Path) -> None:
    limits = ["--copies", "10", "--growth", "1.3"]
    command = [
        sys.executable,
        str(SOAK),
        "--minutes",
        "2",
        "--every",
        "25",
        "--rate",
        "2",
        "--poll",
        "500ms",
        "--no-gc",
    ]
    done = subprocess.run([*command, *limits, "--folder", str(tmp_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert looks[-1]["commits"] > 20, looks
    assert looks[-1]["rows"] > 50, looks
    assert max(look["proxies"] for look in looks) < 150, looks
