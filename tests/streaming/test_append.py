"""Batch and incremental appends: every row once, and the table as declared."""

from __future__ import annotations

import time
from collections import Counter
from datetime import date
from typing import Any

import pytest

from helios import Memory, bucket, cast, day, hour, identity, month, step, truncate, where, with_columns, year
from helios.errors import CheckFailed, HeliosError, InputError, RunError
from tests.suite.waiting import PATIENCE

pytestmark = [pytest.mark.promise("append"), pytest.mark.short]


def test_a_batch_creates_namespace_and_table_and_stamps_its_commit(world: Any) -> None:
    rows = [{"id": i, "name": f"n{i}"} for i in range(100)]
    run = world.run(
        Memory.source(rows)
        >> where("id >= 10")
        >> world.sink("sales.orders").partition_by(bucket(4, "id")).snapshot_properties({"team": "sales"})
    )
    assert world.ids("sales.orders") == list(range(10, 100))
    assert run.status()["rows"] == 90
    snapshot = world.catalog.load("sales.orders").current_snapshot()
    assert snapshot.summary["helios.pipeline"] == "local.sales.orders"
    assert snapshot.summary["helios.batch"] == "0"
    assert snapshot.summary["helios.v"] == "1"
    assert snapshot.summary["team"] == "sales"
    assert snapshot.id == run.last.snapshot


def test_a_batch_of_identical_inputs_and_steps_is_skipped(world: Any) -> None:
    pipeline = Memory.source([{"id": 1}]) >> world.sink("a.t")
    world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [1]
    assert world.kinds() == ["started", "batch", "finished", "started", "skipped", "finished"]


def test_a_batch_of_identical_inputs_and_changed_steps_is_refused(world: Any) -> None:
    source = Memory.source([{"id": 1}, {"id": 2}])
    world.run(source >> world.sink("a.t"))
    with pytest.raises(InputError, match=r"made from these inputs with other steps"):
        world.run(source >> where("id > 1") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]


def test_a_batch_of_new_inputs_is_appended(world: Any) -> None:
    world.run(Memory.source([{"id": 1}]) >> world.sink("a.t"))
    world.run(Memory.source([{"id": 2}]) >> world.sink("a.t"))
    world.run(Memory.source([{"id": 2}]) >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]


def test_incremental_delivers_the_state_then_every_later_commit(world: Any) -> None:
    world.fill("a.s", range(10))
    world.fill("a.s", range(10, 20))
    pipeline = world.source("a.s").incremental(poll=1) >> where("id % 2 = 0") >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == list(range(0, 20, 2))
    world.fill("a.s", range(20, 30))
    world.fill("a.s", range(30, 40))
    world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(0, 40, 2))


def test_incremental_begins_at_the_state_of_a_table_with_deletes_and_expired_history(world: Any) -> None:
    world.fill("a.s", range(10))
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    world.fill("a.s", range(10, 20))
    world.sql("DELETE FROM local.a.s WHERE id IN (3, 13)")
    world.expire("a.s")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", [100])
    world.run(pipeline)
    assert world.ids("a.t") == [i for i in range(20) if i not in (3, 13)] + [100]


