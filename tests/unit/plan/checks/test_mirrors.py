"""`Iceberg.mirror(...)` in declarations, `check` and `plan`, without a broker and without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from helios import Catalog, Cdc, Iceberg, Kafka, Memory, Pipeline, where
from helios.cli.graph import draw
from helios.errors import DeclarationError
from helios.plan import Context, Plan, ReadPath

TOPICS = Kafka.source(pattern=r"shop\.public\..*").servers("broker:9092").incremental(poll=5)
CHANGES = Cdc.debezium(TOPICS)
SINK = Iceberg.mirror("local.shop")
REFUSED = {
    "append": (),
    "overwrite": (),
    "overwrite_partitions": (),
    "upsert": ("id",),
    "delete": ("id",),
    "merge_sql": ("MERGE INTO target",),
    "partition_by": ("day",),
    "sort_by": ("id",),
    "renames": ({"a": "b"},),
    "drops": ("a",),
    "branch": ("b",),
    "audit": ({"a": "true"},),
    "publish": (),
}


@pytest.mark.parametrize("call", REFUSED)
def test_calls_that_are_of_one_table_are_refused_where_they_are_written(call: str) -> None:
    with pytest.raises(DeclarationError, match=rf"Iceberg.mirror\(\) takes no .{call}\(\)") as refused:
        getattr(SINK, call)(*REFUSED[call])
    assert refused.value.fix
    assert refused.value.where is not None
    assert refused.value.where.file.endswith("test_mirrors.py")


def test_a_route_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"takes no .route\(\): each change names its table"):
        SINK.route(by="region")


@pytest.mark.parametrize("names", ["{schema}", "", "{table", "{table!r}", "{table:>9}", "{tabel}", "a/{table}", "{}"])
def test_names_need_a_table_and_nothing_else(names: str) -> None:
    with pytest.raises(DeclarationError, match="names="):
        Iceberg.mirror("local.shop", names=names)


@pytest.mark.parametrize("choice", ["fail", "snapshot", "keep"])
def test_a_schema_change_has_three_choices(choice: Any) -> None:
    assert SINK.on_schema_change(choice).schema_change == choice


def test_a_schema_change_has_no_other_choice() -> None:
    wrong: Any = "kep"
    assert SINK.schema_change == "fail"
    with pytest.raises(DeclarationError, match=r"on_schema_change\('kep'\) is unknown.*keep"):
        SINK.on_schema_change(wrong)


def test_a_name_of_a_namespace_is_validated() -> None:
    with pytest.raises(DeclarationError, match="is not a table name"):
        Iceberg.mirror("local.../evil")
    assert Iceberg.mirror("shop").label() == "Iceberg.mirror(shop)"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (TOPICS >> SINK, r"Iceberg.mirror\(local.shop\) takes the changes of Cdc.debezium\(\)"),
        (Memory.source([{"id": 1}]) >> SINK, r"takes the changes of Cdc.debezium\(\), which name their tables"),
        (CHANGES >> where("id > 1") >> SINK, r"where\(id > 1\): .*writes many tables.*no step fits all"),
        (CHANGES >> (lambda df: df) >> SINK, r"call\(.*writes many tables"),
        (Cdc.debezium(TOPICS, key="id") >> SINK, r"debezium\(key=\): each table of .* its own columns and key"),
        (Cdc.debezium(TOPICS, schema="id int") >> SINK, r"debezium\(schema=\): each table"),
        (CHANGES >> Iceberg.mirror("prod.shop"), "catalog 'prod' is not declared"),
        (Cdc.debezium(TOPICS.on_bad_row("quarantine")) >> SINK, "has no quarantine for rejected rows"),
        (Cdc.debezium(Kafka.source("a", "b")) >> SINK, "names no broker"),
        (CHANGES >> SINK.compression("brotli"), "brotli"),
    ],
)
def test_what_check_refuses(problems: Callable[..., list[str]], pipeline: Pipeline, message: str) -> None:
    assert any(re.search(message, one, re.DOTALL) for one in problems(pipeline)), problems(pipeline)


@pytest.mark.parametrize(
    ("catalog", "why"),
    [
        (
            Catalog.hive("c", uri="thrift://h:1", warehouse="s3://b/w"),
            "a metastore changes one table at a time",
        ),
        (Catalog.glue("c", warehouse="s3://b/w"), "Glue changes one table at a time"),
    ],
)
def test_tables_that_change_together_need_a_catalog_that_can(
    problems: Callable[..., list[str]], catalog: Catalog, why: str
) -> None:
    sink = Iceberg.mirror("shop", catalog=catalog, atomic=True).checkpoint("/tmp/checkpoint")
    [problem] = [one for one in problems(CHANGES >> sink) if "atomic=True" in one]
    assert why in problem
    assert "of the type local, memory, rest, nessie" in problem


@pytest.mark.parametrize(
    "catalog",
    [
        Catalog.rest("c", uri="http://localhost:1"),
        Catalog.nessie("c", uri="http://localhost:1", warehouse="file:///tmp/w"),
        Catalog.memory("c"),
    ],
)
def test_tables_may_change_together_in_catalogs_that_can(problems: Callable[..., list[str]], catalog: Catalog) -> None:
    sink = Iceberg.mirror("shop", catalog=catalog, atomic=True).checkpoint("/tmp/checkpoint")
    assert not [one for one in problems(CHANGES >> sink) if "atomic=True" in one]


def test_two_mirrors_of_one_namespace_need_names(problems: Callable[..., list[str]]) -> None:
    other = Cdc.debezium(Kafka.source("b").servers("broker:9092")) >> SINK
    assert any("two pipelines write local.shop" in one for one in problems(CHANGES >> SINK, other))
    assert problems((CHANGES >> SINK).named("a"), other.named("b")) == []


def test_the_plan_of_a_mirror(planned: Callable[[Any], Plan]) -> None:
    sink = Iceberg.mirror("local.shop", names="{schema}_{table}").quarantine("bad.rows").exactly_once()
    plan = planned(CHANGES >> sink.maintain(expire="7d").flush(every="10s").table_properties({"a": "b"}))
    assert (plan.pipeline, plan.path) == ("local.shop", ReadPath.RANGES)
    assert plan.checkpoint.endswith("/_helios/checkpoints/local.shop")
    for line in (
        "write     local.shop, upsert by the key of the records, exactly once; each table is created with its first",
        "new tables of format v3",
        "mirror    each table of the database, to local.shop.<schema>_<table>",
        "failed    rows go to local.bad.rows",
        "schema    each table's own",
        "maintain  expire snapshots after 7 d",
    ):
        assert line in str(plan), str(plan)
    target = plan.as_json()["target"]
    assert (target["table"], target["mirrors"], target["routed_by"]) == ("local.shop", True, None)


def test_the_plan_of_tables_that_change_together(planned: Callable[[Any], Plan]) -> None:
    plan = planned(CHANGES >> Iceberg.mirror("local.shop", atomic=True))
    assert "to local.shop.<table>, all of a batch in one commit" in str(plan)
    assert "<table>, continuing after a change of columns" in str(planned(CHANGES >> SINK.on_schema_change("keep")))
    assert "<table>, awaiting a snapshot after a change" in str(planned(CHANGES >> SINK.on_schema_change("snapshot")))


def test_a_mirror_in_another_catalog(planned: Callable[[Any], Plan]) -> None:
    plan = planned(CHANGES >> Iceberg.mirror("shop.eu", catalog=Catalog.memory("m")))
    assert plan.pipeline == "m.shop.eu"


def test_a_table_of_a_mirror_may_be_read_before_it_is_there(problems: Callable[..., list[str]]) -> None:
    copy = Iceberg.source("local.shop.orders").incremental() >> Iceberg.sink("a.copy")
    assert problems(copy)
    assert problems(CHANGES >> SINK, copy) == []


def test_the_graph_links_the_tables_of_a_mirror(context: Context) -> None:
    copy = Iceberg.source("local.shop.orders").incremental() >> Iceberg.sink("a.copy")
    graph = draw([CHANGES >> SINK, copy], context)
    assert [edge.dashed for edge in graph.edges].count(True) == 1
