"""Declared topics: brokers, logins, beginnings, values, and what a record has beside its value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from helios import Kafka
from helios.errors import DeclarationError
from helios.plan.typing.schema import from_ddl

pytestmark = pytest.mark.promise("words")

ORDERS = Kafka.source("orders").servers("broker:9092")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (Kafka.source, r"needs topics, or else a pattern"),
        (lambda: Kafka.source("a", pattern="b"), r"needs topics, or else a pattern"),
        (lambda: Kafka.source("a,b"), r"a topic has a name of letters.*Fix: for several topics"),
        (lambda: Kafka.source(pattern="a("), r"is not a regular expression"),
        (lambda: ORDERS.servers("broker"), r"servers\('broker'\) needs the addresses of brokers"),
        (lambda: ORDERS.servers("a:99999"), r"needs the addresses"),
        (ORDERS.servers, r"needs the addresses"),
        (lambda: ORDERS.start("erliest"), r"Did you mean 'earliest'"),
        (lambda: ORDERS.start({0: -1}), r"each partition needs an offset"),
        (lambda: ORDERS.start({"orders": 5}), r"each partition needs an offset"),
        (lambda: ORDERS.start({}), r"each partition needs an offset"),
        (lambda: ORDERS.incremental(max_rows=0), r"max_rows=0 must be a positive whole number"),
        (lambda: ORDERS.value("jsn"), r"Did you mean 'json'"),
        (lambda: ORDERS.value("avro"), r"needs the schema of the values, or a registry that knows it"),
        (lambda: ORDERS.value("avro", schema="orders.avsc"), r"orders.avsc cannot be read: .*No such file"),
        (lambda: ORDERS.value("avro", schema="id bigint"), r"this is not JSON"),
        (lambda: ORDERS.value("avro", schema='"string"'), r"the schema is not a record schema"),
        (lambda: ORDERS.value("avro", schema={"type": "record", "name": "A"}), r"the schema is not a record schema"),
        (lambda: ORDERS.value("avro", registry="registry:8081"), r"is not the address of a registry"),
        (lambda: ORDERS.value("avro", registry="http://u:secret@r"), r"registry= has a login, which would be shown"),
        (lambda: ORDERS.value("json", allow_http=True), r"allow_http= need registry="),
        (lambda: ORDERS.value("avro", registry="http://r", registry_login="u"), r"takes a name and a password"),  # type: ignore[arg-type]
        (lambda: ORDERS.value("json", registry_subject="s"), r"need registry="),
        (lambda: ORDERS.value("bytes", registry="http://r"), r"registry= applies to values with fields"),
        (
            lambda: ORDERS.value("json", schema="id int", sample=5),
            r"sample= applies to columns of JSON",
        ),
        (lambda: ORDERS.value("json", schema="at timestamp", timestamps="m"), r"Did you mean 'ms'"),  # type: ignore[arg-type]
        (lambda: ORDERS.value("json", timestamps="ms"), r"timestamps= applies to numbers of JSON where schema="),
        (lambda: ORDERS.value("string", timestamps="ms"), r"timestamps= applies to numbers of JSON"),
        (lambda: ORDERS.value("json", sample=0), r"sample=0 must be a positive whole number"),
        (lambda: ORDERS.value("bytes", schema="id int"), r"schema= applies to values with fields"),
        (lambda: ORDERS.value("string", extra="ignore"), r"extra= applies to values with fields"),
        (lambda: ORDERS.metadata("ofset"), r"Did you mean 'offset'"),
        (lambda: ORDERS.on_bad_row("null"), r"on_bad_row\('null'\) is unknown"),
        (lambda: ORDERS.isolation("committed"), r"Did you mean 'read_committed'"),
        (lambda: ORDERS.properties({"group.id": "x"}), r"group.id is set by Helios. Fix: leave it out"),
        (lambda: ORDERS.properties({"linger.ms": 5}), r"must both be text"),
        (lambda: ORDERS.sasl("SCRAM", "me", "pw"), r"sasl\('SCRAM'\) is unknown. Known: PLAIN"),
        (lambda: ORDERS.sasl("PLAIN", "me", ""), r"sasl\(password=\) takes text"),
        (lambda: ORDERS.sasl("PLAIN", "me", 12345), r"sasl\(password=\) takes text, not int\."),  # type: ignore[arg-type]
        (lambda: ORDERS.tls(key_password=12345), r"tls\(key_password=\) takes text, not int\."),  # type: ignore[arg-type]
        (lambda: ORDERS.tls(certificate="a.pem"), r"certificate= and key= belong together"),
    ],
)
def test_what_is_refused_where_it_is_written(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_kafka\.py:\d+: .*{message}"):
        declare()


@pytest.mark.parametrize(
    ("start", "beginning"),
    [
        (dict.fromkeys(reversed(range(12)), 5), ", ".join(f"{n}=5" for n in range(12))),
        ("latest", "latest"),
        ("2026-01-01", "2026-01-01T00:00:00Z"),
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1), "2026-01-01T00:00:00Z"),
        ({1: 20, 0: 15}, "0=15, 1=20"),
        ({"b": {0: 1}, "a": {0: 7}}, "a: 0=7; b: 0=1"),
    ],
)
def test_beginnings(start: Any, beginning: str) -> None:
    assert ORDERS.start(start).declared_start == beginning
    assert f".start({beginning})" in ORDERS.start(start).label()
    assert hash(ORDERS.start(start)) == hash(ORDERS.start(start))


def test_the_default_is_all_bytes_of_committed_records() -> None:
    source = Kafka.source("orders")
    assert (source.declared_start, source.isolation_level, source.declared_schema) == (
        "earliest",
        "read_committed",
        "`value` binary",
    )
    assert source.start(datetime(2026, 1, 1, tzinfo=UTC)).starts_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_what_numbers_for_timestamps_count_is_a_part_of_the_declaration() -> None:
    source = ORDERS.value("json", schema="at timestamp", timestamps="ms")
    assert source.values.text() == "value('json', schema='at timestamp', timestamps='ms')"
    assert source.values.as_json()["timestamps"] == "ms"
    assert "numbers for timestamps are milliseconds" in list(source.values.details())


def test_columns_are_those_of_the_value_then_what_else_a_record_has() -> None:
    source = ORDERS.metadata("offset", event_time="timestamp").value(
        "json", schema={"id": "bigint", "my name": "string"}
    )
    assert str(from_ddl(str(source.declared_schema))) == str(
        from_ddl("id bigint, `my name` string, offset bigint, event_time timestamp")
    )
    assert source.step_texts == (
        "value('json', schema='`id` bigint, `my name` string')",
        "metadata(offset='offset', event_time='timestamp')",
    )
