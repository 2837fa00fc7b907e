"""Batches without rows for the target: what they rejected is known by its position, in every checkpoint."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import Files, Pipeline, expect
from helios.errors import CheckpointError, HeliosError, InputError, LedgerError
from helios.spark.replay.replay import Replay
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = [pytest.mark.promise("quarantine"), pytest.mark.sampled(2)]


def small(world: Any, most: int = 10, **start: Any) -> Pipeline:
    """Rejects all ids that are not small."""
    made: Pipeline = (
        world.source("a.s").incremental(poll=1, **start)
        >> expect({"small": f"id < {most}"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("local.a.bad")
    )
    return made


def held(world: Any) -> Counter[str]:
    return Counter({payload: n for (payload,), n in world.rows("a.bad", "payload").items()})


def payloads(*ids: int) -> Counter[str]:
    return Counter(f'{{"id":{id}}}' for id in ids)


def replay(world: Any, pipeline: Pipeline) -> Any:
    return Replay(world.plan(pipeline), world.spark).run()


@pytest.mark.short
@pytest.mark.parametrize("before", [[], [1]], ids=["first", "later"])
def test_batches_that_were_rejected_whole_are_not_set_aside_twice(world: Any, before: list[int]) -> None:
    for ids in filter(None, (before, [100], [200, 201])):
        world.fill("a.s", ids)
        world.run(small(world))
    world.run(small(world), new_checkpoint=True)
    assert held(world) == payloads(100, 200, 201)
    shutil.rmtree(world.checkpoint(small(world)))
    with pytest.raises(CheckpointError, match=r"its checkpoint .* is lost"):
        world.run(small(world))
    world.run(small(world), new_checkpoint=True)
    assert held(world) == payloads(100, 200, 201)
    replay(world, small(world, 1000))
    assert world.ids("a.t") == [*before, 100, 200, 201]


def test_a_batch_of_a_new_checkpoint_replaces_nothing_of_the_former_ones(world: Any) -> None:
    for ids in ([1, 100], [2, 200]):
        world.fill("a.s", ids)
        world.run(small(world))
    world.run(small(world), new_checkpoint=True)
    world.fill("a.s", [3, 300])
    with dies_before_commit():
        world.run(small(world))
    # Other steps: what they rejected of the batch is replaced.
    world.run(small(world, 11))
    assert held(world) == payloads(100, 200, 300)
    assert world.ids("a.t") == [1, 2, 3]


def test_rejected_rows_outlive_their_file(world: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pipeline = (
        Files.source(str(folder), "json", schema="id bigint").incremental(poll=1)
        >> expect({"small": "id < 10"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("local.a.bad")
    )
    (folder / "1.json").write_text('{"id": 1}\n')
    world.run(pipeline)
    (folder / "2.json").write_text('{"id": 100}\n')
    world.run(pipeline)
    (folder / "2.json").unlink()  # archived
    world.run(pipeline, new_checkpoint=True)
    assert held(world) == payloads(100)
    (folder / "3.json").write_text('{"id": 2}\n')
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]
    assert held(world) == payloads(100)


@pytest.mark.short
def test_a_checkpoint_that_is_lost_before_anything_landed(world: Any) -> None:
    """What came between the first start and the second is in no batch of a pipeline that starts at the newest."""
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    world.run(pipeline)
    shutil.rmtree(world.checkpoint(pipeline))
    world.fill("a.s", [2])
    with pytest.raises(CheckpointError, match=r"began .*its checkpoint .* is lost") as lost:
        world.run(pipeline)
    assert "--new-checkpoint" in str(lost.value.fix)
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [2]
    world.fill("a.s", [3])
    world.run(pipeline)
    assert world.ids("a.t") == [2, 3]


@pytest.mark.parametrize("through", ["run", "new checkpoint"])
def test_a_full_refresh_fills_from_the_first_start(world: Any, through: str) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    world.run(pipeline)
    for ids in ([2], [3]):
        world.fill("a.s", ids)
        world.run(pipeline)
    if through == "new checkpoint":
        world.run(pipeline, new_checkpoint=True)
    world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [2, 3]
    world.fill("a.s", [4])
    world.run(pipeline)
    assert world.ids("a.t") == [2, 3, 4]


def test_a_full_refresh_whose_first_start_is_not_known_is_refused(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", [2])
    world.run(pipeline)
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t')")
    shutil.rmtree(world.checkpoint(pipeline))
    with pytest.raises(InputError, match='start="latest"') as refused:
        world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [2]
    assert "start=" in str(refused.value.fix)


def test_a_table_of_format_1_whose_first_commit_expired(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg TBLPROPERTIES ('format-version' = '1')")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    for ids in ([1], [2]):
        world.fill("a.s", ids)
    table = world.load("a.s").iceberg
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()  # takes the parent's id away
    with pytest.raises(HeliosError, match="have expired before they were read"):
        world.run(pipeline)
    assert world.ids("a.t") == []


# replays


def upserted(world: Any, most: int, **sink: Any) -> Pipeline:
    made: Pipeline = (
        world.source("a.s").incremental(poll=1)
        >> expect({"small": f"n < {most}"}, on_fail="quarantine")
        >> world.sink("a.t").upsert("id", order_by="n", store_order=False).quarantine("local.a.bad")
    )
    return made


def test_a_replay_that_dies_before_its_commit_remembers_no_order(world: Any) -> None:
    world.fill("a.s", [1], n="CAST(1 AS int)", v="'old'")
    world.run(upserted(world, 10))
    world.fill("a.s", [1], n="CAST(100 AS int)", v="'rejected'")
    world.run(upserted(world, 10))
    with dies_before_commit():
        replay(world, upserted(world, 1000))
    world.sql("DELETE FROM local.a.bad")
    world.fill("a.s", [1], n="CAST(5 AS int)", v="'newer'")
    world.run(upserted(world, 10))
    assert world.rows("a.t", "v") == Counter([("newer",)])


def replayed_and_rolled_back(world: Any, table: str) -> None:
    """Row 100 is replayed into the target, and a table goes back behind that."""
    world.fill("a.s", [1, 100])
    world.run(small(world))
    before = world.load(table).current_snapshot().id
    replay(world, small(world, 1000))
    world.sql(f"CALL local.system.rollback_to_snapshot('{table}', {before})")


def test_a_target_that_is_rolled_back_behind_a_replay_is_refused(world: Any) -> None:
    replayed_and_rolled_back(world, "a.t")
    world.fill("a.s", [2])
    with pytest.raises(LedgerError, match=r"rolled back .*replay"):
        world.run(small(world))
    with pytest.raises(LedgerError, match=r"rolled back .*replay"):
        replay(world, small(world, 1000))


def test_a_new_checkpoint_does_not_forget_a_replay_that_is_there(world: Any) -> None:
    world.fill("a.s", [1, 100])
    world.run(small(world))
    before = world.load("a.t").current_snapshot().id
    replay(world, small(world, 1000))
    world.run(small(world), new_checkpoint=True)
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {before})")
    with pytest.raises(LedgerError, match="rolled back"):
        world.run(small(world))
    with pytest.raises(LedgerError, match="rolled back"):
        replay(world, small(world, 1000))
    world.run(small(world), new_checkpoint=True)  # the fix
    world.fill("a.s", [2])
    world.run(small(world))
    assert world.ids("a.t") == [1, 2]


def test_what_rolled_back_batches_have_set_aside_is_not_replayed_beside_a_repair(world: Any) -> None:
    for ids in ([1, 100], [2, 200], [300], [3, 400]):
        world.fill("a.s", ids)
        world.run(small(world))
    first, second = world.load("a.t").snapshots()[:2]
    since = world.load("a.s").snapshots()[0].id
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first.id})")
    with pytest.raises(LedgerError, match="rolled back"):
        world.run(small(world))
    world.run(small(world), new_checkpoint=True)
    world.fill("a.s", [4, 500])
    world.run(small(world))
    assert second.id != first.id
    assert world.rows("a.bad", "pipeline", "payload") == Counter(
        {
            **{("local.a.t (rolled back)", f'{{"id":{id}}}'): 1 for id in (200, 300, 400)},
            **{("local.a.t", f'{{"id":{id}}}'): 1 for id in (100, 500)},
        }
    )
    to = world.load("a.s").snapshots()[-2].id
    repaired = (
        world.source("a.s").between(since, to)
        >> expect({"small": "id < 10"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("local.a.bad")
    ).named("repair")
    world.run(repaired, beside=["local.a.t"])
    assert world.ids("a.t") == [1, 2, 3, 4]
    repaired = (
        world.source("a.s").between(since, to)
        >> expect({"small": "id < 1000"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("local.a.bad")
    ).named("repair")
    replay(world, repaired)
    replay(world, small(world, 1000))
    assert world.ids("a.t") == [1, 2, 3, 4, 100, 200, 300, 400, 500]


def test_they_are_given_up_by_a_pipeline_that_was_renamed_and_go_with_a_full_refresh(world: Any) -> None:
    def named(most: int = 10) -> Pipeline:
        return small(world, most).named("later", was="local.a.t")

    for ids in ([1, 100], [2, 200]):
        world.fill("a.s", ids)
        world.run(small(world))
    first = world.load("a.t").snapshots()[0]
    world.run(named())
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first.id})")
    world.run(named(), new_checkpoint=True)
    rows = Counter({("later (rolled back)", '{"id":200}'): 1, ("later", '{"id":100}'): 1})
    assert world.rows("a.bad", "pipeline", "payload") == rows
    replay(world, named(1000))
    assert world.ids("a.t") == [1, 100]
    world.run(named(), full_refresh=True)
    assert world.rows("a.bad", "pipeline", "payload") == Counter({("later", f'{{"id":{id}}}'): 1 for id in (100, 200)})
    assert world.ids("a.t") == [1, 2]


def test_a_quarantine_that_is_rolled_back_behind_a_replay_is_refused_before_the_target_has_rows(world: Any) -> None:
    replayed_and_rolled_back(world, "a.bad")
    with pytest.raises(LedgerError, match="rolled back") as refused:
        replay(world, small(world, 1000))
    assert "nothing was written" in str(refused.value)
    assert world.ids("a.t") == [1, 100]


def test_a_quarantine_that_is_gone_is_not_told_as_one_without_rows(world: Any) -> None:
    world.fill("a.s", [1, 100])
    world.run(small(world))
    world.sql("DROP TABLE local.a.bad")
    with pytest.raises(LedgerError, match=r"local\.a\.bad is gone, with the rows that local\.a\.t has set aside in it"):
        replay(world, small(world, 1000))


def test_a_full_refresh_after_a_rollback_behind_a_replay(world: Any) -> None:
    replayed_and_rolled_back(world, "a.t")
    world.run(small(world), full_refresh=True)
    world.fill("a.s", [2, 200])
    world.run(small(world))
    assert (world.ids("a.t"), held(world)) == ([1, 2], payloads(100, 200))
    replay(world, small(world, 1000))
    assert world.ids("a.t") == [1, 2, 100, 200]


def test_a_full_refresh_whose_first_start_has_expired_deletes_nothing(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    world.run(pipeline)
    for ids in ([2], [3]):
        world.fill("a.s", ids)
        world.run(pipeline)
    world.expire("a.s")
    with pytest.raises(InputError, match="snapshots after its first start have expired"):
        world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [2, 3]
    world.sql("DROP TABLE local.a.s")
    world.fill("a.s", [4])
    with pytest.raises(InputError, match="its first start was recorded for another table"):
        world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [2, 3]


def test_a_replay_that_died_and_was_rolled_back_leaves_its_rows_where_they_are(world: Any) -> None:
    world.fill("a.s", [1, 100])
    world.run(small(world))
    before = world.load("a.t").current_snapshot().id
    with dies_at(Replay, "_finish"):
        replay(world, small(world, 1000))
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {before})")
    with pytest.raises(LedgerError, match=r"rolled back .*replay"):
        world.run(small(world))
    world.run(small(world), new_checkpoint=True)
    replay(world, small(world, 1000))
    assert (world.ids("a.t"), held(world)) == ([1, 100], payloads())


def test_a_quarantine_whose_replay_was_rolled_back_is_not_replayed_again(world: Any) -> None:
    replayed_and_rolled_back(world, "a.bad")
    with pytest.raises(LedgerError, match="rolled back"):
        world.run(small(world), new_checkpoint=True)
    with pytest.raises(LedgerError, match="rolled back") as refused:
        replay(world, small(world, 1000))
    assert "new-checkpoint" not in str(refused.value.fix)
    assert world.ids("a.t") == [1, 100]


def deleting(world: Any, known: str) -> Pipeline:
    made: Pipeline = (
        world.source("a.s").incremental(poll=1)
        >> expect({"known": known}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("a.bad").upsert("id", order_by="n", delete_when="gone")
    )
    return made


@pytest.mark.parametrize("renamed", [False, True])
def test_a_delete_that_a_replay_brings_is_remembered(world: Any, renamed: bool) -> None:
    """Also where it deletes nothing, and after the pipeline was renamed."""

    def named(pipeline: Pipeline) -> Pipeline:
        return pipeline.named("new", was="local.a.t") if renamed else pipeline

    world.fill("a.s", [1], n="CAST(1 AS int)", gone="false")
    world.run(deleting(world, "id < 5"))
    world.fill("a.s", [5], n="CAST(9 AS int)", gone="true")
    world.run(deleting(world, "id < 5"))
    replay(world, deleting(world, "true"))
    world.fill("a.s", [6], n="CAST(9 AS int)", gone="true")
    world.run(named(deleting(world, "id < 5")))
    replay(world, named(deleting(world, "true")))
    world.fill("a.s", [5, 6], n="CAST(2 AS int)", gone="false")
    world.run(named(deleting(world, "true")))
    assert world.ids("a.t") == [1]
    assert record_of(world, "new" if renamed else "local.a.t")["batch"] == 1


def record_of(world: Any, pipeline: str) -> Any:
    return json.loads(world.load("a.bad").iceberg.properties[f"helios.ledger.{pipeline}.replay"])
