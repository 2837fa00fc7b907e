"""What modes, routes, quarantines and audits do to each other's rows."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from helios import Memory, Pipeline, expect, where, with_columns
from helios.errors import CheckFailed, CheckpointError, HeliosError, InputError, RunError
from helios.spark.maintenance.maintain import remove_orphans
from helios.spark.replay.replay import Replay
from helios.spark.sinks.table import TableSink
from helios.table.quarantine import discard_batch

pytestmark = pytest.mark.sampled(2)

DIES = RuntimeError("the driver died")
KEYED = "id bigint, v string, n bigint, op string"


def die(*_: Any) -> None:
    raise DIES


def held(world: Any, table: str = "a.bad") -> Counter[tuple[str, str]]:
    """What a quarantine holds: payload and reason."""
    if not world.catalog.exists(table):
        return Counter()
    found = world.rows(table, "payload", "reason")
    return Counter({(payload, reason): n for (payload, reason), n in found.items()})


def payloads(world: Any) -> list[str]:
    return sorted(payload for payload, _ in held(world).elements())


# rows without a key or an order


@pytest.mark.parametrize("mode", ["upsert", "delete"])
@pytest.mark.promise("route", "quarantine", "upsert")
def test_null_keys_of_routed_rows_are_set_aside_together(world: Any, mode: str) -> None:
    schema = "id bigint, to string"
    world.run(Memory.source([(9, "x"), (9, "y")], schema) >> world.sink("a.t").route(by="to"))
    given = [(1, "x"), (None, "x"), (2, "y"), (None, "y"), (3, "no no"), (None, "z"), (8, "y")]
    sink = getattr(world.sink("a.t").route(by="to").quarantine("a.bad"), mode)("id")
    made = Memory.source(given, schema) >> expect({"small": "coalesce(id, 0) < 8"}, on_fail="quarantine") >> sink
    run = world.run(made.named("second"))
    assert held(world) == Counter(
        {
            ('{"id":null,"to":"x"}', "null key: id"): 1,
            ('{"id":null,"to":"y"}', "null key: id"): 1,
            ('{"id":null,"to":"z"}', "null key: id"): 1,
            ('{"id":3,"to":"no no"}', "route to: no no"): 1,
            ('{"id":8,"to":"y"}', "small (coalesce(id, 0) < 8)"): 1,
        }
    )
    assert run.metrics().records_failed == 5
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == (([1, 9], [2, 9]) if mode == "upsert" else ([9], [9]))


@pytest.mark.promise("quarantine", "history", "upsert")
def test_versions_without_an_order_are_refused_or_set_aside(world: Any) -> None:
    sink = world.sink("a.t").upsert("id", order_by="n", delete_when="op = 'd'", history=True)
    good = [(1, "a", 1, "u"), (2, "b", 1, "u")]
    world.run(Memory.source(good, KEYED) >> sink)
    bad = Memory.source([(1, "c", None, "u"), (2, "d", None, "d"), (3, "e", 1, "u"), (None, "f", None, "u")], KEYED)
    with pytest.raises(RunError, match=r"has a null (order: n|key: id) is null in .*; nothing was written"):
        world.run(bad >> sink)
    before, columns = {(1, "a", 1, None): 1, (2, "b", 1, None): 1}, ("id", "v", "valid_from", "valid_to")
    assert world.rows("a.t", *columns) == Counter(before)
    world.run(bad >> sink.quarantine("a.bad"))
    assert world.rows("a.t", *columns) == Counter({**before, (3, "e", 1, None): 1})
    assert Counter(reason for _, reason in held(world).elements()) == Counter({"null order: n": 2, "null key: id": 1})
    # A replay leaves rows that the sink would refuse again.
    pipeline = bad >> sink.quarantine("a.bad")
    replayed = Replay(world.plan(pipeline), world.spark).run()
    assert (replayed.taken, replayed.stayed) == (0, 3)


@pytest.mark.promise("upsert")
def test_a_variant_takes_part_in_no_tie(world: Any) -> None:
    source = Memory.source([(1, "a", 1, "u"), (1, "b", 1, "u")], KEYED)
    nested = with_columns(j="parse_json('{\"x\": 1}')", m="map('a', 1)")
    world.run(source >> nested >> world.sink("a.t").format_version(3).upsert("id", order_by="n"))
    [[count]] = world.sql("SELECT count(*) FROM local.a.t WHERE variant_get(j, '$.x', 'int') = 1")
    assert count == 1


# overwrites


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.promise("overwrite")
def test_an_overwrite_by_nothing_erases_what_the_filter_names(world: Any, mode: str) -> None:
    world.run(Memory.source([(i, i % 3) for i in range(1, 7)], "id bigint, k bigint") >> world.sink("a.t"))
    sink = world.sink("a.t").overwrite("k = 1").write_mode(mode)
    none = Memory.source([(7, 1)], "id bigint, k bigint") >> where("id > 9") >> sink
    world.run(none.named("ones"))
    assert world.ids("a.t") == [2, 3, 5, 6]


@pytest.mark.promise("overwrite")
def test_a_whole_overwrite_empties_the_table_of_a_value_that_is_gone(world: Any) -> None:
    sink = world.sink("a.t").route(by="k").overwrite()
    world.run(Memory.source([(1, "x"), (2, "y")], "id bigint, k string") >> sink)
    world.run(Memory.source([(3, "y"), (4, "z")], "id bigint, k string") >> sink)
    assert [world.ids(f"a.t_{k}") for k in "xyz"] == [[], [3], [4]]


# quarantines and changed steps


@pytest.mark.parametrize("routed", [False, True], ids=["", "routed"])
@pytest.mark.parametrize("most", [3, 1, 9])
@pytest.mark.promise("failures")
def test_a_batch_that_died_goes_by_the_steps_of_now(
    world: Any, monkeypatch: pytest.MonkeyPatch, most: int, routed: bool
) -> None:
    world.fill("a.s", range(5), k="'x'")

    def pipeline(most: int) -> Pipeline:
        sink = world.sink("a.t").quarantine("a.bad")
        sink = sink.route(by="k") if routed else sink
        step = expect({"small": f"id < {most}"}, on_fail="quarantine") if most < 9 else where("true")
        made: Pipeline = world.source("a.s").incremental() >> step >> sink
        return made

    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "_commit", die)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline(2))
    assert len(payloads(world)) == 3
    for _ in range(2):
        world.run(pipeline(most))
        assert world.ids("a.t_x" if routed else "a.t") == list(range(min(most, 5)))
        assert payloads(world) == [f'{{"id":{i},"k":"x"}}' for i in range(most, 5)]


@pytest.mark.promise("quarantine", "changed-steps")
def test_a_full_refresh_sets_nothing_aside_twice(world: Any) -> None:
    world.fill("a.s", range(5))
    pipeline = (
        world.source("a.s").incremental()
        >> expect({"small": "id < 3"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("a.bad")
    )
    other = Memory.source([{"id": 77}]) >> expect({"no": "false"}, on_fail="quarantine")
    world.run((other >> world.sink("a.u").quarantine("a.bad")).named("other"))
    world.run(pipeline)
    assert payloads(world) == ['{"id":3}', '{"id":4}', '{"id":77}']
    world.run(pipeline, full_refresh=True)
    assert payloads(world) == ['{"id":3}', '{"id":4}', '{"id":77}']
    assert world.ids("a.t") == [0, 1, 2]


@pytest.mark.promise("quarantine")
@pytest.mark.landing
def test_a_new_checkpoint_sets_nothing_aside_twice(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = (
        world.source("a.s").incremental()
        >> expect({"even": "id % 2 = 0"}, on_fail="quarantine")
        >> world.sink("a.t").quarantine("a.bad")
    )
    world.fill("a.s", [0, 1])
    world.run(pipeline)
    world.fill("a.s", [2, 3])
    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "_commit", die)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline)
    assert payloads(world) == ['{"id":1}', '{"id":3}']
    world.fill("a.s", [4, 5])
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [0, 2, 4]
    assert payloads(world) == ['{"id":1}', '{"id":3}', '{"id":5}']


@pytest.mark.parametrize("again", ["new_checkpoint", "full_refresh"])
@pytest.mark.promise("quarantine")
def test_a_batch_pipeline_sets_identical_inputs_aside_once(world: Any, again: str) -> None:
    pipeline = (
        Memory.source([{"id": i} for i in range(4)])
        >> expect({"even": "id % 2 = 0"}, on_fail="quarantine")
        >> world.sink("a.t").upsert("id").quarantine("a.bad")
    )
    world.run(pipeline)
    world.run(pipeline)
    for _ in range(2):
        world.run(pipeline, **{again: True})
        assert world.ids("a.t") == [0, 2]
        assert payloads(world) == ['{"id":1}', '{"id":3}']


MODES: dict[str, Any] = {
    "append": lambda sink: sink,
    "route": lambda sink: sink.route(by="'x'"),
    "upsert": lambda sink: sink.upsert("id"),
    "overwrite": lambda sink: sink.overwrite(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("quarantine")
@pytest.mark.cases(landing="append")
def test_a_quarantine_takes_the_inputs_of_a_batch_pipeline_once_as_its_target_does(world: Any, mode: str) -> None:
    def pipeline(*ids: int, most: int = 100) -> Pipeline:
        steps = expect({"small": f"id < {most}"}, on_fail="quarantine")
        made: Pipeline = (
            Memory.source([{"id": i} for i in ids]) >> steps >> MODES[mode](world.sink("a.t").quarantine("a.bad"))
        )
        return made

    appends = mode in ("append", "route")
    once = ['{"id":101}', '{"id":102}', '{"id":103}']
    for ids in ((1, 101), (102,), (2, 103), (1, 101), (102,)):  # of the second one, every row is set aside
        world.run(pipeline(*ids))
    assert payloads(world) == once
    with pytest.raises(InputError, match="with other steps") if appends else nullcontext():
        world.run(pipeline(1, 101, most=50))
    world.run(pipeline(102, most=50))
    assert payloads(world) == once
    assert held(world)['{"id":102}', "small (id < 50)"] == 1
    world.run(pipeline(1, 101), again=True)
    assert payloads(world) == (['{"id":101}', *once] if appends else once)


@pytest.mark.promise("quarantine", "failures")
def test_a_quarantine_knows_the_inputs_of_a_batch_that_died_before_others(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipeline(*ids: int) -> Pipeline:
        steps = expect({"small": "id < 100"}, on_fail="quarantine")
        made: Pipeline = Memory.source([{"id": i} for i in ids]) >> steps >> world.sink("a.t").quarantine("a.bad")
        return made

    world.run(pipeline(1, 101))
    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "_commit", die)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline(2, 102))
    world.run(pipeline(3, 103))
    key = "helios.ledger.local.a.t"
    for kept in (False, True):  # a pipeline that has followed its sources has kept no inputs
        if not kept:
            table = world.catalog.load("a.bad").iceberg
            record = json.loads(table.properties[key])
            assert record.pop("appended")
            table.transaction().set_properties({key: json.dumps(record)}).commit_transaction()
            world.expire("a.bad")
        world.run(pipeline(2, 102))
        assert world.ids("a.t") == [1, 2, 3]
        assert payloads(world) == ['{"id":101}', '{"id":102}', '{"id":103}']


# what is remembered of keys


@pytest.mark.promise("quarantine", "upsert")
def test_keys_of_a_batch_that_was_set_aside_are_forgotten(world: Any) -> None:
    sink = world.sink("a.t").upsert("id", order_by="n", delete_when="op = 'd'", store_order=False).format_version(2)
    pipeline = world.source("a.s").incremental() >> sink.audit({"small": "coalesce(max(id), 0) < 100"}).publish()
    world.fill("a.s", [1, 2], v="'a'", n="1", op="'u'")
    world.run(pipeline)
    world.fill("a.s", [1, 500], v="'gone'", n="5", op="if(id = 1, 'd', 'u')")
    with pytest.raises(RunError, match="did not pass its audit"):
        world.run(pipeline)
    discard_batch(world.catalog.load("a.t"), 1)
    world.fill("a.s", [1], v="'b'", n="3", op="'u'")
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter({(1, "b"): 1, (2, "a"): 1})
    world.fill("a.s", [1], v="'late'", n="2", op="'u'")
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter({(1, "b"): 1, (2, "a"): 1})


@pytest.mark.parametrize("changed", ["order", "keys", "type"])
@pytest.mark.promise("upsert")
def test_another_order_is_not_compared_with_the_remembered_one(world: Any, changed: str) -> None:
    def pipeline(order: str, *keys: str) -> Pipeline:
        source = Memory.source([(1, "5", 4, 1)], "id bigint, v string, n bigint, m bigint")
        made: Pipeline = source >> world.sink("a.t").upsert(*keys, order_by=order, store_order=False)
        return made

    world.run(pipeline("n", "id"))
    again = {
        "order": pipeline("n + m", "id"),
        "keys": pipeline("n", "id", "v"),
        "type": pipeline("CAST(n AS string)", "id"),
    }[changed]
    before = world.rows("a.t", "id", "v")
    with pytest.raises(CheckpointError, match=r"upsert state of local\.a\.t has the keys id, newest by n \(integer\)"):
        world.run(again)
    assert world.rows("a.t", "id", "v") == before
    world.run(pipeline("n", "id"))
    world.run(again, full_refresh=True)
    assert sum(world.rows("a.t", "id").values()) == 1


# routes


@pytest.mark.promise("route")
def test_routed_batches_of_identical_inputs_and_other_steps_are_refused(world: Any) -> None:
    def pipeline(steps: str, by: str = "k") -> Pipeline:
        source = Memory.source([(1, "x"), (2, "y")], "id bigint, k string")
        made: Pipeline = source >> where(steps) >> world.sink("a.t").route(by=by)
        return made

    world.run(pipeline("id < 9"))
    for changed in (pipeline("id < 2"), pipeline("id < 9", by="concat(k, 'z')")):
        with pytest.raises(InputError, match="made from these inputs with other steps"):
            world.run(changed)
    world.run(pipeline("id < 9"))
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1], [2])
    assert sorted(world.catalog.tables("a")) == ["a.t_x", "a.t_y"]


@pytest.mark.parametrize("bad", ["double", "outside", "type", "null"])
@pytest.mark.promise("route")
@pytest.mark.cases(landing="double")
def test_a_refused_row_of_one_table_leaves_the_others_as_they_were(world: Any, bad: str) -> None:
    schema = "id bigint, k string, v string"
    world.run(Memory.source([(1, "x", "a"), (1, "y", "a")], schema) >> world.sink("a.t").route(by="k"))
    before = [world.catalog.load(f"a.t_{k}").current_snapshot() for k in "xy"]
    sink = world.sink("a.t").route(by="k")
    if bad == "type":
        world.sql("ALTER TABLE local.a.t_y DROP COLUMN v")
        world.sql("ALTER TABLE local.a.t_y ADD COLUMN v struct<a: int>")
    made = {
        "double": ([(2, "x", "b"), (2, "y", "b"), (2, "y", "c")], sink.upsert("id"), "2 rows .* have the key id=2,"),
        "null": ([(2, "x", "b"), (None, "y", "b")], sink.upsert("id"), "has a null key: id"),
        "outside": ([(2, "x", "b"), (3, "y", "b")], sink.overwrite("id < 3"), "a row that does not match the filter"),
        "type": ([(2, "new", "b"), (2, "x", "b"), (2, "y", "b")], sink, r"a\.t_y"),
    }
    rows, sink, message = made[bad]
    with pytest.raises(HeliosError, match=message):
        world.run((Memory.source(rows, schema) >> sink).named("second"))
    assert [world.catalog.load(f"a.t_{k}").current_snapshot() for k in "xy"] == before
    assert sorted(world.catalog.tables("a")) == ["a.t_x", "a.t_y"]


@pytest.mark.promise("route")
def test_routed_tables_that_are_there_are_compared_with_the_sink(world: Any) -> None:
    rows = Memory.source([(1, "x"), (2, "y")], "id bigint, k string")
    world.run(rows >> world.sink("a.t").route(by="k"))
    parted = world.sink("a.t").route(by="k").partition_by("id")
    with pytest.raises(CheckFailed, match=r"local\.a\.t_x is partitioned by \[\], not by \[id\]"):
        world.run((rows >> parted).named("second"))
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1], [2])
    evolved = world.sink("a.t").route(by="k").partition_by("id", evolve=True).sort_by("id desc")
    world.run((rows >> evolved).named("second"))
    for table in ("a.t_x", "a.t_y"):
        iceberg = world.catalog.load(table).iceberg
        assert [f.name for f in iceberg.spec().fields] == ["id"]
        assert [str(f.direction) for f in iceberg.sort_order().fields] == ["DESC"]
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1, 1], [2, 2])


@pytest.mark.promise("route")
def test_routes_that_many_a_catalog_takes_for_one(world: Any) -> None:
    schema = "id bigint, k string"
    sink = world.sink("a.t").route(by="k")
    with pytest.raises(RunError, match=r"route\(by='k'\) gave 'de', which cannot name a table"):
        world.run(Memory.source([(1, "DE"), (2, "de")], schema) >> sink)
    assert not world.catalog.exists("a.t_DE")
    kept = sink.quarantine("a.t_bad")
    world.run(Memory.source([(1, "DE"), (2, "de"), (3, "bad")], schema) >> kept)
    assert world.ids("a.t_DE") == [1]
    reasons = {reason for _, reason in held(world, "a.t_bad")}
    told = ", which is much like another table's name"
    assert reasons == {f"route k: de{told}", f"route k: bad{told}"}
    world.run(Memory.source([(4, "DE"), (5, "De")], schema) >> kept)
    assert world.ids("a.t_DE") == [1, 4]


@pytest.mark.promise("route")
def test_rows_that_are_left_out_of_routed_batches_are_counted_once(world: Any) -> None:
    rows = Memory.source([(i, "xyz"[i % 3]) for i in range(9)], "id bigint, k string")
    run = world.run(rows >> expect({"small": "id < 7"}, on_fail="drop") >> world.sink("a.t").route(by="k"))
    assert run.metrics().records_failed == 2
    assert run.metrics().records_written == 7


# branches, folders, figures


@pytest.mark.promise("changed-steps")
def test_a_full_refresh_of_a_branch_looks_at_the_branch(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.t (id bigint) USING iceberg")
    world.fill("a.s", [1, 2])
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").branch("x")
    world.run(pipeline)
    world.sql("INSERT INTO local.a.t VALUES 77")
    world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [77]
    assert sorted(r.id for r in world.sql("SELECT id FROM local.a.t VERSION AS OF 'x'")) == [1, 2]
    world.sql("INSERT INTO local.a.t.branch_x VALUES 88")
    with pytest.raises(InputError, match="is not this pipeline's"):
        world.run(pipeline, full_refresh=True)


@pytest.mark.promise("maintain")
def test_a_checkpoint_inside_the_tables_folder_is_no_orphan(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(world.source("a.s").incremental() >> world.sink("a.t"))
    folder = Path(str(world.catalog.load("a.t").iceberg.location()).removeprefix("file://").removeprefix("file:"))
    pipeline = (world.source("a.s").incremental() >> world.sink("a.t").checkpoint(str(folder / "mine"))).named("inside")
    world.run(pipeline, beside=["local.a.t"])
    name = world.plan(pipeline).write.table
    stray = folder / "data" / "stray.parquet"
    stray.write_text("x")
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        os.utime(path, (0, 0))
    there = {path for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"also holds the checkpoint .*/mine"):
        remove_orphans(world.spark, name, 3 * 86400.0)
    assert {path for path in folder.rglob("*") if path.is_file()} == there


@pytest.mark.promise("maintain")
def test_rows_of_files_that_are_written_anew_are_not_counted(world: Any) -> None:
    world.run(Memory.source([(i, "a") for i in range(1000)], "id bigint, v string") >> world.sink("a.t").upsert("id"))
    changed = Memory.source([(1, "b"), (2000, "b")], "id bigint, v string")
    run = world.run(changed >> world.sink("a.t").upsert("id").write_mode("copy-on-write"))
    assert run.metrics().records_written == 2
    assert len(world.ids("a.t")) == 1001
