"""Values as columns: what parses, what does not, and where that goes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

import pytest

from helios import where
from helios.errors import RunError
from tests.kafka.conftest import Topics

SCHEMA = "id bigint, name string, price decimal(8,2), at timestamp, tags array<string>, deep struct<x:int>"

GOOD = (
    b'{"id": 1, "name": "\xc3\xa9", "price": 1.25, "at": "2026-01-01T00:00:00Z", "tags": ["a"], "deep": {"x": 7}}',
    b"{}",
    b'\n {"id": 3, "name": "} {", "deep": null} \n',
    b'{"id": 4, "at": 253402300799}',
)
BAD = (
    (b'{"id": "x"}', "id does not fit bigint"),
    (b'{"id": 1.5, "at": "noon", "name": "n"}', "id does not fit bigint, at does not fit timestamp"),
    (b'{"id": 9223372036854775808}', "id does not fit bigint"),
    (b'{"id": 1, "nme": "a", "x": 2}', "fields that the schema lacks: nme, x"),
    (b'{"id": 1, "deep": {"x": 1, "y": 2}}', 'fields that the schema lacks: {"deep":{"y":2}}'),
    (b'{"id": 1, "ID": 2}', "the value: its field id occurs twice"),
    (b'{"id": 1, "name": "\\ud800"}', "the value: its text holds half of a surrogate pair"),
    (b'{"price": 1.255}', "price does not fit decimal(8,2)"),
    (b'{"id": 1} {"id": 2}', "the value is not one JSON object"),
    (b'{"id": 1}}', "the value is not one JSON object"),
    (b'{"id": 1} x', "the value is not one JSON object"),
    (b'{"id": 1}\x00', "the value is not one JSON object"),
    (b"{'id': 4}", "the value is not one JSON object"),
    (
        b'{"at": 1700000000000}',
        "the value: its number of seconds lies outside of the years 1 to 9999: "
        'if it counts milliseconds or microseconds, write timestamps="ms" or "us"',
    ),
    (b'{"id": 1', "the value is not one JSON object"),
    (b'[{"id": 1}, {"id": 2}]', "the value is JSON, but not an object"),
    (b"5", "the value is JSON, but not an object"),
    (b"null", "the value is JSON, but not an object"),
    (b"", "the value is not one JSON object"),
    (b"not json", "the value is not one JSON object"),
    (b'{"id": 1, "name": "\xff\xfe"}', "the value is not UTF-8 text"),
    (b'{"price": NaN}', "the value is not one JSON object"),
)

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka-values")]


def test_numbers_for_timestamps_count_what_is_declared(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [b'{"id": 1, "at": 1700000000123}', b'{"id": 2, "at": 1700000000123456}', b'{"id": 3, "at": -1}'])
    source = topics.source(name).value("json", schema="id int, at timestamp", timestamps="ms").on_bad_row("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    found = {row: at.isoformat() for row, at in world.rows("a.t", "id", "at").elements()}
    assert found == {1: "2023-11-14T22:13:20.123000+00:00", 3: "1969-12-31T23:59:59.999000+00:00"}
    [reason] = [reason for (reason,) in world.rows("a.q", "reason").elements()]
    assert reason == "the value: its number for a timestamp, in ms, lies outside of the years 1 to 9999"


@pytest.mark.landing
def test_records_that_do_not_parse_are_quarantined_with_their_place_and_bytes(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [*GOOD, *(value for value, _ in BAD)], key=b"k\xff")
    source = topics.source(name).value("json", schema=SCHEMA).metadata("offset").on_bad_row("quarantine")
    # What later steps need and leave out is no matter.
    pipeline = source.incremental() >> where("offset < 1000") >> world.sink("a.t").quarantine("a.q")
    run = world.run(pipeline)
    rows = world.load("a.t").iceberg.scan().to_arrow().sort_by("offset").to_pylist()
    assert [row["id"] for row in rows] == [1, None, 3, 4]
    assert (rows[0]["name"], str(rows[0]["price"]), rows[0]["tags"], rows[0]["deep"]) == ("é", "1.25", ["a"], {"x": 7})
    assert rows[2]["name"] == "} {"
    found = world.load("a.q").iceberg.scan().to_arrow().to_pylist()
    payloads = {payload["offset"]: (payload, row) for row in found if (payload := json.loads(row["payload"]))}
    assert sorted(payloads) == list(range(len(GOOD), len(GOOD) + len(BAD)))
    for offset, (value, why) in enumerate(BAD, len(GOOD)):
        payload, row = payloads[offset]
        assert (row["reason"], base64.b64decode(payload["value"])) == (why, value)
        assert (payload["topic"], payload["partition"], base64.b64decode(payload["key"])) == (name, 0, b"k\xff")
        assert payload.get("text") == (value.decode() if b"\xff" not in value else None)
    assert run.metrics().records_failed == len(BAD)


def test_a_record_that_does_not_parse_stops_the_run_or_is_counted(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.send(name, [{"id": 1}, {"id": 2}], 1)
    topics.send(name, [b'{"id": "poison"}'], 1)
    source = topics.source(name).value("json", schema="id bigint").incremental()
    with pytest.raises(RunError) as failed:
        world.run(source >> world.sink("a.t"))
    assert failed.value.what == (
        f'{name}, partition 1, offset 2: id does not fit bigint: {{"id": "poison"}}; nothing of its batch was written.'
    )
    assert failed.value.where is not None
    assert failed.value.where.file.endswith("conftest.py") or failed.value.where.file.endswith("test_values.py")
    assert ".on_bad_row(" in str(failed.value.fix)
    run = world.run(source.on_bad_row("drop") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]
    assert run.metrics().records_failed == 1


def test_bytes_text_tombstones_and_what_else_a_record_has(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [b"\xff", None, b"text"], key=b"k")
    world.run(topics.source(name).metadata("key", "topic", "headers", "timestamp_type") >> world.sink("a.bytes"))
    found = world.load("a.bytes").iceberg.scan().to_arrow().to_pylist()
    assert Counter(row["value"] for row in found) == Counter([b"\xff", None, b"text"])
    assert {(row["key"], row["topic"], row["timestamp_type"]) for row in found} == {(b"k", name, 0)}
    text = topics.source(name).value("string").metadata(at="timestamp").on_bad_row("quarantine")
    world.run((text >> world.sink("a.text").quarantine("a.q")).named("text"))
    found = world.load("a.text").iceberg.scan().to_arrow().to_pylist()
    assert Counter(row["value"] for row in found) == Counter([None, "text"])
    assert all(row["at"] is not None for row in found)
    [(reason,)] = world.rows("a.q", "reason")
    assert reason == "the value is not UTF-8 text"


@pytest.mark.landing
def test_fields_that_must_be_there(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [{"id": 1}, {"v": 2}, {"id": None}, None])
    source = topics.source(name).value("json", schema="id bigint NOT NULL, v int").on_bad_row("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    assert world.ids("a.t") == [1]
    assert world.rows("a.q", "reason") == Counter({("id is missing",): 2, ("the record has no value",): 1})


def test_fields_that_the_schema_lacks_are_left_out_where_it_is_said(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [{"id": 1, "more": True}])
    world.run(topics.ids(name, extra="ignore") >> world.sink("a.t"))
    assert world.ids("a.t") == [1]


def test_a_new_field_in_the_schema_reaches_the_table(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [{"id": 1}])
    source = topics.source(name).incremental()
    world.run(source.value("json", schema="id bigint") >> world.sink("a.t"))
    topics.send(name, [{"id": 2, "v": 5}])
    world.run(source.value("json", schema="id bigint, v int") >> world.sink("a.t"))
    assert world.rows("a.t", "id", "v") == Counter({(1, None): 1, (2, 5): 1})


def test_records_of_ten_megabytes(world: Any, topics: Topics) -> None:
    name = topics.make(max_message_bytes=str(64 << 20))
    text = "x" * (10 << 20)
    poison = b"\xff" * (10 << 20)
    topics.send_large(name, [{"id": 1}, {"id": 2, "name": text}, poison, {"id": 3}])
    source = topics.source(name).value("json", schema="id bigint, name string").on_bad_row("quarantine")
    # The limits of a consumer, which are smaller than the record, do not keep it back.
    for limits in ({}, {"max.partition.fetch.bytes": "1000000", "fetch.max.bytes": "1000000"}):
        table = f"a.t{len(limits)}"
        world.run((source.properties(limits) >> world.sink(table).quarantine(f"{table}q")).named(table))
        rows = world.load(table).iceberg.scan().to_arrow().to_pylist()
        assert {row["id"]: len(row["name"] or "") for row in rows} == {1: 0, 2: len(text), 3: 0}
        [payload] = [
            json.loads(one["payload"]) for one in world.load(f"{table}q").iceberg.scan().to_arrow().to_pylist()
        ]
        assert (payload["offset"], base64.b64decode(payload["value"])) == (2, poison)


def test_a_text_that_is_longer_than_a_parser_takes_is_a_bad_record(world: Any, topics: Topics) -> None:
    name = topics.make(max_message_bytes=str(64 << 20))
    topics.send_large(name, [{"id": 1}, {"id": 2, "name": "x" * (21 << 20)}])
    source = topics.source(name).value("json", schema="id bigint, name string")
    run = world.run(source.on_bad_row("drop") >> world.sink("a.t"))
    assert (world.ids("a.t"), run.metrics().records_failed) == ([1], 1)
    with pytest.raises(RunError) as failed:
        world.run((source >> world.sink("a.u")).named("failing"))
    assert failed.value.what.startswith(f"{name}, partition 0, offset 1: the value ")
    assert len(failed.value.what) < 2000
