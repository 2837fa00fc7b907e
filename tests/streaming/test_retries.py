"""How often a commit is tried that conflicts with another writer's."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, UUIDType

from helios import Memory
from helios.errors import RunError
from helios.model.retry import CommitRetries, Retry
from helios.spark.iceberg import rebase
from helios.spark.iceberg.commit import IdempotentTableOperations
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.transaction import Transaction
from helios.spark.iceberg.transactional_table import TransactionalTable
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import CommitOptions
from helios.table.ledger import Record
from helios.table.positions import Batch

pytestmark = pytest.mark.promise("retry")


@pytest.fixture
def table(world: Any) -> Any:
    """A table with the row 0."""
    world.fill("a.t", [0])
    [read] = world.plan(world.source("a.t") >> world.sink("a.other")).reads
    return load_table(world.spark, read.table)


def before_requests(monkeypatch: pytest.MonkeyPatch, commits: Iterator[Callable[[], object]]) -> None:
    """Another writer commits right before each request of a batch, as long as it has something."""
    real: Callable[..., None] = IdempotentTableOperations.commit

    def commit(self: IdempotentTableOperations, base: Any, metadata: Any) -> None:
        for one in islice(commits, 1):
            one()
        real(self, base, metadata)

    monkeypatch.setattr(IdempotentTableOperations, "commit", commit)


def other_writer(world: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Another writer commits a row right before each of so many requests.

    Returns:
        The rows, as they come: one for each request that the catalog refuses.
    """
    rows: list[int] = []

    def fill(row: int) -> None:
        rows.append(row)
        world.fill("a.t", [row])

    before_requests(monkeypatch, (partial(fill, 100 + i) for i in range(times)))
    return rows


