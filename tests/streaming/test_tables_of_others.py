"""Tables as other engines leave them: odd partitionings, dropped columns, properties."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, UUIDType

from helios import Memory, where

pytestmark = pytest.mark.promise("bad-sources")


def two(world: Any) -> Any:
    return Memory.source([{"id": 1, "v": 10}, {"id": 3, "v": 30}], schema="id bigint, v int")


@pytest.mark.parametrize("whose", ["ours", "another's"])
@pytest.mark.cases(short="ours")
def test_a_column_of_a_former_partitioning_is_dropped(world: Any, whose: str) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.t (id bigint, old int, v int) USING iceberg PARTITIONED BY (old)")
    world.sql("INSERT INTO local.a.t VALUES (1, 1, 1), (2, 2, 2)")
    begun = world.source("a.t").incremental(poll=1).changes(keys=["id"]) >> world.sink("a.changes")
    world.run(begun)
    world.sql("ALTER TABLE local.a.t DROP PARTITION FIELD old")
    sink = world.sink("a.t").upsert("id")
    if whose == "ours":
        sink = sink.evolve_schema("full").drops("old")
    else:
        world.sql("ALTER TABLE local.a.t DROP COLUMN old")
    world.run(two(world) >> sink)
    assert world.rows("a.t", "id", "v") == {(1, 10): 1, (2, 2): 1, (3, 30): 1}
    deletes = Memory.source([{"id": 2}], schema="id bigint") >> world.sink("a.t").delete("id")
    world.run(deletes.named("deletes"))
    assert world.rows("a.t", "id", "v") == {(1, 10): 1, (3, 30): 1}
    world.run(begun)
    kinds = [kind for (kind,) in world.rows("a.changes", "_change_type").elements()]
    assert sorted(kinds) == ["DELETE", *["INSERT"] * 3, "UPDATE_AFTER", "UPDATE_BEFORE"]


@pytest.mark.parametrize("mode", ["upsert", "delete", "merge"])
@pytest.mark.cases(landing="upsert")
def test_a_pipeline_changes_the_table_that_it_reads(world: Any, mode: str) -> None:
    world.fill("a.t", range(5), v="id * 2")
    rows = world.source("a.t") >> where("id < 3")
    query = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN DELETE"
    sink = {"upsert": world.sink("a.t").upsert("id"), "delete": world.sink("a.t").delete("id")}.get(
        mode, world.sink("a.t").merge_sql(query)
    )
    run = world.run(rows >> sink)
    assert world.ids("a.t") == ([0, 1, 2, 3, 4] if mode == "upsert" else [3, 4])
    assert run.metrics().commits_failed == 0


def test_a_table_is_bucketed_by_a_uuid(world: Any) -> None:
    world.fill("a.other", [1])
    schema = Schema(NestedField(1, "id", UUIDType()), NestedField(2, "n", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket"))
    world.load("a.other").iceberg.catalog.create_table("a.t", schema, partition_spec=spec)
    rows = [{"id": str(uuid.UUID(int=i * 7919)), "n": i} for i in range(200)]
    world.run(Memory.source(rows, schema="id string, n bigint") >> world.sink("a.t"))
    again = [{**row, "n": -1} for row in rows[:50]]
    upserts = Memory.source(again, schema="id string, n bigint") >> world.sink("a.t").upsert("id")
    world.run(upserts.named("upserts"))
    assert sorted(n for (n,) in world.rows("a.t", "n").elements()) == [-1] * 50 + list(range(50, 200))


def test_a_table_takes_any_schema(world: Any) -> None:
    world.fill("a.t", range(3), v="int(id * 2)")
    world.sql("ALTER TABLE local.a.t SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')")
    world.run(two(world) >> world.sink("a.t").upsert("id"))
    assert world.rows("a.t", "id", "v") == {(0, 0): 1, (1, 10): 1, (2, 4): 1, (3, 30): 1}
