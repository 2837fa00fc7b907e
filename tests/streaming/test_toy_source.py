"""A kind of source of another package, which an entry point names: what it gets by that."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helios import Catalog, Iceberg, aggregate, expect, union, where
from helios.catalog.names import TableName
from helios.errors import CheckFailed, CheckpointError, InputError, RunError
from helios.sources import kinds
from helios.spark.maintenance.maintain import expire
from helios.spark.replay.replay import Replay
from helios.table.maintenance import expiry_plan
from helios.table.readers import warehouses
from helios.table.status import statuses
from helios.table.view import View
from tests.suite.deaths import dies_before_commit
from tests.suite.toy import installed

pytestmark = pytest.mark.promise("own-source")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The declared source; its package is installed for the test."""
    for folder in installed(tmp_path / "site"):
        monkeypatch.syspath_prepend(folder)
    kinds._entry_points.cache_clear()
    importlib.invalidate_caches()
    source = importlib.import_module("helios_counter").CounterSource(path=str(tmp_path / "end.txt"))
    Path(source.path).write_text("5")
    yield source
    kinds._entry_points.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "helios_counter"]:
        del sys.modules[name]


@contextmanager
def uninstalled() -> Iterator[None]:
    """Within it, the package of the source is not found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "_entry_points", dict)
        yield


@pytest.mark.short
def test_it_is_followed_once_each_through_restarts_and_a_lost_commit(
    world: Any, counter: Any, forget_commit: Callable[[Path, int], None]
) -> None:
    pipeline = counter.incremental(max_rows=3) >> where("id <> 2") >> world.sink("a.t").exactly_once()
    run = world.run(pipeline)
    assert world.ids("a.t") == [1, 3, 4, 5]
    assert run.batches == 2
    forget_commit(world.checkpoint(pipeline), 1)
    Path(counter.path).write_text("7")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 3, 4, 5, 6, 7]


def test_a_batch_that_was_planned_and_not_committed_is_read_again(world: Any, counter: Any) -> None:
    pipeline = counter.incremental() >> world.sink("a.t")
    with dies_before_commit():
        world.run(pipeline)
    Path(counter.path).write_text("9")
    world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 10))
    assert [s.summary["helios.batch"] for s in world.load("a.t").snapshots()] == ["0", "1"]


def test_a_number_that_falls_is_not_counted_again(world: Any, counter: Any) -> None:
    pipeline = counter.incremental() >> world.sink("a.t").exactly_once()
    for number in (5, 3, 7):
        Path(counter.path).write_text(str(number))
        world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 8))


def test_a_source_without_columns_says_what_is_missing(world: Any, counter: Any) -> None:
    from dataclasses import replace

    with pytest.raises(InputError, match=r"its reader does not tell them.*override schema\(\) in CounterReader"):
        world.run(replace(counter, declared_schema=None).incremental() >> world.sink("a.t"))


@pytest.mark.parametrize("stateful", [False, True])
def test_rows_without_a_declared_column_are_an_error(world: Any, counter: Any, stateful: bool) -> None:
    from dataclasses import replace

    declared = replace(counter, declared_schema="id bigint, note string").incremental()
    plain = declared >> world.sink("a.t")
    counted = declared >> aggregate("id", n="count(note)") >> world.sink("a.t").upsert("id")
    told = r"declares note, but its reader returns rows without it.*read\(\) of helios_counter"
    with pytest.raises(RunError, match=told):
        world.run(counted if stateful else plain)


def test_a_stateful_pipeline_follows_it(world: Any, counter: Any) -> None:
    counted = counter.incremental(max_rows=3) >> aggregate("id % 2 AS odd", n="count(*)")
    pipeline = counted >> world.sink("a.t").upsert("odd")
    world.run(pipeline)
    assert world.rows("a.t", "odd", "n") == Counter({(0, 2): 1, (1, 3): 1})
    Path(counter.path).write_text("9")
    with dies_before_commit():
        world.run(pipeline)
    world.run(pipeline)
    assert world.rows("a.t", "odd", "n") == Counter({(0, 4): 1, (1, 5): 1})


def test_a_pipeline_that_reads_it_can_be_tested(lake: Any, counter: Any) -> None:
    test = lake.test(counter.incremental() >> where("id <> 2") >> Iceberg.sink("local.a.t"))
    test.batch([{"id": 1}, {"id": 2}]).batch([{"id": 3}], kill="before_commit").expect([{"id": 1}, {"id": 3}])
    assert Path(counter.path).read_text() == "5"


@pytest.mark.landing
def test_a_lost_checkpoint_resumes_at_the_position_of_its_target(world: Any, counter: Any) -> None:
    pipeline = counter.incremental() >> world.sink("a.t")
    world.run(pipeline)
    Path(counter.path).write_text("8")
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == list(range(1, 9))


def test_it_is_read_once_and_identical_inputs_are_not_appended_again(world: Any, counter: Any) -> None:
    pipeline = counter >> world.sink("a.t")
    for _ in range(2):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4, 5]
    assert world.kinds().count("skipped") == 1


@pytest.mark.landing
def test_it_is_followed_beside_a_table(world: Any, counter: Any) -> None:
    world.fill("a.s", [100, 101])
    pipeline = counter.incremental() >> union(world.source("a.s").incremental()) >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", [102])
    Path(counter.path).write_text("6")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4, 5, 6, 100, 101, 102]


def test_another_beginning_is_refused(world: Any, counter: Any, tmp_path: Path) -> None:
    world.run((counter.incremental() >> world.sink("a.t")).named("counted"))
    other = tmp_path / "other.txt"
    other.write_text("3")
    moved = type(counter)(path=str(other)).incremental()
    with pytest.raises(CheckpointError, match="of a pipeline that reads"):
        world.run((moved >> world.sink("a.t")).named("counted"))


def test_a_source_that_cannot_be_read_again_is_not_exactly_once(
    counter: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dataclasses import replace

    kind = importlib.import_module("helios_counter.kind")
    monkeypatch.setattr(kind, "COUNTER", replace(kind.COUNTER, rereadable=False))
    sink = Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path))
    (counter >> sink).check()
    with pytest.raises(CheckFailed, match="cannot be read again"):
        (counter >> sink.exactly_once()).check()


def test_an_unknown_kind_is_an_error(counter: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kinds, "GROUP", "nobody.has.this")
    kinds._entry_points.cache_clear()
    unknown = counter >> Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path))
    with pytest.raises(CheckFailed, match="CounterSource is not a kind of source that Helios knows") as raised:
        unknown.plan()
    assert "install a package with this kind as entry point 'nobody.has.this'" in str(raised.value)


@pytest.mark.landing
def test_a_quarantined_row_of_it_is_replayed(world: Any, counter: Any) -> None:
    def pipeline(most: int) -> Any:
        small = expect({"small": f"id < {most}"}, on_fail="quarantine")
        return (counter.incremental() >> small >> world.sink("a.t").quarantine("a.bad")).named("counted")

    world.run(pipeline(4))
    assert world.ids("a.t") == [1, 2, 3]
    assert Replay(world.plan(pipeline(9)), world.spark).run().taken == 2
    assert world.ids("a.t") == [1, 2, 3, 4, 5]


@pytest.mark.landing
def test_expiry_status_and_plan_know_it_beside_a_table(world: Any, counter: Any) -> None:
    """Expiry takes none of its positions for those of the table that is united with it."""
    world.fill("a.s", [100, 101])
    pipeline = (
        counter.incremental() >> union(world.source("a.s").incremental()) >> world.sink("a.t").exactly_once()
    ).named("counted")
    world.run(pipeline)
    world.fill("a.s", [102])
    Path(counter.path).write_text("9")
    places = warehouses([world.catalog])
    view = View(load=lambda name: world.catalog.load(name.partition(".")[2]), warehouses=places)
    [status] = statuses(world.load("a.t"), view)
    assert (status.behind, status.sources) == (4 + 1, (counter.label(), "local.a.s"))
    assert status.notes == ()
    with uninstalled():
        [status] = statuses(world.load("a.t"), view)
    assert (status.behind, status.sources) == (1, (counter.label(), "local.a.s"))
    assert any("no installed package has its kind of source" in note for note in status.notes)
    source = TableName(world.catalog, ("a",), "s")
    planned = expiry_plan(world.load("a.s"), "2199-01-01", None, (), places)
    assert expire(world.spark, source, planned).snapshots == ()  # the reader still needs both
    assert f"read      {counter.label()}" in str(world.plan(pipeline))
    world.run(pipeline)
    planned = expiry_plan(world.load("a.s"), "2199-01-01", None, (), places)
    assert len(expire(world.spark, source, planned).snapshots) == 1
    Path(counter.path).write_text("10")
    world.fill("a.s", [103])
    world.run(pipeline)
    assert world.ids("a.t") == [*range(1, 11), 100, 101, 102, 103]


SCRIPT = """
from helios import Iceberg
from helios_counter import CounterSource

counted = (CounterSource(path="end.txt").incremental() >> Iceberg.sink("a.t")).named("counted")
"""


def test_the_commands_find_it_by_its_entry_point(tmp_path: Path) -> None:
    paths = os.pathsep.join([*installed(tmp_path / "site"), *sys.path])

    def helios(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "helios", *arguments],
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    (tmp_path / "p.py").write_text(SCRIPT)
    assert "CounterSource(end.txt): there is no such file. Fix: write a number into it." in helios("check", "p.py")
    (tmp_path / "end.txt").write_text("3")
    assert "read      CounterSource(end.txt)" in helios("plan", "p.py")
    assert "3 numbers" in helios("doctor", "p.py")
