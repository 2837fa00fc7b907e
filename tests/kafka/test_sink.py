"""Rows to a topic, at least once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import Kafka, Memory, expect, select, with_columns
from helios.errors import CheckFailed, InputError, NotFound, RunError
from helios.sources.kafka.sink import KafkaSink
from tests.kafka.conftest import Topics
from tests.services.server import Port

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka-sink")]

ROWS = [{"id": 1, "name": "é"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]


def sink(topics: Topics, name: str) -> KafkaSink:
    return Kafka.sink(name).servers(topics.broker.servers)


def records(world: Any, topics: Topics, name: str) -> list[dict[str, Any]]:
    """The records of a topic, read by Spark itself."""
    reader = world.spark.read.format("kafka").option("kafka.bootstrap.servers", topics.broker.servers)
    return [row.asDict() for row in reader.option("subscribe", name).load().collect()]


def values(world: Any, topics: Topics, name: str) -> Counter[Any]:
    return Counter(one["value"] for one in records(world, topics, name))


@pytest.mark.landing
def test_rows_as_json_with_a_key(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=3)
    more = with_columns(at="TIMESTAMP '2026-01-01 00:00:00.123456'", price="CAST(1.50 AS decimal(8,2))")
    pipeline = Memory.source(ROWS) >> more >> sink(topics, name).key("id")
    plan = world.plan(pipeline)
    assert f"kafka:{name}, Kafka.sink({name}), at least once: a batch that is run again is produced again" in str(plan)
    assert "values as json, keys id; acknowledged by all replicas in sync" in str(plan)
    assert "kafka" in plan.components
    run = world.run(pipeline)
    found = {one["key"]: json.loads(one["value"]) for one in records(world, topics, name)}
    at, price = "2026-01-01T00:00:00.123456Z", 1.50
    assert found == {
        b"1": {"id": 1, "name": "é", "at": at, "price": price},
        b"2": {"id": 2, "name": None, "at": at, "price": price},
        b"3": {"id": 3, "name": "c", "at": at, "price": price},
    }
    assert (run.rows, run.metrics().records_written) == (3, 3)
    world.run(pipeline)  # a batch pipeline that is run again
    assert sum(values(world, topics, name).values()) == 6


def test_text_bytes_and_tombstones(world: Any, topics: Topics) -> None:
    name, other = topics.make(), topics.make()
    world.run(Memory.source(ROWS) >> sink(topics, name).value("string", "name").key("CAST(name AS binary)"))
    assert values(world, topics, name) == Counter(["é".encode(), None, b"c"])
    assert all(one["key"] == one["value"] for one in records(world, topics, name))
    raw = select("CAST(name AS binary) AS value")
    world.run((Memory.source(ROWS) >> raw >> sink(topics, other).value("bytes")).named("bytes"))
    assert values(world, topics, other) == Counter(["é".encode(), None, b"c"])
    assert {one["key"] for one in records(world, topics, other)} == {None}


def test_a_followed_topic_goes_into_another_and_on_after_a_restart(
    world: Any, topics: Topics, forget_commit: Any
) -> None:
    name, target = topics.make(), topics.make()
    topics.send(name, [{"id": number} for number in range(5)])
    pipeline = topics.ids(name).incremental(max_rows=3) >> select("id") >> sink(topics, target)
    world.run(pipeline)
    topics.send(name, [{"id": number} for number in range(5, 9)])
    world.run(pipeline)
    expected = Counter(json.dumps({"id": n}, separators=(",", ":")).encode() for n in range(9))
    assert values(world, topics, target) == expected
    [checkpoint] = world.folder.glob("**/_helios/checkpoints/*")
    last = max(int(path.name) for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit())
    forget_commit(checkpoint, last)
    world.run(pipeline)  # the batch is run again, and nothing tells that it was: at least once
    found = values(world, topics, target)
    assert expected <= found
    assert max(found.values()) == 2
    with pytest.raises(InputError, match="keeps no record"):
        world.run(pipeline, new_checkpoint=True)


@pytest.mark.landing
def test_a_produce_that_fails_fails_the_batch(world: Any, topics: Topics) -> None:
    name, target = topics.make(), topics.make()
    topics.send(name, [{"id": 1}])
    grown = with_columns(big="repeat('x', 3000000)")
    pipeline = topics.ids(name).incremental() >> grown >> sink(topics, target)
    with pytest.raises(RunError, match=rf"Kafka.sink\({target}\): a record .* was refused: RecordTooLargeException"):
        world.run(pipeline)
    wide = sink(topics, target).properties({"max.request.size": "5000000"})  # larger than the topic takes
    with pytest.raises(RunError, match=r"was refused: RecordTooLargeException"):
        world.run(topics.ids(name).incremental() >> grown >> wide)
    assert records(world, topics, target) == []
    small = with_columns(big="'x'")
    world.run(topics.ids(name).incremental() >> small >> sink(topics, target))  # the batch was not done
    assert len(records(world, topics, target)) == 1


def test_nothing_of_a_batch_that_fails_before_is_produced(world: Any, topics: Topics) -> None:
    name = topics.make()
    with pytest.raises(RunError, match="small"):
        world.run(Memory.source(ROWS) >> expect({"small": "id < 3"}) >> sink(topics, name))
    assert records(world, topics, name) == []


def test_what_is_refused(world: Any, topics: Topics) -> None:
    name = topics.make()
    rows = Memory.source(ROWS)
    with pytest.raises(CheckFailed, match=r"cannot keep .exactly_once\(\)"):
        world.plan(rows >> sink(topics, name).exactly_once())
    with pytest.raises(CheckFailed, match="names no broker"):
        world.plan(rows >> Kafka.sink(name))
    with pytest.raises(CheckFailed, match="anyone on the network could read the password"):
        world.plan(rows >> Kafka.sink(name).servers("broker:9092").sasl("PLAIN", "me", "secret"))
    with pytest.raises(NotFound, match=rf"topic '{name}x' does not exist on .*Did you mean '{name}'"):
        world.run(rows >> sink(topics, f"{name}x"))
    with pytest.raises(InputError, match=r"id is bigint, not string"):
        world.run(rows >> sink(topics, name).value("string", "id"))
    with pytest.raises(InputError, match=r"key\('nme'\)"):
        world.run(rows >> sink(topics, name).key("nme"))
    with pytest.raises(InputError, match=r"is array<bigint>, and a key is bytes or text"):
        world.run(rows >> sink(topics, name).key("array(id)"))
    port = Port()
    away = Kafka.sink(name).servers(f"127.0.0.1:{port.number}")
    away = away.properties({"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"})
    with pytest.raises(RunError, match=rf"Kafka.sink\({name}\): no broker answers at 127.0.0.1:{port.number}"):
        world.run(rows >> away)
    port.release()
    assert records(world, topics, name) == []


def test_a_login_over_tls(world: Any, topics: Topics) -> None:
    name, broker = topics.make(), topics.broker
    secure = Kafka.sink(name).servers(broker.secure_servers).tls(broker.certificate)
    pipeline = Memory.source(ROWS) >> secure.sasl("SCRAM-SHA-512", broker.user, broker.password)
    assert broker.password not in f"{world.plan(pipeline)} {world.plan(pipeline).to_json()} {pipeline!r}"
    world.run(pipeline)
    assert len(records(world, topics, name)) == 3
