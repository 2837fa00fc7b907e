"""Topics in `check` and `plan`, without a broker and without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helios import Iceberg, Kafka, Pipeline
from helios.plan import Plan, ReadPath
from tests.suite.pages import blocks

ORDERS = Kafka.source("orders").servers("broker:9092")
SINK = Iceberg.sink("a.t")


def test_secrets_are_in_no_text(planned: Callable[[Any], Plan]) -> None:
    source = (
        ORDERS.sasl("SCRAM-SHA-512", "me", "pa$$word")
        .tls(key_password="pa$$word")
        .properties({"sasl.jaas.config": 'x password="pa$$word"', "client.rack": "r1"})
    )
    plan = planned(source >> SINK)
    assert "pa$$word" not in f"{source!r} {plan} {plan.to_json()} {plan!r} {source.encryption} {source.login}"
    assert "brokers broker:9092, over TLS, as me (SCRAM-SHA-512)" in str(plan)
    assert dict(source.client_settings)["client.rack"] == "r1"


def test_the_plan_of_a_topic(planned: Callable[[Any], Plan]) -> None:
    source = ORDERS.value("json", schema="id bigint").metadata("partition", at="timestamp")
    text = str(planned(source.start("2026-01-01").incremental(poll="5s", max_rows=1000) >> SINK))
    for line in (
        "Kafka.source(orders).start(2026-01-01T00:00:00Z).incremental(poll=5 s, max_rows=1000)",
        "values as json; records with other fields are bad",
        "of each record: partition, timestamp as at",
        "from 2026-01-01T00:00:00Z on, read_committed",
        "each batch reads its range of offsets, cut between records by incremental(max_rows=)",
        "id bigint, partition int, at timestamp",
    ):
        assert line in text
    (told,) = planned(source >> SINK).as_json()["sources"]
    assert (told["kind"], told["name"], told["servers"]) == ("kafka", "kafka:orders", ["broker:9092"])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (Kafka.source("orders"), "Kafka.source(orders) names no broker. Fix: add .servers("),
        (
            ORDERS.value("string").metadata("key", value="topic"),
            "two columns are called 'value'. Fix: write .metadata(",
        ),
        (ORDERS.value("json", schema="a int, A int"), "two columns are called 'A'. Fix: name each column once"),
        (ORDERS.value("json", schema="a itn"), "'int'"),
        (ORDERS.sasl("PLAIN", "me", "pw"), 'sasl("PLAIN") to broker:9092 without TLS: anyone'),
        (ORDERS.tls("nowhere.pem"), "tls(ca='nowhere.pem'): there is no such file"),
        (ORDERS.start({"orders": {0: 1}, "ordres": {0: 1}}), "'ordres' is not a topic of the source"),
        (Kafka.source("a", "b").servers("x:1").start({0: 1}), "the offsets name no topic, and the source has several"),
    ],
)
def test_what_check_finds(problems: Callable[..., list[str]], source: Any, problem: str) -> None:
    assert any(problem in one for one in problems(source >> SINK)), problems(source >> SINK)


def test_a_password_may_go_to_this_machine_and_over_tls(problems: Callable[..., list[str]]) -> None:
    local = Kafka.source("orders").servers("localhost:9092", "[::1]:9092").sasl("PLAIN", "me", "pw")
    assert problems(local >> SINK) == problems(ORDERS.sasl("PLAIN", "me", "pw").tls() >> SINK) == []


def test_the_examples_of_the_page_compile(planned: Callable[[Any], Plan]) -> None:
    made: dict[str, Any] = {}
    for block in blocks("docs/kafka.md"):
        exec(block, made)
    paths = {name: planned(value).path for name, value in made.items() if isinstance(value, Pipeline)}
    followed = dict.fromkeys(("raw", "checked", "clicks", "traded", "big"), ReadPath.RANGES)
    assert paths == {**followed, "payments": ReadPath.BATCH, "quotes": ReadPath.BATCH}
