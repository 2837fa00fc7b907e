"""Changes of databases in declarations, `check` and `plan`, without a broker and without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from helios import Cdc, Iceberg, Kafka, Memory, Pipeline, aggregate, join, select, union, where
from helios.errors import DeclarationError
from helios.plan import Plan, ReadPath
from tests.suite.pages import blocks

TOPIC = Kafka.source("shop.public.orders").servers("broker:9092")
CHANGES = Cdc.debezium(TOPIC.incremental(poll=5))
SINK = Iceberg.sink("a.t")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Cdc.debezium(Iceberg.source("a.b")), "takes a source of Kafka, not IcebergSource"),
        (lambda: Cdc.debezium(TOPIC.value("string")), r"the source says .value\('string'\).*Fix: leave .value"),
        (lambda: Cdc.debezium(TOPIC.metadata("offset")), r"the source says .metadata\(\)"),
        (lambda: Cdc.debezium(TOPIC, time="micros"), "and there is none.*Fix: pass schema="),
        (lambda: Cdc.debezium(TOPIC, schema="id int", time="micro"), "Did you mean 'micros'"),
        (lambda: Cdc.debezium(TOPIC, schema="id int", decimals="exact"), "decimals"),
        (lambda: Cdc.debezium(TOPIC, schema="id int", extra="add"), "extra"),
        (lambda: Cdc.debezium(TOPIC, key=["id", "ID"]), "key needs key columns, each once"),
    ],
)
def test_wrong_declarations(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(DeclarationError, match=f"(?s){message}"):
        declare()


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (TOPIC >> SINK.upsert(), "upsert needs key columns, each once: only the changes of Cdc.debezium"),
        (CHANGES >> SINK, r"append\(\) would keep what is gone. Fix: write .upsert\(\)"),
        (CHANGES >> SINK.overwrite_partitions(), r"overwrite_partitions\(\) would keep"),
        (CHANGES >> SINK.upsert("id", order_by="ts"), r"upsert\(order_by=\): the changes .* carry their own order"),
        (CHANGES >> SINK.upsert("id", delete_when="gone"), r"upsert\(delete_when=\)"),
        (CHANGES >> SINK.upsert().route(by="region"), r"route\(\): the delete of a changed row has its key alone"),
        (CHANGES >> aggregate("id", n="count(*)") >> SINK.upsert("id"), "do not go through it"),
        (CHANGES >> (lambda df: df) >> SINK.upsert("id"), r"call\(.*lambda.*do not go through it"),
        (TOPIC.incremental() >> union(CHANGES) >> SINK.upsert("id"), "cannot be brought in by a join or a union"),
        (Memory.source([{"id": 1}]) >> join(Cdc.debezium(TOPIC), on="id") >> SINK, "cannot be brought in by a join"),
        (Cdc.debezium(TOPIC, key="id") >> SINK.upsert("name"), "the source's key is id, and the upsert is by name"),
        (Cdc.debezium(Kafka.source("a", "b").servers("b:1")) >> SINK.upsert(), "several topics are several tables"),
        (Cdc.debezium(Kafka.source("a")) >> SINK.upsert(), "names no broker"),
    ],
)
def test_what_check_refuses(problems: Callable[..., list[str]], pipeline: Pipeline, message: str) -> None:
    assert any(re.search(message, one, re.DOTALL) for one in problems(pipeline)), problems(pipeline)


def test_the_plan_of_changes(planned: Callable[[Any], Plan]) -> None:
    plan = planned(CHANGES >> where("amount > 0") >> select("id", "amount") >> SINK.upsert().exactly_once())
    assert plan.path is ReadPath.RANGES
    for line in (
        "Cdc.debezium(Kafka.source(shop.public.orders).incremental(poll=5 s))",
        "changes as Debezium writes them, in the order of the database's log; keys: those of the records' keys",
        "upsert by the key of the records",
    ):
        assert line in str(plan), plan
    assert plan.as_json()["sources"][0]["value"] == "debezium"
    named = planned(Cdc.debezium(TOPIC, key="id", schema="id bigint, v string") >> SINK.upsert("id"))
    assert "keys: id" in str(named)
    assert [column.name for column in named.schema.columns] == ["id", "v"]
    assert named.fingerprint != planned(Cdc.debezium(TOPIC) >> SINK.upsert()).fingerprint


def test_the_examples_of_the_page_compile(problems: Callable[..., list[str]]) -> None:
    found: dict[str, Any] = {}
    for text in blocks("docs/cdc.md"):
        exec(text, found)
    pipelines = [value for value in found.values() if isinstance(value, Pipeline)]
    assert len(pipelines) == 3
    assert problems(*pipelines) == []
