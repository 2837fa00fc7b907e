"""Who writes a table: pipelines that start together, folders by other names, ranges, and names that are taken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from helios import Files, Pipeline, where
from helios.errors import CheckpointError, HeliosError, InputError
from helios.plan.notes import with_notes

pytestmark = pytest.mark.promise("identity")


def upsert(world: Any, source: str, name: str) -> Pipeline:
    sink = world.sink("a.t").upsert("id", order_by="seq", delete_when="op = 'd'")
    pipeline: Pipeline = world.source(source).incremental(poll=1) >> sink
    return pipeline.named(name)


@pytest.mark.short
def test_upserts_that_start_together_do_not_bring_back_deleted_keys(world: Any) -> None:
    world.fill("a.one", [0, 1], seq="1", op="'u'")
    world.fill("a.one", [1], seq="10", op="'d'")
    world.fill("a.two", [1, 10], seq="5", op="'u'")
    both = [upsert(world, "a.one", "a"), upsert(world, "a.two", "b")]
    assert world.runner(both, once=True).run()
    world.fill("a.two", [1], seq="5", op="'u'")
    assert world.runner(both, once=True).run()
    assert world.ids("a.t") == [0, 10]


def test_upserts_by_other_orders_that_start_together_are_refused(world: Any) -> None:
    world.fill("a.one", [0, 1], seq="1", op="'u'")
    world.fill("a.two", [1, 10], seq="5", op="'u'")
    sink = world.sink("a.t").upsert("id", order_by="seq + 0")
    both = [upsert(world, "a.one", "a"), (world.source("a.two").incremental(poll=1) >> sink).named("b")]
    runner = world.runner(both, once=True)
    assert not runner.run()
    told = [str(one["error"]) for one in runner.status()]
    assert "a also upserts into local.a.t" in told[1]
    assert "`helios run --beside a`" in told[1]
    assert "`helios run --beside b`" in told[0]
    # The fix of both errors, as it is written.
    assert world.runner(both, once=True, beside=["a", "b"]).run()
    assert world.runner(both, once=True).run()


def test_pipelines_that_start_together_are_told(world: Any) -> None:
    world.fill("a.s", range(20))
    pipelines = [(world.source("a.s").incremental(poll=1) >> world.sink("a.t")).named(name) for name in ("a", "b")]
    assert world.runner(pipelines, once=True).run()
    told = [event.message for event in world.events if event.kind == "noted"]
    assert told == [
        "b, of the same script, writes rows of local.a.s, too: rows that both read come twice",
        "a, of the same script, writes rows of local.a.s, too: rows that both read come twice",
    ] or told[::-1] == [
        "b, of the same script, writes rows of local.a.s, too: rows that both read come twice",
        "a, of the same script, writes rows of local.a.s, too: rows that both read come twice",
    ]
    plans = [world.plan(one) for one in pipelines]
    assert not with_notes(plans[0], plans)[0].write.notes[1:]


def test_a_repair_that_starts_with_its_follower_is_refused(world: Any) -> None:
    world.fill("a.s", range(20))
    follower = (world.source("a.s").incremental(poll=1) >> world.sink("a.t")).named("f")
    repair = (world.source("a.s") >> where("id < 5") >> world.sink("a.t").overwrite("id < 5")).named("r")
    world.runner([repair, follower], once=True).run()  # the repair is refused unless the follower is done before
    world.run(follower)
    assert Counter(world.ids("a.t")) == Counter(range(20))


@pytest.mark.parametrize("mode", ["overwrite", "overwrite_partitions"])
@pytest.mark.cases(short="overwrite")
def test_a_range_ahead_of_a_follower_is_refused(world: Any, mode: str) -> None:
    world.fill("a.s", range(4), day="1")
    follower = (world.source("a.s").incremental(poll=1) >> world.sink("a.t").partition_by("day")).named("f")
    world.run(follower)
    world.fill("a.s", range(10, 14), day="9")
    first, last = (snapshot.id for snapshot in world.load("a.s").snapshots())
    sink = world.sink("a.t").overwrite("day = 9") if mode == "overwrite" else world.sink("a.t").overwrite_partitions()
    rows = world.source("a.s").between(first, last) >> where("day = 9")
    with pytest.raises(InputError, match=r"f follows local\.a\.s into local\.a\.t, and has read it up to") as refused:
        world.run((rows >> sink).named("r"))
    assert str(refused.value.fix).startswith("run f until it has read all of local.a.s")
    world.run(follower)
    world.run((rows >> sink).named("r"))
    world.run(follower)
    assert Counter(world.ids("a.t")) == Counter([*range(4), *range(10, 14)])


def test_a_followed_overwrite_of_partitions_begins_beside_no_follower(world: Any) -> None:
    world.fill("a.s", range(4), day="1")
    follower = (world.source("a.s").incremental(poll=1) >> world.sink("a.t").partition_by("day")).named("f")
    world.run(follower)
    world.fill("a.s", range(10, 14), day="9")
    other = (world.source("a.s").incremental(poll=1) >> world.sink("a.t").overwrite_partitions()).named("r")
    with pytest.raises(CheckpointError, match="that pipeline f has written"):
        world.run(other)


def land(folder: Path, name: str, *ids: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in ("id", *ids)))


def files(world: Any, path: str) -> Any:
    return Files.source(path, "csv", schema="id bigint")


SPELLINGS = ("{}/", "file://{}", "{}/*.csv", "{}/../in", "{}/1.csv", "{}*")


@pytest.mark.short
def test_a_folder_is_known_by_any_spelling(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "1.csv", 1, 2)
    world.run((files(world, str(folder)).incremental(poll=1) >> world.sink("a.t")).named("f"))
    for spelling in SPELLINGS:
        again = files(world, spelling.format(folder)).incremental(poll=1) >> world.sink("a.t")
        with pytest.raises(CheckpointError, match="that pipeline f has written"):
            world.run(again.named("g"))
    land(world.folder / "in2", "1.csv", 7)
    world.run((files(world, f"{folder}2").incremental(poll=1) >> world.sink("a.t")).named("h"))
    assert world.ids("a.t") == [1, 2, 7]


def test_a_repair_from_a_folder_that_another_follows_is_refused(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "1.csv", 1, 2)
    follower = (files(world, str(folder)).incremental(poll=1) >> world.sink("a.t")).named("f")
    world.run(follower)
    land(folder, "2.csv", 3)
    repair = (files(world, f"{folder}/") >> where("id > 1") >> world.sink("a.t").overwrite("id > 1")).named("r")
    with pytest.raises(InputError, match="f follows") as refused:
        world.run(repair)
    assert str(refused.value.fix).endswith("then `helios run --beside f`.")
    world.run(follower)
    world.run(repair, beside=["f"])
    world.run(follower)
    assert world.ids("a.t") == [1, 2, 3]


def test_was_names_no_pipeline_that_another_goes_beside(world: Any) -> None:
    world.fill("a.s", range(10))

    def part(rest: int, name: str) -> Pipeline:
        rows = world.source("a.s").incremental(poll=1) >> where(f"id % 2 = {rest}")
        pipeline: Pipeline = rows >> world.sink("a.t")
        return pipeline.named(name)

    world.run(part(0, "a"))
    world.run(part(1, "b"), beside=["a"])
    world.fill("a.s", range(10, 20))
    world.run(part(1, "b"))
    mistaken = (world.source("a.s").incremental(poll=1) >> where("id % 2 = 0") >> world.sink("a.t")).named("b", was="a")
    with pytest.raises(CheckpointError, match="has a record of a and one of b: was= is for") as refused:
        world.run(mistaken)
    # The fix, as it is written: a name that is free.
    assert "a name that is free" in str(refused.value.fix)
    world.run((world.source("a.s").incremental(poll=1) >> where("id % 2 = 0") >> world.sink("a.t")).named("c", was="a"))
    assert Counter(world.ids("a.t")) == Counter(range(20))


def rolled_back(world: Any) -> Pipeline:
    """A pipeline that has run twice as `a`, and whose target was rolled back behind its first batch."""
    world.fill("a.s", range(5))
    followed = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(followed.named("a"))
    first = world.load("a.t").snapshots()[0].id
    world.fill("a.s", range(5, 10))
    world.run(followed.named("a"))
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first})")
    return cast("Pipeline", followed)


def test_was_moves_nothing_where_the_target_was_rolled_back(world: Any) -> None:
    followed = rolled_back(world)
    with pytest.raises(HeliosError, match="no longer in its history"):
        world.run(followed.named("b", was="a"))
    with pytest.raises(HeliosError, match="no longer in its history"):  # and not: the checkpoint is lost
        world.run(followed.named("a"))


def test_a_branch_of_a_filled_main_is_told_by_plan(world: Any) -> None:
    world.fill("a.s", range(5))
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t"))
    staged = world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("staged")
    plan = world.plan(staged)
    [note] = with_notes(plan, [plan])[0].write.notes
    assert note.startswith("local.a.t has written rows of local.a.s, which this pipeline would write once more")
    with pytest.raises(CheckpointError, match="would write them once more") as refused:
        world.run(staged)
    assert "was=" not in str(refused.value.fix)
    # The fix, as it is written.
    last = world.load("a.s").snapshots()[0].id
    newer = world.source("a.s").incremental(poll=1, start=last) >> world.sink("a.t").branch("staged")
    world.fill("a.s", range(5, 8))
    world.run(newer, beside=["local.a.t"])
    rows = world.load("a.t").iceberg.scan(snapshot_id=world.load("a.t").branches()["staged"]).to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(8))


@pytest.mark.parametrize("kind", ["orders that are not stored", "changes"])
def test_was_serves_upserts_whose_order_the_table_lacks(world: Any, kind: str) -> None:
    world.fill("a.s", range(5), n="id")
    source = world.source("a.s").incremental(poll=1)
    if kind == "changes":
        rows, sink = source.changes(keys=["id"]), world.sink("a.t").upsert("id")
    else:
        rows, sink = source, world.sink("a.t").upsert("id", order_by="n", store_order=False)
    world.run((rows >> sink).named("a"))
    world.fill("a.s", [5], n="id")
    world.run((rows >> sink).named("b", was="a"))
    assert world.ids("a.t") == list(range(6))


def test_a_new_checkpoint_serves_a_renamed_pipeline_whose_target_was_rolled_back(world: Any) -> None:
    followed = rolled_back(world)
    world.run(followed.named("b", was="a"), new_checkpoint=True)
    world.fill("a.s", [10])
    world.run(followed.named("b", was="a"))
    assert world.ids("a.t")[-1] == 10


def test_upserts_of_a_branch_are_no_matter_of_main(world: Any) -> None:
    world.fill("a.one", [0, 1], seq="1", op="'u'")
    world.fill("a.two", [1, 10], seq="5", op="'u'")
    world.run(upsert(world, "a.one", "a"))
    sink = world.sink("a.t").upsert("id", order_by="seq", delete_when="op = 'd'").branch("dev")
    other = (world.source("a.two").incremental(poll=1) >> sink).named("b")
    plan = world.plan(other)
    assert with_notes(plan, [plan])[1] == []
    world.run(other)
    plan = world.plan(upsert(world, "a.one", "a"))
    assert with_notes(plan, [plan])[1] == []
