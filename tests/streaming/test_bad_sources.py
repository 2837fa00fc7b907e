"""Sources that are damaged or go away: the error names the file or the snapshot, and nothing is half-written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from helios.errors import HeliosError, InputError
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("bad-sources")


def paths(world: Any, pattern: str) -> list[Path]:
    return sorted((world.folder / ".helios").rglob(pattern), key=lambda path: path.stat().st_mtime)


def damage(path: Path, how: str) -> None:
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(b"not what it was" * 10)


@pytest.mark.parametrize("how", ["gone", "garbage"])
@pytest.mark.parametrize("pattern", ["s/data/*.parquet", "s/metadata/*-m0.avro", "s/metadata/snap-*.avro"])
@pytest.mark.parametrize("followed", [True, False], ids=["followed", "once"])
def test_a_damaged_file_is_named(world: Any, pattern: str, how: str, followed: bool) -> None:
    world.fill("a.s", range(10))
    source = world.source("a.s").incremental(poll=1) if followed else world.source("a.s")
    pipeline = source >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", range(10, 20))
    broken = paths(world, pattern)[-1]
    damage(broken, how)
    before = world.catalog.load("a.t").current_snapshot()
    with pytest.raises(HeliosError) as failed:
        world.run(pipeline)
    assert broken.name in str(failed.value), failed.value
    assert world.catalog.load("a.t").current_snapshot() == before


@pytest.mark.short
def test_damaged_metadata_is_named(world: Any) -> None:
    """When a run starts; Iceberg itself tries for a minute and a half to read it under one that is running."""
    world.fill("a.s", range(10))
    broken = paths(world, "s/metadata/*.metadata.json")[-1]
    damage(broken, "garbage")
    with pytest.raises(HeliosError) as refused:
        world.plan(world.source("a.s").incremental(poll=1) >> world.sink("a.t"))
    assert broken.name in str(refused.value), refused.value


def test_a_source_that_is_dropped_under_a_running_reader(world: Any) -> None:
    world.fill("a.s", range(10))
    run = world.start(world.source("a.s").incremental(poll="200ms") >> world.sink("a.t"))
    until = time.monotonic() + PATIENCE
    while run.batches < 1:
        assert time.monotonic() < until
        time.sleep(0.1)
    world.sql("DROP TABLE local.a.s")
    with pytest.raises(InputError, match=r"table local\.a\.s does not exist"):
        assert run.await_termination(60)
    assert world.ids("a.t") == list(range(10))


def test_a_source_that_is_replaced_under_a_reader(world: Any) -> None:
    world.fill("a.s", range(10))
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.sql("DROP TABLE local.a.s")
    world.fill("a.s", range(5))
    with pytest.raises(HeliosError, match=r"replaced|rolled back|has expired"):
        world.run(pipeline)
    assert world.ids("a.t") == list(range(10))
