"""Values in Avro's format, with and without a registry: evolution, replays, poison, and a registry that is away."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from helios import watermark, window
from helios.errors import CheckFailed, InputError, NotFound, RunError
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import open_source
from helios.spark.jvm.classes import classes
from tests.kafka.conftest import Topics
from tests.kafka.registry import Registry
from tests.kafka.test_cluster import until

pytestmark = [pytest.mark.jars("kafka", "avro"), pytest.mark.promise("kafka-values")]

NULLABLE_INT = ["null", "int"]


def record(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """The schema of a record: names, types, and perhaps defaults."""
    made = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": "Order", "fields": made}


ONE = record(("id", "long"), ("name", "string"))
TWO = record(("id", "long"), ("name", "string"), ("grade", NULLABLE_INT, None))


def encoded(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A value in Avro's binary format, written by Avro itself from Avro's JSON."""
    avro = classes().org.apache.avro
    parsed = avro.Schema.Parser().parse(json.dumps(schema))
    reader = avro.generic.GenericDatumReader(parsed)
    datum = reader.read(None, avro.io.DecoderFactory.get().jsonDecoder(parsed, json.dumps(value)))
    stream = classes().java.io.ByteArrayOutputStream()
    encoder = avro.io.EncoderFactory.get().binaryEncoder(stream, None)
    avro.generic.GenericDatumWriter(parsed).write(datum, encoder)
    encoder.flush()
    return bytes(stream.toByteArray())


def framed(id: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">i", id) + content


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


def rows(world: Any, table: str, *columns: str) -> Counter[Any]:
    return Counter(world.rows(table, *columns))


def test_types_of_a_declared_schema(world: Any, topics: Topics, tmp_path: Path) -> None:
    deep = {"type": "record", "name": "Deep", "fields": [{"name": "x", "type": "int"}]}
    schema = record(
        ("id", "long"),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("tags", {"type": "array", "items": "string"}),
        ("deep", ["null", deep]),
    )
    value = {"id": 7, "price": "\u0004\u00d2", "at": 1_767_225_600_000, "kind": "B", "tags": ["é"], "deep": None}
    name = topics.make()
    topics.send(name, [encoded(schema, value), encoded(schema, {**value, "id": 8, "deep": {"Deep": {"x": 3}}}), None])
    (tmp_path / "orders.avsc").write_text(json.dumps(schema))
    for given, table in ((schema, "a.t"), (json.dumps(schema), "a.u"), (tmp_path / "orders.avsc", "a.v")):
        world.run(topics.source(name).value("avro", schema=given) >> world.sink(table))
        found = world.load(table).iceberg.scan().to_arrow().to_pylist()
        by_id = {row["id"]: row for row in found}
        assert sorted(by_id, key=str) == [7, 8, None]
        row = by_id[7]
        assert (row["price"], row["kind"], row["tags"], row["deep"]) == (Decimal("12.34"), "B", ["é"], None)
        assert row["at"].isoformat() == "2026-01-01T00:00:00+00:00"
        assert by_id[8]["deep"] == {"x": 3}


POISON = (
    (b"", "it ends too early"),
    (b"\x02\xff\xff\xff\xff\x0f", "a length goes beyond its end"),
    (b"\x02\x02", "a length goes beyond its end"),
    (b"\x02\x02\xff\x00", "a string is no UTF-8 text"),
    (b"\xff" * 11, "a long is too large"),
    (b"\x02\x02a\x00more", "4 bytes are left over"),
    (b"\x02\x02a\x05", None),
    (b"\x02\x02a\x02\xfe\xff\xff\xff\x0f", "it has fewer elements than it says"),
)


def test_poison_bytes_are_bad_records_with_their_place(world: Any, topics: Topics) -> None:
    schema = record(("id", "long"), ("name", "string"), ("marks", ["null", {"type": "array", "items": "int"}]))
    good = encoded(schema, {"id": 1, "name": "a", "marks": None})
    name = topics.make()
    topics.send(name, [good, *(value for value, _ in POISON), good])
    source = topics.source(name).value("avro", schema=schema).metadata("offset").on_bad_row("quarantine")
    run = world.run(source.incremental() >> world.sink("a.t").quarantine("a.q"))
    assert rows(world, "a.t", "offset") == Counter({(0,): 1, (len(POISON) + 1,): 1})
    found = world.load("a.q").iceberg.scan().to_arrow().to_pylist()
    payloads = {payload["offset"]: (payload, row["reason"]) for row in found if (payload := json.loads(row["payload"]))}
    for offset, (value, why) in enumerate(POISON, 1):
        payload, reason = payloads[offset]
        assert (payload["topic"], payload["partition"]) == (name, 0)
        assert base64.b64decode(payload["value"]) == value
        assert reason.startswith("the value does not fit its schema: ")
        assert why is None or why in reason
    assert run.metrics().records_failed == len(POISON) == len(payloads)
    with pytest.raises(RunError, match=rf"{name}, partition 0, offset 1: the value does not fit its schema"):
        world.run((source.on_bad_row("fail") >> world.sink("a.u")).named("failing"))


