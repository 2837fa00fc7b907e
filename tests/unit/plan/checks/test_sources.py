"""What is wrong with a source, and the columns that it gives."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, day, join, select, where
from helios.catalog.operations import client
from helios.plan import Context, compile_pipelines
from helios.sources.iceberg.checks import CONTRADICTIONS, change_problems
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.history import resolve_snapshots
from helios.table.snapshots import Table
from tests.unit.plan.conftest import SCHEMA

pytestmark = pytest.mark.promise("words")

ORDERS = Iceberg.source("a.orders")
FOLLOWED = ORDERS.incremental()
SINK = Iceberg.sink("a.t")

TOGETHER = [
    (ORDERS.incremental(start="latest").as_of("2200-01-01"), "both say where reading begins"),
    (ORDERS.incremental(start=5).at_ref("main"), "both say where reading begins"),
    (ORDERS.at_ref("main").between(1, 2), "read a state, and between() and changes_between() read history"),
    (FOLLOWED.between(1, 2), "follows the table without an end"),
    (FOLLOWED.changes_between(1, 2), "follows the table without an end"),
    (ORDERS.changes("id"), '.changes_between(a, b, keys="id")'),
    (ORDERS.on_overwrite("skip"), "on_overwrite() applies to the commits of a followed table"),
    (FOLLOWED.changes("id").on_overwrite("skip"), "row by row"),
    (ORDERS.changes_between("main", "main", "id").on_overwrite("skip"), "row by row"),
    (ORDERS.on_expired("rebootstrap"), "on_expired() applies to a followed table"),
    (FOLLOWED.changes("id").on_expired("rebootstrap"), "does not show which rows were deleted"),
]


@pytest.mark.parametrize(("source", "message"), TOGETHER, ids=lambda value: "" if isinstance(value, str) else None)
def test_calls_that_do_not_go_together(problems: Any, context: Context, source: Any, message: str) -> None:
    upserted = SINK.upsert("id", order_by="ts")
    (problem,) = problems(source >> upserted)
    assert message in problem
    assert "test_sources.py:" in problem
    assert " Fix: " in problem
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    (same,) = compile_pipelines([source >> upserted], offline)[1]
    assert str(same) == problem


def test_every_contradiction_is_tried() -> None:
    tried = {what for source, _ in TOGETHER for holds, what, _ in CONTRADICTIONS if holds(source)}
    assert tried == {what for _, what, _ in CONTRADICTIONS}


@pytest.fixture
def filled(catalog: Catalog) -> Table:
    table = catalog.load("a.orders")
    table.iceberg.append(pa.table({"id": [1], "name": ["x"], "ts": [datetime.now(UTC)]}, schema=SCHEMA))
    return table


@pytest.mark.parametrize(
    "source",
    [
        FOLLOWED.as_of("2200-01-01"),
        FOLLOWED.on_overwrite("skip"),
        FOLLOWED.on_expired("rebootstrap"),
        ORDERS.between("main", "main").on_overwrite("skip"),
        ORDERS.changes_between("main", "main").batch_size(100),
        FOLLOWED.at_ref("main").changes(["id"]),
        ORDERS.incremental(start="earliest", max_rows=5, max_files=1).changes(),
    ],
    ids=lambda source: source.label(),
)
def test_calls_that_do(planned: Any, filled: Table, source: Any) -> None:
    assert planned(source >> select("id") >> SINK.upsert("id")).reads[0].snapshot


# columns


def columns(plan: Any) -> list[str]:
    return [f"{c.name} {c.type}" for c in plan.schema.columns]


def test_select_narrows_and_orders(planned: Any) -> None:
    plan = planned(ORDERS.select("TS", "`id`") >> SINK)
    assert columns(plan) == ["ts timestamp", "id bigint"]
    assert "columns: TS, id" in str(plan)
    assert plan.as_json()["sources"][0]["columns"] == ["TS", "id"]
    assert columns(planned(ORDERS.where("name IS NULL").select("id") >> SINK)) == ["id bigint"]


def test_changes_have_three_columns_more(planned: Any, filled: Table) -> None:
    told = ["_change_type string", "_change_ordinal bigint", "_commit_snapshot_id bigint"]
    whole = ["id bigint", "name string", "ts timestamp"]
    assert columns(planned(FOLLOWED.changes() >> SINK)) == whole + told
    assert columns(planned(ORDERS.changes_between("main", "main", "id") >> SINK)) == whole + told
    chosen = FOLLOWED.changes("id").select("name", "id")
    assert columns(planned(chosen >> SINK)) == ["name string", "id bigint", *told]
    assert columns(planned(chosen >> where("_change_type <> 'DELETE'") >> SINK))[2:] == told
    assert [c.nullable for c in planned(chosen >> SINK).schema.columns[2:]] == [False] * 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ORDERS.select("idd", "name"), "select(idd): no column 'idd' in local.a.orders. Did you mean 'id'?"),
        (ORDERS.select("id", "id * 2"), "compute with a step: source >> select(...)"),
        (ORDERS.select("id", "ID"), "select(id, ID): 'ID' occurs twice."),
        (ORDERS.where("nam = 'x'"), "where(nam = 'x'): no column 'nam'. Did you mean 'name'?"),
        (ORDERS.where("id +"), "where(id +): not understood as Spark SQL"),
        (ORDERS.where("id"), "where(id): this is bigint, not a condition."),
        (FOLLOWED.changes("idd"), "changes(keys=idd): no column 'idd' in local.a.orders. Did you mean 'id'?"),
        (ORDERS.changes_between("main", "main", ["id", "x"]), "changes_between(keys=x): no column 'x'"),
        (FOLLOWED.changes("id").select("name"), "changes(keys=id): select() leaves 'id' out"),
        (FOLLOWED.changes("id").select("id", "_change_type"), "the change columns always follow the others"),
        (
            FOLLOWED.changes("id").where("id > 1 AND _change_type = 'INSERT'"),
            "_change_type is not a column of the table, and the source's where() is pushed into its scan. Fix: put the "
            "condition after the source, as a step",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.label(),
)
def test_columns_that_are_not_there(problems: Any, filled: Table, source: Any, message: str) -> None:
    (problem,) = problems(source >> SINK)
    assert message in problem
    assert "test_sources.py:" in problem


def test_a_joined_source_is_looked_at_too(problems: Any) -> None:
    (problem,) = problems(ORDERS >> join(ORDERS.select("id", "nam"), on="id") >> SINK)
    assert "Did you mean 'name'?" in problem


def test_keys_are_plain_and_change_columns_free(problems: Any, catalog: Catalog) -> None:
    nested = pa.schema([("id", pa.list_(pa.int64())), ("_change_type", pa.string())])
    catalog.create_table("a.nested", nested)
    found = problems(Iceberg.source("a.nested").incremental().changes("id") >> SINK)
    assert "local.a.nested has a column _change_type of its own" in found[0]
    assert "changes(keys=id): 'id' is array<bigint>, which cannot be a key" in found[1]


def test_random_predicates_break_what_exactly_once_demands(problems: Any) -> None:
    (problem,) = problems(ORDERS.where("rand() < 0.5") >> SINK.exactly_once())
    assert "where(rand() < 0.5): rand() gives other values" in problem


# tables whose changes cannot be told


def merged(catalog: Catalog, name: str = "a.mor", **modes: str) -> Table:
    properties = {f"write.{verb}.mode": mode for verb, mode in modes.items()}
    client(catalog).create_table(tuple(name.split(".")), pa.schema([("id", pa.int64())]), properties=properties)
    return catalog.load(name)


def with_lineage(catalog: Catalog, name: str) -> None:
    """Makes a table of format v3, which PyIceberg reads and does not write."""
    made = client(catalog).create_table(tuple(name.split(".")), pa.schema([("id", pa.int64())]))
    file = Path(made.metadata_location.removeprefix("file://"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "format-version": 3, "next-row-id": 0}))


@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_a_table_merged_on_read_needs_keys(problems: Any, planned: Any, catalog: Catalog, verb: str) -> None:
    merged(catalog, **{verb: "merge-on-read"})
    source = Iceberg.source("a.mor").incremental()
    (problem,) = problems(source.changes() >> SINK)
    assert "changes() without keys: local.a.mor is of format v2 and stores changed rows merge-on-read" in problem
    assert f"write.{verb}.mode=merge-on-read" in problem
    assert 'changes(keys="id"), or upgrade the table to format v3' in problem
    assert "updates paired by id" in str(planned(source.changes("id") >> SINK))


def test_copy_on_write_and_lineage_need_none(planned: Any, catalog: Catalog) -> None:
    merged(catalog, "a.cow", delete="copy-on-write")
    plan = planned(Iceberg.source("a.cow").incremental().changes() >> SINK)
    assert "changes: an update is a delete and an insert" in str(plan)
    with_lineage(catalog, "a.v3")
    assert "changes: updates paired by row lineage\n" in str(
        planned(Iceberg.source("a.v3").incremental().changes() >> SINK)
    )


def stamped(table: Table, *summaries: dict[str, str]) -> list[int]:
    """Appends one row per summary, and puts into it what other engines' deletes leave there."""
    for _ in summaries:
        table.iceberg.append(pa.table({"id": pa.array([1], pa.int64())}))
    snapshots = table.iceberg.metadata.snapshots
    for snapshot, summary in zip(snapshots, summaries, strict=True):
        assert snapshot.summary is not None
        snapshot.summary.additional_properties.update(summary)
    return [snapshot.snapshot_id for snapshot in snapshots]


