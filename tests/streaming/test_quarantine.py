"""Setting audited batches aside, and replaying rows that were set aside."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import (
    Catalog,
    Files,
    Memory,
    Pipeline,
    expect,
    join,
    rename,
    select,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.cli.quarantine import _summary
from helios.errors import HeliosError, InputError, LedgerError, NotFound, RunError
from helios.spark.replay import discard
from helios.spark.replay.replay import Replay, Replayed
from helios.spark.sinks.audit import AuditedSink
from helios.table.quarantine import discard_batch, groups, plan_discard, rows

pytestmark = [pytest.mark.promise("quarantine"), pytest.mark.sampled(2)]

QUARANTINE = expect({"small": "id < 2"}, on_fail="quarantine")
AUDIT = {"small": "max(id) < 100"}


def audited(world: Any, table: str = "a.t") -> Pipeline:
    made: Pipeline = world.source("a.s").incremental() >> world.sink(table).audit(AUDIT).publish()
    return made


def record(world: Any, table: str, pipeline: str) -> dict[str, Any]:
    found = world.catalog.load(table).iceberg.properties[f"helios.ledger.{pipeline}"]
    return dict(json.loads(found))


def replay(world: Any, pipeline: Pipeline, step: str | None = None) -> Replayed:
    return Replay(world.plan(pipeline), world.spark, step).run()


def held(world: Any, table: str = "a.bad") -> Counter[tuple[str, str]]:
    """What a quarantine holds: payload and reason."""
    found = world.rows(table, "payload", "reason")
    return Counter({(payload, reason): n for (payload, reason), n in found.items()})


# audited batches


@pytest.mark.short
def test_a_batch_that_fails_its_audit_is_set_aside_and_the_next_run_goes_on(world: Any) -> None:
    world.fill("a.s", [1, 2])
    world.run(audited(world))
    world.fill("a.s", [3, 500])
    with pytest.raises(RunError, match="did not pass its audit: small"):
        world.run(audited(world))
    with pytest.raises(RunError, match=r"batch 1 of local\.a\.t did not pass"):
        world.run(audited(world))  # a restart audits again
    assert world.ids("a.t") == [1, 2]
    before = record(world, "a.t", "local.a.t")

    done = discard_batch(world.catalog.load("a.t"), 1)
    assert (done.pipeline, done.batch, done.rows, done.again) == ("local.a.t", 1, 2, False)
    after = record(world, "a.t", "local.a.t")
    assert (after["batch"], after["snapshot"]) == (1, before["snapshot"])
    table = world.catalog.load("a.t")
    assert table.branches().keys() == {"main"}
    assert table.tags() == {"helios_quarantine_local.a.t_1": done.snapshot}
    assert discard_batch(table, 1).again

    world.fill("a.s", [4])
    world.events.clear()
    world.run(audited(world))
    assert [e.kind for e in world.events if e.batch is not None] == ["skipped", "batch"]
    assert world.ids("a.t") == [1, 2, 4]
    tagged = world.sql(f"SELECT id FROM local.a.t VERSION AS OF '{done.tag}'")
    assert sorted(row[0] for row in tagged) == [1, 2, 3, 500]


def a_published_batch_after_one_that_was_set_aside(world: Any) -> None:
    world.fill("a.s", [500])
    with pytest.raises(RunError, match="did not pass"):
        world.run(audited(world))
    discard_batch(world.catalog.load("a.t"), 0)
    world.fill("a.s", [1])
    world.run(audited(world))


def test_the_first_batch_of_a_table_is_set_aside_too(world: Any) -> None:
    a_published_batch_after_one_that_was_set_aside(world)
    assert world.ids("a.t") == [1]


def test_a_batch_pipeline_does_not_bring_back_what_was_set_aside(world: Any) -> None:
    pipeline = Memory.source([{"id": 500}]) >> world.sink("a.t").audit(AUDIT).publish()
    with pytest.raises(RunError, match="did not pass"):
        world.run(pipeline)
    discard_batch(world.catalog.load("a.t"), 0)
    world.run(pipeline)
    assert world.ids("a.t") == []
    world.run(Memory.source([{"id": 1}]) >> world.sink("a.t").audit(AUDIT).publish())
    assert world.ids("a.t") == [1]


def test_a_rollback_behind_a_batch_that_was_set_aside_is_still_found(world: Any) -> None:
    for batch in ([1], [2], [500]):
        world.fill("a.s", batch)
        try:
            world.run(audited(world))
        except RunError:
            discard_batch(world.catalog.load("a.t"), 2)
    first = world.catalog.load("a.t").snapshots()[0].id
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first})")
    world.fill("a.s", [3])
    with pytest.raises(LedgerError, match="was rolled back or replaced"):
        world.run(audited(world))


def test_a_driver_that_audits_meanwhile_does_not_publish_what_is_set_aside(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill("a.s", [1])
    audit = AuditedSink._audit

    def slow(self: AuditedSink, *arguments: Any) -> None:
        audit(self, *arguments)
        discard_batch(world.catalog.load("a.t"), 0)

    monkeypatch.setattr(AuditedSink, "_audit", slow)
    world.run(audited(world))
    assert world.kinds().count("skipped") == 1
    assert world.ids("a.t") == []
    assert "helios_quarantine_local.a.t_0" in world.catalog.load("a.t").tags()


def test_a_driver_that_stages_the_batch_anew_wins(world: Any) -> None:
    world.fill("a.s", [500])
    with pytest.raises(RunError):
        world.run(audited(world))
    table = world.catalog.load("a.t")
    looked, _ = plan_discard(table, 0, None)
    with pytest.raises(RunError):
        world.run(audited(world))
    done = discard_batch(table, 0)
    assert done.snapshot != looked.snapshot


def test_a_published_batch_is_not_one_of_the_same_number_that_was_set_aside(world: Any) -> None:
    a_published_batch_after_one_that_was_set_aside(world)
    world.fill("a.s", [2])
    world.run(audited(world), new_checkpoint=True)  # it counts from 0 again
    assert world.ids("a.t") == [1, 2]
    with pytest.raises(InputError, match=r"batch 0 .*published"):
        discard_batch(world.catalog.load("a.t"), 0)


def test_a_table_of_format_3_is_changed_by_spark(world: Any) -> None:
    world.fill("a.s", [500])
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").format_version(3).audit(AUDIT).publish()
    with pytest.raises(RunError):
        world.run(pipeline)
    table = world.catalog.load("a.t")
    with pytest.raises(InputError, match="has format v3"):
        discard_batch(table, 0)
    name = world.plan(pipeline).write.table
    found, written = plan_discard(table, 0, None)
    discard.commit_discard(world.spark, name, found, written)
    with pytest.raises(RunError, match="was changed by somebody else"):
        discard.commit_discard(world.spark, name, found, written)
    world.fill("a.s", [1])
    world.run(pipeline)
    assert world.ids("a.t") == [1]


# replays


def source(world: Any, *rows: dict[str, Any], schema: str | None = None) -> Any:
    return Memory.source(list(rows), schema) if schema else Memory.source(list(rows))


@pytest.mark.short
def test_mended_rows_are_replayed_once_and_the_others_stay(world: Any) -> None:
    world.fill("a.s", [1, 2, 3, 4], v="id * 10")

    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            world.source("a.s").incremental()
            >> with_columns(w="v + 1")
            >> expect({"small": f"w <= {most}"}, on_fail="quarantine")
            >> with_columns(x="w * 2")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(11))
    assert world.ids("a.t") == [1]
    found = groups(world.catalog.load("a.bad"))
    assert [(g.rows, g.batches, g.reason) for g in found] == [(3, (0,), "small (w <= 11)")]
    assert rows(world.catalog.load("a.bad"), 1)[0]["payload"].keys() == {"id", "v", "w"}

    done = replay(world, pipeline(31))
    assert (done.taken, done.moved, done.stayed, done.resumed) == (2, 0, 1, False)
    assert world.rows("a.t", "id", "v", "w", "x") == Counter(
        {(i, i * 10, i * 10 + 1, i * 20 + 2): 1 for i in (1, 2, 3)}
    )
    assert held(world) == Counter({('{"id":4,"v":40,"w":41}', "small (w <= 11)"): 1})
    assert record(world, "a.t", "local.a.t.replay")["batch"] == 0

    again = replay(world, pipeline(31))
    assert (again.taken, again.stayed, again.snapshot) == (0, 1, None)
    world.fill("a.s", [5], v="id * 10")
    world.run(pipeline(31))
    assert replay(world, pipeline(99)).taken == 2
    assert world.ids("a.t") == [1, 2, 3, 4, 5]
    assert held(world) == Counter()


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.cases(landing="False")
def test_a_replay_that_died_behind_its_commit_only_takes_the_rows_out(
    world: Any, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, *({"id": i} for i in range(6)))
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(2))
    with monkeypatch.context() as patched:
        patched.setattr(Replay, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline(4))
    assert world.ids("a.t") == [0, 1, 2, 3]
    assert held(world).total() == 4
    # What it took counts, not what the script says meanwhile.
    done = replay(world, pipeline(6 if changed else 4))
    assert (done.taken, done.resumed) == (2, True)
    assert world.ids("a.t") == [0, 1, 2, 3]
    assert {payload for payload, _ in held(world)} == {'{"id":4}', '{"id":5}'}
    assert replay(world, pipeline(6)).taken == 2
    assert world.ids("a.t") == [0, 1, 2, 3, 4, 5]


@pytest.mark.landing
def test_a_replay_that_died_before_its_commit_begins_anew(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, *({"id": i} for i in range(6)))
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    from helios.spark.sinks.table import TableSink

    world.run(pipeline(2))
    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline(6))
    assert replay(world, pipeline(3)).taken == 1
    assert world.ids("a.t") == [0, 1, 2]
    assert held(world).total() == 3


def test_a_replay_that_died_behind_both_commits_is_over(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, *({"id": i} for i in range(4)))
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(1))
    with monkeypatch.context() as patched:
        finish = Replay._finish

        def dies(*arguments: Any) -> None:
            finish(*arguments)
            raise KeyboardInterrupt

        patched.setattr(Replay, "_finish", dies)
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline(3))
    done = replay(world, pipeline(4))
    assert (done.taken, done.resumed) == (1, False)
    assert world.ids("a.t") == [0, 1, 2, 3]
    assert held(world) == Counter()


def test_rows_that_somebody_deletes_meanwhile_are_not_missed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(source(world, {"id": 1}, {"id": 2}) >> QUARANTINE >> world.sink("a.t").quarantine("a.bad"))
    repaired = source(world, {"id": 1}, {"id": 2}) >> expect({"small": "id < 9"}, on_fail="quarantine")
    pipeline = repaired >> world.sink("a.t").quarantine("a.bad")
    with monkeypatch.context() as patched:
        patched.setattr(Replay, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline)
    world.sql("DELETE FROM local.a.bad")
    assert replay(world, pipeline).resumed
    assert replay(world, pipeline).taken == 0
    assert world.ids("a.t") == [1, 2]


def test_rows_that_fail_elsewhere_move_there(world: Any) -> None:
    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, *({"id": i} for i in range(6)))
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> with_columns(half="id / 2.0")
            >> expect({"even": "id % 2 = 0", "known": "half IS NOT NULL"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(2))
    done = replay(world, pipeline(6), "small=")
    assert (done.taken, done.moved, done.stayed) == (4, 2, 0)
    assert world.ids("a.t") == [0, 2, 4]
    reasons = Counter(reason for _, reason in held(world).elements())
    assert reasons == Counter({"even (id % 2 = 0)": 3})
    assert json.loads(next(payload for payload, _ in held(world) if '"id":5' in payload)) == {"id": 5, "half": 2.5}
    with pytest.raises(NotFound, match="were set aside by a step with 'smal="):
        replay(world, pipeline(6), "smal=")


@pytest.mark.slow
def test_null_keys_and_deletes_share_the_memory_of_the_pipeline(world: Any) -> None:
    def pipeline(known: str) -> Pipeline:
        made: Pipeline = (
            world.source("a.s").incremental()
            >> expect({"known": known}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad").upsert("id", order_by="n", delete_when="op = 'd'")
        )
        return made

    def arrive(*events: tuple[int | None, int, str, str]) -> None:
        values = ", ".join(f"({'null' if i is None else i}, {n}, '{op}', '{v}')" for i, n, op, v in events)
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        world.sql("CREATE TABLE IF NOT EXISTS local.a.s (id bigint, n int, op string, v string) USING iceberg")
        world.sql(f"INSERT INTO local.a.s VALUES {values}")

    arrive((1, 1, "u", "a"), (2, 5, "u", "b"), (3, 1, "u", "c"), (None, 1, "u", "d"), (2, 7, "d", "bad"))
    world.run(pipeline("v <> 'bad'"))
    arrive((1, 9, "d", ""), (3, 3, "u", "bad"), (1, 4, "u", "bad"))
    world.run(pipeline("v <> 'bad'"))
    assert world.rows("a.t", "id", "v") == Counter({(2, "b"): 1, (3, "c"): 1})
    done = replay(world, pipeline("true"))
    # The delete of 2 and the update of 3 count; the row of 1 is older than its delete; the null key stays.
    assert (done.taken, done.moved, done.stayed) == (3, 0, 1)
    assert world.rows("a.t", "id", "v") == Counter({(3, "bad"): 1})
    # What was replayed is remembered: rows that are older do not come back.
    arrive((2, 6, "u", "late"), (3, 2, "u", "late"), (4, 1, "u", "new"))
    world.run(pipeline("true"))
    assert world.rows("a.t", "id", "v") == Counter({(3, "bad"): 1, (4, "new"): 1})
    arrive((4, 5, "d", ""), (2, 8, "u", "back"), (5, 1, "u", "bad"))
    world.run(pipeline("v <> 'bad'"))
    arrive((5, 2, "d", ""))  # deletes nothing, and is remembered nevertheless
    world.run(pipeline("true"))
    assert replay(world, pipeline("true")).taken == 1
    assert world.rows("a.t", "id", "v") == Counter({(3, "bad"): 1, (2, "back"): 1})


@pytest.mark.landing
def test_routed_rows_find_their_tables(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(by: str, most: int = 9) -> Pipeline:
        made: Pipeline = (
            source(world, *({"id": i, "k": "a-b" if i % 2 else "ab"} for i in range(6)))
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad").route(by=by)
        )
        return made

    world.run(pipeline("k", 4))
    assert world.ids("a.t_ab") == [0, 2]
    with monkeypatch.context() as patched:
        patched.setattr(Replay, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline("translate(k, '-', '_')"))
    done = replay(world, pipeline("translate(k, '-', '_')"))
    assert (done.taken, done.moved, done.stayed) == (4, 0, 0)
    assert world.ids("a.t_ab") == [0, 2, 4]
    assert world.ids("a.t_a_b") == [1, 3, 5]
    assert held(world) == Counter()


def test_joins_are_read_again_and_unions_are_not(world: Any) -> None:
    world.fill("a.names", [1, 2, 3], name="concat('n', id)")
    other = source(world, {"id": 9}) >> where("id > 0")

    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, {"id": 1}, {"id": 2})
            >> join(source(world, {"id": 1}, {"id": 2}) >> select("id", "id AS a"), on="id")
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> join(world.source("a.names") >> select("id", "name"), on="id", how="left")
            >> union(other >> with_columns(a="id", name="'u'"))
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(2))
    assert world.ids("a.t") == [1, 9]
    assert replay(world, pipeline(3)).taken == 1
    assert world.rows("a.t", "id", "a", "name") == Counter({(1, 1, "n1"): 1, (2, 2, "n2"): 1, (9, 9, "u"): 1})


@pytest.mark.landing
def test_values_of_every_type_come_back(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql(
        "CREATE TABLE local.a.s (id bigint, b boolean, f float, d double, m decimal(38,10), day date, ts timestamp, "
        "n timestamp_ntz, raw binary, s struct<x: int, y: array<string>>, kv map<string, decimal(5,2)>, t string) "
        "USING iceberg"
    )
    world.sql(
        "INSERT INTO local.a.s VALUES (9223372036854775807, true, float('NaN'), 0.1, "
        "1234567890123456789012345678.0123456789, DATE '0001-01-01', TIMESTAMP '2026-01-01 00:00:00.123', "
        "TIMESTAMP_NTZ '2026-01-01 00:00:00.5', X'00FF', named_struct('x', null, 'y', array('a', null)), "
        "map('k', 1.50BD), 'q\"\\n\\u00e9'), (2, null, null, null, null, null, null, null, null, null, null, null)"
    )

    def pipeline(condition: str) -> Pipeline:
        made: Pipeline = (
            world.source("a.s")
            >> expect({"good": condition}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline("false"))
    assert replay(world, pipeline("true")).taken == 2
    assert repr(world.catalog.load("a.t").iceberg.scan().to_arrow().sort_by("id").to_pylist()) == repr(
        world.catalog.load("a.s").iceberg.scan().to_arrow().sort_by("id").to_pylist()
    )


def test_an_audit_guards_the_target_from_replayed_rows(world: Any) -> None:
    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, {"id": 1}, {"id": 2}, {"id": 500})
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad").audit(AUDIT).publish()
        )
        return made

    world.run(pipeline(2))
    with pytest.raises(RunError, match=r"batch 0 of local\.a\.t\.replay did not pass its audit"):
        replay(world, pipeline(1000))
    assert world.ids("a.t") == [1]
    done = replay(world, pipeline(100))
    assert (done.taken, done.stayed) == (1, 1)
    assert world.ids("a.t") == [1, 2]


def test_rows_of_other_pipelines_stay(world: Any) -> None:
    def pipeline(name: str, most: int) -> Pipeline:
        made = (
            source(world, {"id": 1}, {"id": 2})
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made.named(name)

    world.run(pipeline("one", 2))
    world.run(pipeline("two", 2))
    assert replay(world, pipeline("one", 3)).taken == 1
    assert world.ids("a.t") == [1, 1, 2]
    assert [g.pipeline for g in groups(world.catalog.load("a.bad"))] == ["two"]


def test_notes_that_are_lost_behind_the_commit_stop_the_next_replay(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    def pipeline(most: int) -> Pipeline:
        made: Pipeline = (
            source(world, {"id": 1}, {"id": 2})
            >> expect({"small": f"id < {most}"}, on_fail="quarantine")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline(2))
    with monkeypatch.context() as patched:
        patched.setattr(Replay, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replay(world, pipeline(3))
    shutil.rmtree(world.checkpoint(pipeline(3)) / "helios" / "replay")
    with pytest.raises(LedgerError, match="the note of these rows, in the checkpoint folder, is lost"):
        replay(world, pipeline(3))
    assert world.ids("a.t") == [1, 2]
    # What the error says, by hand.
    world.sql("DELETE FROM local.a.bad WHERE payload = '{\"id\":2}'")
    world.sql("ALTER TABLE local.a.t UNSET TBLPROPERTIES ('helios.ledger.local.a.t.replay')")
    assert replay(world, pipeline(9)).taken == 0
    assert (world.ids("a.t"), held(world)) == ([1, 2], Counter())


def duplicates(df: Any) -> Any:
    return df.dropDuplicates(["id"])


def test_maps_whose_keys_are_no_text_are_refused(world: Any) -> None:
    mapped = with_columns(m="map(id, 'x')", s="named_struct('l', array(map(1, 2)))")
    pipeline = source(world, {"id": 2}) >> mapped >> QUARANTINE >> world.sink("a.t").quarantine("a.bad")
    world.run(pipeline)
    with pytest.raises(InputError, match="'m' holds a map with keys that are not strings"):
        replay(world, pipeline)


@pytest.mark.parametrize(
    ("steps", "mode", "why"),
    [
        (QUARANTINE >> select("id", "id AS other"), "overwrite", "its mode is overwrite"),
        (QUARANTINE >> window("ts", "1 hour").agg(n="count(*)"), "append", "combines rows"),
        (rename({"id": "key"}) >> expect({"small": "key < 3"}, on_fail="quarantine"), "append", "they have 'id'"),
        (with_columns(z="1") >> expect({"small": "id < 3"}, on_fail="quarantine"), "append", "they lack 'z'"),
        (where("id > 0"), "append", "is not in the script any more"),
        (
            union(Memory.source([{"id": 7, "ts": None}], "id bigint, ts timestamp") >> QUARANTINE),
            "append",
            "the other side of a join",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(world: Any, steps: Any, mode: str, why: str) -> None:
    rows = source(world, {"id": 1, "ts": None}, {"id": 2, "ts": None}, schema="id bigint, ts timestamp")
    sink = world.sink("a.t").quarantine("a.bad")
    world.run(rows >> QUARANTINE >> sink)
    before = world.catalog.load("a.t").current_snapshot()
    with pytest.raises(InputError, match=why):
        replay(world, rows >> steps >> (sink.overwrite() if mode == "overwrite" else sink))
    assert world.catalog.load("a.t").current_snapshot() == before
    assert held(world).total() == 1


def test_stateful_streams_are_refused(world: Any) -> None:
    world.fill("a.s", [1], ts="TIMESTAMP '2026-01-01 00:00:00'")
    followed = world.source("a.s").incremental()
    sink = world.sink("a.t").quarantine("a.bad")
    stateful = followed >> watermark("ts", "1 minute") >> window("ts", "1 hour").agg(n="count(*)") >> sink
    hidden = followed >> step(duplicates) >> sink
    for pipeline, why in ((stateful, "it is a stateful stream"), (hidden, "a callable keeps state")):
        with pytest.raises(InputError, match=why):
            replay(world, pipeline)
    with pytest.raises(InputError, match="has no quarantine"):
        replay(world, followed >> world.sink("a.t"))


def test_a_value_that_does_not_parse_is_an_error_and_not_a_null(world: Any) -> None:
    def pipeline(kind: str, condition: str) -> Pipeline:
        made: Pipeline = (
            source(world, {"id": 1, "v": "x"})
            >> with_columns(v=f"try_cast(v AS {kind})" if kind != "string" else "v")
            >> expect({"good": condition}, on_fail="quarantine")
            >> with_columns(v="string(v)")
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(pipeline("string", "false"))
    with pytest.raises(HeliosError, match="does not parse"):
        replay(world, pipeline("int", "id = 1"))
    assert held(world).total() == 1


def test_a_pipeline_that_runs_is_not_replayed(world: Any) -> None:
    world.fill("a.s", [1, 2])
    pipeline = world.source("a.s").incremental(poll=1) >> QUARANTINE >> world.sink("a.t").quarantine("a.bad")
    world.run(pipeline)
    running = world.start(pipeline)
    try:
        while running.state != "running" and running.active:
            running.await_termination(0.1)
        with pytest.raises(RunError, match="another driver is running"):
            replay(world, pipeline)
    finally:
        running.stop()
        running.await_termination(60)


SCRIPT = """
from helios import *
MOST = param("most", 2)
orders = (
    Memory.source([{"id": i} for i in range(5)])
    >> expect({"small": f"id < {MOST}"}, on_fail="quarantine")
    >> Iceberg.sink("a.t").quarantine("a.bad")
)
broken = Memory.source([{"id": 1}]) >> Iceberg.sink("a.other").overwrite().quarantine("a.bad")
"""


def helios(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "helios", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(SCRIPT)
    ran = helios(tmp_path, "run", "p.py:orders", "--once", "--fail-on-rejects")
    assert (ran.returncode, ran.stderr) == (3, "")
    assert ran.stdout.splitlines()[-1].endswith("local.a.t  finished: 1 batch, 2 rows, 3 rejected")
    # They are in the quarantine already: nothing is rejected now.
    assert helios(tmp_path, "run", "p.py:orders", "--once", "--fail-on-rejects").returncode == 0
    done = helios(tmp_path, "quarantine", "replay", "p.py", "--set", "most=4")
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("local.a.t: 2 rows replayed into local.a.t, snapshot ")
    assert done.stdout.endswith("; 1 row of local.a.bad would fail again.\n")
    assert "its mode is overwrite" in done.stderr
    catalog = Catalog.local(path=tmp_path / ".helios")
    assert sorted(catalog.load("a.t").iceberg.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    shown = json.loads(helios(tmp_path, "quarantine", "a.bad", "--rows", "5", "--json").stdout)
    assert [row["payload"] for row in shown] == [{"id": 4}]
    quarantine, status = json.loads(helios(tmp_path, "status", "--json").stdout)
    assert quarantine["notes"] == ["1 rejected row"]
    assert (status["pipeline"], status["batch"], status["rows"]) == ("local.a.t", 0, 2)


@pytest.mark.short
def test_what_a_source_set_aside_is_not_replayed_as_a_row(world: Any, tmp_path: Path) -> None:
    """Its payload is a text of a file: as a row of the only expectation it would be all nulls, and pass."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\nx\n7\n")

    def pipeline(most: int) -> Pipeline:
        source = Files.source(str(tmp_path / "in"), "csv", schema="id int").on_bad_row("quarantine").incremental(poll=1)
        checked = source >> expect({"small": f"id IS NULL OR id < {most}"}, on_fail="quarantine")
        made: Pipeline = checked >> world.sink("a.t").quarantine("a.bad")
        return made

    world.run(pipeline(3))
    asides = world.rows("a.bad", "step").total()
    done = replay(world, pipeline(9))
    assert (done.taken, done.stayed, done.of_sources) == (1, 0, asides - 1)
    assert world.ids("a.t") == [1, 7]
    assert replay(world, pipeline(9)).of_sources == asides - 1
    assert "stay: repair them at their origin" in _summary(done)
    with pytest.raises(InputError, match="are not replayed: no step rejected them") as refused:
        replay(world, pipeline(9), step="on_bad_row")
    assert "helios quarantine clear a.bad" in str(refused.value.fix)
