"""Targets that lost a batch: told whatever was committed and expired since; and healthy ones, which go on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Memory, Pipeline, expect, step
from helios.errors import CheckpointError, LeaseError, LedgerError
from helios.spark.iceberg.tables import load_table
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record
from helios.table.status import statuses
from helios.table.view import View
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("rollback")

GONE = r"was rolled back or replaced: batch \d+ of .* is no longer in its history"
UNKNOWN = r"cannot prove that batch 1 of .* is still in it"


def roll_back(world: Any, table: str = "a.t", to: int = 0) -> None:
    snapshot = world.catalog.load(table).snapshots()[to].id
    world.sql(f"CALL local.system.rollback_to_snapshot('{table}', {snapshot})")


def lose_metadata(world: Any, table: str = "a.t") -> None:
    """Deletes all metadata files but the current one, as a clean-up by hand does."""
    iceberg = world.load(table).iceberg
    current = Path(iceberg.metadata_location.removeprefix("file:"))
    for file in current.parent.glob("*.metadata.json"):
        if file.name != current.name:
            file.unlink()


def append(world: Any) -> None:
    world.fill("a.t", [500])


def append_twice(world: Any) -> None:
    world.fill("a.t", [500])
    world.fill("a.t", [501])


def compact(world: Any) -> None:
    world.compact("a.t")


def compact_and_append(world: Any) -> None:
    world.compact("a.t")
    world.fill("a.t", [500])


def replace_table(world: Any) -> None:
    world.sql("CREATE OR REPLACE TABLE local.a.t USING iceberg AS SELECT CAST(500 AS bigint) AS id")


OTHERS = {
    "append": append,
    "appends": append_twice,
    "compaction": compact,
    "compaction-append": compact_and_append,
    "replace": replace_table,
}


# lost rows


@pytest.mark.parametrize("kept", [True, False], ids=["metadata", "no-metadata"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.cases(landing="append-metadata")
def test_a_rolled_back_batch_is_missed_after_other_commits_and_expiry(
    world: Any, copy: Pipeline, other: str, kept: bool
) -> None:
    roll_back(world)
    OTHERS[other](world)
    world.expire("a.t")
    if not kept:
        lose_metadata(world)
    held = world.ids("a.t")
    for ids in ([], range(20, 30)):  # at the start, also when nothing is new
        world.fill("a.s", ids)
        with pytest.raises(LedgerError, match=GONE if kept else f"{GONE}|{UNKNOWN}"):
            world.run(copy)
    assert world.ids("a.t") == held


@pytest.mark.short
def test_the_same_by_the_commands_of_helios_alone(world: Any, copy: Pipeline) -> None:
    table = world.load("a.t")
    table.rollback_to(table.snapshots()[0].id)
    world.compact("a.t")
    assert world.load("a.t").expire(retain_last=1).snapshots
    world.fill("a.s", range(20, 30))
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)
    assert world.ids("a.t") == list(range(10))


@pytest.mark.landing
def test_a_branch_that_was_dropped_and_made_again(world: Any) -> None:
    world.fill("a.s", range(10))
    world.fill("a.t", [])
    world.fill("a.t", [100])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("audit")
    world.run(pipeline)
    world.sql("ALTER TABLE local.a.t DROP BRANCH audit")
    with pytest.raises(LedgerError, match=GONE):
        world.run(pipeline)
    assert "audit" not in world.load("a.t").branches()  # nothing was made in its place
    world.fill("a.t", [101])
    world.expire("a.t")
    world.sql("ALTER TABLE local.a.t CREATE BRANCH audit")
    world.fill("a.s", range(10, 20))
    with pytest.raises(LedgerError, match=GONE):
        world.run(pipeline)


def test_a_branch_that_main_was_forwarded_to_may_be_dropped(world: Any) -> None:
    world.fill("a.s", range(10))
    world.fill("a.t", [100])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("audit")
    world.run(pipeline)
    world.sql("CALL local.system.fast_forward('a.t', 'main', 'audit')")
    world.sql("ALTER TABLE local.a.t DROP BRANCH audit")
    world.fill("a.s", [10])
    world.run(pipeline)
    assert sorted(row[0] for row in world.sql("SELECT id FROM local.a.t.branch_audit")) == [*range(11), 100]


@pytest.mark.landing
def test_two_pipelines_that_append_to_one_table(world: Any) -> None:
    for name in ("p", "q"):
        world.fill(f"a.{name}", [1])
    p = (world.source("a.p").incremental(poll=1) >> world.sink("a.t")).named("p")
    q = (world.source("a.q").incremental(poll=1) >> world.sink("a.t").maintain(expire=1)).named("q")
    world.run(p)
    world.run(q)
    last = world.load("a.t").current_snapshot().id
    world.fill("a.p", [2])
    world.run(p)
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {last})")
    for id in (3, 4):
        world.fill("a.q", [id])
        time.sleep(1.1)
        world.run(q)
    world.expire("a.t")
    world.fill("a.p", [5])
    with pytest.raises(LedgerError, match=GONE):
        world.run(p)
    assert world.ids("a.t") == [1, 1, 3, 4]


@pytest.mark.parametrize("between", [1, 3])
def test_a_commit_that_other_writers_came_before(world: Any, copy: Pipeline, between: int) -> None:
    """They come between its look-up and its commit; then the table is rolled back to right before it."""
    came = []

    @step
    def others(df: Any) -> Any:
        if not came and world.load("a.s").snapshots()[-1].summary.get("added-records") == "3":
            came.extend(500 + i for i in range(between))
            for id in came:
                world.fill("a.t", [id])
        return df

    world.fill("a.s", [20, 21, 22])
    world.run(world.source("a.s").incremental(poll=1) >> others >> world.sink("a.t").exactly_once())
    assert world.ids("a.t") == [*range(23), *came]
    newest = world.load("a.t").snapshots()[-1]
    record = json.loads(world.load("a.t").iceberg.properties["helios.ledger.local.a.t"])
    sequence = world.load("a.t").iceberg.current_snapshot().sequence_number
    assert (record["batch"], record["snapshot"], record["sequence"]) == (2, newest.id, sequence)
    roll_back(world, to=-2)
    world.expire("a.t")
    lose_metadata(world)
    world.fill("a.s", [23])
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)


@pytest.mark.landing
def test_a_rollback_behind_a_new_checkpoint(world: Any, copy: Pipeline) -> None:
    world.run(copy, new_checkpoint=True)
    roll_back(world)
    world.fill("a.s", range(20, 30))
    with pytest.raises(LedgerError, match=r"was rolled back or replaced"):
        world.run(copy)
    assert world.ids("a.t") == list(range(10))


def test_a_new_checkpoint_goes_on_behind_what_was_rolled_back(world: Any, copy: Pipeline) -> None:
    roll_back(world)
    append(world)
    world.fill("a.s", range(20, 30))
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)
    world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == [*range(10), *range(20, 30), 500]
    world.run(copy)
    roll_back(world, to=-2)
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)


def test_a_rollback_behind_a_full_refresh(world: Any, copy: Pipeline) -> None:
    """The rows that it deleted are back: reading the sources from the beginning would double them."""
    world.sql("DELETE FROM local.a.s")
    world.run(copy, full_refresh=True)
    assert world.ids("a.t") == []
    roll_back(world, to=1)
    world.fill("a.s", range(5))
    with pytest.raises(LedgerError, match=r"was rolled back or replaced"):
        world.run(copy)
    assert world.ids("a.t") == list(range(20))


def test_a_table_that_was_restored_from_older_metadata(world: Any, copy: Pipeline) -> None:
    """Its record is of then, too: only the checkpoint knows the newer batch."""
    older = world.load("a.t").iceberg.metadata.metadata_log[-1].metadata_file
    world.sql("DROP TABLE local.a.t")
    world.sql(f"CALL local.system.register_table('a.t', '{older}')")
    world.fill("a.s", range(20, 30))
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)
    assert world.ids("a.t") == list(range(10))


def test_a_record_that_was_removed_with_its_batch(world: Any, copy: Pipeline) -> None:
    roll_back(world)
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    world.fill("a.s", range(20, 30))
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)
    append_twice(world)
    world.expire("a.t")
    with pytest.raises(LedgerError, match=GONE):
        world.run(copy)


def test_a_record_that_went_back_without_its_batch(world: Any, copy: Pipeline) -> None:
    """A new checkpoint would resume at the older position, and write batch 1 again."""
    properties = world.load("a.t").iceberg.properties
    older = json.loads(properties["helios.ledger.local.a.t"]) | {"batch": 0, "snapshot": None}
    ledger = Ledger(load_table(world.spark, world.plan(copy).write.table), "local.a.t", older["checkpoint"], "")
    ledger.claim(Record(**{name: value for name, value in older.items() if name != "v"}))
    with pytest.raises(LedgerError, match=r"holds batch 1 of local\.a\.t, and its record names batch 0"):
        world.run(copy, new_checkpoint=True)
    world.fill("a.s", [20])
    world.run(copy)
    assert world.ids("a.t") == list(range(21))


def test_an_idle_run_and_the_status_tell_of_a_rollback(world: Any, copy: Pipeline) -> None:
    assert notes(world) == ()
    roll_back(world)
    for _ in range(2):
        with pytest.raises(LedgerError, match=GONE):
            world.run(copy)
    assert "finished" not in world.kinds()
    assert notes(world) == ("rolled back: batch 1 is no longer in the table's history, and the next run stops",)
    append_twice(world)
    world.expire("a.t")
    assert notes(world) == ("rolled back: batch 1 is no longer in the table's history, and the next run stops",)


@pytest.mark.parametrize("kind", ["branch", "audit"])
def test_the_status_looks_where_the_pipeline_writes(world: Any, kind: str) -> None:
    world.fill("a.s", range(10))
    world.fill("a.t", [100])
    sink = world.sink("a.t")
    sink = sink.branch("stage") if kind == "branch" else sink.audit({"small": "max(id) < 1000"}).publish()
    pipeline = world.source("a.s").incremental(poll=1) >> sink
    world.run(pipeline)
    assert notes(world) == ()
    world.sql(f"ALTER TABLE local.a.t CREATE BRANCH kept AS OF VERSION {newest(world, 'a.t')}")
    if kind == "branch":
        world.sql("ALTER TABLE local.a.t DROP BRANCH stage")
        world.sql("ALTER TABLE local.a.t CREATE BRANCH stage")
    else:
        roll_back(world)
    assert notes(world) == ("rolled back: batch 0 is no longer in the table's history, and the next run stops",)
    with pytest.raises(LedgerError, match=GONE):
        world.run(pipeline)


def newest(world: Any, table: str) -> int:
    return int(max(world.load(table).snapshots(), key=lambda one: one.timestamp).id)


def notes(world: Any, table: str = "a.t", count: int = 1) -> tuple[str, ...]:
    found = statuses(world.load(table), View(load=lambda name: world.load(name.removeprefix("local."))))
    assert len(found) == count
    return tuple(note for status in found for note in status.notes)


@pytest.mark.landing
def test_a_routed_table_that_is_gone_or_rolled_back_stops_the_run(world: Any) -> None:
    world.fill("a.s", range(4), k="if(id % 2 = 0, 'x', 'y')")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").route(by="k")
    world.run(pipeline)
    world.fill("a.s", range(4, 8), k="if(id % 2 = 0, 'x', 'y')")
    world.run(pipeline)
    roll_back(world, "a.t_x")
    with pytest.raises(LedgerError, match=r"local\.a\.t_x was rolled back or replaced"):
        world.run(pipeline)
    [newest] = {one.id for one in world.load("a.t_x").snapshots()} - {world.load("a.t_x").current_snapshot().id}
    world.sql(f"CALL local.system.set_current_snapshot('a.t_x', {newest})")
    world.run(pipeline)
    world.sql("DROP TABLE local.a.t_y")
    for ids in ([], range(8, 12)):
        if ids:
            world.fill("a.s", ids, k="if(id % 2 = 0, 'x', 'y')")
        with pytest.raises(CheckpointError, match=r"the routed table local\.a\.t_y is gone"):
            world.run(pipeline)
    assert world.ids("a.t_x") == [0, 2, 4, 6]
    assert not world.catalog.exists("a.t_y")


@pytest.mark.parametrize("kind", ["incremental", "batch"])
def test_routed_tables_that_were_swapped_stop_the_run_at_its_start(world: Any, kind: str) -> None:
    def pipeline(*ids: int) -> Pipeline:
        sink = world.sink("a.t").route(by="if(id % 2 = 0, 'x', 'y')")
        if kind == "batch":
            return (Memory.source([{"id": i} for i in ids]) >> sink).named("p")
        if ids:
            world.fill("a.s", ids)
        made: Pipeline = world.source("a.s").incremental(poll=1) >> sink
        return made

    def swap() -> None:
        for one, other in (("x", "held"), ("y", "x"), ("held", "y")):
            world.sql(f"ALTER TABLE local.a.t_{one} RENAME TO a.t_{other}")

    world.run(pipeline(0, 1))
    swap()
    for ids in ((), (2, 3)) if kind == "incremental" else ((2, 3),):
        with pytest.raises(CheckpointError, match=r"local\.a\.t_x is the table that .* knows as local\.a\.t_y"):
            world.run(pipeline(*ids))
        assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1], [0])
    swap()
    world.run(pipeline(*(() if kind == "incremental" else (2, 3))))
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([0, 2], [1, 3])


def test_a_routed_table_that_was_made_again_with_its_record(world: Any) -> None:
    world.fill("a.s", [0])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").route(by="'x'")
    world.run(pipeline)
    old = world.load("a.t_x").iceberg
    [(key, text)] = ((key, text) for key, text in old.properties.items() if key.startswith("helios.ledger."))
    world.sql("DROP TABLE local.a.t_x")
    world.sql("CREATE TABLE local.a.t_x (id bigint) USING iceberg")
    with world.load("a.t_x").iceberg.transaction() as change:
        change.set_properties({key: json.dumps({**json.loads(text), "snapshot": None})})
    with pytest.raises(CheckpointError, match=r"local\.a\.t_x is another table than the one that .* wrote") as told:
        world.run(pipeline)
    assert "tables.json" in str(told.value)


def test_a_routed_table_that_is_gone_is_made_again_once_its_name_is_taken_out(world: Any) -> None:
    world.fill("a.s", [0])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").route(by="'x'")
    world.run(pipeline)
    world.sql("DROP TABLE local.a.t_x")
    world.fill("a.s", [1])
    with pytest.raises(CheckpointError, match=r"the routed table local\.a\.t_x is gone"):
        world.run(pipeline)
    (world.checkpoint(pipeline) / "helios" / "tables.json").write_text("{}")
    world.run(pipeline)
    world.fill("a.s", [2])
    world.run(pipeline)
    assert world.ids("a.t_x") == [1, 2]


REJECTING = expect({"small": "id < 100"}, on_fail="quarantine")


@pytest.mark.parametrize("kind", ["batch", "route"])
@pytest.mark.cases(landing="batch")
def test_a_quarantine_that_was_rolled_back_stops_the_run_at_its_start(world: Any, kind: str) -> None:
    def pipeline(*ids: int) -> Pipeline:
        sink = world.sink("a.t").quarantine("a.bad")
        if kind == "batch":
            return Memory.source([{"id": i} for i in ids]) >> REJECTING >> sink
        if ids:
            world.fill("a.s", ids)
        made: Pipeline = world.source("a.s").incremental(poll=1) >> REJECTING >> sink.route(by="'x'")
        return made

    for ids in ((1, 101), (2, 102)):
        world.run(pipeline(*ids))
    assert notes(world, "a.bad") == ("2 rejected rows",)
    newest = world.load("a.bad").current_snapshot().id
    roll_back(world, "a.bad")
    gone = "rolled back: batch 1 is no longer in the table's history, and the next run stops"
    assert notes(world, "a.bad") == ("1 rejected row", gone)
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"local\.a\.bad {GONE}.*another name") as told:
            world.run(pipeline(2, 102) if kind == "batch" else pipeline())
    assert ("--new-checkpoint" in str(told.value)) == (kind != "route")
    if kind == "route":
        world.sql(f"CALL local.system.set_current_snapshot('a.bad', {newest})")
        world.run(pipeline(3, 103))
    else:
        world.run(pipeline(3, 103), new_checkpoint=True)
        world.run(pipeline(4, 104))
    kept = ["102", "103"] if kind == "route" else ["103", "104"]
    assert set_aside(world) == ["101", *kept]
    world.sql("DROP TABLE local.a.bad")
    with pytest.raises(LedgerError, match=r"local\.a\.bad is gone, with the rows that .* has set aside in it"):
        world.run(pipeline(5, 105))
    assert not world.catalog.exists("a.bad")


def set_aside(world: Any) -> list[str]:
    return sorted(row[0] for row in world.sql("SELECT get_json_object(payload, '$.id') FROM local.a.bad"))


def test_a_routed_table_that_is_dropped_while_the_pipeline_runs(world: Any) -> None:
    world.fill("a.s", range(4), k="if(id % 2 = 0, 'x', 'y')")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").route(by="k")
    world.run(pipeline)
    run = world.start(world.source("a.s").incremental(poll="200ms") >> world.sink("a.t").route(by="k"))
    while run.state != "running":
        assert run.active
        time.sleep(0.05)
    world.sql("DROP TABLE local.a.t_y")
    world.fill("a.s", range(4, 8), k="if(id % 2 = 0, 'x', 'y')")
    with pytest.raises(CheckpointError, match=r"the routed table local\.a\.t_y is gone"):
        run.await_termination(60)
    assert not world.catalog.exists("a.t_y")


# healthy tables


@pytest.mark.parametrize("kept", [True, False], ids=["metadata", "no-metadata"])
@pytest.mark.parametrize("other", [name for name in OTHERS if name != "replace"])
@pytest.mark.cases(short="compaction-append-metadata")
def test_a_table_of_others_goes_on_after_expiry(world: Any, copy: Pipeline, other: str, kept: bool) -> None:
    OTHERS[other](world)
    world.expire("a.t")
    if not kept:
        lose_metadata(world)
    world.fill("a.s", range(20, 30))
    if other == "compaction-append" and not kept:
        # Nothing shows the batch any more: its files are rewritten, its snapshot and the metadata are deleted.
        with pytest.raises(LedgerError, match=UNKNOWN):
            world.run(copy)
        world.run(copy, new_checkpoint=True)
    else:
        world.run(copy)
    assert [id for id in world.ids("a.t") if id < 500] == list(range(30))


def test_a_table_that_helios_expires_goes_on(world: Any, copy: Pipeline) -> None:
    """PyIceberg's expiry takes the parents away from the snapshots that stay."""
    compact_and_append(world)
    append_twice(world)
    assert world.load("a.t").expire(retain_last=1).snapshots
    assert len(world.load("a.t").snapshots()) == 1
    assert notes(world) == ()
    world.run(copy)
    world.fill("a.s", range(20, 30))
    world.run(copy)
    assert [id for id in world.ids("a.t") if id < 500] == list(range(30))


