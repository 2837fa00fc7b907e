"""Changes of databases in declarations, `check` and `plan`, without a broker and without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from helios import Cdc, Console, Iceberg, Kafka, Memory, Pipeline, aggregate, expect, join, sample, select, union, where
from helios.errors import DeclarationError, InputError
from helios.plan import Plan, ReadPath
from helios.spark.replay.replay import Replay
from tests.suite.pages import blocks

pytestmark = pytest.mark.promise("typing")

TOPIC = Kafka.source("shop.public.orders").servers("broker:9092")
CHANGES = Cdc.debezium(TOPIC.incremental(poll=5))
ROWS = TOPIC.value("json", schema="op string, id bigint, at map<string,int>, meta struct<op: string>")
LOG = Cdc.json(ROWS.incremental(poll=5))
SINK = Iceberg.sink("a.t")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Cdc.debezium(Iceberg.source("a.b")), "takes a source of Kafka, not IcebergSource"),
        (lambda: Cdc.debezium(TOPIC.value("string")), r"the source sets .value\('string'\).*Fix: leave .value"),
        (lambda: Cdc.debezium(TOPIC.metadata("offset")), r"the source sets .metadata\(\)"),
        (lambda: Cdc.debezium(TOPIC, time="micros"), "and none is declared.*Fix: pass schema="),
        (lambda: Cdc.debezium(TOPIC, schema="id int", time="micro"), "Did you mean 'micros'"),
        (lambda: Cdc.debezium(TOPIC, schema="id int", decimals="exact"), "decimals"),
        (lambda: Cdc.debezium(TOPIC, schema="id int", extra="add"), "extra"),
        (lambda: Cdc.debezium(TOPIC, key=["id", "ID"]), "key needs key columns, each once"),
        (lambda: Cdc.json(Iceberg.source("a.b")), r"Cdc.json\(\) takes a source of Kafka, not IcebergSource"),
        (lambda: Cdc.json(TOPIC.value("string")), r"reads JSON, and the source sets .value\('string'\)"),
        (lambda: Cdc.json(TOPIC, op=""), "op= takes text"),
        (lambda: Cdc.json(TOPIC, operations={"X": "remove"}), r"operations\('remove'\) is unknown"),
        (lambda: Cdc.json(TOPIC, operations={"a": "insert", "A": "delete"}), "'A' means both insert and delete"),
        (lambda: Cdc.json(TOPIC, operations={"a": "delete"}), "no value for an insert or an update"),
    ],
)
def test_wrong_declarations(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(DeclarationError, match=f"(?s){message}"):
        declare()


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (TOPIC >> SINK.upsert(), "upsert needs key columns: only the changes of Cdc.debezium"),
        (CHANGES >> SINK, r"which append\(\) cannot apply. Fix: write .upsert\(\)"),
        (CHANGES >> SINK.overwrite_partitions(), r"which overwrite_partitions\(\) cannot apply"),
        (CHANGES >> SINK.upsert("id", order_by="ts"), r"upsert\(order_by=\): the changes .* carry their own order"),
        (CHANGES >> SINK.upsert("id", delete_when="gone"), r"upsert\(delete_when=\)"),
        (CHANGES >> SINK.upsert().route(by="region"), r"route\(\): a delete carries only the key of its row"),
        (CHANGES >> aggregate("id", n="count(*)") >> SINK.upsert("id"), "does not keep the order and the deletes"),
        (CHANGES >> (lambda df: df) >> SINK.upsert("id"), r"call\(.*lambda.*does not keep the order and the deletes"),
        (TOPIC.incremental() >> union(CHANGES) >> SINK.upsert("id"), "cannot be the other side of a join or a union"),
        (
            Memory.source([{"id": 1}]) >> join(Cdc.debezium(TOPIC), on="id") >> SINK,
            "cannot be the other side of a join",
        ),
        (Cdc.debezium(TOPIC, key="id") >> SINK.upsert("name"), "the source's key is id, and the upsert is by name"),
        (Cdc.debezium(Kafka.source("a", "b").servers("b:1")) >> SINK.upsert(), "each topic is a table of its own"),
        (Cdc.debezium(Kafka.source("a")) >> SINK.upsert(), "names no broker"),
        (LOG >> SINK.upsert(), "upsert needs key columns: only"),
        (LOG >> SINK, r"which append\(\) cannot apply"),
        (
            LOG >> Kafka.sink("x").servers("b:1"),
            r"and updates, which Kafka.sink\(x\) cannot apply",
        ),
        (CHANGES >> Console.sink(), r"which Console.sink\(\) cannot apply"),
        (LOG >> SINK.upsert("op"), "no column 'op' in the stream"),
        (Cdc.json(ROWS, op="kind") >> SINK.upsert("id"), r"op\(kind\): no column 'kind'"),
        (Cdc.json(ROWS, op="meta.kind") >> SINK.upsert("id"), "no field 'kind' in 'meta'"),
        (Cdc.json(ROWS, order="version") >> SINK.upsert("id"), r"order\(version\): no column 'version'"),
        (Cdc.json(ROWS, order="at") >> SINK.upsert("id"), "map<string,int> has no order"),
        (Cdc.json(ROWS, order="rand()") >> SINK.upsert("id"), "gives other values when a batch is run again"),
        (Cdc.json(Kafka.source("a", "b").servers("b:1")) >> SINK.upsert("id"), "each topic is a table of its own"),
    ],
)
def test_what_check_refuses(problems: Callable[..., list[str]], pipeline: Pipeline, message: str) -> None:
    assert any(re.search(message, one, re.DOTALL) for one in problems(pipeline)), problems(pipeline)


def test_the_plan_of_changes(planned: Callable[[Any], Plan]) -> None:
    plan = planned(CHANGES >> where("amount > 0") >> select("id", "amount") >> SINK.upsert().exactly_once())
    assert plan.path is ReadPath.RANGES
    for line in (
        "Cdc.debezium(Kafka.source(shop.public.orders).incremental(poll=5 s))",
        "changes as Debezium writes them, in the order of the database's log; keys: the fields of the records' keys",
        "upsert by the key of the records",
    ):
        assert line in str(plan), plan
    assert plan.as_json()["sources"][0]["value"] == "debezium"
    named = planned(Cdc.debezium(TOPIC, key="id", schema="id bigint, v string") >> SINK.upsert("id"))
    assert "keys: id" in str(named)
    assert [column.name for column in named.schema.columns] == ["id", "v"]
    assert named.fingerprint != planned(Cdc.debezium(TOPIC) >> SINK.upsert()).fingerprint


def test_the_plan_of_a_change_log(planned: Callable[[Any], Plan]) -> None:
    plan = planned(LOG >> SINK.upsert("id").exactly_once())
    assert plan.path is ReadPath.RANGES
    assert [column.name for column in plan.schema.columns] == ["id", "at", "meta"]
    for line in (
        "Cdc.json(Kafka.source(shop.public.orders).incremental(poll=5 s))",
        "changes by op: insert: c, r, i, insert; update: u, update; delete: d, delete",
        "ordered by the offset in the key's own partition",
    ):
        assert line in str(plan), plan
    given = Cdc.json(ROWS, "meta.op", key="id", order="id + 1", operations={"X": "delete", "A": "insert"})
    named = planned(given >> SINK.upsert())
    assert [column.name for column in named.schema.columns] == ["op", "id", "at", "meta"]
    for line in ("changes by meta.op: delete: x; insert: a", "ordered by id + 1, then offset", "keys: id"):
        assert line in str(named), named
    assert named.as_json()["sources"][0]["order"] == "id + 1"
    assert named.fingerprint != planned(Cdc.json(ROWS, "meta.op", key="id") >> SINK.upsert()).fingerprint


@pytest.mark.parametrize("changes", [CHANGES, LOG])
def test_a_quarantine_of_changes_is_not_replayed(planned: Callable[[Any], Plan], changes: Any) -> None:
    pipeline = changes >> expect({"good": "id > 0"}, on_fail="quarantine") >> SINK.upsert("id").quarantine("a.q")
    with pytest.raises(InputError, match="a quarantined change has lost its order"):
        Replay(planned(pipeline), cast(SparkSession, None))


def test_the_examples_of_the_page_compile(problems: Callable[..., list[str]]) -> None:
    found: dict[str, Any] = {}
    for text in blocks("docs/cdc.md"):
        exec(text, found)
    pipelines = [value for value in found.values() if isinstance(value, Pipeline)]
    assert len(pipelines) == 6
    assert problems(*pipelines) == []


def test_a_sample_of_changes_is_refused_where_rows_reach_the_target(problems: Any) -> None:
    changes = Iceberg.source("a.orders").incremental().changes(keys="id")
    sampled = changes >> sample(0.1, seed=1)
    (problem,) = problems(sampled >> SINK.upsert("id", delete_when="_change_type = 'DELETE'"))
    assert "may keep a row and drop its later update or delete" in problem
    united = Iceberg.source("a.orders").incremental() >> union(sampled) >> SINK.upsert("id")
    assert any("drop its later update" in problem for problem in problems(united))
    assert problems(sampled >> SINK) == []
    once = Iceberg.source("a.orders").changes(keys="id").between(1, 2) >> sample(0.1, seed=1)
    counted = once >> aggregate("_change_type", n="count(*)") >> SINK.upsert("_change_type")
    assert not any("drop its later update" in problem for problem in problems(counted))