def told(source: IcebergSource, table: Table) -> list[str]:
    return [str(problem) for problem in change_problems(source, table, resolve_snapshots(source, table))]


EQUALITY = {"total-equality-deletes": "4"}
POSITION = {"added-position-deletes": "1", "total-position-deletes": "1"}


def test_equality_deletes_are_refused_where_they_are_read(catalog: Catalog) -> None:
    table = merged(catalog, "a.flink")
    first, second, third, last = stamped(table, {}, EQUALITY, {"total-equality-deletes": "0"}, {})
    source = Iceberg.source("a.flink")
    why = f"snapshot {second} of local.a.flink has equality deletes"
    for keys in ((), ("id",)):
        assert why in told(source.changes_between(first, second, keys), table)[0]
        assert why in told(source.changes_between(first, last, keys), table)[0]
        assert told(source.changes_between(second, last, keys), table) == []
        assert told(source.incremental().changes(keys), table) == []
        assert why in told(source.incremental(start=first).changes(keys), table)[0]
        assert why in told(source.incremental(start="earliest").changes(keys), table)[0]
        assert told(source.incremental(start=third).changes(keys), table) == []
        assert why in told(source.incremental().at_snapshot(first).changes(keys), table)[0]
    assert told(source.between(first, last), table) == []


def test_position_deletes_are_refused_without_keys(catalog: Catalog) -> None:
    table = merged(catalog)
    first, second, last = stamped(table, {}, POSITION, {})
    source = Iceberg.source("a.mor")
    why = f"snapshot {second} has position deletes"
    assert why in told(source.changes_between(first, last), table)[0]
    assert "changes_between(a, b, keys=" in told(source.changes_between(first, last), table)[0]
    assert told(source.changes_between(first, last, "id"), table) == []
    assert told(source.changes_between(second, last), table) == []
    assert why in told(source.incremental(start=first).changes(), table)[0]
    assert told(source.incremental().changes(), table) == []


