"""What Helios promises, one test each, on whatever catalog and storage `lake` is."""

from __future__ import annotations

import json
import signal
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from helios import Files, Memory, bucket, day, where

pytestmark = pytest.mark.sampled(1)

IDS = pa.schema([("id", pa.int64())])
CHECKPOINTS = {"local": "file", "s3": "s3a", "adls": "abfs", "gcs": "gs"}

KILLED = """
import os
import signal

from helios import Iceberg
from helios.spark.iceberg.transaction import Transaction

if os.environ.get("KILLED"):
    real = Transaction.commit

    def commit(self):
        real(self)
        os.kill(os.getpid(), signal.SIGKILL)

    Transaction.commit = commit

pipeline = Iceberg.source("killed.source").incremental(poll=1) >> Iceberg.sink("killed.target")
"""


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


@pytest.mark.promise("append")
def test_create(lake: Any) -> None:
    rows = [{"id": i, "ts": datetime(2026, 1, 1 + i % 2, tzinfo=UTC)} for i in range(5)]
    assert "created" not in lake.catalog.namespaces()
    sink = lake.sink("created.target").partition_by(day("ts"), bucket(4, "id"))
    lake.run(Memory.source(rows, schema="id bigint, ts timestamp") >> sink)
    spec = lake.load("created.target").iceberg.spec()
    assert [str(field.transform) for field in spec.fields] == ["day", "bucket[4]"]
    assert lake.rows("created.target", "id", "ts") == Counter((row["id"], row["ts"]) for row in rows)


