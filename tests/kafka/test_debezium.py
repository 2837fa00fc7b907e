"""`Cdc.debezium(...)`: inserts, updates, deletes, their order, and records that are none, on a real broker."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from helios import Cdc, cast, expect, rename, select, where, with_columns
from helios.errors import NotFound, RunError
from tests.kafka.changes import ID, NAME, Table, event
from tests.kafka.conftest import Topics

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("cdc")]


@pytest.fixture
def table(topics: Topics) -> Table:
    return Table(topics)


@pytest.mark.landing
def test_inserts_updates_deletes_and_tombstones(world: Any, table: Table) -> None:
    table.send(1, event("r", {"id": 1, "name": "snapshot"}, snapshot="first"))
    table.send(2, event("r", {"id": 2, "name": "stays"}, snapshot="last"))
    pipeline = table.source() >> world.sink("a.t").upsert()
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "snapshot"): 1, (2, "stays"): 1})
    table.send(1, event("u", {"id": 1, "name": "changed"}))
    table.send(3, event("c", {"id": 3, "name": "new"}))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "changed"): 1, (2, "stays"): 1, (3, "new"): 1})
    # A changed key is a delete, a tombstone and an insert.
    table.send(2, event("d", before={"id": 2, "name": None}), None)
    table.send(4, event("c", {"id": 4, "name": "stays"}))
    table.send(3, event("d", before={"id": 3, "name": None}), None)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "changed"): 1, (4, "stays"): 1})
    assert world.load("a.t").iceberg.schema().column_names == ["id", "name"]


def test_late_changes_do_not_win(world: Any, table: Table) -> None:
    pipeline = table.source() >> world.sink("a.t").upsert("id")
    table.send(1, event("c", {"id": 1, "name": "a"}, lsn=10), event("u", {"id": 1, "name": "c"}, lsn=30))
    table.send(1, event("u", {"id": 1, "name": "b"}, lsn=20))  # late in its batch
    table.send(2, event("c", {"id": 2, "name": "a"}, lsn=11), event("d", before={"id": 2}, lsn=31), None)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "c"): 1})
    # A connector that was killed sends again what it had sent.
    table.send(1, event("c", {"id": 1, "name": "a"}, lsn=10), event("u", {"id": 1, "name": "b"}, lsn=20))
    table.send(2, event("c", {"id": 2, "name": "a"}, lsn=11))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "c"): 1})
    table.send(2, event("c", {"id": 2, "name": "again"}, lsn=40))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "c"): 1, (2, "again"): 1})


def test_changes_of_one_position_go_by_their_offset(world: Any, table: Table) -> None:
    table.send(1, *(event("u", {"id": 1, "name": str(n)}, lsn=5) for n in range(20)))
    pipeline = table.source() >> world.sink("a.t").upsert()
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "19"): 1})
    table.send(1, event("u", {"id": 1, "name": "last"}, lsn=5))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "last"): 1})


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.cases(slow="4")
def test_snapshots_and_changes_go_by_kafkas_order(world: Any, table: Table, batches: int) -> None:
    """A transaction may have written before the snapshot's position, and have committed after it."""
    pipeline = table.source() >> world.sink("a.t").upsert()
    parts = [
        [(1, event("r", {"id": 1, "name": "old"}, lsn=100, snapshot="true"))],
        [(1, event("u", {"id": 1, "name": "straddles"}, lsn=90))],
        [(1, event("u", {"id": 1, "name": "older"}, lsn=80)), (2, event("c", {"id": 2, "name": "streamed"}, lsn=500))],
        # A server that was restored has lower positions, and is read by a new snapshot.
        [
            (1, event("r", {"id": 1, "name": "restored"}, lsn=50, snapshot="first")),
            (2, event("r", {"id": 2, "name": "restored"}, lsn=50, snapshot="last")),
            (1, event("u", {"id": 1, "name": "goes on"}, lsn=60)),
            (1, event("u", {"id": 1, "name": "older"}, lsn=55)),
        ],
    ]
    expected = [
        {(1, "old"): 1},
        {(1, "straddles"): 1},
        {(1, "straddles"): 1, (2, "streamed"): 1},
        {(1, "goes on"): 1, (2, "restored"): 1},
    ]
    for at, part in enumerate(parts):
        for id, value in part:
            table.send(id, value)
        if batches > 1 or at == len(parts) - 1:
            world.run(pipeline)
            assert world.rows("a.t", "id", "name") == Counter(expected[at]), at


