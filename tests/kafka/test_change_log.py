"""`Cdc.json(...)`: change logs whose records are rows with an operation, on a real broker."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from helios import Cdc, expect, rename, select, where
from helios.errors import CheckpointError, NotFound, RunError
from helios.sources.changes.json import ChangeLogSource
from tests.kafka.conftest import Topics

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("cdc")]

COLUMNS = "op string, id bigint, name string, version int"


class Log:
    """A topic of rows with an operation."""

    def __init__(self, topics: Topics, partitions: int = 1) -> None:
        self.topics = topics
        self.name = topics.make(partitions)

    def send(self, *changes: tuple[str | None, int, str | None, int | None], partition: int = 0) -> None:
        rows = [dict(zip(("op", "id", "name", "version"), change, strict=True)) for change in changes]
        self.topics.send(self.name, rows, partition)

    def source(
        self, op: str = "op", *, bad: Any = "fail", schema: str | None = COLUMNS, **more: Any
    ) -> ChangeLogSource:
        topic = self.topics.source(self.name).value("json", schema=schema).on_bad_row(bad)
        return Cdc.json(topic.incremental(), op, **more)


@pytest.fixture
def log(topics: Topics) -> Log:
    return Log(topics)


@pytest.mark.landing
def test_changes_go_by_their_offset(world: Any, log: Log, forget_commit: Any) -> None:
    pipeline = log.source() >> world.sink("a.t").upsert("id")
    log.send(("c", 1, "a", None), ("U", 1, "b", None), ("r", 2, "a", None), ("Insert", 3, "a", None))
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "b"): 1, (2, "a"): 1, (3, "a"): 1})
    # The row of a delete is its key, and a key may come back. Whatever comes later is newer.
    log.send(("D", 2, None, None), ("delete", 3, None, None), ("I", 3, "again", None), ("u", 1, "a", 0))
    world.run(pipeline)
    expected = Counter({(1, "a"): 1, (3, "again"): 1})
    assert world.rows("a.t", "id", "name") == expected
    assert world.load("a.t").iceberg.schema().column_names == ["id", "name", "version"]
    forget_commit(world.checkpoint(pipeline), 1)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == expected
    # Read once, and inferred: the whole log again.
    once = Cdc.json(log.topics.source(log.name), key="id") >> where("name <> 'a'") >> world.sink("a.once").upsert()
    world.run(once)
    assert world.rows("a.once", "id", "name") == Counter({(3, "again"): 1})


def test_changes_go_by_their_order(world: Any, topics: Topics) -> None:
    log = Log(topics, partitions=2)
    pipeline = log.source(order="version") >> rename({"id": "number"}) >> world.sink("a.t").upsert("number")
    log.send(("c", 1, "a", 1), ("u", 1, "c", 3), ("u", 1, "b", 2), ("c", 2, "a", 1), ("d", 2, None, 4))
    log.send(("c", 3, "a", 1), ("u", 3, "tie", 1), partition=1)
    world.run(pipeline)
    assert world.rows("a.t", "number", "name") == Counter({(1, "c"): 1, (3, "tie"): 1})
    log.send(("u", 1, "late", 2), ("u", 2, "late", 3), ("u", 3, "new", 2))  # also from another partition
    world.run(pipeline)
    assert world.rows("a.t", "number", "name") == Counter({(1, "c"): 1, (3, "new"): 1})
    log.send(("u", 1, "last", 9))
    with pytest.raises(CheckpointError, match=r"by version:bigint.*by name:string"):
        world.run(log.source(order="name") >> rename({"id": "number"}) >> world.sink("a.t").upsert("number"))


def test_a_declared_order_is_that_of_an_empty_topic_too(world: Any, log: Log) -> None:
    topic = log.topics.source(log.name).value("json", schema=COLUMNS)
    order = "CASE WHEN op = 'd' THEN version + 1 ELSE version END"
    once = Cdc.json(topic, order=order) >> world.sink("a.t").upsert("id")
    world.run(once)
    log.send(("c", 1, "a", 1), ("d", 1, None, 1), ("c", 2, "b", 1))
    world.run(once)
    assert world.rows("a.t", "id", "name") == Counter({(2, "b"): 1})


def test_a_key_in_two_partitions_stops_the_run(world: Any, topics: Topics) -> None:
    log = Log(topics, partitions=2)
    log.send(("c", 1, "a", None), ("u", 1, "b", None))
    log.send(("c", 2, "a", None), partition=1)
    pipeline = log.source() >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    log.send(("u", 1, "x", None), partition=1)
    told = r'(?s)partitions 0 and 1: both have changes of one key, .*: \{"id":1\}.*order="version"'
    with pytest.raises(RunError, match=told):
        world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "b"): 1, (2, "a"): 1})
    with pytest.raises(RunError, match=told):  # within one batch
        world.run(log.source() >> world.sink("a.other").upsert("id"))


BAD = (
    ({"op": "t", "id": 1}, "op is 't', which is none of c, r, i, insert, u, update, d, delete"),
    ({"op": "", "id": 1}, "op is ''"),
    ({"id": 1, "name": "no op"}, "op is null: the operation of the change is unknown"),
    (None, "the record has no value, and so no op"),
    ({"op": "d", "id": "x"}, "id does not fit bigint"),
    ({"op": "u", "id": 1, "other": 1}, "fields that the schema lacks: other"),
    ({"op": "u", "id": 1, "name": "unordered"}, "version is null: the change has no order"),
    (b"[1]", "the value is JSON, but not an object"),
)


def test_what_is_no_change_is_quarantined(world: Any, log: Log) -> None:
    log.topics.send(log.name, [{"op": "c", "id": 1, "name": "good", "version": 1}, *(value for value, _ in BAD)])
    log.send(("d", 2, None, 7), (None, 3, None, 8))
    sink = world.sink("a.t").upsert("id").quarantine("a.q")
    run = world.run(log.source(order="version", bad="quarantine") >> expect({"n": "name IS NOT NULL"}) >> sink)
    assert world.rows("a.t", "id", "name") == Counter({(1, "good"): 1})
    found = {json.loads(p)["offset"]: r for p, r in world.rows("a.q", "payload", "reason")}
    assert sorted(found) == [*range(1, len(BAD) + 1), len(BAD) + 2]
    for offset, (_, why) in enumerate(BAD, 1):
        assert found[offset].startswith(why), (offset, found[offset])
    assert run.metrics().records_failed == len(BAD) + 1
    with pytest.raises(RunError, match="offset 1: op is 't', which is none of"):
        world.run(log.source(order="version") >> world.sink("a.failed").upsert("id"))


def test_operations_of_its_own_and_a_row_inside_the_record(world: Any, log: Log) -> None:
    """As SQL Server numbers them, whose 3 is the row before its update."""
    rows = [(2, 1, "a"), (2, 2, "b"), (3, 1, "a"), (4, 1, "c"), (1, 2, "b")]
    log.topics.send(log.name, [{"meta": {"op": op}, "data": {"id": id, "name": name}} for op, id, name in rows])
    source = log.source(
        "meta.op",
        schema="meta struct<op: int>, data struct<id: bigint, name: string>",
        operations={"1": "delete", "2": "insert", "3": "ignore", "4": "update"},
    )
    world.run(source >> select("data.*") >> world.sink("a.t").upsert("id"))
    assert world.rows("a.t", "id", "name") == Counter({(1, "c"): 1})


def test_an_operation_that_the_records_lack_is_named(world: Any, log: Log) -> None:
    log.send(("c", 1, "a", None))
    with pytest.raises(NotFound, match=r"no column 'ops'. Did you mean 'op'"):
        world.run(log.source("ops", schema=None) >> world.sink("a.t").upsert("id"))
