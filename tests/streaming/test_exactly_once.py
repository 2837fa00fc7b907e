"""Exactly-once for append: replays, expiry, compaction, rollbacks, restored and lost checkpoints, two drivers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Pipeline, dedupe, watermark, where, with_columns
from helios.errors import CheckpointError, InputError, LeaseError, LedgerError
from helios.model.retry import Retry
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.transaction import Transaction
from helios.spark.run.full_refresh import empty_target
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import CommitOptions
from helios.table.ledger import Record
from helios.table.positions import Batch, Span
from tests.suite.waiting import PATIENCE

Forget = Callable[[Path, int], None]


def snapshots(world: Any) -> int:
    return len(world.catalog.load("a.t").snapshots())


@pytest.mark.promise("replay")
def test_a_replayed_batch_adds_nothing(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    before = snapshots(world)
    forget_commit(world.checkpoint(copy), 1)
    world.run(copy)
    assert "skipped" in world.kinds()
    assert world.ids("a.t") == list(range(20))
    assert snapshots(world) == before


@pytest.mark.promise("replay")
@pytest.mark.landing
def test_a_replay_after_expiry_adds_nothing(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    world.fill("a.t", [1000])  # another writer, so that the batch's own snapshot is not the current one
    world.expire("a.t")
    assert snapshots(world) == 1
    forget_commit(world.checkpoint(copy), 1)
    world.run(copy)
    assert "skipped" in world.kinds()
    assert world.ids("a.t") == [*range(20), 1000]


@pytest.mark.promise("replay")
@pytest.mark.short
def test_a_replay_after_compaction_and_expiry_adds_nothing(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    world.compact("a.t")
    world.expire("a.t")
    forget_commit(world.checkpoint(copy), 1)
    world.run(copy)
    assert world.ids("a.t") == list(range(20))
    world.fill("a.s", [20])
    world.run(copy)
    assert world.ids("a.t") == list(range(21))


@pytest.mark.promise("replay")
@pytest.mark.short
def test_all_commits_forgotten_and_replayed_in_order(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    for batch in (0, 1):
        forget_commit(world.checkpoint(copy), batch)
    world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("others")
def test_other_writers_coexist(world: Any, copy: Pipeline) -> None:
    world.fill("a.t", [500])
    world.fill("a.s", [20])
    world.run(copy)
    assert world.ids("a.t") == [*range(21), 500]


@pytest.mark.promise("rollback")
@pytest.mark.short
def test_a_target_that_was_rolled_back_stops_the_run(world: Any, copy: Pipeline) -> None:
    first = world.catalog.load("a.t").snapshots()[0].id
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first})")
    world.fill("a.s", [20])
    with pytest.raises(LedgerError, match=r"rolled back or replaced.*--new-checkpoint"):
        world.run(copy)
    assert world.ids("a.t") == list(range(10))


@pytest.mark.promise("rollback")
def test_a_target_that_was_rolled_back_and_expired_stops_the_run(world: Any, copy: Pipeline) -> None:
    first = world.catalog.load("a.t").snapshots()[0].id
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first})")
    world.expire("a.t")
    world.fill("a.s", [20])
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        world.run(copy)


@pytest.mark.promise("rollback")
@pytest.mark.short
def test_a_target_that_was_replaced_by_a_new_table_is_refused(world: Any, copy: Pipeline) -> None:
    world.sql("DROP TABLE local.a.t PURGE")
    with pytest.raises(CheckpointError, match=r"the target local\.a\.t is gone"):
        world.run(copy)
    world.fill("a.t", [1])
    with pytest.raises(CheckpointError, match="was replaced by another table"):
        world.run(copy)
    assert world.ids("a.t") == [1]


@pytest.mark.promise("checkpoints")
@pytest.mark.short
def test_a_checkpoint_restored_from_a_backup_is_refused(world: Any, copy: Pipeline) -> None:
    folder = world.checkpoint(copy)
    shutil.copytree(folder, world.folder / "backup")
    world.fill("a.s", [20])
    world.run(copy)
    shutil.rmtree(folder)
    shutil.copytree(world.folder / "backup", folder)
    world.fill("a.s", [21])
    with pytest.raises(LedgerError, match="checkpoint is behind its target"):
        world.run(copy)
    assert world.ids("a.t") == list(range(21))
    world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == list(range(22))


@pytest.mark.promise("checkpoints")
@pytest.mark.short
def test_a_lost_checkpoint_is_refused_and_resumed(world: Any, copy: Pipeline) -> None:
    shutil.rmtree(world.checkpoint(copy))
    world.fill("a.s", [20])
    with pytest.raises(CheckpointError, match=r"holds rows of local\.a\.t, but its checkpoint .* is lost"):
        world.run(copy)
    assert not world.checkpoint(copy).exists()
    world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == list(range(21))
    world.fill("a.s", [21])
    world.run(copy)
    assert world.ids("a.t") == list(range(22))


@pytest.mark.parametrize("name", ["metadata", "helios/identity.json"])
@pytest.mark.promise("checkpoints")
@pytest.mark.short
def test_a_checkpoint_that_lost_a_file_is_refused(world: Any, copy: Pipeline, name: str) -> None:
    (world.checkpoint(copy) / name).unlink()
    with pytest.raises(CheckpointError):
        world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("checkpoints")
@pytest.mark.landing
def test_a_damaged_checkpoint_is_refused(world: Any, copy: Pipeline) -> None:
    folder = world.checkpoint(copy)
    for target in (folder / "offsets/1",):
        kept = target.read_text()
        (target.parent / f".{target.name}.crc").unlink(missing_ok=True)
        target.write_text("")
        with pytest.raises(CheckpointError, match=r"is (empty|missing or damaged)"):
            world.run(copy)
        target.write_text(kept)
    (folder / "helios/identity.json").write_text('{"v": 99}')
    (folder / "helios/.identity.json.crc").unlink(missing_ok=True)
    with pytest.raises(CheckpointError):
        world.run(copy)


@pytest.mark.promise("identity", "checkpoints")
@pytest.mark.short
def test_a_checkpoint_of_another_pipeline_is_refused(world: Any, copy: Pipeline) -> None:
    folder = str(world.checkpoint(copy))
    other = world.source("a.s").incremental() >> world.sink("a.other").checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"belongs to pipeline 'local\.a\.t', not to 'local\.a\.other'"):
        world.run(other)
    assert not world.catalog.exists("a.other")


@pytest.mark.promise("checkpoints")
@pytest.mark.landing
def test_a_checkpoint_with_other_sources_is_refused(world: Any, copy: Pipeline) -> None:
    world.fill("a.more", [1])
    changed = world.source("a.more").incremental(poll=1) >> world.sink("a.t")
    with pytest.raises(CheckpointError, match=r"reads local\.a\.s; the pipeline now reads local\.a\.more"):
        world.run(changed)


@pytest.mark.promise("checkpoints", "changed-steps")
@pytest.mark.landing
def test_changed_stateless_steps_keep_the_checkpoint(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", range(20, 30))
    world.run(world.source("a.s").incremental(poll=1) >> where("id % 2 = 0") >> world.sink("a.t"))
    assert world.ids("a.t") == [*range(20), *range(20, 30, 2)]


@pytest.mark.promise("identity", "checkpoints")
@pytest.mark.short
def test_a_renamed_pipeline_moves_its_ledger_once(world: Any, copy: Pipeline) -> None:
    folder = str(world.checkpoint(copy))
    stream = world.source("a.s").incremental(poll=1)
    renamed = (stream >> world.sink("a.t").checkpoint(folder)).named("copy", was="local.a.t")
    world.fill("a.s", [20])
    world.run(renamed)
    world.run(renamed)
    assert world.ids("a.t") == list(range(21))
    properties = world.catalog.load("a.t").iceberg.properties
    assert "helios.ledger.copy" in properties
    assert "helios.ledger.local.a.t" not in properties


@pytest.mark.promise("identity", "checkpoints")
def test_a_renamed_pipeline_takes_its_default_checkpoint_along(world: Any, copy: Pipeline) -> None:
    old = world.checkpoint(copy)
    renamed = copy.named("copy", was="local.a.t")
    world.fill("a.s", [20])
    world.run(renamed)
    world.fill("a.s", [21])
    world.run(copy.named("copy"))
    assert world.ids("a.t") == list(range(22))
    assert not old.exists()
    shutil.rmtree(world.checkpoint(renamed))
    with pytest.raises(CheckpointError, match=r"holds rows of other, but its checkpoint .* is lost"):
        world.run(copy.named("other", was="copy"))


@pytest.mark.promise("drivers")
@pytest.mark.short
def test_a_second_live_driver_is_refused_and_a_dead_ones_lease_is_not_honoured(world: Any, copy: Pipeline) -> None:
    lease = Lease(Checkpoint(world.spark, world.plan(copy).checkpoint))
    lease.acquire()
    with pytest.raises(LeaseError, match="another driver is running"):
        world.run(copy)
    lease.release()
    folder = world.checkpoint(copy) / "helios"
    for holder in (
        {"owner": "x", "host": "elsewhere", "pid": 1, "renewed": time.time() - 3600},
        {"owner": "x", "host": __import__("socket").gethostname(), "pid": 2**22 + 1, "renewed": time.time()},
    ):
        (folder / ".lease.json.crc").unlink(missing_ok=True)
        (folder / "lease.json").write_text(json.dumps(holder))
        world.run(copy)
    assert not (folder / "lease.json").exists()


@pytest.mark.promise("drivers")
@pytest.mark.short
def test_a_stale_driver_stops_at_its_next_batch(world: Any, copy: Pipeline) -> None:
    run = world.start(world.source("a.s").incremental(poll="200ms") >> world.sink("a.t"))
    while run.state != "running":
        assert run.active
        time.sleep(0.05)
    folder = world.checkpoint(copy) / "helios"
    (folder / ".lease.json.crc").unlink(missing_ok=True)
    (folder / "lease.json").write_text(json.dumps({"owner": "new", "host": "elsewhere", "pid": 1, "renewed": 0}))
    world.fill("a.s", [20])
    with pytest.raises(LeaseError, match="was taken over by process 1 on elsewhere"):
        run.await_termination(60)
    assert world.ids("a.t") == list(range(20))


def driver(world: Any, ids: list[int]) -> tuple[Ledger, Callable[[Transaction], None]]:
    """The ledger of a driver of `copy`, and what writes a batch of these ids into its transaction."""
    plan = world.plan(world.source("a.s").incremental() >> world.sink("a.t"))
    identity = Checkpoint(world.spark, plan.checkpoint).identity()
    assert identity is not None
    df = world.spark.createDataFrame([(i,) for i in ids], "id bigint")
    return Ledger(load_table(world.spark, plan.write.table), plan.pipeline, identity.id, ""), lambda t: t.append(df)


@pytest.mark.promise("drivers")
def test_a_held_commit_of_a_zombie_is_rejected_by_the_ancestry(world: Any, copy: Pipeline) -> None:
    """The zombie looked batch 2 up; its replacement commits the batch; then the zombie goes on."""
    batch = numbered_two(7)
    zombie, write = driver(world, [20])
    replacement, _ = driver(world, [20])
    assert zombie.find(batch) is None
    assert replacement.find(batch) is None
    assert not replacement.commit(world.spark, write, batch, CommitOptions()).already_committed
    before = data_files(world, "a.t")
    assert zombie.commit(world.spark, write, batch, CommitOptions()).already_committed
    assert world.ids("a.t") == list(range(21))
    assert data_files(world, "a.t") == before  # what the zombie wrote is deleted


def numbered_two(*ends: int) -> Batch:
    """Batch 2, which another process may have written, up to ends of its source."""
    spans = [Span("local.a.s", None, {"snapshot_id": end}, {"source": "local.a.s", "to": end}) for end in ends]
    return Batch(2, tuple(spans), maybe_written=True)


def data_files(world: Any, table: str) -> set[str]:
    location = world.catalog.load(table).iceberg.location().removeprefix("file://").removeprefix("file:")
    return {path.name for path in Path(location, "data").rglob("*.parquet")}


@pytest.mark.promise("drivers")
@pytest.mark.short
def test_a_zombie_is_rejected_between_its_own_check_and_its_commit(world: Any, copy: Pipeline) -> None:
    """The same inside the commit: the base moves after the transaction was written, and Iceberg itself retries."""
    batch = numbered_two(7)
    zombie, write = driver(world, [20])
    replacement, _ = driver(world, [20])
    assert zombie.find(batch) is None
    pending = zombie.begin(world.spark, batch, CommitOptions())
    write(pending)
    assert replacement.find(batch) is None
    replacement.commit(world.spark, write, batch, CommitOptions())
    with pytest.raises(Exception, match="has committed since this batch was looked up"):
        pending.commit()
    assert world.ids("a.t") == list(range(21))


@pytest.mark.promise("others")
def test_a_commit_meets_other_writers_and_lands_once(world: Any, copy: Pipeline) -> None:
    ledger, write = driver(world, [20])
    batch = numbered_two()
    assert ledger.find(batch) is None
    pending = ledger.begin(world.spark, batch, CommitOptions())
    write(pending)
    world.fill("a.t", [500])
    pending.commit()
    assert world.ids("a.t") == [*range(21), 500]


@pytest.mark.promise("replay")
@pytest.mark.short
def test_the_record_is_in_the_same_commit_as_the_data(world: Any, copy: Pipeline) -> None:
    table = world.catalog.load("a.t").iceberg
    record = json.loads(table.properties["helios.ledger.local.a.t"])
    assert record["batch"] == 1
    assert record["snapshot"] == table.metadata.current_snapshot_id
    metadata = Path(table.metadata_location.removeprefix("file:"))
    earlier = json.loads(Path(table.metadata.metadata_log[-1].metadata_file.removeprefix("file:")).read_text())
    assert json.loads(earlier["properties"]["helios.ledger.local.a.t"])["batch"] == 0
    assert earlier["current-snapshot-id"] != json.loads(metadata.read_text())["current-snapshot-id"]


@pytest.mark.promise("replay")
def test_a_removed_record_is_found_again_in_the_stamps(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    forget_commit(world.checkpoint(copy), 1)
    world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("replay")
@pytest.mark.short
def test_no_record_and_no_stamp_cannot_prove_absence(world: Any, copy: Pipeline, forget_commit: Forget) -> None:
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    world.compact("a.t")
    world.expire("a.t")
    forget_commit(world.checkpoint(copy), 1)
    with pytest.raises(LedgerError, match="cannot prove that batch 1 is absent"):
        world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.parametrize(("value", "message"), [('{"v": 99}', "newer Helios"), ("{", "damaged")])
@pytest.mark.promise("checkpoints")
def test_a_ledger_that_cannot_be_read_is_refused(world: Any, copy: Pipeline, value: str, message: str) -> None:
    world.sql(f"ALTER TABLE local.a.t SET TBLPROPERTIES ('helios.ledger.local.a.t' = '{value}')")
    world.fill("a.s", [20])
    with pytest.raises(LedgerError, match=message):
        world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("checkpoints", "drivers")
def test_a_pipeline_that_is_driven_from_two_checkpoints_is_refused(world: Any, copy: Pipeline) -> None:
    ledger = Ledger(load_table(world.spark, world.plan(copy).write.table), "local.a.t", "another", "")
    ledger.claim(Record(checkpoint="another", batch=5))
    world.fill("a.s", [20])
    with pytest.raises(LeaseError, match="driven from another checkpoint"):
        world.run(copy)


@pytest.mark.promise("checkpoints")
def test_a_start_that_died_before_its_claim_goes_on(world: Any) -> None:
    """`kill -9` between the checkpoint's identity and the target's creation."""
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    identity = world.checkpoint(pipeline) / "helios/identity.json"
    fields = json.loads(identity.read_text())
    world.sql("DROP TABLE local.a.t PURGE")
    shutil.rmtree(world.checkpoint(pipeline))
    identity.parent.mkdir(parents=True)
    identity.write_text(json.dumps({**fields, "target_uuid": ""}))
    world.run(pipeline)
    assert world.ids("a.t") == [1]


@pytest.mark.parametrize("damage", ["lost", "half"])
@pytest.mark.promise("checkpoints")
def test_a_checkpoint_without_its_identity_is_refused_and_resumed(world: Any, copy: Pipeline, damage: str) -> None:
    folder = world.checkpoint(copy) / "helios"
    if damage == "lost":  # as when a folder is deleted under a running stream, and Spark makes its own files again
        shutil.rmtree(folder)
    else:
        (folder / "identity.json").write_text('{"v": 1, "id"')
    world.fill("a.s", [20])
    with pytest.raises(CheckpointError, match=r"no Helios identity|cannot be read"):
        world.run(copy)
    world.run(copy, new_checkpoint=True)
    world.fill("a.s", [21])
    world.run(copy)
    assert world.ids("a.t") == list(range(22))


@pytest.mark.promise("checkpoints", "changed-steps")
@pytest.mark.landing
def test_new_checkpoint_is_refused_where_it_cannot_resume(world: Any) -> None:
    from helios import Files, aggregate

    (world.folder / "in").mkdir()
    (world.folder / "in" / "a.csv").write_text("id\r\n1\r\n2\r\n")
    files = Files.source(str(world.folder / "in"), "csv", schema="id bigint").incremental()
    pipeline = files >> aggregate("id", n="count(*)") >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    with pytest.raises(InputError, match="--new-checkpoint cannot resume"):
        world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [1, 2]


@pytest.mark.promise("changed-steps")
def test_a_bound_may_come_and_go(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", range(20, 30))
    bounded = world.source("a.s").incremental(poll=1) >> world.sink("a.t").flush(rows=5)
    world.run(bounded)
    assert world.ids("a.t") == list(range(30))
    world.fill("a.s", range(30, 40))
    world.run(copy)
    assert world.ids("a.t") == list(range(40))


@pytest.mark.promise("checkpoints", "changed-steps")
def test_a_step_that_keeps_state_on_the_same_checkpoint_is_refused(world: Any, copy: Pipeline) -> None:
    timed = with_columns(ts="timestamp_seconds(id)") >> watermark("ts", "1 hour")
    stateful = world.source("a.s").incremental(poll=1) >> timed >> dedupe("id", within="1 hour") >> world.sink("a.t")
    with pytest.raises(CheckpointError, match=r"the state in the checkpoint .* was built by no stateful step"):
        world.run(stateful)


@pytest.mark.promise("expired")
@pytest.mark.landing
def test_the_source_expires_while_the_pipeline_stands_and_while_it_runs(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", [20])
    world.expire("a.s")  # what was read is gone, what is unread is not
    world.run(copy)
    assert world.ids("a.t") == list(range(21))
    run = world.start(world.source("a.s").incremental(poll="3s") >> world.sink("a.t"))
    while run.state != "running":
        assert run.active
        time.sleep(0.05)
    time.sleep(1)
    world.fill("a.s", [21])
    world.expire("a.s")
    deadline = time.monotonic() + PATIENCE
    while world.ids("a.t") != list(range(22)) and run.active and time.monotonic() < deadline:
        time.sleep(0.2)
    run.stop()
    assert run.await_termination(60)
    assert world.ids("a.t") == list(range(22))


@pytest.mark.promise("expired")
def test_unread_snapshots_that_expired_stop_the_run(world: Any, copy: Pipeline) -> None:
    world.fill("a.s", [20])
    world.fill("a.s", [21])
    world.expire("a.s")
    with pytest.raises(LedgerError, match=r"has expired before it was read"):
        world.run(copy)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("changed-steps")
@pytest.mark.short
def test_a_full_refresh_empties_the_target_in_one_snapshot_and_begins_anew(world: Any, copy: Pipeline) -> None:
    world.sql("DELETE FROM local.a.s WHERE id < 5")
    changed = world.source("a.s").incremental(poll=1) >> where("id % 2 = 0") >> world.sink("a.t")
    world.run(changed, full_refresh=True)
    assert world.ids("a.t") == list(range(6, 20, 2))
    operations = [s.operation for s in world.catalog.load("a.t").snapshots()]
    assert operations == ["append", "append", "delete", "append"]
    world.fill("a.s", [20, 21])
    world.run(changed)
    assert world.ids("a.t") == list(range(6, 22, 2))


@pytest.mark.promise("changed-steps")
def test_a_full_refresh_that_died_after_emptying_is_told_and_done_again(world: Any, copy: Pipeline) -> None:
    empty_target(
        Ledger(load_table(world.spark, world.plan(copy).write.table), "local.a.t", "died", ""),
        Record(checkpoint="died"),
        [],
        Retry(),
    )
    world.fill("a.s", [20])
    with pytest.raises(LeaseError, match="driven from another checkpoint"):
        world.run(copy)
    world.run(copy, full_refresh=True)
    assert world.ids("a.t") == list(range(21))


@pytest.mark.promise("others", "changed-steps")
@pytest.mark.landing
def test_a_full_refresh_does_not_take_the_rows_of_others_along(world: Any, copy: Pipeline) -> None:
    world.fill("a.t", [500])
    with pytest.raises(InputError, match=r"would empty local\.a\.t, and snapshot \d+ is not this pipeline's"):
        world.run(copy, full_refresh=True)
    world.expire("a.t")
    with pytest.raises(InputError, match=r"--full-refresh would empty"):
        world.run(copy, full_refresh=True)
    assert world.ids("a.t") == [*range(20), 500]


@pytest.mark.promise("checkpoints")
def test_a_folders_checkpoint_restored_from_a_backup_is_refused(world: Any) -> None:
    from helios import Files

    folder = world.folder / "in"
    folder.mkdir()
    pipeline = Files.source(str(folder), "csv", schema="id bigint").incremental(poll=1) >> world.sink("a.t")
    (folder / "a.csv").write_text("id\n0\n")
    world.run(pipeline)
    checkpoint = world.checkpoint(pipeline)
    shutil.copytree(checkpoint, world.folder / "backup")
    (folder / "b.csv").write_text("id\n1\n")
    world.run(pipeline)
    shutil.rmtree(checkpoint)
    shutil.copytree(world.folder / "backup", checkpoint)
    (folder / "c.csv").write_text("id\n2\n")
    for _ in range(2):
        with pytest.raises(LedgerError, match="checkpoint is behind its target"):
            world.run(pipeline)
    assert world.ids("a.t") == [0, 1]


@pytest.mark.promise("identity", "checkpoints")
def test_a_lost_checkpoint_of_a_renamed_pipeline_is_resumed(world: Any, copy: Pipeline) -> None:
    shutil.rmtree(world.checkpoint(copy))
    renamed = copy.named("new", was="local.a.t")
    world.fill("a.s", [20])
    with pytest.raises(CheckpointError, match="is lost"):
        world.run(renamed)
    world.run(renamed, new_checkpoint=True)
    world.run(copy.named("new"))
    assert world.ids("a.t") == list(range(21))


@pytest.mark.promise("checkpoints", "changed-steps")
def test_a_new_checkpoint_without_a_known_position_is_refused(world: Any, copy: Pipeline) -> None:
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    world.compact("a.t")
    world.expire("a.t")
    with pytest.raises(InputError, match="no recorded position of this pipeline"):
        world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("checkpoints", "changed-steps")
def test_a_checkpoint_lost_after_an_idle_new_checkpoint_is_refused(world: Any, copy: Pipeline) -> None:
    world.run(copy, new_checkpoint=True)
    shutil.rmtree(world.checkpoint(copy))
    with pytest.raises(CheckpointError, match="is lost"):
        world.run(copy)
    world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("identity")
@pytest.mark.landing
def test_two_scripts_that_fill_one_table_by_one_name_are_refused(world: Any) -> None:
    world.fill("a.one", [1])
    world.fill("a.two", [2])
    world.run(world.source("a.one") >> world.sink("a.t"))
    with pytest.raises(CheckpointError, match=r"reads local\.a\.one; the pipeline now reads local\.a\.two"):
        world.run(world.source("a.two") >> world.sink("a.t"))
    world.run((world.source("a.two") >> world.sink("a.t")).named("two"))
    world.run(world.source("a.one") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]


@pytest.mark.promise("identity")
def test_one_name_on_two_targets_is_refused_whatever_is_asked(world: Any, copy: Pipeline) -> None:
    world.run(copy.named("daily", was="local.a.t"))
    other = (world.source("a.s").incremental(poll=1) >> world.sink("a.other")).named("daily")
    for options in ({}, {"new_checkpoint": True}, {"full_refresh": True}):
        with pytest.raises(CheckpointError, match=r"pipeline 'daily' writes local\.a\.t, not local\.a\.other"):
            world.run(other, **options)
    world.run(copy.named("daily"))
    assert world.ids("a.t") == list(range(20))


@pytest.mark.promise("others", "changed-steps")
def test_a_full_refresh_does_not_delete_what_was_written_meanwhile(world: Any, copy: Pipeline) -> None:
    ledger = Ledger(load_table(world.spark, world.plan(copy).write.table), "local.a.t", "x", "")
    world.fill("a.t", [500])
    with pytest.raises(Exception, match="another writer has committed to the table meanwhile"):
        empty_target(ledger, Record(checkpoint="x"), [], Retry())
    assert world.ids("a.t") == [*range(20), 500]