def test_rows_of_an_incremental_snapshot_go_by_the_log(world: Any, table: Table) -> None:
    table.send(1, event("u", {"id": 1, "name": "streamed"}, lsn=20))
    table.send(1, event("r", {"id": 1, "name": "read"}, lsn=10, snapshot="incremental"))
    world.run(table.source() >> world.sink("a.t").upsert())
    assert world.rows("a.t", "id", "name") == Counter({(1, "streamed"): 1})


def test_positions_of_mysql(world: Any, table: Table) -> None:
    def at(file: int, pos: int, row: int) -> dict[str, Any]:
        return {"connector": "mysql", "snapshot": "false", "file": f"binlog.{file:06}", "pos": pos, "row": row}

    places = [at(9, 500, 0), at(10, 4, 0), at(10, 4, 1), at(10, 3, 7), at(9, 900, 0)]
    for number, place in enumerate(places):
        table.send(1, event("u", {"id": 1, "name": str(number)}, source=place))
    world.run(table.source() >> world.sink("a.t").upsert())
    assert world.rows("a.t", "id", "name") == Counter({(1, "2"): 1})


BAD = (
    (b"not json", "the value is not one JSON object"),
    (b'{"id": 1, "name": "flat"}', "the value is not an envelope of Debezium: it has no op"),
    (event("t"), "the table was truncated, which an upsert cannot follow"),
    (event("m"), "its op m is not a change of a row"),
    (event("c", None), "the change has no row: after is null"),
    (event("c", {"id": "x"}), "id does not fit int"),
    (event("u", {"id": 1}, source={"connector": "oracle", "scn": "7"}), "its source has no position in a log"),
    (event("u", {"id": 1, "name": "__debezium_unavailable_value"}), "name was not in the log: set the table's REPLICA"),
    (event("u", {"id": 1}, fields=None), "the record has no schema part: pass schema= to Cdc.debezium()"),
    ({**event("u", {"id": 1}), "schema": {"type": "string"}}, "its schema part is not that of an envelope"),
)


def test_records_that_are_no_changes_are_quarantined(world: Any, table: Table) -> None:
    table.send(1, event("c", {"id": 1, "name": "good"}), *(value for value, _ in BAD))
    table.send(None, event("c", {"id": 7, "name": "no key"}))
    table.topics.send(table.name, [event("c", {"id": 8, "name": "other key"})], key=b'{"other": 8}')
    kafka = table.topics.source(table.name).on_bad_row("quarantine").incremental()
    run = world.run(Cdc.debezium(kafka) >> world.sink("a.t").upsert("id").quarantine("a.q"))
    assert world.rows("a.t", "id", "name") == Counter({(1, "good"): 1})
    found = {json.loads(p)["offset"]: r for p, r in world.rows("a.q", "payload", "reason")}
    expected = [*(why for _, why in BAD), "the record has no key that is JSON", "its key is (other), and the upsert"]
    assert sorted(found) == list(range(1, len(expected) + 1))
    for offset, why in enumerate(expected, 1):
        assert found[offset].startswith(why), (offset, found[offset])
    assert run.metrics().records_failed == len(expected)


def test_a_bad_record_stops_the_run(world: Any, table: Table) -> None:
    table.send(1, event("c", {"id": 1, "name": "a"}), event("t"))
    with pytest.raises(RunError) as failed:
        world.run(table.source() >> world.sink("a.t").upsert())
    assert failed.value.what.startswith(f"{table.name}, partition 0, offset 1: the table was truncated")