def test_incremental_from_an_empty_table(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == []
    world.fill("a.s", [1])
    world.fill("a.s", [2])
    world.run(pipeline)
    world.fill("a.s", [3])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


def test_compaction_and_expiry_of_the_source_deliver_nothing_twice(world: Any) -> None:
    world.fill("a.s", [1])
    world.fill("a.s", [2])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.compact("a.s")
    world.run(pipeline)
    world.expire("a.s")
    world.fill("a.s", [3])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


def test_an_overwrite_of_the_source_stops_the_run(world: Any) -> None:
    world.fill("a.s", [1, 2])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.sql("DELETE FROM local.a.s WHERE id = 1")
    world.fill("a.s", [3])
    with pytest.raises(RunError, match=r"is an? (overwrite|delete) commit"):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


def test_a_followed_table_is_copied_while_it_grows(world: Any) -> None:
    world.fill("a.s", range(5))
    run = world.start(world.source("a.s").incremental(poll="100ms") >> world.sink("a.t"))
    for begin in range(5, 25, 5):
        world.fill("a.s", range(begin, begin + 5))
    deadline = time.monotonic() + PATIENCE
    while run.rows < 25 and run.active and time.monotonic() < deadline:
        time.sleep(0.05)
    run.stop()
    assert run.await_termination(60)
    assert run.state == "stopped"
    assert world.ids("a.t") == list(range(25))


@pytest.mark.promise("layout")
def test_all_partition_transforms(world: Any) -> None:
    rows = [{"id": i, "name": f"name{i}", "ts": f"2026-0{1 + i % 9}-01 0{i % 9}:00:00"} for i in range(20)]
    fields = (identity("kind"), bucket(4, "id"), truncate(4, "name"), year("a"), month("b"), day("c"), hour("ts"))
    shaped = (
        Memory.source(rows)
        >> cast(ts="timestamp")
        >> with_columns(a="to_date(ts)", b="to_date(ts)", c="to_date(ts)", kind="id % 2")
    )
    world.run(shaped >> world.sink("a.t").partition_by(*fields))
    table = world.catalog.load("a.t").iceberg
    shown = [str(field.transform) for field in table.spec().fields]
    assert shown == ["identity", "bucket[4]", "truncate[4]", "year", "month", "day", "hour"]
    assert world.ids("a.t") == list(range(20))
    assert table.scan(row_filter="b == '2026-02-01'").to_arrow()["b"].to_pylist() == [date(2026, 2, 1)] * 3
    with pytest.raises(CheckFailed, match=r"is partitioned by .*, not by \[day\(c\)\]"):
        world.run((shaped >> world.sink("a.t").partition_by(day("c"))).named("other"))


@pytest.mark.promise("identifiers")
def test_awkward_names_and_nested_values(world: Any) -> None:
    rows = [{"id": 1, "unit price": 2.5, "tags": ["a", None], "attrs": {"k": 1}}]
    world.run(
        Memory.source(rows) >> with_columns({"with tax": "`unit price` * 2"}) >> world.sink("`my shop`.`the orders`")
    )
    names = "id", "unit price", "with tax", "tags", "attrs"
    loaded = world.catalog.load("`my shop`.`the orders`").iceberg.scan().to_arrow().select(names).to_pylist()
    assert loaded == [{"id": 1, "unit price": 2.5, "with tax": 5.0, "tags": ["a", None], "attrs": [("k", 1)]}]


@pytest.mark.promise("evolve")
def test_missing_columns_become_null_and_extra_ones_are_added_unless_strict(world: Any) -> None:
    world.run(Memory.source([{"id": 1, "name": "a"}]) >> world.sink("a.t"))
    world.run((Memory.source([{"ID": 2}]) >> world.sink("a.t")).named("narrow"))
    assert world.rows("a.t", "id", "name") == {(1, "a"): 1, (2, None): 1}
    before = world.catalog.load("a.t").current_snapshot().id
    wide = Memory.source([{"id": 3, "extra": 1}]) >> step(lambda df: df)
    with pytest.raises(CheckFailed, match=r"(?s)does not fit local\.a\.t .*\+ extra +bigint"):
        world.run((wide >> world.sink("a.t").evolve_schema("strict")).named("wide"))
    assert world.catalog.load("a.t").current_snapshot().id == before
    world.run((wide >> world.sink("a.t")).named("wide"))
    assert world.rows("a.t", "id", "name", "extra") == {(1, "a", None): 1, (2, None, None): 1, (3, None, 1): 1}


@pytest.mark.promise("layout")
def test_format_3_and_properties_of_a_new_table(world: Any) -> None:
    sink = world.sink("a.t").format_version(3).table_properties({"owner": "me"})
    world.run(Memory.source([{"id": 1}, {"id": 2}]) >> sink)
    table = world.catalog.load("a.t").iceberg
    assert table.metadata.format_version == 3
    assert table.properties["owner"] == "me"
    rows = world.sql("SELECT id, _row_id, _last_updated_sequence_number FROM local.a.t ORDER BY id")
    assert sorted(row[1] for row in rows) == [0, 1]
    assert {row[2] for row in rows} == {1}


def test_a_table_that_must_exist(world: Any) -> None:
    with pytest.raises(CheckFailed, match=r"namespace 'a' does not exist"):
        world.run(Memory.source([{"id": 1}]) >> world.sink("a.t").create(False))


def test_what_spark_refuses_is_told_with_its_line(world: Any) -> None:
    opaque = step(lambda df: df)
    with pytest.raises(InputError, match=r"test_append\.py:\d+: where\(nope > 1\): .*nope"):
        world.run(Memory.source([{"id": 1}]) >> opaque >> where("nope > 1") >> world.sink("a.t"))
    with pytest.raises(InputError, match=r"test_append\.py:\d+: .*<lambda> raised ZeroDivisionError"):
        world.run(Memory.source([{"id": 1}]) >> step(lambda df: 1 / 0) >> world.sink("a.t"))
    with pytest.raises(InputError, match=r"returned int, not a DataFrame"):
        world.run(Memory.source([{"id": 1}]) >> step(lambda df: 1) >> world.sink("a.t"))
    assert not world.catalog.exists("a.t")


def test_a_failing_row_fails_the_run_and_writes_nothing(world: Any) -> None:
    world.fill("a.s", [1, 0])
    pipeline = world.source("a.s").incremental(poll=1) >> with_columns(x="1 div id") >> world.sink("a.t")
    with pytest.raises(HeliosError, match="DIVIDE_BY_ZERO"):
        world.run(pipeline)
    assert world.catalog.load("a.t").snapshots() == []


def test_a_column_added_to_the_source_without_a_commit_is_known(world: Any) -> None:
    world.fill("a.s", [1, 2])
    world.sql("ALTER TABLE local.a.s ADD COLUMN note string")
    world.sql("ALTER TABLE local.a.s ALTER COLUMN id COMMENT 'the key'")
    world.run(world.source("a.s") >> where("note IS NULL") >> world.sink("a.once"))
    world.run(world.source("a.s").incremental(poll=1) >> where("note IS NULL") >> world.sink("a.followed"))
    assert world.rows("a.once", "id", "note") == world.rows("a.followed", "id", "note") == {(1, None): 1, (2, None): 1}


def test_an_overwrite_under_a_running_pipeline_stops_it(world: Any) -> None:
    world.fill("a.s", [1, 2])
    run = world.start(world.source("a.s").incremental(poll="300ms") >> world.sink("a.t"))
    while run.batches < 1:
        assert run.active
        time.sleep(0.05)
    world.sql("DELETE FROM local.a.s WHERE id = 1")
    with pytest.raises(RunError, match=r"is an? (overwrite|delete) commit"):
        run.await_termination(60)
    assert world.spark.streams.active == []


def test_rows_of_dicts_go_by_the_names_of_their_schema(world: Any) -> None:
    rows = [{"last": "x", "first": "y"}, {"FIRST": "z"}]
    world.run(Memory.source(rows, schema="first string, last string") >> world.sink("a.named"))
    assert world.rows("a.named", "first", "last") == Counter({("y", "x"): 1, ("z", None): 1})
    with pytest.raises(InputError, match="have the key 'lst', and schema= does not"):
        world.run(Memory.source([{"lst": "x"}], schema="first string, last string") >> world.sink("a.named"))
