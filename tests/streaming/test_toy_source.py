"""A new kind of source is one model file, one Spark file and one row: what it gets by that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Iceberg, where
from helios.errors import CheckFailed, CheckpointError
from helios.sources import kinds as sources
from helios.sources.kinds import SourceRow
from tests.suite.deaths import dies_before_commit
from tests.toy.counter import CounterSource

pytestmark = pytest.mark.promise("own-source")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CounterSource:
    row = SourceRow(reader="tests.toy.counter_reader:CounterReader")
    monkeypatch.setitem(sources.SOURCES, CounterSource, row)
    source = CounterSource(path=str(tmp_path / "end.txt"))
    Path(source.path).write_text("5")
    return source


@pytest.mark.short
def test_it_is_followed_once_each_through_restarts_and_a_lost_commit(
    world: Any, counter: CounterSource, forget_commit: Callable[[Path, int], None]
) -> None:
    pipeline = counter.incremental(max_rows=3) >> where("id <> 2") >> world.sink("a.t").exactly_once()
    run = world.run(pipeline)
    assert world.ids("a.t") == [1, 3, 4, 5]
    assert run.batches == 2
    forget_commit(world.checkpoint(pipeline), 1)
    Path(counter.path).write_text("7")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 3, 4, 5, 6, 7]


def test_a_batch_that_was_planned_and_not_committed_is_read_again(world: Any, counter: CounterSource) -> None:
    pipeline = counter.incremental() >> world.sink("a.t")
    with dies_before_commit():
        world.run(pipeline)
    Path(counter.path).write_text("9")
    world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 10))
    assert [s.summary["helios.batch"] for s in world.load("a.t").snapshots()] == ["0", "1"]


@pytest.mark.landing
def test_a_lost_checkpoint_resumes_at_the_position_of_its_target(world: Any, counter: CounterSource) -> None:
    pipeline = counter.incremental() >> world.sink("a.t")
    world.run(pipeline)
    Path(counter.path).write_text("8")
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == list(range(1, 9))


def test_it_is_read_once_and_identical_inputs_are_not_appended_again(world: Any, counter: CounterSource) -> None:
    pipeline = counter >> world.sink("a.t")
    for _ in range(2):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4, 5]
    assert world.kinds().count("skipped") == 1


@pytest.mark.landing
def test_it_is_followed_beside_a_table(world: Any, counter: CounterSource) -> None:
    from helios import union

    world.fill("a.s", [100, 101])
    pipeline = counter.incremental() >> union(world.source("a.s").incremental()) >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", [102])
    Path(counter.path).write_text("6")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4, 5, 6, 100, 101, 102]


def test_another_beginning_is_refused(world: Any, counter: CounterSource, tmp_path: Path) -> None:
    world.run((counter.incremental() >> world.sink("a.t")).named("counted"))
    other = tmp_path / "other.txt"
    other.write_text("3")
    moved = CounterSource(path=str(other)).incremental()
    with pytest.raises(CheckpointError, match="of a pipeline that reads"):
        world.run((moved >> world.sink("a.t")).named("counted"))


def test_a_source_that_cannot_be_read_again_is_not_exactly_once(
    counter: CounterSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = SourceRow(reader="tests.toy.counter_reader:CounterReader", rereadable=False)
    monkeypatch.setitem(sources.SOURCES, CounterSource, row)
    sink = Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path))
    (counter >> sink).check()
    with pytest.raises(CheckFailed, match="cannot be read again"):
        (counter >> sink.exactly_once()).check()


def test_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    unknown = CounterSource(path="x") >> Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path))
    with pytest.raises(CheckFailed, match="CounterSource is no kind of source that Helios knows"):
        unknown.plan()
