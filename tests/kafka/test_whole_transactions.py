"""A mirror with `atomic=True` goes from one whole transaction of the database to another."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from helios import Cdc, Iceberg
from helios.sources.changes.spark.transactions import end_of_transactions
from helios.sources.kafka.topics import Log, Range, TopicOffsets, TopicsPosition, ranges
from tests.kafka.changes import ID, SOURCE, Database
from tests.kafka.conftest import Topics
from tests.kafka.foreign_keys import Reader

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("mirror")]

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


Part = tuple[str, int]
PARTS = [(topic, partition) for topic in ("a", "b", "c") for partition in range(2)]


class Sent:
    """Transactions as records of some partitions, in the order of the database's log.

    Attributes:
        records: The partition of each record, and the number of its transaction; None for one of a snapshot.
    """

    def __init__(self, spark: SparkSession, records: Sequence[tuple[Part, int | None]]) -> None:
        self.records = records
        rows = [(*part, offset, value(number)) for part, offset, number in self._numbered()]
        self._df = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value string").cache()

    def _numbered(self) -> Iterator[tuple[Part, int, int | None]]:
        """The records with their offsets."""
        offsets: Counter[Part] = Counter()
        for part, number in self.records:
            yield part, offsets[part], number
            offsets[part] += 1

    def logs(self, upto: int | Mapping[Part, int] | None = None) -> dict[str, Log]:
        """What topics hold once each partition has its share of the first so many records, by default of all."""

        def latest(part: Part) -> int:
            end = upto[part] if isinstance(upto, Mapping) else upto
            return sum(1 for one, _ in self.records[:end] if one == part)

        names = sorted({topic for (topic, _), _ in self.records})
        return {name: Log(name, (0, 0), (latest((name, 0)), latest((name, 1)))) for name in names}

    def read(self, upto: TopicsPosition, wanted: Sequence[Range]) -> DataFrame:
        within = " OR ".join(
            f"(topic = '{r.topic}' AND partition = {r.partition} AND offset >= {r.start} AND offset < {r.end})"
            for r in wanted
        )
        return self._df.where(within)

    def split(self, at: TopicsPosition) -> tuple[set[int], set[int]]:
        """The transactions that a position has records of, and those that it lacks records of."""
        found: tuple[set[int], set[int]] = set(), set()
        for (topic, partition), offset, number in self._numbered():
            read = topic in at.topics and offset < at.topics[topic].offsets[partition]
            found[0 if read else 1].add(-1 if number is None else number)
        return found


def value(number: int | None) -> str:
    """A record of a transaction; the first one knows no commit before it."""
    commit = f'"{number * 100}"' if number else "null"
    source = {"snapshot": "true" if number is None else "false", "sequence": f'[{commit},"7"]'}
    return json.dumps({"payload": {"source": source}})


def some(rng: random.Random, transactions: int) -> list[tuple[Part, int | None]]:
    """Records of transactions in partitions at random."""
    sizes = [rng.choice((1, 2, 5, 20)) for _ in range(transactions)]
    return [(rng.choice(PARTS), number) for number, size in enumerate(sizes) for _ in range(size)]


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.cases(landing="True")
def test_a_batch_has_whole_transactions_or_none_of_them(shared_spark: SparkSession, quiet: bool) -> None:
    rng = random.Random(7)
    for most in (None, 40):
        transactions = rng.randint(6, 12)
        sent, at = Sent(shared_spark, some(rng, transactions)), TopicsPosition({})
        logs = sent.logs()
        before = logs if quiet else sent.logs(-1)
        while True:
            end = end_of_transactions(at, before, logs, sent.read, max_rows=most, skips_expired=False)
            if not ranges(at, end):
                break
            at = end
            taken, left = sent.split(at)
            assert max(taken) < min(left, default=transactions)
        whole = {number for _, number in sent.records[:-1]} - {sent.records[-2][1]}
        assert left == (set() if quiet else set(range(transactions)) - whole), most


def test_records_that_overtake_others_wait_for_them(shared_spark: SparkSession) -> None:
    """Brokers have the newest records of one partition, and not yet the older ones of another."""
    rng = random.Random(11)
    for most in (None, None, 30):
        sent, at = Sent(shared_spark, some(rng, 20)), TopicsPosition({})
        for first in (len(sent.records) // 3, len(sent.records) * 2 // 3):
            # A moment later all is there that went before what was seen, and of the rest something.
            latest = {part: rng.randint(first, len(sent.records)) for part in PARTS}
            seen = sent.logs({part: rng.randint(first // 2, first) for part in PARTS})
            logs = sent.logs(latest)
            at = end_of_transactions(at, seen, logs, sent.read, max_rows=most, skips_expired=False)
            taken, left = sent.split(at)
            assert max(taken, default=-1) < min(left), (most, taken, left)
        assert taken


def test_the_first_transaction_is_whole(shared_spark: SparkSession) -> None:
    """It knows no commit before it, as rows of a snapshot do, which need not be whole."""
    sent = Sent(shared_spark, [(("b", 0), None), *[(("a", 0), 0)] * 20, (("b", 0), 0), (("b", 0), 1)])
    end = end_of_transactions(TopicsPosition({}), sent.logs(), sent.logs(), sent.read, max_rows=5, skips_expired=False)
    taken, left = sent.split(end)
    assert not taken & left, (taken, left)


def test_rows_of_a_snapshot_come_before_transactions(shared_spark: SparkSession) -> None:
    order: list[tuple[Part, int | None]] = [*[(("a", 0), None)] * 20, (("b", 0), None)]
    sent = Sent(shared_spark, [*order, (("a", 0), 1), (("b", 0), 1), (("b", 0), 2)])
    at = TopicsPosition({})
    ends = []
    for quiet in (False, False, True):
        logs = sent.logs()
        seen = logs if quiet else sent.logs(-1)
        at = end_of_transactions(at, seen, logs, sent.read, max_rows=8, skips_expired=False)
        ends.append([at.topics[name].offsets[0] for name in ("a", "b")])
    assert ends[0][0] < 20
    assert ends[0][1] <= 1
    assert ends[-1][1] < 3
    at = TopicsPosition({"a": TopicOffsets("a", (20, 0)), "b": TopicOffsets("b", (1, 0))})
    end = end_of_transactions(at, sent.logs(), sent.logs(), sent.read, max_rows=None, skips_expired=False)
    assert [end.topics[name].offsets[0] for name in ("a", "b")] == [21, 3]
    behind = sent.logs(-1)
    end = end_of_transactions(at, behind, sent.logs(), sent.read, max_rows=None, skips_expired=False)
    assert [end.topics[name].offsets[0] for name in ("a", "b")] == [20, 1]