def test_values_that_spark_would_change_are_bad_records(world: Any, topics: Topics) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = record(("price", decimal), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    name = topics.make()
    values = [("\u0001\u00e2", 5), ("\u007f\u00ff", 5), ("\u0001" * 12, 5), ("\u0001", 2**62)]
    topics.send(name, [encoded(schema, {"price": price, "at": at}) for price, at in values])
    source = topics.source(name).value("avro", schema=schema).on_bad_row("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    assert rows(world, "a.t", "price") == Counter([(Decimal("4.82"),)])
    reasons = {("price does not fit a decimal of 4 digits",): 2, ("at does not fit a timestamp",): 1}
    assert rows(world, "a.q", "reason") == Counter(reasons)


@pytest.mark.landing
def test_old_and_new_schemas_in_one_batch(world: Any, topics: Topics, registry: Registry, forget_commit: Any) -> None:
    name = topics.make()
    first = registry.register(f"{name}-value", ONE)
    topics.send(name, [framed(first, encoded(ONE, {"id": 1, "name": "a"}))])
    source = topics.source(name).value("avro", registry=registry.url).metadata("offset")
    pipeline = source.incremental() >> world.sink("a.t")
    world.run(pipeline)
    assert [f.name for f in world.load("a.t").iceberg.schema().fields] == ["id", "name", "offset"]
    second = registry.register(f"{name}-value", TWO)
    new = framed(second, encoded(TWO, {"id": 2, "name": "b", "grade": {"int": 5}}))
    topics.send(name, [new, framed(first, encoded(ONE, {"id": 3, "name": "c"})), None])
    world.run(pipeline)
    expected = Counter({(1, "a", None): 1, (2, "b", 5): 1, (3, "c", None): 1, (None, None, None): 1})
    assert rows(world, "a.t", "id", "name", "grade") == expected
    [checkpoint] = world.folder.glob("**/_helios/checkpoints/*")
    forget_commit(checkpoint, 1)
    world.run(pipeline)  # the replay finds what it wrote
    assert rows(world, "a.t", "id", "name", "grade") == expected


def test_a_new_field_reaches_the_target_within_a_run(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    first = registry.register(f"{name}-value", ONE)
    topics.send(name, [framed(first, encoded(ONE, {"id": 1, "name": "a"}))])
    source = topics.source(name).value("avro", registry=registry.url)
    run = world.start(source.incremental(poll=0.2) >> world.sink("a.t"))
    try:
        until(lambda: world.catalog.exists("a.t") and world.ids("a.t") == [1])
        second = registry.register(f"{name}-value", TWO)
        topics.send(name, [framed(second, encoded(TWO, {"id": 2, "name": "b", "grade": {"int": 5}}))])
        until(lambda: world.ids("a.t") == [1, 2])
    finally:
        run.stop()
        run.await_termination(60)
    assert rows(world, "a.t", "id", "grade") == Counter({(1, None): 1, (2, 5): 1})
    asked = Counter(path for path in registry.asked if "/ids/" in path)
    assert all(count == 1 for count in asked.values()), asked  # schemas are remembered by their ids


def test_a_declared_schema_with_a_registry(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    first, second = (registry.register(f"{name}-value", schema) for schema in (ONE, TWO))
    strings = record(("id", "string"), ("name", "string"))
    other = registry.register("other", strings)
    listed = registry.register("listed", ONE, schemaType="JSON")
    values = [
        framed(first, encoded(ONE, {"id": 1, "name": "a"})),
        framed(second, encoded(TWO, {"id": 2, "name": "b", "grade": {"int": 5}})),
        framed(other, encoded(strings, {"id": "x", "name": "y"})),
        framed(999, b"\0"),
        framed(listed, b"{}"),
        b"\1poison",
        b"\0\0",
    ]
    topics.send(name, values)
    asked = topics.source(name).value("avro", schema=ONE, registry=registry.url).on_bad_row("quarantine")
    world.run(asked >> world.sink("a.t").quarantine("a.q"))
    assert rows(world, "a.t", "id", "name") == Counter([(1, "a")])
    assert rows(world, "a.q", "reason") == Counter(
        {
            ("fields that the schema lacks: grade",): 1,
            ("the value does not fit its schema: Found string, expecting long",): 1,
            ("the schema id 999 is not in the registry",): 1,
            (f"the schema id {listed} names a schema of JSON, and not of Avro",): 1,
            ("the value does not begin with the byte 0 and the id of a schema",): 2,
        }
    )
    lenient = topics.source(name).value("avro", schema=ONE, registry=registry.url, extra="ignore").on_bad_row("drop")
    run = world.run(lenient >> world.sink("a.u"))
    assert rows(world, "a.u", "id", "name") == Counter([(1, "a"), (2, "b")])
    assert run.metrics().records_failed == 5


def test_json_behind_the_header_of_a_registry(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    topics.send(name, [framed(7, b'{"id": 1}'), b'{"id": 2}', framed(7, b'{"id": "x"}'), framed(7, b""), None])
    source = topics.source(name).value("json", schema="id bigint", registry=registry.url).on_bad_row("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    assert rows(world, "a.t", "id") == Counter([(1,), (None,)])
    assert rows(world, "a.q", "reason") == Counter(
        {
            ("the value does not begin with the byte 0 and the id of a schema",): 1,
            ("id does not fit bigint",): 1,
            ("the value is not one JSON object",): 1,
        }
    )
    inferred = topics.source(name).value("json", registry=registry.url).on_bad_row("drop")
    world.run(inferred >> world.sink("a.u"))
    assert rows(world, "a.u", "id") == Counter([("1",), ("x",), (None,)])
    assert registry.asked == []


def test_a_registry_that_asks_for_a_login(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    id = registry.register(f"{name}-value", ONE)
    topics.send(name, [framed(id, encoded(ONE, {"id": 1, "name": "a"}))])
    registry.closed = True
    source = topics.source(name)
    with pytest.raises(RunError, match=r"answers 401: Unauthorized\. Fix: give registry_login"):
        world.run(source.value("avro", registry=registry.url) >> world.sink("a.t"))
    with pytest.raises(RunError, match=r"answers 401 to the question for schema id \d+\. Fix"):
        world.run((source.value("avro", schema=ONE, registry=registry.url) >> world.sink("a.d")).named("declared"))
    known = source.value("avro", registry=registry.url, registry_login=(registry.user, registry.password))
    pipeline = known >> world.sink("a.t")
    plan = world.plan(pipeline)
    assert f"schema registry {registry.url}, as reader; columns as the latest schema of TOPIC-value" in str(plan)
    assert registry.password not in f"{plan} {plan.to_json()} {known!r} {known.step_texts}"
    read = open_source(SourceContext(plan=plan, spark=world.spark), 0).read(world.spark, None)
    assert read is not None
    explain = classes().org.apache.spark.sql.api.python.PythonSQLUtils.explainString
    told = str(explain(read._jdf.queryExecution(), "extended"))
    assert "helios_avro_value" in told
    hidden = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
    assert registry.password not in told
    assert hidden not in told
    world.run(pipeline)
    assert world.ids("a.t") == [1]


@pytest.mark.landing
def test_a_registry_that_is_away(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    first = registry.register(f"{name}-value", ONE)
    source = topics.source(name).value("avro", registry=registry.url)
    registry.stop()
    with pytest.raises(RunError, match=rf"the schema registry {registry.url} does not answer: .*refused"):
        world.run(source >> world.sink("a.t"))
    registry.start()
    topics.send(name, [framed(first, encoded(ONE, {"id": 1, "name": "a"}))])
    run = world.start(source.incremental(poll=0.2) >> world.sink("a.t"))
    try:
        until(lambda: world.catalog.exists("a.t") and world.ids("a.t") == [1])
        registry.stop()
        topics.send(name, [framed(first, encoded(ONE, {"id": 2, "name": "b"}))])
        until(lambda: "waiting" in world.kinds() or run.error is not None)
        assert run.error is None
        waiting = next(event.message for event in world.events if event.kind == "waiting")
        assert waiting.startswith(f"the schema registry at {registry.url} has been away since")
        registry.start()
        until(lambda: world.ids("a.t") == [1, 2])
    finally:
        run.stop()
        run.await_termination(60)


def test_a_registry_that_goes_away_while_a_task_asks_it(world: Any, topics: Topics, registry: Registry) -> None:
    name = topics.make()
    first = registry.register(f"{name}-value", ONE)
    topics.send(name, [framed(first, encoded(ONE, {"id": 1, "name": "a"}))])
    source = topics.source(name).value("avro", schema=ONE, registry=registry.url)
    registry.answer = 503
    run = world.start(source.incremental(poll=0.2) >> world.sink("a.t"))
    try:
        until(lambda: "waiting" in world.kinds() or run.error is not None)
        assert run.error is None
        registry.answer = None
        until(lambda: world.catalog.exists("a.t") and world.ids("a.t") == [1])
    finally:
        run.stop()
        run.await_termination(60)


def test_subjects(world: Any, topics: Topics, registry: Registry) -> None:
    name, other = topics.make(), topics.make()
    source = topics.source(name)
    with pytest.raises(NotFound, match=rf"has no subject '{name}-value'\. Fix: .*registry_subject="):
        world.run(source.value("avro", registry=registry.url) >> world.sink("a.t"))
    id = registry.register("orders/of all", ONE)
    topics.send(name, [framed(id, encoded(ONE, {"id": 1, "name": "a"}))])
    named = source.value("avro", registry=registry.url, registry_subject="orders/of all")
    world.run(named >> world.sink("a.t"))
    assert world.ids("a.t") == [1]
    registry.register(f"{name}-value", ONE)
    registry.register(f"{other}-value", TWO)
    both = topics.source(name, other).value("avro", registry=registry.url)
    first, second = sorted((name, other))
    with pytest.raises(InputError, match=rf"the subjects {first}-value and {second}-value differ"):
        world.run((both >> world.sink("a.b")).named("both"))
    registry.register(f"{name}-value", ONE, schemaType="JSON")
    with pytest.raises(InputError, match="has schemas of JSON, and not of Avro"):
        world.run((source.value("avro", registry=registry.url) >> world.sink("a.j")).named("json"))
    with pytest.raises(CheckFailed, match="goes to another machine unencrypted"):
        world.plan(source.value("avro", registry="http://registry:8081") >> world.sink("a.t"))
    world.plan(source.value("avro", registry="http://registry:8081", allow_http=True) >> world.sink("a.t"))


def test_a_window_over_values_of_a_registry(world: Any, topics: Topics, registry: Registry) -> None:
    schema = record(("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    name = topics.make()
    id = registry.register(f"{name}-value", schema)
    topics.send(name, [framed(id, encoded(schema, {"id": n, "at": n * 10_000})) for n in range(100)])
    source = topics.source(name).value("avro", registry=registry.url).incremental()
    counted = window("at", "100 seconds").agg(n="count(*)")
    world.run(source >> watermark("at", "1 second") >> counted >> world.sink("a.t"))
    assert rows(world, "a.t", "n") == Counter({(10,): 9})


def test_topics_of_a_pattern_and_a_schema_that_lost_a_field(world: Any, topics: Topics, registry: Registry) -> None:
    name, other = topics.make(), topics.make()
    first = registry.register(f"{name}-value", TWO)
    registry.register(f"{other}-value", ONE)
    topics.send(name, [framed(first, encoded(TWO, {"id": 1, "name": "a", "grade": {"int": 5}}))])
    topics.send(other, [framed(first, encoded(TWO, {"id": 2, "name": "b", "grade": None}))])
    second = registry.register(f"{name}-value", ONE)
    topics.send(name, [framed(second, encoded(ONE, {"id": 3, "name": "c"}))])
    source = topics.source(pattern=f"{name}|{other}").value("avro", registry=registry.url).incremental()
    with pytest.raises(RunError, match="fields that the schema lacks: grade"):
        world.run(source >> world.sink("a.t"))
    lenient = source.value("avro", registry=registry.url, extra="ignore")
    world.run((lenient >> world.sink("a.u")).named("lenient"))
    assert rows(world, "a.u", "id", "name") == Counter([(1, "a"), (2, "b"), (3, "c")])
