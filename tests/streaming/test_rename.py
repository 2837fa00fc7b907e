"""`helios rename`: a table with the records, checkpoints and rejected rows of its pipelines."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from helios import Pipeline, expect, where
from helios.catalog.names import TableName
from helios.errors import CheckpointError, HeliosError, InputError, LeaseError, NotFound
from helios.spark.checkpoint.lease import Lease
from helios.spark.replay.replay import Replay
from helios.spark.run import rename_table as renames
from helios.spark.run.rename_table import Renamed, rename
from helios.table.ledger import staged

pytestmark = pytest.mark.promise("identity")


def name(world: Any, table: str) -> TableName:
    namespace, _, last = table.partition(".")
    return TableName(world.catalog, (namespace,), last)


def renamed(world: Any, old: str, new: str, *others: str) -> Renamed:
    return rename(world.spark, name(world, old), name(world, new), [name(world, other) for other in others])


def upserts(world: Any, into: str, most: int = 5, source: str = "a.s") -> Pipeline:
    """Remembers deletes in its checkpoint, and sets rows aside."""
    rows = world.source(source).incremental(poll=1) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
    sink = world.sink(into).upsert("id", order_by="n", delete_when="gone").quarantine("a.bad")
    pipeline: Pipeline = rows >> sink
    return pipeline


@pytest.fixture
def filled(world: Any) -> None:
    """Rows 1 and 2, of which 2 is deleted, and the rejected row 7; a reader, and a pipeline with a name of its own."""
    world.fill("a.s", [1, 2, 7], n="CAST(1 AS int)", gone="false")
    world.fill("a.s", [2], n="CAST(5 AS int)", gone="true")
    world.fill("a.more", [100])
    world.run(upserts(world, "a.t"))
    world.run(reads(world, "a.t"))
    world.run(named(world, "a.t"))


def reads(world: Any, source: str) -> Pipeline:
    changed = world.source(source).incremental(poll=1).changes("id") >> where("_change_type <> 'UPDATE_BEFORE'")
    deletes = {"order_by": "_change_ordinal", "delete_when": "_change_type = 'DELETE'"}
    pipeline: Pipeline = changed >> world.sink("a.down").upsert("id", **deletes)
    return pipeline


def named(world: Any, into: str) -> Pipeline:
    pipeline: Pipeline = world.source("a.more").incremental(poll=1) >> world.sink(into)
    return pipeline.named("more")


def goes_on(world: Any, into: str) -> None:
    """All of the pipelines continue where they were, under the name of today."""
    world.fill("a.s", [2, 3], n="CAST(4 AS int)", gone="false")  # 2 is older than its delete
    world.fill("a.more", [101])
    world.run(upserts(world, into))
    world.run(named(world, into))
    assert world.ids(into) == [1, 3, 100, 101]
    assert Replay(world.plan(upserts(world, into, most=9)), world.spark).run().taken == 1
    assert world.ids(into) == [1, 3, 7, 100, 101]
    world.run(reads(world, into))
    assert world.ids("a.down") == [1, 3, 7, 100, 101]


def records(world: Any, table: str) -> list[str]:
    return sorted(key for key in world.load(table).iceberg.properties if key.startswith("helios.ledger"))


@pytest.mark.short
@pytest.mark.usefixtures("filled")
def test_what_knows_the_table_goes_on(world: Any) -> None:
    before = world.checkpoint(upserts(world, "a.t"))
    done = renamed(world, "a.t", "a.u", "a.bad", "a.s")
    after = world.checkpoint(upserts(world, "a.u"))
    assert done == Renamed(
        table="local.a.t",
        to="local.a.u",
        pipelines=("local.a.u",),
        checkpoints=(f"file:{after}",),
        quarantines=("local.a.bad",),
    )
    assert records(world, "a.u") == ["helios.ledger.local.a.u", "helios.ledger.more"]
    assert records(world, "a.bad") == ["helios.ledger.local.a.u"]
    assert after.exists()
    assert [file.name for file in before.rglob("*") if file.is_file() and file.suffix == ".json"] == ["renamed.json"]
    goes_on(world, "a.u")


@pytest.mark.usefixtures("filled")
def test_a_script_with_the_former_name_fills_no_second_table(world: Any) -> None:
    renamed(world, "a.t", "a.u", "a.bad")
    with pytest.raises(CheckpointError, match=r"was renamed to local\.a\.u; this run would fill") as refused:
        world.run(upserts(world, "a.t"))
    assert not world.catalog.exists("a.t")
    renamed(world, "a.u", "a.t", "a.bad")  # and back
    goes_on(world, "a.t")
    with pytest.raises(CheckpointError, match=r"was renamed to local\.a\.t"):
        world.run(upserts(world, "a.u"))
    renamed(world, "a.t", "a.w", "a.bad")
    left = str(refused.value.fix).split("delete file:")[-1].removesuffix(".").removesuffix("/")
    Path(left).unlink()
    world.run(upserts(world, "a.t"))  # a new table, as the fix says
    assert world.catalog.exists("a.t")


@pytest.mark.usefixtures("filled")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", ["_rename_table", "_set_properties", "rename_rows", "move", "rename_target", "create"])
def test_a_part_that_fails_is_undone_and_a_broken_off_one_is_finished(
    world: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = renames if hasattr(renames, step) else renames.Checkpoint
    real = getattr(owner, step)

    def fails(*arguments: Any) -> None:
        raise OSError("the disk is full")

    def dies(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, fails)
        with pytest.raises((OSError, HeliosError)):
            renamed(world, "a.t", "a.u", "a.bad")
    goes_on(world, "a.t")
    with monkeypatch.context() as patched:  # a kill: nothing is undone
        patched.setattr(owner, step, dies)
        patched.setattr(renames.ExitStack, "__exit__", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            renamed(world, "a.t", "a.u", "a.bad")
    renamed(world, "a.t", "a.u", "a.bad")
    world.fill("a.s", [4], n="CAST(4 AS int)", gone="false")
    world.run(upserts(world, "a.u"))
    world.run(reads(world, "a.u"))
    assert world.ids("a.u") == world.ids("a.down") == [1, 3, 4, 7, 100, 101]
    assert records(world, "a.u") == ["helios.ledger.local.a.u", "helios.ledger.local.a.u.replay", "helios.ledger.more"]


def test_branches_and_refusals(world: Any, copy: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Did you mean"):
        renamed(world, "a.tt", "a.u")
    with pytest.raises(InputError, match=r"local\.a\.s exists already"):
        renamed(world, "a.t", "a.s")
    with pytest.raises(HeliosError, match=r"does not rename local\.a\.t to nowhere\.u"):
        renamed(world, "a.t", "nowhere.u")
    branch = world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("staged")
    world.run(branch, beside=["local.a.t"])
    plan = world.plan(copy)
    lease = Lease(renames.Checkpoint(world.spark, plan.checkpoint))
    lease.acquire()
    try:
        with pytest.raises(LeaseError) as refused:
            renamed(world, "a.t", "a.u")
        assert str(refused.value.fix) == "stop local.a.t, and repeat the command."
    finally:
        lease.release()
    done = renamed(world, "a.t", "a.new name")
    assert done.pipelines == ("local.a.new name", "local.a.new name@staged")
    world.fill("a.s", [20])
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.`new name`"))
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.`new name`").branch("staged"))
    assert world.ids("a.`new name`") == list(range(21))


def test_a_branch_that_is_made_after_a_rename_is_refused(world: Any, copy: Pipeline) -> None:
    """The snapshots of main still name the pipeline as it was called."""
    renamed(world, "a.t", "a.u")
    branch = world.source("a.s").incremental(poll=1) >> world.sink("a.u").branch("staged")
    with pytest.raises(CheckpointError, match=r"that pipeline local\.a\.u has written"):
        world.run(branch)
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.u"), full_refresh=True)
    assert world.ids("a.u") == list(range(20))


def test_a_given_checkpoint_finds_the_table_again(world: Any, tmp_path: Path) -> None:
    def into(table: str) -> Pipeline:
        made: Pipeline = world.source("a.s").incremental(poll=1) >> world.sink(table).checkpoint(str(tmp_path / "own"))
        return made

    world.fill("a.s", [1])
    world.run(into("a.t"))
    assert renamed(world, "a.t", "a.u").checkpoints == ()
    world.fill("a.s", [2])
    world.run(into("a.u"))
    world.run(into("a.u"))
    assert world.ids("a.u") == [1, 2]


def test_a_batch_that_waits_for_its_audit_goes_along(world: Any) -> None:
    def into(table: str) -> Pipeline:
        sink = world.sink(table).audit({"small": "max(id) < 3"}).publish()
        made: Pipeline = world.source("a.s").incremental(poll=1) >> sink
        return made

    world.fill("a.s", [1])
    world.run(into("a.t"))
    world.fill("a.s", [5])
    with pytest.raises(HeliosError, match="did not pass its audit"):
        world.run(into("a.t"))
    renamed(world, "a.t", "a.u")
    assert staged(world.load("a.u").iceberg.metadata, "local.a.u") is not None
    world.sql("CALL local.system.fast_forward('a.u', 'main', 'helios_audit_local.a.u')")  # somebody accepts it
    world.run(into("a.u"))
    assert world.ids("a.u") == [1, 5]


def test_a_rename_that_is_repeated_late_takes_no_record_back(world: Any, copy: Pipeline) -> None:
    """It was killed before its records, and the pipeline has run under the new name since."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(renames, "_rename_pipelines_in", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(renames.ExitStack, "__exit__", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            renamed(world, "a.t", "a.u")
    moved = world.source("a.s").incremental(poll=1) >> world.sink("a.u")
    world.fill("a.s", [20])
    world.run(moved)
    renamed(world, "a.t", "a.u")
    shutil.rmtree(world.checkpoint(moved))
    world.run(moved, new_checkpoint=True)
    assert world.ids("a.u") == list(range(21))
