"""Batches that somebody brings into a target by hand are in it once, whatever runs next."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any

import pytest

from helios import Memory, Pipeline, expect
from helios.errors import LedgerError, RunError
from helios.spark.replay.replay import Replay
from helios.spark.sinks.audit import AuditedSink
from helios.table.quarantine import discard_batch
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = pytest.mark.promise("audit", "rollback")

AUDIT = {"small": "max(id) < 100"}


def follows(world: Any, *, audit: bool = True) -> Pipeline:
    sink = world.sink("a.t").exactly_once()
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> (sink.audit(AUDIT).publish() if audit else sink)
    return pipeline


def upserts(world: Any, *, audit: bool = True) -> Pipeline:
    upsert = world.sink("a.t").upsert("id", order_by="n", delete_when="gone")
    sink = upsert.table_properties({"format-version": "2"})  # which PyIceberg writes, too
    audited = sink.audit({"small": "coalesce(max(n), 0) < 100"}).publish()
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> (audited if audit else sink)
    return pipeline


def fails_its_audit(world: Any, pipeline: Pipeline) -> None:
    with pytest.raises(RunError, match="did not pass its audit"):
        world.run(pipeline)


def accept(world: Any, how: str = "forwarded") -> None:
    """Brings the batch that waits to main, and removes its branch."""
    staged = world.load("a.t").iceberg.refs()["helios_audit_local.a.t"].snapshot_id
    world.sql(
        "CALL local.system.fast_forward('a.t', 'main', 'helios_audit_local.a.t')"
        if how == "forwarded"
        else f"CALL local.system.cherrypick_snapshot('a.t', {staged})"
    )
    world.sql("ALTER TABLE local.a.t DROP BRANCH `helios_audit_local.a.t`")


@pytest.fixture
def waits(world: Any) -> Pipeline:
    """Rows 0 to 9 are published, and the batch of 10 to 19 and 500 waits."""
    pipeline = follows(world)
    world.fill("a.s", range(10))
    world.run(pipeline)
    world.fill("a.s", [*range(10, 20), 500])
    fails_its_audit(world, pipeline)
    return pipeline


def goes_on(world: Any, pipeline: Pipeline) -> None:
    world.fill("a.s", range(20, 30))
    world.run(pipeline)
    assert world.ids("a.t") == [*range(30), 500]


@pytest.mark.parametrize("how", ["forwarded", "picked"])
def test_a_new_checkpoint_goes_on_behind_a_batch_that_was_accepted(world: Any, waits: Pipeline, how: str) -> None:
    if how == "picked":  # another writer's commit, so that Iceberg makes a snapshot of its own
        world.sql("INSERT INTO local.a.t VALUES (90)")
    accept(world, how)
    world.run(waits, new_checkpoint=True)
    if how == "picked":
        world.sql("DELETE FROM local.a.t WHERE id = 90")
    goes_on(world, waits)


@pytest.mark.short
def test_a_batch_that_was_accepted_comes_once_when_the_audit_is_taken_out_of_the_script(
    world: Any, waits: Pipeline
) -> None:
    accept(world)
    goes_on(world, follows(world, audit=False))


def test_the_first_batch_of_a_table_is_accepted_too(world: Any) -> None:
    pipeline = follows(world)
    world.fill("a.s", [500, *range(20)])
    fails_its_audit(world, pipeline)
    accept(world)
    world.run(pipeline, new_checkpoint=True)
    goes_on(world, pipeline)


def test_a_lost_checkpoint_begins_behind_a_batch_that_was_accepted(world: Any, waits: Pipeline) -> None:
    accept(world)
    shutil.rmtree(world.checkpoint(waits))
    world.run(waits, new_checkpoint=True)
    goes_on(world, waits)


def test_a_batch_that_is_accepted_behind_a_new_checkpoint_stops_the_run_until_another_one(
    world: Any, waits: Pipeline
) -> None:
    with pytest.raises(RunError, match="did not pass its audit"):
        world.run(waits, new_checkpoint=True)
    snapshots = world.load("a.t").iceberg.metadata.snapshots
    [mine] = [s.snapshot_id for s in snapshots if s.summary["helios.batch"] == "1"]  # of the former checkpoint
    world.sql(f"CALL local.system.set_current_snapshot('a.t', {mine})")
    with pytest.raises(LedgerError, match=r"holds batch 1 of local\.a\.t .*written before this checkpoint.*again"):
        world.run(waits)
    world.run(waits, new_checkpoint=True)  # as the error says
    goes_on(world, waits)


def test_a_batch_that_was_set_aside_and_is_accepted_after_all(world: Any, waits: Pipeline) -> None:
    done = discard_batch(world.catalog.load("a.t"), 1)
    world.sql(f"CALL local.system.set_current_snapshot(table => 'a.t', ref => '{done.tag}')")
    world.run(waits, new_checkpoint=True)
    goes_on(world, waits)


def test_a_batch_pipeline_writes_new_inputs_behind_a_batch_that_was_accepted(world: Any) -> None:
    pipeline = world.source("a.s") >> world.sink("a.t").overwrite().audit(AUDIT).publish()
    world.fill("a.s", [1, 500])
    fails_its_audit(world, pipeline)
    accept(world)
    world.sql("DELETE FROM local.a.s WHERE id = 500")
    world.fill("a.s", [2])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


def test_inputs_that_were_accepted_are_not_appended_again(world: Any) -> None:
    pipeline = world.source("a.s") >> world.sink("a.t").audit(AUDIT).publish()
    world.fill("a.s", [1, 500])
    fails_its_audit(world, pipeline)
    accept(world)
    world.run(pipeline)
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [1, 500]


def test_appended_inputs_that_are_rolled_forward_behind_a_new_checkpoint_are_not_appended_again(world: Any) -> None:
    pipeline = world.source("a.s") >> world.sink("a.t")
    world.fill("a.s", [1, 2])
    world.run((Memory.source([{"id": 0}]) >> world.sink("a.t")).named("other"))
    world.run(pipeline)
    before, after = (s.id for s in world.load("a.t").snapshots())
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {before})")
    with dies_before_commit():
        world.run(pipeline, new_checkpoint=True)
    world.sql(f"CALL local.system.set_current_snapshot('a.t', {after})")
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2]


@pytest.mark.parametrize("audit", [True, False], ids=["audited", "no-more"])
@pytest.mark.parametrize("new_checkpoint", [False, True], ids=["goes-on", "new-checkpoint"])
def test_deletes_of_a_batch_that_was_set_aside_do_not_count(world: Any, audit: bool, new_checkpoint: bool) -> None:
    world.fill("a.s", [1], n="1", gone="false")
    world.run(upserts(world))
    world.fill("a.s", [1, 2], n="500", gone="true")
    world.fill("a.s", [3], n="500", gone="false")
    fails_its_audit(world, upserts(world))
    discard_batch(world.catalog.load("a.t"), 1)
    world.fill("a.s", [2], n="2", gone="false")
    world.run(upserts(world, audit=audit), new_checkpoint=new_checkpoint)
    assert world.rows("a.t", "id", "n") == Counter({(1, 1): 1, (2, 2): 1})


def test_deletes_of_a_batch_that_was_accepted_count(world: Any) -> None:
    world.fill("a.s", [1], n="1", gone="false")
    world.run(upserts(world))
    world.fill("a.s", [1, 2], n="50", gone="true")
    world.fill("a.s", [3], n="500", gone="false")
    fails_its_audit(world, upserts(world))
    accept(world)
    world.fill("a.s", [2], n="2", gone="false")  # late
    world.run(upserts(world, audit=False), new_checkpoint=True)
    assert world.rows("a.t", "id", "n") == Counter({(3, 500): 1})


# behind expired snapshots


def expire(world: Any) -> None:
    """Others write, and all snapshots but the newest expire; the accepted batch's is among them."""
    world.sql("INSERT INTO local.a.t VALUES (90)")
    world.sql("DELETE FROM local.a.t WHERE id = 90")
    world.expire("a.t")
    assert len(world.load("a.t").snapshots()) == 1


