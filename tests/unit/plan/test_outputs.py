"""Sinks that are no tables, as they are declared and compiled."""

from __future__ import annotations

import pytest

from helios import Console, Iceberg, Kafka, Memory
from helios.errors import CheckFailed, DeclarationError
from helios.plan import Context, compile_pipelines, components_before_compiling

pytestmark = pytest.mark.promise("outputs")

ROWS = [{"id": 1}]


def test_names_and_numbers_are_checked() -> None:
    for name in ("", "a b", "a/b", "a:b"):
        with pytest.raises(DeclarationError, match=r"Memory.sink"):
            Memory.sink(name)
    for rows in (0, -1, 2.5, True):
        with pytest.raises(DeclarationError, match="rows"):
            Console.sink(rows=rows)  # type: ignore[arg-type]


def test_two_pipelines_into_one_need_names(context: Context) -> None:
    first, second = (Memory.source(ROWS) >> Console.sink() for _ in range(2))
    _, problems = compile_pipelines([first, second], context)
    assert "two pipelines write console:stdout" in str(problems[0])
    plans, problems = compile_pipelines([first.named("a"), second.named("b")], context)
    assert [plan.pipeline for plan in plans] == ["a", "b"]
    assert problems == []


def test_a_fan_out_into_a_table_and_a_look_at_it(context: Context) -> None:
    table, look = Memory.source(ROWS) >> [Iceberg.sink("a.t"), Memory.sink("t").exactly_once()]
    _, problems = compile_pipelines([table, look], context)
    assert [type(problem) for problem in problems] == [DeclarationError]
    with pytest.raises(CheckFailed, match="exactly_once"):
        look.check()


def test_a_topic_as_a_sink(context: Context) -> None:
    sink = Kafka.sink("big").servers("broker:9092").key("id").sasl("SCRAM-SHA-512", "me", "secret").tls()
    [plan], problems = compile_pipelines([Memory.source(ROWS) >> sink], context)
    assert problems == []
    assert (plan.pipeline, plan.write.table.text) == ("kafka:big", "kafka:big")
    assert plan.checkpoint.endswith("/_helios/checkpoints/kafka_big")
    assert "kafka" in plan.components
    assert "kafka" in components_before_compiling([plan.declared], context)
    assert "secret" not in f"{plan} {plan.to_json()} {sink!r}"
    given = sink.checkpoint("/shared/progress")
    [plan], _ = compile_pipelines([Memory.source(ROWS) >> given], context)
    assert plan.checkpoint.endswith("/shared/progress")


def test_what_a_topic_as_a_sink_refuses() -> None:
    sink = Kafka.sink("big")
    for declare, message in (
        (lambda: Kafka.sink("a b"), "a topic has a name of letters"),
        (lambda: sink.value("avro"), r"value\('avro'\) is unknown"),
        (lambda: sink.value("json", "id"), "takes all columns, and no expression"),
        (lambda: sink.key(" "), r"key\(\) takes text"),
        (lambda: sink.properties({"acks": "1"}), "acks is set by Helios"),
        (lambda: sink.properties({"transactional.id": "x"}), "delivered at least once, and not in transactions"),
    ):
        with pytest.raises(DeclarationError, match=message):
            declare()
