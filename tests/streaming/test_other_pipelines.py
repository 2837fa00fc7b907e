"""Pipelines that begin on a table: rows of their sources that others have written, and tables that were renamed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helios import Memory, Pipeline, dedupe, expect, join, union, watermark, where
from helios.errors import CheckpointError, HeliosError, InputError
from helios.plan.notes import with_notes
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.replay.replay import Replay
from helios.spark.sinks.rollbacks import RollbackGuard
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = pytest.mark.promise("identity")


def rename(world: Any, old: str, new: str) -> None:
    world.sql(f"ALTER TABLE local.{old} RENAME TO {new}")


@pytest.mark.short
def test_a_table_that_was_renamed_with_its_sink_is_no_new_table(world: Any, copy: Pipeline) -> None:
    rename(world, "a.t", "a.u")
    world.fill("a.s", [20])
    renamed = world.source("a.s").incremental(poll=1) >> world.sink("a.u")
    told = r"local\.a\.u holds rows of local\.a\.s that pipeline local\.a\.t has written"
    with pytest.raises(CheckpointError, match=told) as refused:
        world.run(renamed)
    assert world.ids("a.u") == list(range(20))
    # The first fix of the error, as it is written.
    assert '.named("local.a.u", was="local.a.t")' in str(refused.value.fix)
    same = renamed.named("local.a.u", was="local.a.t")
    world.run(same)
    world.fill("a.s", [21])
    world.run(same)
    world.run(renamed)  # is the same pipeline by now
    assert world.ids("a.u") == list(range(22))
    assert [key for key in world.load("a.u").iceberg.properties if key.startswith("helios.ledger")] == [
        "helios.ledger.local.a.u"
    ]


@pytest.mark.parametrize("new_checkpoint", [False, True])
def test_a_named_pipeline_goes_on_when_its_table_is_renamed(world: Any, new_checkpoint: bool) -> None:
    """Deletes and orders that the checkpoint remembers by the name of the table go along."""
    columns = {"n": "CAST(1 AS int)", "gone": "id = 2"}

    def into(table: str) -> Pipeline:
        sink = world.sink(table).upsert("id", order_by="n", delete_when="gone", store_order=False)
        pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> sink
        return pipeline.named("kept")

    world.fill("a.s", [1, 2, 3], **columns)
    world.run(into("a.t"))
    rename(world, "a.t", "a.u")
    world.fill("a.s", [2, 3], n="CAST(0 AS int)", gone="false")  # older than the delete, and than the row
    world.fill("a.s", [4], n="CAST(0 AS int)", gone="false")
    world.run(into("a.u"), new_checkpoint=new_checkpoint)
    world.run(into("a.u"))
    assert world.ids("a.u") == [1, 3, 4]
    with pytest.raises(CheckpointError, match=r"writes local\.a\.u, not local\.a\.other"):
        world.run(into("a.other"))


def test_was_of_another_table_moves_nothing(world: Any, copy: Pipeline) -> None:
    before = world.checkpoint(copy)
    other = (world.source("a.s").incremental(poll=1) >> world.sink("a.other")).named("new", was="local.a.t")
    with pytest.raises(CheckpointError, match=r"writes local\.a\.t, not local\.a\.other"):
        world.run(other)
    assert before.exists()
    assert not world.checkpoint(other).exists() or not list(world.checkpoint(other).rglob("identity.json"))
    world.fill("a.s", [20])
    world.run(copy)
    assert world.ids("a.t") == list(range(21))


@pytest.mark.short
def test_a_second_pipeline_of_the_same_source_is_told_and_may_stand_beside(world: Any, copy: Pipeline) -> None:
    second = copy.named("second")
    with pytest.raises(CheckpointError, match=r"would write them once more") as refused:
        world.run(second)
    assert "run once with `helios run --beside local.a.t`" in str(refused.value.fix)
    with pytest.raises(CheckpointError, match=r"would write them once more"):
        world.run(second, new_checkpoint=True)
    world.run(second, beside=["local.a.t"])
    world.fill("a.s", [20])
    world.run(second)  # asks nothing any more
    world.run(copy)
    assert Counter(world.ids("a.t")) == Counter([*range(21), *range(21)])


@pytest.mark.parametrize("kind", ["other source", "memory", "whole", "partitions", "delete", "nothing landed"])
def test_pipelines_that_share_no_rows_begin(world: Any, kind: str) -> None:
    world.fill("a.s", [1])
    world.fill("a.other", [2])
    first = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    if kind == "partitions":
        first = world.source("a.s").incremental(poll=1) >> world.sink("a.t").partition_by("id")
    if kind == "nothing landed":
        first = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    world.run(first)
    second = {
        "other source": world.source("a.other").incremental(poll=1) >> world.sink("a.t"),
        "memory": Memory.source([{"id": 2}]) >> world.sink("a.t"),
        "whole": world.source("a.s") >> world.sink("a.t").overwrite(),
        "partitions": world.source("a.s") >> world.sink("a.t").overwrite_partitions(),
        "delete": world.source("a.s") >> world.sink("a.t").delete("id"),
        "nothing landed": world.source("a.s").incremental(poll=1) >> world.sink("a.t"),
    }[kind]
    world.run(second.named("second"))
    there = {"whole": [1], "partitions": [1], "nothing landed": [1], "delete": []}
    assert world.ids("a.t") == there.get(kind, [1, 2])


def test_a_source_in_a_union_and_one_that_was_renamed_are_the_same(world: Any, copy: Pipeline) -> None:
    rename(world, "a.s", "a.renamed")
    world.fill("a.more", [100])
    both = world.source("a.more").incremental(poll=1) >> union(world.source("a.renamed").incremental(poll=1))
    with pytest.raises(CheckpointError, match=r"holds rows of local\.a\.s that pipeline local\.a\.t has written"):
        world.run((both >> world.sink("a.t")).named("second"))
    assert world.ids("a.t") == list(range(20))


@pytest.mark.short
def test_a_branch_of_a_main_that_the_pipeline_has_filled(world: Any, copy: Pipeline) -> None:
    """On a branch that is made from main the rows of main would be there twice."""
    staged = world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("staged")
    with pytest.raises(CheckpointError, match=r"that pipeline local\.a\.t has written"):
        world.run(staged)
    world.sql("ALTER TABLE local.a.t CREATE BRANCH staged")
    with pytest.raises(CheckpointError, match=r"that pipeline local\.a\.t has written"):
        world.run(staged)
    world.fill("a.s", [20])
    world.run(copy)  # main goes on, and its newest commit is not the branch's
    with pytest.raises(CheckpointError, match=r"that pipeline local\.a\.t has written"):
        world.run(staged)
    world.run(staged, beside=["local.a.t"])
    assert world.ids("a.t") == list(range(21))


@pytest.mark.parametrize("followed", [True, False])
def test_routed_tables_of_another_pipeline(world: Any, followed: bool) -> None:
    world.fill("a.s", range(4), part="CAST(id % 2 AS string)")
    source = world.source("a.s").incremental(poll=1) if followed else world.source("a.s")
    routed = source >> world.sink("a.r").route(by="part")
    world.run(routed)
    told = r"local\.a\.r_\d holds rows of local\.a\.s that pipeline local\.a\.r has"
    with pytest.raises(CheckpointError, match=told) as refused:
        world.run(routed.named("second"))
    assert "was=" not in str(refused.value.fix)  # routed tables do not take another name
    world.run(routed.named("second"), beside=["local.a.r"])
    assert sorted([*world.ids("a.r_0"), *world.ids("a.r_1")]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_batch_of_united_sources_writes_the_rows_of_both(world: Any, copy: Pipeline) -> None:
    world.fill("a.more", [100])
    united = world.source("a.more") >> union(world.source("a.s")) >> world.sink("a.t")
    with pytest.raises(CheckpointError, match=r"holds rows of local\.a\.s that pipeline local\.a\.t has written"):
        world.run(united.named("second"))
    joined = world.source("a.more") >> join(world.source("a.s"), on="id", how="left") >> world.sink("a.t")
    world.run(joined.named("third"))
    assert world.ids("a.t") == [*range(20), 100]


def test_pipelines_that_one_script_declares_stand_beside_each_other(world: Any) -> None:
    world.fill("a.s", range(4))
    halves = [
        (world.source("a.s").incremental(poll=1) >> where(f"id % 2 = {n}") >> world.sink("a.t")).named(f"half{n}")
        for n in (0, 1)
    ]
    for _ in range(2):
        assert world.runner(halves, once=True).run()
    assert world.ids("a.t") == [0, 1, 2, 3]


def test_what_is_kept_under_both_names_is_not_chosen_from(world: Any, copy: Pipeline) -> None:
    named = copy.named("kept", was="local.a.t")
    world.run(named)
    rename(world, "a.t", "a.u")
    moved = (world.source("a.s").incremental(poll=1) >> world.sink("a.u")).named("kept")
    landed = world.checkpoint(named) / "helios" / "landed"
    (landed / "local.a.u.json").write_text((landed / "local.a.t.json").read_text())
    with pytest.raises(
        CheckpointError,
        match=r"beside those of its former name, local\.a\.t\. Fix: if a move was interrupted, delete helios/landed",
    ):
        world.run(moved)
    (landed / "local.a.u.json").unlink()  # the fix
    world.fill("a.s", [20])
    world.run(moved)
    assert world.ids("a.u") == list(range(21))


def test_a_repair_beside_a_follower_reads_what_that_has_read(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", [20, 21])  # that the follower has not read yet
    repair = (world.source("a.s") >> world.sink("a.t").overwrite("id >= 0")).named("repair")
    with pytest.raises(InputError, match=r"follows local\.a\.s into local\.a\.t, and has read it up to") as refused:
        world.run(repair)
    assert world.ids("a.t") == list(range(20))
    # The first fix of the error, as it is written.
    at = world.load("a.s").snapshots()[1].id
    assert f".at_snapshot({at})" in str(refused.value.fix)
    pinned = world.source("a.s").at_snapshot(at) >> world.sink("a.t").overwrite("id >= 0")
    world.run(pinned.named("repair"))
    world.run(copy)
    assert world.ids("a.t") == list(range(22))
    world.run(repair)  # the second one: both have read the same
    world.fill("a.s", [22])
    world.run(copy)
    assert world.ids("a.t") == list(range(23))
    world.fill("a.s", [23])
    world.run(repair, beside=["local.a.t"])
    world.run(copy)
    assert Counter(world.ids("a.t")) == Counter([*range(24), 23])


def test_a_repair_in_the_script_of_its_follower_is_refused_all_the_same(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", [20])
    repair = (world.source("a.s") >> world.sink("a.t").overwrite("id >= 0")).named("repair")
    runner = world.runner([repair], declared_names=["local.a.t"])
    assert not runner.run()
    assert "has read it up to snapshot" in str(runner.status()[0]["error"])
    assert world.ids("a.t") == list(range(20))
    assert world.runner([repair], beside=["local.a.t"]).run()
    assert world.ids("a.t") == list(range(21))


def upserts(world: Any, source: str, name: str, **how: Any) -> Pipeline:
    how = {"order_by": "n", "delete_when": "gone"} | how
    pipeline: Pipeline = world.source(source).incremental(poll=1) >> world.sink("a.t").upsert("id", **how)
    return pipeline.named(name)


@pytest.fixture
def feeds(world: Any) -> None:
    """Two sources; the first one deletes key 2 with order 5."""
    world.fill("a.s", [1, 2], n="CAST(1 AS int)", gone="false")
    world.fill("a.s", [2], n="CAST(5 AS int)", gone="true")
    world.fill("a.more", [2, 3], n="CAST(4 AS int)", gone="false")


@pytest.mark.short
@pytest.mark.usefixtures("feeds")
def test_a_second_pipeline_does_not_bring_back_what_the_first_one_deleted(world: Any) -> None:
    world.run(upserts(world, "a.s", "first"))
    second = upserts(world, "a.more", "second", order_by="n + 0")
    told = r"first also upserts into local\.a\.t, but with other keys, order_by or options\. first remembers "
    with pytest.raises(InputError, match=told) as refused:
        world.run(second)
    assert world.ids("a.t") == [1]
    # The first two fixes of the error, as they are written.
    fix = str(refused.value.fix)
    assert fix.startswith("give both pipelines the same keys and the same order_by column")
    world.run(upserts(world, "a.more", "second"))
    assert world.ids("a.t") == [1, 3]
    assert "source >> union(other) >> sink" in fix
    both = world.source("a.s").incremental(poll=1) >> union(world.source("a.more").incremental(poll=1))
    united = (both >> world.sink("a.u").upsert("id", order_by="n", delete_when="gone")).named("both")
    world.run(united)
    assert world.ids("a.u") == [1, 3]


@pytest.mark.usefixtures("feeds")
def test_upserts_that_stand_beside_each_other_ask_once(world: Any) -> None:
    unordered = {"delete_when": None, "order_by": None}
    first, second = upserts(world, "a.s", "first"), upserts(world, "a.more", "second", **unordered)
    world.run(first)
    with pytest.raises(InputError, match="first remembers deleted keys") as refused:
        world.run(second)
    assert "run once with `helios run --beside first`" in str(refused.value.fix)
    world.run(second, beside=["first"])
    for number, run in enumerate((second, first, second)):
        world.fill("a.more", [10 + number], n="CAST(4 AS int)", gone="false")
        world.fill("a.s", [20 + number], n="CAST(4 AS int)", gone="false")
        world.run(run)
    world.run(second, new_checkpoint=True)
    world.run(first, new_checkpoint=True)
    assert world.ids("a.t") == [1, 2, 3, 10, 11, 12, 20, 21, 22]  # that 2 is back was asked for


@pytest.mark.usefixtures("feeds")
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"delete_when": None, "store_order": False}, "first remembers the newest order_by value of each key"),
        ({"delete_when": None, "order_by": "n + 1"}, "first remembers the newest order_by value of each key"),
        ({"delete_when": None}, None),
        ({"delete_when": None, "order_by": None}, None),
    ],
)
def test_what_the_table_stores_is_compared_there(world: Any, how: dict[str, Any], told: str | None) -> None:
    world.fill("a.one", [1], n="CAST(1 AS int)", gone="false")
    world.run(upserts(world, "a.one", "first", **how))
    second = upserts(world, "a.more", "second", delete_when=None)
    if told is None:
        world.run(second)
        assert world.ids("a.t") == [1, 2, 3]
    else:
        with pytest.raises(InputError, match=told):
            world.run(second)


@pytest.mark.usefixtures("feeds")
def test_a_pipeline_that_begins_to_delete_asks_then(world: Any) -> None:
    first = upserts(world, "a.one", "first", delete_when=None, order_by=None)
    second = upserts(world, "a.more", "second", delete_when=None)
    world.fill("a.one", [1], n="CAST(1 AS int)", gone="false")
    world.run(first)
    world.run(second)
    deletes = upserts(world, "a.more", "second")
    with pytest.raises(InputError, match=r"first also upserts into .*, but with .*\. second remembers deleted keys"):
        world.run(deletes)
    world.run(deletes, beside=["first"])
    world.run(deletes)
    world.run(first)


def test_plan_and_check_tell_of_the_rows_of_others(world: Any, copy: Pipeline) -> None:
    def notes(pipeline: Pipeline, *more: Pipeline) -> str:
        plans = [world.plan(one) for one in (pipeline, *more)]
        plan, problems = with_notes(plans[0], plans)
        return " ".join([*plan.write.notes, *(problem.what for problem in problems)])

    second = copy.named("second")
    assert notes(copy) == ""
    checkpoint = world.checkpoint(copy)
    checkpoint.rename(checkpoint.with_name("away"))
    assert f"holds rows of local.a.t, but its checkpoint file://{checkpoint} is lost" in notes(copy)
    checkpoint.with_name("away").rename(checkpoint)
    assert "which this pipeline would write once more: the first run of this pipeline is refused" in notes(second)
    assert "--beside local.a.t" in notes(second)
    assert "too: rows that both have read are in the table twice" in notes(second, copy)
    world.run(second, beside=["local.a.t"])
    assert "too: rows that both have read are in the table twice" in notes(second)
    keyed = (world.source("a.s").incremental() >> world.sink("a.t").upsert("id")).named("second")
    assert "local.a.s, too: rows of equal keys replace each other" in notes(keyed)
    whole = world.source("a.s") >> world.sink("a.t").overwrite("id >= 0")
    assert "local.a.t follows local.a.s into this table" in notes(whole.named("repair"))
    once = (world.source("a.s") >> world.sink("a.once")).named("once")
    world.run(once)
    assert notes(once) == ""
    world.fill("a.s", [20])
    assert "rows in both are duplicated. To append only what is new, follow it" in notes(once)
    rename(world, "a.s", "a.renamed")
    assert "holds the rows of local.a.renamed as of" in notes(
        (world.source("a.renamed") >> world.sink("a.once")).named("once")
    )
    for source in ("a.one", "a.more"):
        world.fill(source, [2, 3], n="CAST(4 AS int)", gone="false")
    both = [upserts(world, "a.one", "one"), upserts(world, "a.more", "two", order_by="n + 0")]
    told = "two also upserts into local.a.t, but with other keys, order_by or options. two remembers"
    assert told in notes(*both)


# a source that was renamed

READS = {
    "ranges": lambda world, source: world.source(source).incremental(poll=1) >> world.sink("a.t"),
    "once": lambda world, source: world.source(source) >> world.sink("a.t"),
    "upsert": lambda world, source: (
        world.source(source).incremental(poll=1)
        >> world.sink("a.t").upsert("id", order_by="n", delete_when="id = 3", store_order=False)
    ),
    "stateful": lambda world, source: (
        world.source(source).incremental(poll=1)
        >> watermark("at", "1 day")
        >> dedupe("id", within="1 day")
        >> world.sink("a.t")
    ),
}


@pytest.mark.cases(short="ranges")
@pytest.mark.parametrize("kind", READS)
def test_a_source_that_was_renamed_is_the_same_table(world: Any, kind: str) -> None:
    columns = {"n": "CAST(1 AS int)", "at": "TIMESTAMP '2026-01-01 00:00:00' + make_dt_interval(10 * id)"}
    waits = -1 if kind == "stateful" else None  # the newest row waits for its watermark
    world.fill("a.s", [1, 2], **columns)
    world.run(READS[kind](world, "a.s"))
    if kind == "once":
        rename(world, "a.s", "a.r")
        world.run(READS[kind](world, "a.r"))  # has appended this state already
        assert world.ids("a.t") == [1, 2]
        return
    world.fill("a.s", [4], **columns)
    with dies_before_commit():
        world.run(READS[kind](world, "a.s"))
    rename(world, "a.s", "a.r")
    world.run(READS[kind](world, "a.r"))
    assert world.ids("a.t") == [1, 2, 4][:waits]
    world.fill("a.r", [5], **columns)
    world.run(READS[kind](world, "a.r"))
    assert world.ids("a.t") == [1, 2, 4, 5][:waits]
    # Another table under the former name is another one, and so is one under the new name.
    world.fill("a.s", [9], **columns)
    with pytest.raises(HeliosError, match=r"the pipeline now reads local\.a\.s"):
        world.run(READS[kind](world, "a.s"))
    rename(world, "a.r", "a.old")
    rename(world, "a.s", "a.r")
    with pytest.raises(HeliosError, match="was replaced by another table"):
        world.run(READS[kind](world, "a.r"))
    assert world.ids("a.t") == [1, 2, 4, 5][:waits]


@pytest.mark.parametrize("landed", [False, True])
def test_a_batch_that_landed_is_known_when_its_source_is_renamed(world: Any, copy: Pipeline, landed: bool) -> None:
    world.fill("a.s", [20])
    with dies_at(RollbackGuard, "note_commit") if landed else dies_before_commit():
        world.run(copy)
    rename(world, "a.s", "a.r")
    renamed = world.source("a.r").incremental(poll=1) >> world.sink("a.t")
    world.run(renamed)
    assert world.ids("a.t") == list(range(21))
    world.fill("a.r", [21])
    world.run(renamed, new_checkpoint=True)
    assert world.ids("a.t") == list(range(22))


def test_expiry_keeps_what_a_reader_of_a_renamed_table_has_not_read(world: Any, copy: Pipeline) -> None:
    for number in range(20, 24):
        world.fill("a.s", [number])
    rename(world, "a.s", "a.r")
    kept = world.load("a.r").snapshots()
    world.load("a.r").expire(datetime.now(UTC) + timedelta(days=1), retain_last=1)
    assert len(world.load("a.r").snapshots()) >= 5 < len(kept) + 1
    world.run(world.source("a.r").incremental(poll=1) >> world.sink("a.t"))
    assert world.ids("a.t") == list(range(24))


def test_rejected_rows_go_along_with_a_pipeline_that_is_renamed(world: Any) -> None:
    def pipeline(most: int) -> Pipeline:
        rows = world.source("a.s").incremental(poll=1) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
        made: Pipeline = rows >> world.sink("a.t").quarantine("a.bad")
        return made

    world.fill("a.s", range(4))
    world.run(pipeline(2))
    world.run(pipeline(2).named("kept", was="local.a.t"))
    assert world.ids("a.t") == [0, 1]
    assert Replay(world.plan(pipeline(9).named("kept")), world.spark).run().taken == 2
    assert world.ids("a.t") == [0, 1, 2, 3]
    world.fill("a.s", [4, 10])
    world.run(pipeline(9).named("kept"))
    assert world.ids("a.t") == [0, 1, 2, 3, 4]


def test_a_rename_that_dies_behind_its_claim_keeps_what_was_appended(world: Any) -> None:
    world.fill("a.s", [1])
    first = world.load("a.s").current_snapshot().id

    def pipeline(at: int | None = None) -> Pipeline:
        source = world.source("a.s") if at is None else world.source("a.s").at_snapshot(at)
        made: Pipeline = source >> world.sink("a.t")
        return made

    world.run(pipeline())
    for number in (2, 3):
        world.fill("a.s", [number])
        world.run(pipeline())
    world.expire("a.t")
    renamed = pipeline(first).named("kept", was="local.a.t")
    create = Checkpoint.create

    def dies(self: Any, identity: Any) -> None:
        if identity.pipeline == "kept":
            raise RuntimeError("the driver died")
        create(self, identity)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpoint, "create", dies)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(renamed)
    world.run(renamed)  # has appended this state before
    assert Counter(world.ids("a.t")) == Counter([1, 1, 1, 2, 2, 3])
    record = json.loads(world.load("a.t").iceberg.properties["helios.ledger.kept"])
    assert len(record["appended"]["batches"]) == 3
    assert record["formerly"] == ["local.a.t"]


def test_rejected_rows_of_other_steps_are_replaced_when_the_source_was_renamed(world: Any) -> None:
    def pipeline(source: str, most: int) -> Pipeline:
        rows = world.source(source) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
        made: Pipeline = rows >> world.sink("a.t").quarantine("a.bad")
        return made

    world.fill("a.s", range(3))
    world.run(pipeline("a.s", 0))
    rename(world, "a.s", "a.r")
    world.run(pipeline("a.r", 9))
    assert world.ids("a.t") == [0, 1, 2]
    assert world.rows("a.bad", "payload") == Counter()


def test_was_with_a_new_checkpoint_takes_replays_and_rejected_rows_along(world: Any) -> None:
    columns = {"n": "CAST(1 AS int)", "gone": "false"}

    def pipeline(most: int) -> Pipeline:
        rows = world.source("a.s").incremental(poll=1) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
        made: Pipeline = rows >> world.sink("a.t").upsert("id", order_by="n", delete_when="gone").quarantine("a.bad")
        return made

    world.fill("a.s", range(4), **columns)
    world.run(pipeline(2))
    assert Replay(world.plan(pipeline(3)), world.spark).run().taken == 1
    shutil.rmtree(world.checkpoint(pipeline(2)))
    world.run(pipeline(3).named("kept", was="local.a.t"), new_checkpoint=True)
    world.run(pipeline(3).named("kept"))
    assert Replay(world.plan(pipeline(9).named("kept")), world.spark).run().taken == 1
    assert world.ids("a.t") == [0, 1, 2, 3]


@pytest.mark.usefixtures("feeds")
def test_where_both_have_written_one_pipeline_of_both_has_a_table_of_its_own(world: Any) -> None:
    first = upserts(world, "a.s", "first", delete_when=None)
    second = upserts(world, "a.more", "second", delete_when=None, order_by=None)
    world.run(first)
    world.run(second)
    with pytest.raises(InputError, match="remembers deleted keys") as refused:
        world.run(upserts(world, "a.s", "first"))
    assert "source >> union(other) >> sink, under a new name, into a new table" in str(refused.value.fix)
    both = world.source("a.s").incremental(poll=1) >> union(world.source("a.more").incremental(poll=1))
    world.run((both >> world.sink("a.u").upsert("id", order_by="n", delete_when="gone")).named("both"))
    assert world.ids("a.u") == [1, 3]
    # The second one, which holds under another name of either, too.
    world.run(upserts(world, "a.s", "first"), beside=["second"])
    world.run(upserts(world, "a.s", "new").named("new", was="first"))
    world.run(second.named("other", was="second"))
    world.run(upserts(world, "a.s", "new"))
    world.run(second.named("other"))


def test_a_record_whose_property_is_lost_is_found_by_its_stamps_when_it_is_renamed(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", [20])
    with dies_at(RollbackGuard, "note_commit"):  # the batch is in the target, and Spark does not know
        world.run(copy)
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    world.run(copy.named("kept", was="local.a.t"))
    assert world.ids("a.t") == list(range(21))


def test_a_full_refresh_leaves_the_rows_of_a_namesake(world: Any, copy: Pipeline) -> None:
    world.run(copy.named("kept", was="local.a.t"))
    world.fill("a.s", [20])
    world.run(copy.named("kept"))
    world.load("a.t").expire(datetime.now(UTC) + timedelta(days=1), retain_last=1)  # takes the parent away
    world.fill("a.more", [100])
    world.run(world.source("a.more").incremental(poll=1) >> world.sink("a.t"))  # goes by the former name
    with pytest.raises(InputError, match="is not this pipeline's"):
        world.run(copy.named("kept"), full_refresh=True)
    assert world.ids("a.t") == [*range(21), 100]


@pytest.mark.usefixtures("feeds")
def test_a_full_refresh_under_a_new_name_forgets_the_former_record(world: Any) -> None:
    world.run(upserts(world, "a.s", "old"))
    world.run(upserts(world, "a.s", "new").named("new", was="old"), full_refresh=True)
    world.run(upserts(world, "a.s", "new"))
    world.fill("a.s", [7], n="CAST(1 AS int)", gone="false")
    world.run(upserts(world, "a.s", "new"))
    assert world.ids("a.t") == [1, 7]
    assert "helios.ledger.old" not in world.load("a.t").iceberg.properties


def test_a_former_name_does_not_come_back_by_the_stamps_of_its_commits(world: Any) -> None:
    def pipeline(**name: Any) -> Pipeline:
        checked = world.source("a.s").incremental(poll=1) >> expect({"small": "id < 50"}, on_fail="quarantine")
        made: Pipeline = checked >> world.sink("a.t").quarantine("a.bad")
        return made.named(**name) if name else made

    world.fill("a.s", [1, 60])
    world.run(pipeline())
    world.run(pipeline(name="later", was="local.a.t"))
    world.fill("a.s", [2, 70])
    world.run(pipeline(name="later"))
    for how in ({}, {"new_checkpoint": True}):
        with pytest.raises(CheckpointError, match="that pipeline later has written") as refused:
            world.run(pipeline(), **how)
        assert '.named("local.a.t", was="later")' in str(refused.value.fix)
    assert (world.ids("a.t"), world.rows("a.bad", "pipeline").total()) == ([1, 2], 2)