@pytest.mark.parametrize("how", ["forwarded", "picked"])
@pytest.mark.parametrize("then", ["audit", "no audit", "new checkpoint"])
@pytest.mark.cases(landing="no audit-forwarded")
def test_a_batch_that_was_accepted_comes_once_when_its_snapshot_has_expired(
    world: Any, waits: Pipeline, how: str, then: str
) -> None:
    if how == "picked":
        world.sql("INSERT INTO local.a.t VALUES (90)")
    accept(world, how)
    expire(world)
    world.run(follows(world, audit=then == "audit"), new_checkpoint=then == "new checkpoint")
    goes_on(world, follows(world, audit=False))


# replays of the quarantine


def checked(world: Any, most: int, audit: str | None = "max(id) < 15") -> Pipeline:
    sink = world.sink("a.t").quarantine("a.bad")
    sink = sink.audit({"few": audit}).publish() if audit is not None else sink
    steps = expect({"small": f"id < {most}"}, on_fail="quarantine")
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> steps >> sink
    return pipeline


@pytest.mark.parametrize("branch", ["kept", "dropped"])
@pytest.mark.parametrize("audit", ["max(id) < 15", "max(id) < 99", None], ids=["same", "loosened", "none"])
@pytest.mark.cases(landing="none-kept")
@pytest.mark.promise("quarantine")
def test_a_replay_that_failed_its_audit_and_was_accepted_is_in_the_table_once(
    world: Any, branch: str, audit: str | None
) -> None:
    world.fill("a.s", [1, 20, 21])
    world.run(checked(world, 10))
    with pytest.raises(RunError, match="did not pass its audit"):
        Replay(world.plan(checked(world, 99)), world.spark).run()
    world.sql("CALL local.system.fast_forward('a.t', 'main', 'helios_audit_local.a.t.replay')")
    if branch == "dropped":
        world.sql("ALTER TABLE local.a.t DROP BRANCH `helios_audit_local.a.t.replay`")
    world.fill("a.s", [2])
    world.run(checked(world, 99, audit))
    done = Replay(world.plan(checked(world, 99, audit)), world.spark).run()
    assert (done.taken, done.resumed) == (2, True)
    assert world.ids("a.t") == [1, 2, 20, 21]
    assert world.rows("a.bad") == Counter()
    assert Replay(world.plan(checked(world, 99, audit)), world.spark).run().taken == 0


