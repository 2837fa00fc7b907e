"""A mirror with `atomic=True` goes from one whole transaction of the database to another."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from helios import Cdc, Iceberg
from helios.spark.sources.whole_transactions import end_of_transactions
from helios.table.topics import Log, Range, Topic, TopicsPosition, ranges
from tests.kafka.changes import ID, SOURCE, Database
from tests.kafka.conftest import Topics
from tests.kafka.foreign_keys import Reader

pytestmark = pytest.mark.jars("kafka")

CUSTOMER = {"type": "int32", "optional": True, "field": "customer"}
TRANSACTIONS = 12


def change(op: str, row: Mapping[str, Any], lsn: int, commit: int) -> dict[str, Any]:
    """A change of a transaction that follows a commit."""
    source = {**SOURCE, "name": "", "snapshot": "false", "lsn": lsn, "sequence": f'["{commit}","{lsn}"]'}
    sides = {"before": dict(row), "after": None} if op == "d" else {"after": dict(row)}
    return {"op": op, "source": source, **sides}


def send(database: Database, table: str, id: int, customer: int | None, made: dict[str, Any]) -> None:
    fields = [ID] if customer is None else [ID, CUSTOMER]
    source = {**made["source"], "name": database.prefix, "schema": "public", "table": table}
    database.send(f"public.{table}", {"id": id}, {**made, "source": source, "fields": fields})


def test_no_reader_sees_a_broken_foreign_key(world: Any, topics: Topics) -> None:
    """The short form of `perf/mirror.py keys`."""
    database, lsn = Database(topics), 0
    for number in range(TRANSACTIONS):
        commit, lsn = lsn, lsn + 10
        send(database, "customers", number, None, change("c", {"id": number}, lsn, commit))
        for order in range(number * 3, number * 3 + 3):
            send(database, "orders", order, number, change("c", {"id": order, "customer": number}, lsn, commit))
        if number % 3 == 2:  # its orders go after it, as ON DELETE CASCADE has it
            commit, lsn, gone = lsn, lsn + 10, number - 1
            send(database, "customers", gone, None, change("d", {"id": gone}, lsn, commit))
            for order in range(gone * 3, gone * 3 + 3):
                send(database, "orders", order, gone, change("d", {"id": order, "customer": gone}, lsn, commit))
    reader = Reader(world.folder / ".helios/catalog.db", ["shop"])
    looking = threading.Thread(target=reader.run)
    looking.start()
    try:
        source = Cdc.debezium(database.source().incremental(max_rows=20))
        mirror = Iceberg.mirror("shop", catalog=world.catalog, atomic=True).exactly_once()
        assert world.start(source >> mirror, once=True).await_termination(240)
    finally:
        reader.stop.set()
        looking.join()
    reader.look()
    batches = world.load("shop.helios_mirror").snapshots()
    assert (len(batches) > 2, reader.looks["shop"] > 1, reader.broken["shop"]) == (True, True, 0)
    tables = [dict(row["tables"]) for row in states(world)]
    assert [orphans(world, at) for at in tables] == [0] * len(batches)
    assert len(world.ids("shop.customers")) == TRANSACTIONS - TRANSACTIONS // 3
    assert len(world.ids("shop.orders")) == 3 * (TRANSACTIONS - TRANSACTIONS // 3)


def states(world: Any) -> Iterator[dict[str, Any]]:
    """The rows that the control table has had."""
    table = world.load("shop.helios_mirror")
    for snapshot in table.snapshots():
        yield from table.iceberg.scan(snapshot_id=snapshot.id).to_arrow().to_pylist()


def orphans(world: Any, at: Mapping[str, int]) -> int:
    """How many orders have no customer, where the control table says that both tables were."""
    found = {
        name: world.load(f"shop.{name}").iceberg.scan(snapshot_id=at[f"local.shop.{name}"]).to_arrow().to_pylist()
        for name in ("customers", "orders")
        if f"local.shop.{name}" in at
    }
    known = {row["id"] for row in found.get("customers", ())}
    return sum(1 for row in found.get("orders", ()) if row["customer"] not in known)


class Sent:
    """Transactions as records of some partitions, in the order in which they were sent.

    Attributes:
        records: By topic and partition, the number of the transaction of each record; None for one of a snapshot.
    """

    def __init__(self, spark: SparkSession, records: Mapping[tuple[str, int], Sequence[int | None]]) -> None:
        rows = [
            (topic, partition, offset, value(number))
            for (topic, partition), numbers in records.items()
            for offset, number in enumerate(numbers)
        ]
        self.records = records
        self._df = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value string").cache()

    def log(self, part: tuple[str, int]) -> int:
        return len(self.records.get(part, ()))

    def logs(self) -> dict[str, Log]:
        found: dict[str, Log] = {}
        for topic in sorted({topic for topic, _ in self.records}):
            ends = [self.log((topic, number)) for number in range(2)]
            found[topic] = Log(topic, (0, 0), (ends[0], ends[1]))
        return found

    def read(self, upto: TopicsPosition, wanted: Sequence[Range]) -> DataFrame:
        within = " OR ".join(
            f"(topic = '{r.topic}' AND partition = {r.partition} AND offset >= {r.start} AND offset < {r.end})"
            for r in wanted
        )
        return self._df.where(within)


def value(number: int | None) -> str:
    commit = f'"{number * 100}"' if number is not None else None
    return json.dumps({"payload": {"source": {"sequence": f'[{commit or "null"},"7"]'}}})


def test_a_batch_has_whole_transactions_or_none_of_them(shared_spark: SparkSession) -> None:
    rng = random.Random(7)
    for _ in range(3):
        parts = [(topic, partition) for topic in ("a", "b", "c") for partition in range(2)]
        records: dict[tuple[str, int], list[int | None]] = {part: [] for part in parts}
        for number in range(rng.randint(2, 12)):
            for _ in range(rng.choice((1, 2, 5, 20))):
                records[rng.choice(parts)].append(number)
        sent, most, quiet = Sent(shared_spark, records), rng.choice((None, 5, 40)), rng.random() < 0.5
        logs, at = sent.logs(), TopicsPosition({})
        newest = max(number for numbers in records.values() for number in numbers if number is not None)
        while True:
            end = end_of_transactions(at, logs, sent.read, quiet=quiet, most=most, skips=False)
            if not ranges(at, end):
                break
            at = end
            taken = {n for (t, p), numbers in records.items() for n in numbers[: at.topics[t].offsets[p]]}
            left = {n for (t, p), numbers in records.items() for n in numbers[at.topics[t].offsets[p] :]}
            assert max(n for n in taken if n is not None) < min((n for n in left if n is not None), default=newest + 1)
        assert left == (set() if quiet else {newest}), (most, quiet)


def test_rows_of_a_snapshot_come_before_transactions(shared_spark: SparkSession) -> None:
    sent = Sent(shared_spark, {("a", 0): [None] * 20 + [1], ("b", 0): [None, 1, 2]})
    at = TopicsPosition({})
    ends = []
    for quiet in (False, False, True):
        at = end_of_transactions(at, sent.logs(), sent.read, quiet=quiet, most=8, skips=False)
        ends.append([at.topics[name].offsets[0] for name in ("a", "b")])
    assert ends[0][0] < 20
    assert ends[0][1] <= 1
    assert ends[-1][1] < 3
    at = TopicsPosition({"a": Topic("a", (20, 0)), "b": Topic("b", (1, 0))})
    end = end_of_transactions(at, sent.logs(), sent.read, quiet=False, most=None, skips=False)
    assert [end.topics[name].offsets[0] for name in ("a", "b")] == [21, 2]