@pytest.mark.short
@pytest.mark.landing
def test_a_batch_has_four_tries_in_all(world: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(table, "p", "c", "")
    ledger.claim(Record(checkpoint="c"))
    rows = other_writer(world, monkeypatch, times=100)
    assert ledger.find(Batch(0, ())) is None
    df = world.spark.createDataFrame([(1,)], "id bigint")
    with pytest.raises(RunError, match="in each of 4 tries"):
        ledger.commit(world.spark, lambda pending: pending.append(df), Batch(0, ()), CommitOptions())
    assert len(rows) == 4
    assert world.ids("a.t") == [0, *rows]


@pytest.mark.landing
def test_a_conflict_over_metadata_alone_does_not_write_the_batch_again(
    world: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = other_writer(world, monkeypatch, times=2)
    retries = CommitRetries(Retry(retries=2, backoff=0.01))
    pending = Transaction(world.spark, table, lambda: lambda operation: None, None, {}, retries=retries)
    pending.append(world.spark.createDataFrame([(1,)], "id bigint").coalesce(1))
    pending.commit()
    assert retries.used == 2
    assert world.ids("a.t") == [0, 1, *rows]
    location = world.catalog.load("a.t").iceberg.location().removeprefix("file://").removeprefix("file:")
    assert len(list(Path(location, "data").rglob("*.parquet"))) == 1 + 1 + len(rows)


# a MERGE beside writers that append


def merges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that are run from now on."""
    real, found = Transaction.sql, []

    def sql(self: Transaction, command: str, *arguments: Any) -> None:
        found.append(command)
        real(self, command, *arguments)

    monkeypatch.setattr(Transaction, "sql", sql)
    return found


@pytest.mark.parametrize(
    ("version", "mode"), [(2, "merge-on-read"), (3, "merge-on-read"), (2, "copy-on-write"), (3, "copy-on-write")]
)
@pytest.mark.cases(landing="2-merge-on-read")
def test_a_merge_runs_once_beside_appends_of_other_keys(
    world: Any, monkeypatch: pytest.MonkeyPatch, version: int, mode: Any
) -> None:
    sink = world.sink("a.t").upsert("id").format_version(version).write_mode(mode)
    world.run(Memory.source([{"id": i, "v": "old"} for i in (1, 2, 500)]) >> sink)
    rows, ran = other_writer(world, monkeypatch, times=3), merges(monkeypatch)
    # the other rows lie between its keys, so that bounds do not tell
    run = world.run(Memory.source([{"id": i, "v": "new"} for i in (1, 500, 501)]) >> sink)
    assert rows == [100, 101, 102]
    assert len(ran) == 1
    assert run.metrics().commit_retries == 3
    expected = [(1, "new"), (2, "old"), (500, "new"), (501, "new"), *((row, None) for row in rows)]
    assert world.rows("a.t", "id", "v") == Counter(expected)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_a_merge_runs_again_for_a_key_that_was_appended_meanwhile(
    world: Any, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    sink = world.sink("a.t").upsert("id").format_version(2).write_mode(mode)
    world.run(Memory.source([{"id": i, "v": "old"} for i in (1, 500)]) >> sink)
    rows, ran = other_writer(world, monkeypatch, times=2), merges(monkeypatch)
    world.run(Memory.source([{"id": i, "v": "new"} for i in (1, 101)]) >> sink)
    assert rows == [100, 101]
    assert len(ran) == 2
    assert world.rows("a.t", "id", "v") == Counter([(1, "new"), (500, "old"), (100, None), (101, "new")])


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_a_merge_runs_again_when_rows_of_its_keys_were_changed(
    world: Any, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    sink = world.sink("a.t").upsert("id").format_version(2).write_mode(mode)
    world.run(Memory.source([{"id": i, "v": 1} for i in (1, 2)]) >> sink)

    def change() -> None:
        world.fill("a.t", [7], v="9")
        world.sql("UPDATE local.a.t SET v = 5 WHERE id = 1")

    before_requests(monkeypatch, iter([change]))
    ran = merges(monkeypatch)
    world.run(Memory.source([{"id": i, "v": 3} for i in (1, 2)]) >> sink)
    assert len(ran) == 2
    assert world.rows("a.t", "id", "v") == Counter([(1, 3), (2, 3), (7, 9)])


# how others' files are looked at


def spark_looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The files of others that Spark reads from now on."""
    real, found = rebase.read_tasks, []

    def read_tasks(spark: Any, table: Any, tasks: Any) -> Any:
        found.append(tasks)
        return real(spark, table, tasks)

    monkeypatch.setattr(rebase, "read_tasks", read_tasks)
    return found


def test_what_is_committed_during_a_look_costs_no_try(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = world.sink("a.t").upsert("id").retry(retries=0)
    world.run(Memory.source([{"id": i, "v": "old"} for i in (1, 500)]) >> sink)
    command, look, rows = Transaction.sql, rebase.Rebase._appends_other_keys, [102, 101, 100]
    ran, by_spark = merges(monkeypatch), spark_looks(monkeypatch)

    def sql(self: Transaction, *arguments: Any) -> None:
        ran.append(arguments[0])
        command(self, *arguments)
        world.fill("a.t", [rows.pop()])

    def apart(self: rebase.Rebase, head: Any) -> bool:
        found = look(self, head)
        if rows:
            world.fill("a.t", [rows.pop()])
        return found

    monkeypatch.setattr(Transaction, "sql", sql)
    monkeypatch.setattr(rebase.Rebase, "_appends_other_keys", apart)
    run = world.run(Memory.source([{"id": i, "v": "new"} for i in (1, 500)]) >> sink)
    assert (rows, len(ran), by_spark) == ([], 1, [])
    assert run.metrics().commit_retries == 0
    assert world.rows("a.t", "id", "v") == Counter([(1, "new"), (500, "new"), (100, None), (101, None), (102, None)])


def test_manifests_are_merged_only_where_nobody_else_commits(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try would read them all again, and lose to whoever does not."""
    sink = world.sink("a.t").upsert("id").table_properties({"commit.manifest.min-count-to-merge": "2"})
    real, rows, manifests = TransactionalTable.newRowDelta, [100], []

    def begun(self: TransactionalTable) -> Any:
        if v == 3:
            world.fill("a.t", rows)
        return real(self)

    monkeypatch.setattr(TransactionalTable, "newRowDelta", begun)
    for v in (1, 2, 3, 4):
        world.run(Memory.source([{"id": i, "v": v} for i in (1, 500)]) >> sink)
        contents = world.load("a.t").iceberg.inspect.manifests()["content"].to_pylist()
        manifests.append(contents.count(0))
    assert manifests == [1, 1, 2, 1]
    assert "commit.manifest-merge.enabled" not in world.load("a.t").iceberg.properties
    assert world.rows("a.t", "id", "v") == Counter([(1, 4), (500, 4), (100, None)])


COLUMNS = "n decimal(12,2), d date, t timestamp, s string, i bigint, v string"
ONE = (
    Decimal("1.20"), date(2024, 5, 1), datetime(2024, 5, 1, 10, 0, 0, 1, UTC),
    "naïve 'q' \"\\😀", -(2**63),
)  # fmt: skip
TWO = (
    Decimal("-0.05"), date(1899, 12, 31), datetime(1899, 12, 31, 23, 59, 59, 999999, UTC),
    "", 7,
)  # fmt: skip
MIXED = [(*ONE[:i], TWO[i], *ONE[i + 1 :], "other") for i in range(len(ONE))]
"""Rows that differ from the first one in one part of the key: of more than one the bounds of a file tell nothing."""
NAMES = tuple(COLUMNS.split()[::2])
Row = tuple[Any, ...]


@pytest.fixture
def keyed(world: Any) -> Any:
    """A sink whose key has columns of many types."""
    world.spark.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    properties = "'format-version' = '2', 'write.merge.mode' = 'merge-on-read'"
    world.sql(f"CREATE TABLE local.a.t ({COLUMNS}) USING iceberg TBLPROPERTIES ({properties})")
    return world.sink("a.t").upsert(*NAMES[:-1])


def append(world: Any, *rows: Row) -> None:
    world.spark.createDataFrame(rows, COLUMNS).coalesce(1).writeTo("local.a.t").append()


def test_each_part_of_a_key_is_compared_with_what_others_append(
    world: Any, keyed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(world, (*ONE, "old"))
    before_requests(monkeypatch, iter([partial(append, world, *MIXED[:3]), partial(append, world, *MIXED[3:])]))
    ran, by_spark = merges(monkeypatch), spark_looks(monkeypatch)
    world.run(Memory.source([(*ONE, "new"), (*TWO, "new")], COLUMNS) >> keyed)
    assert (len(ran), by_spark) == (1, [])
    found = world.spark.table("local.a.t").collect()
    assert Counter(map(tuple, found)) == Counter([naive(row) for row in [(*ONE, "new"), (*TWO, "new"), *MIXED]])


def test_a_key_of_many_types_that_others_append_is_met(world: Any, keyed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append(world, (*ONE, "old"))
    before_requests(monkeypatch, iter([partial(append, world, *MIXED, (*TWO, "other"))]))
    ran = merges(monkeypatch)
    world.run(Memory.source([(*ONE, "new"), (*TWO, "new")], COLUMNS) >> keyed)
    assert len(ran) == 2
    found = world.spark.table("local.a.t").collect()
    assert Counter(map(tuple, found)) == Counter([naive(row) for row in [(*ONE, "new"), (*TWO, "new"), *MIXED]])


def naive(row: Row) -> Row:
    """A row as Spark gives it back: in local time."""
    return tuple(value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) else value for value in row)


def test_keys_that_iceberg_cannot_compare_are_read_by_spark(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, old, new = "k binary, v string", [(b"a", "old"), (b"z", "old")], [(b"a", "new"), (b"z", "new")]
    sink = world.sink("a.t").upsert("k")
    world.run(Memory.source(old, schema) >> sink)
    others = [world.spark.createDataFrame([(key, "other")], schema).writeTo("local.a.t") for key in (b"m", b"y")]
    before_requests(monkeypatch, iter([other.append for other in others]))
    ran, by_spark = merges(monkeypatch), spark_looks(monkeypatch)
    world.run(Memory.source([*new, (b"y", "new")], schema) >> sink)
    assert (len(ran), len(by_spark)) == (2, 2)
    assert world.rows("a.t", "k", "v") == Counter([*new, (b"m", "other"), (b"y", "new")])


def test_uuid_keys_are_compared_by_spark(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg orders them by signed halves: between these two there would be none."""
    low, high, other = (f"{digit}b5ee8e5-7a54-4ad5-9ed4-4d2f3c5b7a11" for digit in "0f5")
    world.fill("a.s", [0])
    schema = Schema(NestedField(1, "k", UUIDType()), NestedField(2, "v", StringType()))
    merge_on_read = {"format-version": "2", "write.merge.mode": "merge-on-read"}
    world.load("a.s").iceberg.catalog.create_table("a.t", schema, properties=merge_on_read)

    def insert(*keys: str) -> None:
        world.spark.createDataFrame([(key, "old") for key in keys], "k string, v string").writeTo("local.a.t").append()

    insert(low, high)
    before_requests(monkeypatch, iter([partial(insert, other)]))
    ran, by_spark = merges(monkeypatch), spark_looks(monkeypatch)
    world.run(Memory.source([{"k": key, "v": "new"} for key in (low, high)]) >> world.sink("a.t").upsert("k"))
    found = world.spark.table("local.a.t").collect()
    assert Counter(map(tuple, found)) == Counter([(low, "new"), (high, "new"), (other, "old")])
    assert (len(ran), len(by_spark)) == (1, 1)


@contextmanager
def appending(world: Any, pause: float) -> Iterator[list[int]]:
    """A writer that appends a row and pauses, all the time: its rows lie between those that are upserted."""
    rows: list[int] = []
    done = threading.Event()

    def work() -> None:
        table = world.catalog.load("a.t").iceberg
        schema = table.schema().as_arrow()
        while not done.wait(pause):
            row = 2 * len(rows) + 1
            with suppress(CommitFailedException):  # the batch was first
                table.refresh().append(pa.Table.from_pylist([{"id": row}], schema=schema))
                rows.append(row)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield rows
    finally:
        done.set()
        writer.join()


def test_a_merge_lands_beside_a_writer_that_appends_all_the_time(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [2 * i for i in range(50)]
    sink = world.sink("a.t").upsert("id").format_version(2).retry(retries=20)
    world.run(Memory.source([{"id": i, "v": 0} for i in ids]) >> sink)
    ran, by_spark = merges(monkeypatch), spark_looks(monkeypatch)
    with appending(world, pause=0.25) as rows:
        for v in (1, 2, 3):
            before = len(rows)
            world.run(Memory.source([{"id": i, "v": v} for i in ids]) >> sink)
            assert len(rows) > before
    assert (len(ran), by_spark) == (3, [])
    assert world.rows("a.t", "id", "v") == Counter([*((i, 3) for i in ids), *((row, None) for row in rows)])