# what upserts remember


def test_a_batch_that_is_set_aside_while_its_driver_publishes_it_leaves_no_deletes(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill("a.s", [1, 2], n="1", gone="false")
    world.run(upserts(world))
    world.fill("a.s", [2, 9], n="50", gone="true")
    publish, asked = AuditedSink._publish, [True]

    def published(sink: AuditedSink, *args: Any) -> bool:
        if asked.pop():
            asked.append(False)
            discard_batch(world.catalog.load("a.t"), 1)
            world.fill("a.s", [3], n="1", gone="false")
        else:
            asked.append(False)
        return publish(sink, *args)

    monkeypatch.setattr(AuditedSink, "_publish", published)
    world.run(upserts(world))
    world.fill("a.s", [2, 9], n="4", gone="false")
    world.run(upserts(world))
    assert world.rows("a.t", "id", "n") == Counter({(1, 1): 1, (2, 4): 1, (3, 1): 1, (9, 4): 1})


def test_deletes_of_a_batch_that_is_accepted_behind_a_new_checkpoint_that_died_count(world: Any) -> None:
    world.fill("a.s", [1, 2], n="1", gone="false")
    world.run(upserts(world))
    world.fill("a.s", [2, 9], n="50", gone="true")
    world.fill("a.s", [3], n="500", gone="false")
    fails_its_audit(world, upserts(world))
    with dies_at(AuditedSink, "find"):
        world.run(upserts(world), new_checkpoint=True)
    accept(world)
    with pytest.raises(LedgerError, match="continue after it with `helios run --new-checkpoint`"):
        world.run(upserts(world))
    world.run(upserts(world), new_checkpoint=True)
    world.fill("a.s", [2, 9], n="4", gone="false")
    world.run(upserts(world))
    assert world.rows("a.t", "id", "n") == Counter({(1, 1): 1, (3, 500): 1})