# rebootstrap


def test_a_state_is_read_anew_where_that_does_no_harm(planned: Any, problems: Any, catalog: Catalog) -> None:
    with_lineage(catalog, "a.v3")
    source = FOLLOWED.on_expired("rebootstrap")
    for sink in (
        SINK.upsert("id", order_by="ts"),
        SINK.overwrite("id = 1"),
        SINK.overwrite_partitions().partition_by(day("ts")),
    ):
        assert planned(source >> sink).reads[0].source.expired == "rebootstrap"
    for sink, mode in ((SINK, "append"), (Iceberg.sink("a.orders").delete("id"), "delete by id")):
        (problem,) = problems(source >> sink)
        assert f"{mode} would write delivered rows a second time" in problem
        assert "local.a.orders, of format v2, has no row lineage" in problem
    assert planned(Iceberg.source("a.v3").incremental().on_expired("rebootstrap") >> SINK)


def test_updates_that_nothing_pairs_are_not_upserted(planned: Any, problems: Any, catalog: Catalog) -> None:
    with_lineage(catalog, "a.v3")
    sink = SINK.upsert("id", order_by="_change_ordinal", delete_when="_change_type = 'DELETE'")
    (problem,) = problems(FOLLOWED.changes() >> sink)
    assert "local.a.orders, of format v2, without keys: an update is a DELETE and an INSERT of one commit" in problem
    assert 'changes(keys="id")' in problem
    assert planned(FOLLOWED.changes("id") >> sink)
    replica = planned(Iceberg.source("a.v3").incremental().changes() >> sink)
    assert replica.write.left_out == ("_change_type", "_change_ordinal", "_commit_snapshot_id")
