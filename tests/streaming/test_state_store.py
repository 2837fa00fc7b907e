"""State in RocksDB, whose batches store their changes; checkpoints that Spark's own provider began go on with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helios import aggregate, dedupe, watermark, window
from helios.config import load
from helios.spark.session import launch, session
from tests.streaming.test_over_time import FAR, followed, write

pytestmark = pytest.mark.promise("stateful")

PROVIDER, CHANGELOG, COUNTED = launch.STATE_STORE_CONF
SLOW = pytest.mark.slow
OWN = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

SHAPES: dict[str, tuple[Any, Any]] = {
    "dedupe": (watermark("ts", "30 minutes") >> dedupe("k", within="1 hour"), lambda sink: sink),
    "windows": (
        watermark("ts", "30 minutes") >> window("ts", "20 minutes").group_by("k").agg(n="count(*)"),
        lambda sink: sink,
    ),
    "groups": (aggregate("k", n="count(*)"), lambda sink: sink.upsert("k")),
}


def provider(checkpoint: Path) -> str:
    """The provider that Spark notes in the last entry of the offset log."""
    last = max(int(p.name) for p in (checkpoint / "offsets").iterdir() if p.name.isdigit())
    return str(json.loads((checkpoint / "offsets" / str(last)).read_text().splitlines()[1])["conf"][PROVIDER])


def stored(checkpoint: Path) -> set[str]:
    return {file.suffix for file in (checkpoint / "state").rglob("[0-9]*") if file.is_file()}


@pytest.mark.parametrize("shape", [pytest.param(one, marks=SLOW) for one in SHAPES])
def test_state_is_in_rocksdb_and_survives_a_restart_and_a_replay(world: Any, shape: str, forget_commit: Any) -> None:
    steps, sink = SHAPES[shape]
    pipeline = followed(world, "a.s") >> steps >> sink(world.sink("a.t"))
    for minute in (0, 100, 300):
        write(world, "a.s", [(minute + k, k, minute + k) for k in range(4)])
        world.run(pipeline)
    checkpoint = world.checkpoint(pipeline)
    assert provider(checkpoint).endswith(".RocksDBStateStoreProvider")
    assert ".changelog" in stored(checkpoint)
    before = world.rows("a.t")
    forget_commit(checkpoint, max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit()))
    world.run(pipeline)
    assert world.rows("a.t") == before
    write(world, "a.s", [(-1, -1, FAR)])
    world.run(pipeline)
    world.run(world.source("a.s") >> steps >> sink(world.sink("a.whole")))
    rows = Counter({row: n for row, n in world.rows("a.t").items() if -1 not in row})
    assert rows == Counter({row: n for row, n in world.rows("a.whole").items() if -1 not in row})


@pytest.mark.parametrize("shape", ["dedupe", pytest.param("windows", marks=SLOW)])
@pytest.mark.cases(landing="dedupe")
def test_a_checkpoint_of_sparks_own_provider_goes_on_with_it(world: Any, shape: str) -> None:
    steps, sink = SHAPES[shape]
    pipeline = followed(world, "a.s") >> steps >> sink(world.sink("a.t"))
    world.spark.conf.set(PROVIDER, OWN)
    write(world, "a.s", [(k, k, k) for k in range(4)])
    world.run(pipeline)
    checkpoint = world.checkpoint(pipeline)
    assert provider(checkpoint) == OWN
    world.spark.conf.set(PROVIDER, launch.STATE_STORE_CONF[PROVIDER])
    write(world, "a.s", [(10 + k, k, 10 + k) for k in range(4)])
    world.run(pipeline)
    write(world, "a.s", [(-1, -1, FAR)])
    world.run(pipeline)
    assert provider(checkpoint) == OWN
    assert ".changelog" not in stored(checkpoint)
    world.run(world.source("a.s") >> steps >> sink(world.sink("a.whole")))
    rows = Counter({row: n for row, n in world.rows("a.t").items() if -1 not in row})
    assert rows == Counter({row: n for row, n in world.rows("a.whole").items() if -1 not in row})
    assert world.spark.conf.get(PROVIDER) == launch.STATE_STORE_CONF[PROVIDER]


def test_the_users_own_provider_wins(tmp_path: Path) -> None:
    (tmp_path / "helios.toml").write_text(f'[spark.conf]\n"{PROVIDER}" = "{OWN}"\n')
    conf = launch.start_conf(load(tmp_path), [], "")
    assert conf[PROVIDER] == OWN
    (tmp_path / "helios.toml").write_text("")
    assert launch.start_conf(load(tmp_path), [], "")[PROVIDER] == launch.STATE_STORE_CONF[PROVIDER]


@pytest.mark.promise("sessions")
def test_the_users_own_session_keeps_its_provider(shared_spark: SparkSession) -> None:
    given = shared_spark.newSession()
    given.conf.set(PROVIDER, OWN)
    cloned = session.clone(given, [])
    assert cloned.conf.get(PROVIDER) == OWN
    assert cloned.conf.get(CHANGELOG) == "true"
    assert cloned.conf.get(COUNTED) == "false"