def test_an_expiry_that_takes_the_parents_away_goes_on(world: Any, copy: Pipeline) -> None:
    """As PyIceberg's own does."""
    append_twice(world)
    table = world.load("a.t").iceberg
    old = [raw.snapshot_id for raw in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert [one.parent_id for one in world.load("a.t").snapshots()] == [None]
    assert notes(world) == ()
    world.fill("a.s", range(20, 30))
    world.run(copy)
    assert world.ids("a.t") == [*range(30), 500, 501]


def test_a_batch_that_a_tag_keeps_while_the_way_to_it_has_expired(world: Any, copy: Pipeline) -> None:
    world.sql("ALTER TABLE local.a.t CREATE TAG kept")
    append_twice(world)
    world.expire("a.t")
    world.fill("a.s", range(20, 30))
    world.run(copy)
    assert [id for id in world.ids("a.t") if id < 500] == list(range(30))


def test_a_long_pause_beside_writers_that_expire_each_commit(world: Any, copy: Pipeline) -> None:
    for id in range(500, 505):
        world.fill("a.t", [id])
        world.compact("a.t")
        world.expire("a.t")
    world.fill("a.s", range(20, 30))
    world.run(copy)
    assert world.ids("a.t") == [*range(30), *range(500, 505)]


def test_a_proven_head_is_kept(world: Any, copy: Pipeline) -> None:
    """Where old metadata is deleted, what an idle run has seen is proof for the next one."""
    compact_and_append(world)
    world.run(copy)
    world.fill("a.t", [501])
    world.expire("a.t")
    lose_metadata(world)
    world.fill("a.s", range(20, 30))
    world.run(copy)
    assert [id for id in world.ids("a.t") if id < 500] == list(range(30))


@pytest.mark.landing
def test_a_running_pipeline_beside_another_writer_compaction_and_expiry(world: Any, copy: Pipeline) -> None:
    run = world.start(world.source("a.s").incremental(poll="200ms") >> world.sink("a.t"))
    while run.state != "running":
        assert run.active
        time.sleep(0.05)
    for id in (20, 21):
        append_twice(world)
        world.compact("a.t")
        world.fill("a.t", [502])
        world.expire("a.t")
        world.fill("a.s", [id])
        deadline = time.monotonic() + PATIENCE
        while id not in world.ids("a.t") and run.active and time.monotonic() < deadline:
            time.sleep(0.2)
    run.stop()
    assert run.await_termination(60)
    assert [id for id in world.ids("a.t") if id < 500] == list(range(22))


def test_a_checkpoint_of_before_has_no_proofs_and_goes_on(
    world: Any, copy: Pipeline, forget_commit: Callable[[Path, int], None]
) -> None:
    shutil.rmtree(world.checkpoint(copy) / "helios" / "landed")
    append(world)
    world.expire("a.t")
    forget_commit(world.checkpoint(copy), 1)
    world.run(copy)
    assert world.ids("a.t") == [*range(20), 500]


# damaged checkpoints


@pytest.mark.parametrize("damage", ["", "v1\n{", "garbage"])
def test_a_damaged_commit_log_is_named(world: Any, copy: Pipeline, damage: str) -> None:
    file = world.checkpoint(copy) / "commits" / "1"
    file.write_text(damage)
    with pytest.raises(CheckpointError, match=r"commits/1 is damaged.*delete") as raised:
        world.run(copy)
    assert "Exception" not in str(raised.value)
    for name in ("1", ".1.crc"):
        (file.parent / name).unlink(missing_ok=True)  # as the message says
    world.fill("a.s", [20])
    world.run(copy)
    assert world.ids("a.t") == list(range(21))


def test_a_second_driver_that_spark_meets_is_named(world: Any, copy: Pipeline) -> None:
    run = world.start(world.source("a.s").incremental(poll="200ms") >> world.sink("a.t"))
    offsets = world.checkpoint(copy) / "offsets"
    while run.state != "running":
        assert run.active
        time.sleep(0.05)
    time.sleep(1)  # Spark has read its logs
    shutil.copy(offsets / "1", offsets / "2")
    world.fill("a.s", [20])
    with pytest.raises(LeaseError, match="another driver has planned or finished batch 2"):
        run.await_termination(60)
    assert world.ids("a.t") == list(range(20))


@pytest.mark.parametrize("damage", [None, "[{"])
def test_lost_starting_offsets_are_named(world: Any, copy: Pipeline, damage: str | None) -> None:
    file = world.checkpoint(copy) / "helios" / "start.json"
    file.unlink() if damage is None else file.write_text(damage)
    world.fill("a.s", [20])
    with pytest.raises(CheckpointError, match=r"helios/start\.json .*--new-checkpoint"):
        world.run(copy)
    world.run(copy, new_checkpoint=True)
    assert world.ids("a.t") == list(range(21))