def b64(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def decimal(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


SCALED = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
POINT = [{"type": "double", "field": "x"}, {"type": "bytes", "field": "wkb"}]
TYPED = (
    ({"type": "int16"}, -3, -3),
    ({"type": "int64"}, 2**63 - 1, 2**63 - 1),
    ({"type": "float"}, 1.5, 1.5),
    ({"type": "double"}, 0.1, 0.1),
    ({"type": "double"}, "NaN", "nan"),
    ({"type": "boolean"}, True, True),
    ({"type": "bytes"}, base64.b64encode(b"\xde\xad").decode(), b"\xde\xad"),
    ({"type": "int32", "name": "io.debezium.time.Date"}, 20455, "2026-01-02"),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, -1, "1969-12-31"),
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, "1969-12-31 23:59:59.999000"),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1767323045123456, "2026-01-02 03:04:05.123456"),
    ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1767323045123456000, "2026-01-02 03:04:05.123456"),
    ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 0, "1970-01-01 00:00:00"),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2026-01-02T03:04:05.5+02:00",
        "2026-01-02 01:04:05.500000+00:00",
    ),
    ({"type": "string", "name": "io.debezium.time.ZonedTime"}, "10:11:12Z", "10:11:12Z"),
    ({"type": "int32", "name": "io.debezium.time.Time"}, 36_000_120, "10:00:00.12"),
    ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 86_400_000_000, "24:00:00"),
    ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 1_000_000_000, "00:00:01"),
    (decimal(10, 2), b64(-125, 1), "-1.25"),
    (decimal(38, 0), b64(-(10**38 - 1), 17), str(-(10**38 - 1))),
    (decimal(60, 20), b64(10**50 + 1, 22), "1" + "0" * 30 + "." + "0" * 19 + "1"),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": SCALED},
        {"scale": 5, "value": b64(314159, 3)},
        "3.14159",
    ),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1.0}', '{"a": 1.0}'),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None),
    ({"type": "array", "items": {"type": "int32", "optional": True}}, [1, None], [1, None]),
    ({"type": "array", "items": decimal(6, 2)}, [b64(125, 1), None], ["1.25", None]),
    ({"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}, [0], ["1970-01-01"]),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, {"a": "1"}, [("a", "1")]),
    ({"type": "struct", "fields": POINT}, {"x": 1.0, "wkb": "3q0="}, {"x": 1.0, "wkb": b"\xde\xad"}),
)


def plain(value: Any) -> Any:
    """A value of pyarrow as the table of types writes it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    endless = isinstance(value, float) and math.isnan(value)
    return str(value) if isinstance(value, (Decimal, date, datetime)) or endless else value


def test_types_come_from_the_schema_part(world: Any, table: Table) -> None:
    fields = [{**kind, "optional": True, "field": f"c{at}"} for at, (kind, _, _) in enumerate(TYPED)]
    table.send(1, event("c", {"id": 1, **{f"c{at}": v for at, (_, v, _) in enumerate(TYPED)}}, fields=[ID, *fields]))
    table.send(2, event("c", {"id": 2}, fields=[ID, *fields]))
    world.run(table.source() >> world.sink("a.t").upsert())
    [row, nothing] = world.load("a.t").iceberg.scan().to_arrow().sort_by("id").to_pylist()
    for at, (kind, written, expected) in enumerate(TYPED):
        assert plain(row[f"c{at}"]) == (written if expected is None else expected), (at, kind)
    assert {name for name, value in nothing.items() if value is not None} == {"id"}


MISFITS = (
    ({"type": "int32", "name": "io.debezium.time.Date"}, 2**31 - 1, "date"),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 9223372036825200000, "timestamp_ntz"),
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 9223372036825200000, "timestamp_ntz"),
    ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1, "timestamp_ntz"),
    ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "infinity", "timestamp"),
    ({"type": "int32", "name": "io.debezium.time.Time"}, -1, "string"),
    (decimal(4, 2), b64(12345, 2), "decimal(4,2)"),
    (decimal(4, 2), "no base64!", "decimal(4,2)"),
    ({"type": "bytes"}, "no base64!", "binary"),
    ({"type": "array", "items": decimal(4, 2)}, [b64(12345, 2)], "array<decimal(4,2)>"),
)


@pytest.mark.slow
def test_values_that_do_not_fit_their_type_are_bad(world: Any, table: Table) -> None:
    for at, (kind, value, _) in enumerate(MISFITS):
        table.send(at, event("c", {"id": at, f"c{at}": value}, fields=[ID, {**kind, "field": f"c{at}"}]))
    kafka = table.topics.source(table.name).on_bad_row("quarantine").incremental()
    world.run(Cdc.debezium(kafka) >> world.sink("a.t").upsert().quarantine("a.q"))
    assert world.rows("a.t", "id") == Counter()
    expected = {(f"c{at} does not fit {shown}",): 1 for at, (_, _, shown) in enumerate(MISFITS)}
    assert world.rows("a.q", "reason") == Counter(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "string"}, "__debezium_unavailable_value"),
        ({"type": "bytes"}, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ({"type": "array", "items": {"type": "string"}}, ["__debezium_unavailable_value"]),
        ({"type": "array", "items": {"type": "int32"}}, list(b"__debezium_unavailable_value")),
        (decimal(10, 2), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    ],
)
def test_values_that_the_log_lacks_are_told(world: Any, table: Table, kind: Any, value: Any) -> None:
    fields = [ID, {**kind, "optional": True, "field": "large"}]
    table.send(1, event("u", {"id": 1, "large": value}, fields=fields))
    with pytest.raises(RunError, match="large was not in the log: set the table's REPLICA IDENTITY to FULL"):
        world.run(table.source() >> world.sink("a.t").upsert())


def test_new_columns_reach_the_table(world: Any, table: Table) -> None:
    pipeline = table.source() >> world.sink("a.t").upsert()
    table.send(1, event("c", {"id": 1, "name": "a"}))
    world.run(pipeline)
    more = [ID, NAME, {"type": "int32", "optional": True, "field": "more", "name": "io.debezium.time.Date"}]
    table.send(2, event("c", {"id": 2, "name": "b"}))
    table.send(3, event("c", {"id": 3, "name": "c", "more": 0}, fields=more))
    table.send(2, event("u", {"id": 2, "name": "b", "more": 1}, fields=more))
    world.run(pipeline)
    rows = world.rows("a.t", "id", "name", "more")
    assert rows == Counter({(1, "a", None): 1, (2, "b", date(1970, 1, 2)): 1, (3, "c", date(1970, 1, 1)): 1})
    wider = [{**ID, "type": "int64"}, NAME]
    table.send(2**40, event("c", {"id": 2**40, "name": "d"}, fields=wider))
    world.run(table.source() >> world.sink("a.t").upsert().evolve_schema("full"))
    assert world.ids("a.t") == [1, 2, 3, 2**40]


def test_records_without_a_schema_part(world: Any, table: Table) -> None:
    declared = "id int, d date, at timestamp_ntz, price decimal(10,2), raw binary, tags array<decimal(4,1)>"
    row = {"id": 1, "d": 20455, "at": 1767323045123456, "price": b64(125, 1), "raw": "3q0=", "tags": [b64(-5, 1)]}
    table.send(1, event("c", row, fields=None), schemas=False)
    table.send(2, event("c", {"id": 2}, fields=None), schemas=False)
    table.send(2, event("d", before={"id": 2}, fields=None), None, schemas=False)
    world.run(table.source(schema=declared, time="micros", decimals="precise") >> world.sink("a.t").upsert())
    [found] = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    found = {name: plain(value) for name, value in found.items()}
    expected = {"id": 1, "d": "2026-01-02", "at": "2026-01-02 03:04:05.123456", "price": "1.25", "raw": b"\xde\xad"}
    assert found == {**expected, "tags": ["-0.5"]}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"id": 1, "at": 5}, "at does not fit timestamp: pass time= to Cdc.debezium()"),
        ({"id": 1, "price": "fQ=="}, "price does not fit decimal(10,2): pass decimals= to Cdc.debezium()"),
        ({"id": 1, "other": 1}, "columns that the schema lacks: other"),
    ],
)
def test_what_records_without_a_schema_leave_open_is_asked(world: Any, table: Table, row: Any, told: str) -> None:
    table.send(1, event("c", row, fields=None), schemas=False)
    with pytest.raises(RunError) as failed:
        world.run(table.source(schema="id int, at timestamp, price decimal(10,2)") >> world.sink("a.t").upsert())
    assert told in failed.value.what


def test_declared_types_win(world: Any, table: Table) -> None:
    table.send(1, event("c", {"id": 1, "name": "1.50"}))
    source = table.source(schema="id bigint, name decimal(10,2)")
    world.run(source >> world.sink("a.t").upsert())
    [found] = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    assert found == {"id": 1, "name": Decimal("1.50")}


def test_steps_keep_deletes_and_rows_that_leave_a_condition(world: Any, table: Table) -> None:
    steps = where("name != 'hidden'") >> with_columns(long="length(name)") >> rename({"name": "text"})
    steps = steps >> select("id", "text", "long") >> cast(long="bigint") >> expect({"text": "text IS NOT NULL"})
    pipeline = table.source() >> steps >> world.sink("a.t").upsert("id")
    table.send(1, event("c", {"id": 1, "name": "seen"}))
    table.send(2, event("c", {"id": 2, "name": "hidden"}))
    table.send(3, event("c", {"id": 3, "name": "seen"}))
    world.run(pipeline)
    assert world.rows("a.t", "id", "text", "long") == Counter({(1, "seen", 4): 1, (3, "seen", 4): 1})
    table.send(1, event("u", {"id": 1, "name": "hidden"}))
    table.send(2, event("u", {"id": 2, "name": "shown"}))
    table.send(3, event("d", before={"id": 3}), None)
    world.run(pipeline)
    assert world.rows("a.t", "id", "text", "long") == Counter({(2, "shown", 5): 1})


def test_a_renamed_key(world: Any, table: Table) -> None:
    table.send(1, event("c", {"id": 1, "name": "a"}))
    table.send(2, event("c", {"id": 2, "name": "b"}), event("d", before={"id": 2}), None)
    for name, sink in (("named", world.sink("a.named").upsert("number")), ("own", world.sink("a.own").upsert())):
        world.run((table.source() >> rename({"id": "number"}) >> sink).named(name))
        assert world.rows(f"a.{name}", "number", "name") == Counter({(1, "a"): 1})


def test_a_replay_a_new_checkpoint_and_a_batch(world: Any, table: Table, forget_commit: Any) -> None:
    pipeline = table.source() >> world.sink("a.t").upsert()
    table.send(1, event("c", {"id": 1, "name": "a"}), event("u", {"id": 1, "name": "b"}))
    world.run(pipeline)
    table.send(1, event("d", before={"id": 1}), None)
    table.send(2, event("c", {"id": 2, "name": "c"}))
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 1)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(2, "c"): 1})
    once = Cdc.debezium(table.topics.source(table.name)) >> world.sink("a.once").upsert()
    world.run(once)
    assert world.rows("a.once", "id", "name") == Counter({(2, "c"): 1})
    table.send(2, event("u", {"id": 2, "name": "d"}))
    world.run(once)
    assert world.rows("a.once", "id", "name") == Counter({(2, "d"): 1})


def test_a_topic_without_records_names_what_is_missing(world: Any, table: Table) -> None:
    with pytest.raises(NotFound, match="there is no record yet to take the columns and the key from"):
        world.run(table.source() >> world.sink("a.t").upsert())
    pipeline = table.source(key="id", schema="id int, name string") >> world.sink("a.t").upsert()
    world.run(pipeline)
    table.send(1, event("c", {"id": 1, "name": "a"}))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "a"): 1})
