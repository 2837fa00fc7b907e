"""Errors of a run name the line of the script that declared the source, the step or the sink that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helios import Files, Memory, Pipeline, join, step
from helios.errors import CheckpointError, HeliosError, InputError, LedgerError, RunError
from helios.spark.run.run import PipelineRun

pytestmark = pytest.mark.promise("words")


def line_of(world: Any, pipeline: Pipeline, error: type[HeliosError]) -> str:
    """Where the error of a run lies, in its text and as JSON."""
    with pytest.raises(error) as told:
        world.run(pipeline)
    where = told.value.as_json()["where"]
    assert str(told.value).startswith(f"{where}: ")
    failed = [event.message for event in world.events if event.kind == "failed"]
    assert failed[-1] == str(told.value)
    return str(where)


def test_a_source_whose_branch_is_gone(world: Any) -> None:
    world.fill("a.s", range(3))
    world.fill("a.names", range(3), name="'n'")
    world.sql("ALTER TABLE local.a.s CREATE BRANCH stage")
    source = world.source("a.s").at_ref("stage").incremental(poll=1)
    other = world.source("a.names")
    sink = world.sink("a.t")
    pipeline = source >> join(other, on="id") >> sink
    world.run(pipeline)
    plan = world.plan(pipeline)
    world.sql("ALTER TABLE local.a.s DROP BRANCH stage")
    with pytest.raises(RunError, match="has no branch 'stage' any more") as told:
        PipelineRun(plan, world.spark, once=True).start().await_termination(120)
    assert told.value.where == source.origin


def test_a_folder_among_several_sources(world: Any, tmp_path: Path) -> None:
    hidden = tmp_path / "in" / "_hidden.csv"
    hidden.parent.mkdir()
    hidden.write_text("id\n1\n")
    rows = Memory.source([{"id": 1}])
    files = Files.source(str(hidden), schema="id int")
    sink = world.sink("a.t")
    assert line_of(world, rows >> join(files, on="id") >> sink, InputError) == str(files.origin)


@pytest.mark.landing
def test_a_target_that_lost_its_batch(world: Any, copy: Pipeline) -> None:
    snapshot = world.load("a.t").snapshots()[0].id
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {snapshot})")
    assert line_of(world, copy, LedgerError) == str(copy.sink.origin)


def test_a_checkpoint_that_is_damaged(world: Any, copy: Pipeline) -> None:
    (world.checkpoint(copy) / "metadata").unlink()
    assert line_of(world, copy, CheckpointError) == str(copy.sink.origin)


@pytest.mark.landing
def test_a_step_of_the_users_that_fails_on_the_driver(world: Any) -> None:
    @step
    def broken(df: Any) -> Any:
        raise OSError("no such device")  # as of a file that it opens

    pipeline = Memory.source([{"id": 1}]) >> broken >> world.sink("a.t")
    assert Path(line_of(world, pipeline, HeliosError).rpartition(":")[0]).name == "test_origins.py"
