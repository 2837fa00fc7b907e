"""Values in Avro's format: what the kit writes, read once more by PyIceberg's decoder, and what it refuses."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from helios import Kafka
from helios.errors import InputError
from helios.testing.avro import HEADER, encoded
from helios.testing.topics import TopicFeed, Topics, with_broker

pytestmark = pytest.mark.promise("testing")

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
KIND = {"type": "enum", "name": "Kind", "namespace": "shop", "symbols": ["A", "B"]}


def schema(*fields: tuple[Any, ...]) -> str:
    """A record's schema: names, types, and perhaps defaults."""
    made = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": made})


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("long", -3, b"\x05"),
        ("int", 2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        ("boolean", True, b"\x01"),
        ("double", 1, b"\0\0\0\0\0\0\xf0?"),
        ("string", "é", b"\x04\xc3\xa9"),
        ("bytes", b"\0", b"\x02\0"),
        (["null", "long"], None, b"\0"),
        (["null", "long"], 1, b"\x02\x02"),
        (["string", "long"], 1, b"\x02\x02"),
        (["bytes", "string"], "x", b"\x02\x02x"),
        (["long", "string"], "x", b"\x02\x02x"),
        (["bytes", "long"], 5, b"\x02\x0a"),
        (["int", "long"], 2**40, b"\x02" + b"\x80" * 5 + b"@"),
        (
            [{"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}],
            datetime(1970, 1, 1, tzinfo=UTC),
            b"\x02\0",
        ),
        (DECIMAL, Decimal("12.34"), b"\x04\x04\xd2"),
        (DECIMAL, "-0.01", b"\x02\xff"),
        ({"type": "int", "logicalType": "date"}, date(1970, 1, 3), b"\x04"),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), b"\xd0\x0f"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "1970-01-01T00:00:00.000001Z", b"\x02"),
        (KIND, "B", b"\x02"),
        ({"type": "array", "items": "long"}, [1, 2], b"\x04\x02\x04\0"),
        ({"type": "array", "items": "long"}, [], b"\0"),
        ({"type": "map", "values": "long"}, {"a": 1}, b"\x02\x02a\x02\0"),
    ],
)
def test_a_value_is_written_as_avro_says(kind: Any, value: Any, written: bytes) -> None:
    assert encoded({"x": value}, schema(("x", kind)), "orders") == written


def test_defaults_and_types_by_name() -> None:
    nested = {"type": "record", "name": "Deep", "fields": [{"name": "k", "type": KIND}, {"name": "l", "type": "Kind"}]}
    text = schema(("n", "long", 7), ("deep", ["null", nested], None), ("last", ["null", "Deep"], None))
    assert encoded({}, text, "orders") == b"\x0e\0\0"
    assert encoded({"last": {"k": "A", "l": "B"}}, text, "orders") == b"\x0e\0\x02\0\x02"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": "seven"}, "orders: x is 'seven', and the schema has long"),
        ({"x": True}, "orders: x is True, and the schema has a number"),
        ({"x": 2**63}, "which has more than 64 bits"),
        ({"y": 1}, "orders: the schema has no field 'y'."),
        ({}, "orders: the field 'x' is missing, and has no default"),
        ({"x": 1, "amount": "1.005"}, "orders: amount is '1.005', and the schema has decimal(6,2)"),
        ({"x": 1, "tags": ["a", 5]}, "orders: tags is 5, and the schema has string"),
    ],
)
def test_a_value_that_does_not_fit_is_named(value: dict[str, Any], said: str) -> None:
    text = schema(("x", "long"), ("amount", DECIMAL, "\0"), ("tags", {"type": "array", "items": "string"}, []))
    with pytest.raises(InputError) as refused:
        encoded(value, text, "orders")
    assert said in str(refused.value)


def test_a_registry_is_not_asked_and_values_have_its_header() -> None:
    read = Kafka.source("orders").servers("b:9092")
    topics = Topics("test", {})
    json_values = TopicFeed("orders", read.value("json", schema="id bigint", registry="https://r:8081"), topics)
    values = [record.value for record in json_values.prepare([{"id": 1}, '{"id": 2}', HEADER + b"{}", b"raw", None])]
    assert values == [HEADER + b'{"id": 1}', HEADER + b'{"id": 2}', HEADER + b"{}", b"raw", None]
    declared = read.value("avro", schema=json.loads(schema(("id", "long"))), registry="https://r:8081")
    avro = TopicFeed("orders", declared, topics)
    # The stand-in has no registry: what a producer sends is given to it without the header.
    assert [record.value for record in avro.prepare([{"id": 1}, b"\0\0\0\0\x09\x02", None])] == [b"\x02", b"\x02", None]
    stand_in = with_broker(declared, "test")
    assert stand_in.values.registry is None  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="does not begin with the byte 0 and the id of a schema"):
        avro.prepare([b"\x02"])
    with pytest.raises(InputError, match=r"takes its columns from a schema registry.*declare the schema beside"):
        with_broker(read.value("avro", registry="https://r:8081"), "test")
