"""The target as it is, and what a run will make of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, Memory, bucket, day, drop, month, rename, select, with_columns
from helios.catalog.operations import client, forget_all
from helios.plan import Context, compile_pipelines
from helios.table.ledger import Record

pytestmark = pytest.mark.promise("evolve")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
ORDERS = Iceberg.source("a.orders")
OLD = Iceberg.sink("a.orders")
NEW = Iceberg.sink("a.t")


def changes(plan: Any) -> list[str]:
    return list(plan.write.changes)


@pytest.fixture
def filled(catalog: Catalog) -> Any:
    """a.orders with one row, the branch `b` and the tag `v1`."""
    table = catalog.load("a.orders").iceberg
    table.append(pa.table({"id": [1], "name": ["x"], "ts": [datetime.now(UTC)]}, schema=SCHEMA))
    snapshot = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_branch(snapshot, "b").create_tag(snapshot, "v1").commit()
    return table


def made(catalog: Catalog, name: str, columns: list[Any], **options: Any) -> None:
    client(catalog).create_table(("a", name), pa.schema(columns), **options)


# columns


def test_new_columns_are_added(planned: Any) -> None:
    plan = planned(ORDERS >> with_columns(n="1", s="named_struct('x', 1)") >> OLD)
    assert changes(plan) == ["ADD COLUMN n int", "ADD COLUMN s struct<x:int>"]
    assert "  change    ADD COLUMN n int\n" in str(plan)
    assert plan.as_json()["target"]["changes"] == changes(plan)


def test_nothing_is_changed_where_columns_are_missing(planned: Any) -> None:
    assert changes(planned(ORDERS >> select("id") >> OLD)) == []
    assert changes(planned(ORDERS >> OLD.evolve_schema("strict"))) == []


def test_strict_stops_at_a_difference_and_shows_it(problems: Any) -> None:
    (problem,) = problems(ORDERS >> drop("name") >> with_columns(n="1") >> OLD.evolve_schema("strict"))
    assert "the stream does not fit local.a.orders" in problem
    assert "- name  string" in problem
    assert "+ n     int" in problem


def test_types_are_widened_by_full_evolution_alone(planned: Any, problems: Any, catalog: Catalog) -> None:
    made(catalog, "narrow", [("id", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(5, 2))])
    rows = Memory.source([], "id bigint, f double, d decimal(9,2)")
    (problem,) = problems(rows >> Iceberg.sink("a.narrow"))
    assert "~ id  int -> bigint" in problem
    assert '.evolve_schema("full")' in problem
    plan = planned(rows >> Iceberg.sink("a.narrow").evolve_schema("full"))
    assert changes(plan) == [
        "ALTER COLUMN id TYPE bigint",
        "ALTER COLUMN f TYPE double",
        "ALTER COLUMN d TYPE decimal(9,2)",
    ]
    assert "no lossless cast" in problems(Memory.source([{"id": "x"}]) >> Iceberg.sink("a.narrow"))[0]


def test_renames_and_drops(planned: Any, problems: Any) -> None:
    full = OLD.evolve_schema("full")
    moved = ORDERS >> rename({"name": "title"})
    assert changes(planned(moved >> full.renames({"name": "title"}))) == ["RENAME COLUMN name TO title"]
    assert changes(planned(ORDERS >> drop("name") >> full.drops("name"))) == ["DROP COLUMN name"]
    for pipeline, message in (
        (ORDERS >> full.renames({"name": "id"}), "a rename onto an existing column would hide its values"),
        (ORDERS >> full.renames({"nam": "title"}), "has no column 'nam'. Did you mean 'name'?"),
        (ORDERS >> full.drops("name"), "the stream still carries 'name'"),
        (ORDERS >> drop("ts") >> full.drops("ts"), "are partitioned by 'ts'"),
        (ORDERS >> drop("name") >> full.drops("name").sort_by("name"), "are sorted by 'name'"),
        (
            ORDERS >> drop("name") >> full.drops("name").partition_by("name", evolve=True),
            "are partitioned by 'name'",
        ),
    ):
        assert message in problems(pipeline)[0], problems(pipeline)


def test_columns_of_the_order_alone_are_left_out(planned: Any) -> None:
    cdc = ORDERS >> with_columns(op="'u'", seq="1L")
    keyed = {"order_by": "struct(ts, seq)", "delete_when": "op = 'd'"}
    plan = planned(cdc >> OLD.upsert("id", **keyed, store_order=False))
    assert (plan.write.left_out, changes(plan)) == (("op", "seq"), [])
    assert "left out  op, seq: " in str(plan)
    new = planned(cdc >> NEW.upsert("id", **keyed, store_order=False))
    assert new.write.left_out == ("ts", "op", "seq")
    assert planned(cdc >> OLD).write.left_out == ()


def test_the_order_is_stored_unless_the_pipeline_has_written_without_it(planned: Any, catalog: Catalog) -> None:
    cdc = ORDERS >> with_columns(op="'u'", seq="1L")
    sink = OLD.upsert("id", order_by="seq", delete_when="op = 'd'")
    plan = planned(cdc >> sink)
    assert (plan.write.left_out, changes(plan)) == (("op",), ["ADD COLUMN seq bigint"])
    new = planned(cdc >> NEW.upsert("id", order_by="struct(ts, seq)", delete_when="op = 'd'"))
    assert new.write.left_out == ("op",)
    with catalog.load("a.orders").iceberg.transaction() as changing:
        changing.set_properties(
            {
                "helios.ledger.local.a.orders": Record(checkpoint="c", batch=3).as_json(),
                "helios.ledger.claimed": Record(checkpoint="c").as_json(),
            }
        )
    catalog.load("a.orders").iceberg.refresh()
    forget_all(catalog)
    assert planned(cdc >> sink).write.left_out == ("op", "seq")
    assert planned((cdc >> sink).named("new", was="local.a.orders")).write.left_out == ("op", "seq")
    assert planned((cdc >> sink).named("another")).write.left_out == ("op",)
    assert planned((cdc >> sink).named("claimed")).write.left_out == ("op",)


def test_the_columns_of_a_change_read_are_no_columns_of_its_replica(planned: Any) -> None:
    changed = ORDERS.incremental().changes("id")
    plan = planned(changed >> NEW.upsert("id", order_by="_change_ordinal", delete_when="_change_type = 'DELETE'"))
    assert plan.write.left_out == ("_change_type", "_change_ordinal", "_commit_snapshot_id")


def test_history_adds_the_bounds_of_versions(planned: Any) -> None:
    plan = planned(ORDERS >> OLD.upsert("id", order_by="ts", history=True))
    assert changes(plan) == ["ADD COLUMN valid_from timestamp", "ADD COLUMN valid_to timestamp"]


def test_what_is_not_compared_with_the_table(problems: Any, planned: Any) -> None:
    (problem,) = problems(ORDERS >> OLD.renames({"name": "title"}))
    assert "need full schema evolution" in problem
    unnamed = ORDERS >> select("id", "upper(name)") >> OLD.sort_by("ts").overwrite("id = 1")
    assert changes(planned(unnamed)) == ["sort by ts asc from now on"]


def test_deletes_and_merges_leave_the_columns_alone(planned: Any) -> None:
    rows = ORDERS >> with_columns(extra="1")
    assert changes(planned(rows >> OLD.delete("id"))) == []
    merge = "MERGE INTO target USING batch ON target.id = batch.extra WHEN MATCHED THEN DELETE"
    assert changes(planned(rows >> OLD.merge_sql(merge))) == []


def test_columns_that_no_table_can_have(problems: Any) -> None:
    (nothing,) = problems(Memory.source([{"id": 1, "x": None}]) >> NEW)
    assert "x   void" in nothing
    (twice,) = problems(Memory.source([], "id bigint, ID int") >> NEW)
    assert "the stream has two fields" in twice


# keys and expressions over the table's columns


def test_keys_must_be_in_the_table(problems: Any, planned: Any) -> None:
    (problem,) = problems(ORDERS >> with_columns(nam="name") >> OLD.upsert("nam"))
    assert "upsert(nam): no column 'nam' in the table. Did you mean 'name'?" in problem
    (problem,) = problems(Memory.source([{"key": 1}]) >> OLD.delete("key"))
    assert "delete(key): no column 'key' in the table." in problem
    (problem,) = problems(Memory.source([{"id": "x"}]) >> OLD.delete("id"))
    assert "delete(id): 'id' is string in the stream and bigint in the table." in problem
    renamed = ORDERS >> rename({"id": "key"}) >> OLD.upsert("key").evolve_schema("full").renames({"id": "key"})
    assert changes(planned(renamed)) == ["RENAME COLUMN id TO key"]


def test_expressions_may_use_columns_that_only_the_table_has(planned: Any, problems: Any) -> None:
    rows = ORDERS >> select("id")
    planned(rows >> OLD.overwrite("name = 'x'").sort_by("ts"))
    planned(rows >> with_columns(n="1") >> OLD.audit({"a": "max(name) > min(n)"}).publish())
    (problem,) = problems(rows >> OLD.overwrite("nam = 'x'"))
    assert "overwrite(nam = 'x'): no column 'nam'. Did you mean 'name'?" in problem


# layout


def test_another_partitioning_is_an_error_or_evolves(planned: Any, problems: Any) -> None:
    (problem,) = problems(ORDERS >> OLD.partition_by(month("ts")))
    assert "local.a.orders is partitioned by [day(ts)], not by [month(ts)]" in problem
    assert "partition_by(..., evolve=True)" in problem
    plan = planned(ORDERS >> OLD.partition_by(bucket(4, "id"), "name", evolve=True))
    assert changes(plan) == ["partition by bucket(4, id), name from now on"]
    assert plan.write.partitioning == (day("ts"),)
    for same in (OLD.partition_by(day("ts"), evolve=True), OLD.partition_by(day("TS"))):
        assert changes(planned(ORDERS >> same)) == []
    added = planned(ORDERS >> with_columns(n="1") >> OLD.partition_by("n", evolve=True))
    assert changes(added) == ["ADD COLUMN n int", "partition by n from now on"]
    (problem,) = problems(ORDERS >> OLD.partition_by("nam", evolve=True))
    assert "partition_by(nam): no column 'nam'. Did you mean 'name'?" in problem


def test_another_order_is_a_change(planned: Any, catalog: Catalog) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    assert changes(planned(ORDERS >> OLD.sort_by("ts desc", "id"))) == ["sort by ts desc, id asc from now on"]
    order = SortOrder(SortField(1, IdentityTransform(), direction=SortDirection.DESC))
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", LongType()))
    client(catalog).create_table(("a", "sorted"), columns, sort_order=order)
    rows = Memory.source([{"id": 1}])
    assert changes(planned(rows >> Iceberg.sink("a.sorted").sort_by("ID desc"))) == []
    assert changes(planned(rows >> Iceberg.sink("a.sorted"))) == []


def test_a_missing_branch_is_made(planned: Any, problems: Any, filled: Any) -> None:
    assert changes(planned(ORDERS >> OLD.branch("audit"))) == ["branch audit from main"]
    assert changes(planned(ORDERS >> OLD.branch("b"))) == []
    (problem,) = problems(ORDERS >> OLD.branch("v1"))
    assert "branch('v1'): this is a tag of the table" in problem


def test_partitions_to_overwrite(problems: Any, planned: Any, catalog: Catalog) -> None:
    planned(ORDERS >> OLD.overwrite_partitions())
    made(catalog, "flat", [("id", pa.int64())])
    rows = Memory.source([{"id": 1}])
    (problem,) = problems(rows >> Iceberg.sink("a.flat").overwrite_partitions())
    assert "overwrite_partitions(): local.a.flat is unpartitioned" in problem
    planned(rows >> Iceberg.sink("a.flat").overwrite_partitions().partition_by("id", evolve=True))


def test_the_format_that_the_table_has(problems: Any, planned: Any, catalog: Catalog) -> None:
    made(catalog, "orc", [("id", pa.int64())], properties={"write.format.default": "ORC"})
    made(catalog, "first", [("id", pa.int64())], properties={"format-version": "1"})
    rows = Memory.source([{"id": 1}])
    plan = planned(rows >> Iceberg.sink("a.orc").compression("gzip"))
    assert plan.as_json()["target"]["writer"] == {"write.orc.compression-codec": "zlib"}
    (problem,) = problems(rows >> Iceberg.sink("a.orc").compression("zstd", 3))
    assert "zstd in orc has no levels" in problem
    (problem,) = problems(rows >> Iceberg.sink("a.first").upsert("id").write_mode("merge-on-read"))
    assert "local.a.first is of format v1, which has no delete files" in problem
    planned(rows >> Iceberg.sink("a.first").upsert("id").write_mode("copy-on-write"))


# names


def test_the_identity_has_the_branch(planned: Any, context: Context) -> None:
    main, audit = ORDERS >> NEW, ORDERS >> NEW.branch("audit")
    other = ORDERS >> Iceberg.sink("a.t_audit")
    plans, problems = compile_pipelines([main, audit, other], context)
    assert problems == []
    assert [p.pipeline for p in plans] == ["local.a.t", "local.a.t@audit", "local.a.t_audit"]
    assert len({p.checkpoint for p in plans}) == 3
    assert plans[1].checkpoint.endswith("/_helios/checkpoints/local.a.t@audit")
    assert ", branch audit, append" in str(plans[1])
    _, problems = compile_pipelines([audit, ORDERS >> NEW.branch("audit")], context)
    assert "two pipelines write local.a.t, branch audit," in str(problems[0])
    moved = planned((ORDERS >> NEW).named("t", was="local.a.t"))
    assert moved.former_checkpoint.endswith("/local.a.t")


def test_the_quarantine_is_in_the_sinks_catalog_unless_it_names_one(planned: Any, tmp_path: Any) -> None:
    lake = Catalog.local("lake", path=tmp_path / "lake")
    rows = Memory.source([{"id": 1}])
    for sink, expected in (
        (NEW.quarantine("a.q"), "local.a.q"),
        (Iceberg.sink("a.t", catalog=lake).quarantine("a.q"), "lake.a.q"),
        (Iceberg.sink("a.t", catalog=lake).quarantine("deep.a.q"), "lake.deep.a.q"),
        (Iceberg.sink("a.t", catalog=lake).quarantine("local.a.q"), "local.a.q"),
    ):
        plan = planned(rows >> sink)
        assert plan.write.quarantine.text == expected
        assert {plan.write.table.catalog, plan.write.quarantine.catalog} == set(plan.catalogs)
        assert f"failed    rows go to {expected}" in str(plan)


def test_routed_tables_are_known_at_run(planned: Any, context: Context) -> None:
    plan = planned(ORDERS >> OLD.route(by="name").overwrite_partitions())
    assert (plan.write.exists, plan.write.uuid) == (None, None)
    assert "route     by name, to local.a.orders_<value>" in str(plan)
    reader = Iceberg.source("a.t_nl") >> Iceberg.sink("a.copy")
    stranger = Iceberg.source("a.tt_nl") >> Iceberg.sink("a.copy2")
    _, problems = compile_pipelines([ORDERS >> NEW.route(by="name"), reader, stranger], context)
    assert len(problems) == 1
    assert "table a.tt_nl does not exist" in str(problems[0])


def test_a_quarantine_that_this_script_makes_may_be_read(context: Context) -> None:
    first = ORDERS >> NEW.quarantine("a.rejected")
    second = Iceberg.source("a.rejected") >> Iceberg.sink("a.copy")
    assert compile_pipelines([second, first], context)[1] == []