@pytest.mark.promise("kills", "append")
@pytest.mark.cases(short="local-local")
def test_append(lake: Any, tmp_path: Path) -> None:
    lake.feed("killed.source", ids(1, 2, 3), IDS)
    done = lake.command(tmp_path, KILLED, KILLED="yes")
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    assert lake.ids("killed.target") == [1, 2, 3]
    first = lake.snapshots("killed.target")
    lake.feed("killed.source", ids(3, 4), IDS)
    done = lake.command(tmp_path, KILLED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lake.ids("killed.target") == [1, 2, 3, 3, 4]
    assert lake.snapshots("killed.target")[:-1] == first


@pytest.mark.promise("replay")
@pytest.mark.cases(landing=("rest-s3", "rest-adls", "rest-gcs", "glue-s3", "hive-local", "nessie-s3", "memory-local"))
def test_replay(lake: Any) -> None:
    pipeline = lake.source("replayed.source").incremental(poll=1) >> where("id > 0") >> lake.sink("replayed.target")
    for number in (1, 2):
        lake.feed("replayed.source", ids(number, -number), IDS)
        lake.run(pipeline)
    before = lake.snapshots("replayed.target")
    progress = lake.progress(pipeline)
    assert progress.root.startswith(f"{CHECKPOINTS[lake.combination.storage]}:/")
    assert "1" in progress.names("commits")
    progress.delete("commits/1")
    lake.run(pipeline)
    assert "1" in progress.names("commits")
    assert lake.ids("replayed.target") == [1, 2]
    assert lake.snapshots("replayed.target") == before


@pytest.mark.promise("start")
def test_incremental(lake: Any) -> None:
    pipeline = lake.source("followed.source").incremental(poll=1) >> lake.sink("followed.target")
    lake.feed("followed.source", ids(1, 2), IDS)
    lake.run(pipeline)
    lake.feed("followed.source", ids(3), IDS)
    lake.feed("followed.source", ids(4, 4), IDS)
    lake.run(pipeline)
    lake.run(pipeline)
    assert lake.ids("followed.target") == [1, 2, 3, 4, 4]


@pytest.mark.promise("files")
@pytest.mark.sampled(2)
def test_files(lake: Any) -> None:
    inbox = f"{lake.storage_uri}/in"
    source = Files.source(inbox, "csv", schema="id bigint, amount decimal(9,2), day int").on_bad_row("quarantine")
    sink = lake.sink("landed.target").quarantine("landed.bad")
    pipeline = source.on_change("reread").incremental(poll=1) >> sink
    lake.land(f"{inbox}/day=1/a b.csv", "amount,id\n1.25,1\n2.50,2\nmuch,3\n")
    lake.run(pipeline)
    lake.run(pipeline)
    assert lake.rows("landed.target", "id", "amount", "day") == Counter(
        [(1, Decimal("1.25"), 1), (2, Decimal("2.50"), 1)]
    )
    lake.land(f"{inbox}/day=2/c.csv", "id,amount\n4,4\n")
    lake.land(f"{inbox}/day=1/a b.csv", "amount,id\n9.75,5\n")
    lake.run(pipeline)
    lake.progress(pipeline).delete("commits/1")
    lake.run(pipeline)
    assert lake.ids("landed.target") == [1, 2, 4, 5]
    [bad] = lake.load("landed.bad").iceberg.scan().to_arrow().to_pylist()
    assert "much,3" in str(bad)
    lake.delete(f"{inbox}/day=2/c.csv")
    lake.progress(pipeline).delete("commits/1")
    lake.run(pipeline)  # the target has the batch: the file is not asked for again
    assert lake.ids("landed.target") == [1, 2, 4, 5]


@pytest.mark.promise("time-travel")
def test_time_travel(lake: Any) -> None:
    for number in (1, 2, 3):
        lake.feed("past.source", ids(number), IDS)
    first, second, _ = lake.load("past.source").snapshots()
    lake.load("past.source").tag("closing", second.id)
    source = lake.source("past.source")
    lake.run(source.as_of(second.timestamp) >> lake.sink("past.by_time"))
    lake.run(source.at_snapshot(first.id) >> lake.sink("past.by_id"))
    lake.run(source.incremental(poll=1).at_ref("closing") >> lake.sink("past.since_tag"))
    assert lake.ids("past.by_time") == [1, 2]
    assert lake.ids("past.by_id") == [1]
    assert lake.ids("past.since_tag") == [1, 2, 3]


@pytest.mark.promise("upsert")
def test_upsert(lake: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])

    def feed(*rows: tuple[int, str, int, bool]) -> None:
        lake.feed("kept.source", [dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    sink = lake.sink("kept.target").upsert("id", order_by="n", delete_when="gone")
    pipeline = lake.source("kept.source").incremental(poll=1) >> sink
    feed((1, "first", 1, False), (2, "first", 1, False), (3, "first", 5, False))
    lake.run(pipeline)
    feed((1, "second", 2, False), (2, "", 3, True), (3, "late", 4, False), (4, "new", 1, False))
    lake.run(pipeline)
    feed((2, "older than its delete", 2, False))
    lake.run(pipeline)
    assert lake.rows("kept.target", "id", "v") == Counter([(1, "second"), (3, "first"), (4, "new")])


@pytest.mark.promise("evolve")
def test_evolution(lake: Any) -> None:
    pipeline = lake.source("grown.source").incremental(poll=1) >> lake.sink("grown.target").evolve_schema("full")
    lake.feed("grown.source", [{"id": 1}], pa.schema([("id", pa.int32())]))
    lake.run(pipeline)
    with lake.load("grown.source").iceberg.update_schema() as change:
        change.update_column("id", LongType())
        change.add_column("note", StringType())
    wide = pa.schema([("id", pa.int64()), ("note", pa.string())])
    lake.feed("grown.source", [{"id": 2**40, "note": "wide"}], wide)
    lake.run(pipeline)
    assert lake.load("grown.target").iceberg.schema().find_type("id") == LongType()
    assert lake.rows("grown.target", "id", "note") == Counter([(1, None), (2**40, "wide")])


@pytest.mark.promise("changes")
def test_changes(lake: Any) -> None:
    lake.feed("changed.source", ids(1, 2), IDS)
    table = f"{lake.catalog.name}.changed.source"
    lake.sql(f"ALTER TABLE {table} ADD COLUMN v string")
    for mode in ("update", "delete", "merge"):
        lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.{mode}.mode' = 'copy-on-write')")
    begin = lake.snapshots("changed.source")[-1]
    lake.sql(f"UPDATE {table} SET v = 'new' WHERE id = 1")
    lake.sql(f"DELETE FROM {table} WHERE id = 2")
    lake.sql(f"INSERT INTO {table} VALUES (3, 'three')")
    end = lake.snapshots("changed.source")[-1]
    lake.run(lake.source("changed.source").changes_between(begin, end, keys=["id"]) >> lake.sink("changed.target"))
    assert lake.rows("changed.target", "id", "v", "_change_type") == Counter(
        [
            (1, None, "UPDATE_BEFORE"),
            (1, "new", "UPDATE_AFTER"),
            (2, None, "DELETE"),
            (3, "three", "INSERT"),
        ]
    )


@pytest.mark.promise("snapshots")
@pytest.mark.sampled(2)
def test_snapshots(lake: Any) -> None:
    pipeline = lake.source("listed.source").incremental(poll=1) >> lake.sink("listed.target")
    for number in (1, 2):
        lake.feed("listed.source", ids(number), IDS)
        lake.run(pipeline)
    table = lake.load("listed.target")
    first, second = table.snapshots()
    assert (first.parent_id, second.parent_id) == (None, first.id)
    assert [json.loads(s.summary["helios.batch"]) for s in (first, second)] == [0, 1]
    assert table.snapshot_at(first.timestamp) == first
    assert table.current_snapshot() == second


@pytest.mark.promise("snapshots")
@pytest.mark.sampled(2)
def test_tag(lake: Any) -> None:
    lake.feed("tagged.table", ids(1), IDS)
    table = lake.load("tagged.table")
    table.tag("before")
    table.branch("trial")
    lake.feed("tagged.table", ids(2), IDS)
    lake.run(Memory.source(ids(3), schema="id bigint") >> lake.sink("tagged.table").branch("trial"))
    lake.run(lake.source("tagged.table").at_ref("trial") >> lake.sink("tagged.copy"))
    assert lake.ids("tagged.copy") == [1, 3]
    assert lake.ids("tagged.table") == [1, 2]
    table = lake.load("tagged.table")
    assert (set(table.tags()), set(table.branches())) == ({"before"}, {"main", "trial"})
    table.drop_tag("before")
    assert not lake.load("tagged.table").tags()


@pytest.mark.promise("snapshots")
def test_rollback(lake: Any) -> None:
    lake.feed("rolled.table", ids(1), IDS)
    lake.feed("rolled.table", ids(2), IDS)
    table = lake.load("rolled.table")
    first, second = table.snapshots()
    assert table.rollback_to(first.id).former == second
    assert lake.ids("rolled.table") == [1]
    assert {row["id"] for row in lake.sql(f"SELECT id FROM {lake.catalog.name}.rolled.table")} == {1}
    lake.load("rolled.table").rollback_to(second.id)
    assert lake.ids("rolled.table") == [1, 2]


@pytest.mark.promise("maintain")
@pytest.mark.sampled(2)
def test_expire(lake: Any) -> None:
    pipeline = lake.source("expired.table").incremental(poll=1) >> lake.sink("expired.target")
    lake.feed("expired.table", ids(1), IDS)
    lake.run(pipeline)
    for number in (2, 3, 4):
        lake.feed("expired.table", ids(number), IDS)
    first, second, third, fourth = lake.snapshots("expired.table")
    checkpoint = lake.plan(pipeline).checkpoint
    # The pipeline has read up to the first snapshot, and its checkpoint on the storage says so.
    held = lake.load("expired.table").expire(retain_last=1, readers=lake.readers(checkpoint))
    assert held.snapshots == ()
    assert [set(one.snapshots) for one in held.held] == [{first, second, third}]
    lake.run(pipeline)
    lake.load("expired.table").tag("kept", second)
    gone = lake.load("expired.table").expire(retain_last=1, readers=lake.readers(checkpoint))
    assert [snapshot.id for snapshot in gone.snapshots] == [first, third]
    assert lake.snapshots("expired.table") == [second, fourth]
    assert lake.ids("expired.target") == lake.ids("expired.table") == [1, 2, 3, 4]
    assert len(lake.sql(f"SELECT id FROM {lake.catalog.name}.expired.table")) == 4


@pytest.mark.promise("readers")
@pytest.mark.cases(landing="rest-s3")
def test_interchange(lake: Any) -> None:
    rows = [
        {
            "id": i,
            "ts": datetime(2026, 1, i, tzinfo=UTC),
            "price": Decimal("1.25") * i,
            "tags": ["a", None][:i],
            "place": {"x": i / 2, "name": None},
        }
        for i in (1, 2)
    ]
    schema = "id int, ts timestamp, price decimal(9,2), tags array<string>, place struct<x: double, name: string>"
    lake.run(Memory.source(rows, schema=schema) >> lake.sink("shared.target").partition_by("id"))
    table = lake.load("shared.target").iceberg
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
    table.append(table.scan(row_filter="id = 2").to_arrow())
    assert sorted(row["id"] for row in lake.sql(f"SELECT id FROM {lake.catalog.name}.shared.target")) == [1, 2, 2]
