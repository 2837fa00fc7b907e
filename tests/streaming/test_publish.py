"""`helios branch TABLE NAME --publish`: main has the staged rows once, and its pipelines go on behind them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Pipeline
from helios.errors import HeliosError, InputError
from helios.spark.run import startup
from helios.table.refs import LEDGER
from tests.streaming.publications import published

pytestmark = pytest.mark.promise("publish")


def appends(world: Any, branch: str | None = None, name: str | None = None) -> Pipeline:
    sink = world.sink("a.t")
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> (sink.branch(branch) if branch else sink)
    return pipeline.named(name) if name else pipeline


def staged(world: Any, name: str | None = None) -> Pipeline:
    """A pipeline on a branch that has written three batches."""
    pipeline = appends(world, "staging", name)
    for first in (0, 10, 20):
        world.fill("a.s", range(first, first + 10))
        world.run(pipeline)
    return pipeline


def on(world: Any, branch: str, *columns: str) -> Counter[tuple[Any, ...]]:
    chosen = ", ".join(columns or ("id",))
    return Counter(tuple(row) for row in world.sql(f"SELECT {chosen} FROM local.a.t VERSION AS OF '{branch}'"))


@pytest.mark.short
@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
@pytest.mark.cases(short="unnamed")
def test_the_script_without_the_branch_goes_on_behind_it(world: Any, name: str | None) -> None:
    staged(world, name)
    done = published(world)
    # The first of them is the empty one with which Iceberg makes a branch of an empty table.
    assert (done.commits, done.pipelines) == (4, [name or "local.a.t"])
    assert world.ids("a.t") == list(range(30))
    again = published(world)
    assert (again.has_changes, again.commits) == (False, 0)
    main = appends(world, name=name)
    world.run(main)
    assert world.ids("a.t") == list(range(30)), "nothing new has come"
    world.fill("a.s", range(30, 40))
    world.run(main)
    world.run(main)
    assert world.ids("a.t") == list(range(40))
    assert sorted(on(world, "staging").elements()) == [(id,) for id in range(30)]


@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
def test_the_script_with_the_branch_goes_on_too_and_is_published_again(world: Any, name: str | None) -> None:
    pipeline = staged(world, name)
    published(world)
    world.fill("a.s", range(30, 40))
    world.run(pipeline)
    assert world.ids("a.t") == list(range(30))
    assert sorted(on(world, "staging").elements()) == [(id,) for id in range(40)]
    assert published(world).commits == 1
    assert world.ids("a.t") == list(range(40))
    world.fill("a.s", range(40, 50))
    world.run(appends(world, name=name))
    assert world.ids("a.t") == list(range(50))
    if name is None:  # each follows the source for its own branch
        world.run(pipeline)
        assert sorted(on(world, "staging").elements()) == [(id,) for id in range(50)]
        with pytest.raises(
            InputError, match=r"main of local\.a\.t has moved since staging began.*1 commit by local\.a\.t"
        ):
            published(world)
    else:  # its last batch is in main alone
        with pytest.raises(HeliosError, match="rolled back or replaced"):
            world.run(pipeline)


def test_main_that_began_and_wrote_nothing_takes_over_again(world: Any) -> None:
    pipeline = staged(world)
    published(world)
    main = appends(world)
    world.run(main)
    world.fill("a.s", range(30, 40))
    world.run(pipeline)
    published(world)
    world.fill("a.s", range(40, 50))
    world.run(main)
    world.run(main)
    assert world.ids("a.t") == list(range(50))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
@pytest.mark.landing
def test_deletes_that_the_branch_remembers_count_in_main(world: Any, name: str | None, version: int) -> None:
    def upserts(branch: str | None) -> Pipeline:
        sink = world.sink("a.t").format_version(version)
        sink = sink.branch(branch) if branch else sink
        made: Pipeline = world.source("a.s").incremental(poll=1) >> sink.upsert("id", order_by="n", delete_when="gone")
        return made.named(name) if name else made

    def arrive(*rows: tuple[int, int, bool]) -> None:
        for id, n, gone in rows:
            world.fill("a.s", [id], n=f"{n}", gone=str(gone).lower())

    arrive((1, 1, False), (2, 1, False))
    world.run(upserts("staging"))
    arrive((2, 5, True), (9, 5, True))
    world.run(upserts("staging"))
    assert published(world).pipelines == [name or "local.a.t"]
    arrive((2, 4, False), (9, 4, False), (3, 4, False))
    world.run(upserts(None))
    assert world.ids("a.t") == [1, 3]
    if name is None:
        world.run(upserts("staging"))
        assert sorted(on(world, "staging").elements()) == [(1,), (3,)], "its keys are still there"


def test_main_that_has_moved_is_refused_with_the_choices(world: Any) -> None:
    world.fill("a.t", [100])
    world.fill("a.t", [101])
    staged(world)
    fork = world.load("a.t").current_snapshot().id
    world.compact("a.t")
    with pytest.raises(InputError, match="that only rewrote files") as refused:
        published(world)
    assert f"helios rollback local.a.t {fork}" in str(refused.value.fix)
    world.load("a.t").rollback_to(fork)
    world.fill("a.t", [102])
    with pytest.raises(InputError, match="1 commit by another writer; nothing was published") as refused:
        published(world)
    assert f"helios diff local.a.t --from {fork}" in str(refused.value.fix)
    world.load("a.t").rollback_to(fork)
    published(world)
    assert world.ids("a.t") == [*range(30), 100, 101]


def test_a_batch_pipeline_does_not_append_its_input_again(world: Any) -> None:
    world.fill("a.s", range(10))
    world.run(world.source("a.s") >> world.sink("a.t").branch("staging"))
    published(world)
    world.run(world.source("a.s") >> world.sink("a.t"))
    assert world.ids("a.t") == list(range(10))


def test_a_start_behind_a_publication_that_dies_begins_again(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(world)
    published(world)
    world.fill("a.s", range(30, 40))

    def dies(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(startup, "write_claim", dies)
        with pytest.raises(Exception, match="killed"):
            world.run(appends(world))
    world.run(appends(world))
    assert world.ids("a.t") == list(range(40))
    assert '"published"' not in world.load("a.t").iceberg.properties[f"{LEDGER}local.a.t"]


def test_two_pipelines_of_one_source_are_refused(world: Any) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world))
    world.fill("a.s", range(10, 20))
    snapshot = world.load("a.s").snapshots()[0].id
    branch = world.source("a.s").incremental(poll=1, start=snapshot) >> world.sink("a.t").branch("staging")
    world.run(branch, beside=["local.a.t"])
    with pytest.raises(InputError, match="up to another position"):
        published(world)
    assert world.ids("a.t") == list(range(10))
