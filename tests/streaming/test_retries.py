"""How often a commit is tried that conflicts with another writer's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Memory
from helios.errors import RunError
from helios.spark.iceberg.commit import CommitRetries, IdempotentTableOperations
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.transaction import Transaction
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import CommitOptions
from helios.table.ledger import Record
from helios.table.positions import Batch


@pytest.fixture
def table(world: Any) -> Any:
    """A table with the row 0."""
    world.fill("a.t", [0])
    [read] = world.plan(world.source("a.t") >> world.sink("a.other")).reads
    return load_table(world.spark, read.table)


def other_writer(world: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Another writer commits a row right before each of so many requests.

    Returns:
        The rows, as they come: one for each request that the catalog refuses.
    """
    real: Callable[..., None] = IdempotentTableOperations.commit
    rows: list[int] = []

    def commit(self: IdempotentTableOperations, base: Any, metadata: Any) -> None:
        if len(rows) < times:
            rows.append(100 + len(rows))
            world.fill("a.t", rows[-1:])
        real(self, base, metadata)

    monkeypatch.setattr(IdempotentTableOperations, "commit", commit)
    return rows


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


def test_a_conflict_over_metadata_alone_does_not_write_the_batch_again(
    world: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = other_writer(world, monkeypatch, times=2)
    retries = CommitRetries(retries=2, backoff=0.01)
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


@pytest.mark.parametrize("version", [2, 3])
def test_a_merge_runs_once_beside_appends_of_other_keys(
    world: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    sink = world.sink("a.t").upsert("id").format_version(version)
    world.run(Memory.source([{"id": i, "v": "old"} for i in (1, 2, 500)]) >> sink)
    rows, ran = other_writer(world, monkeypatch, times=3), merges(monkeypatch)
    # the other rows lie between its keys, so that bounds do not tell
    run = world.run(Memory.source([{"id": i, "v": "new"} for i in (1, 500, 501)]) >> sink)
    assert rows == [100, 101, 102]
    assert len(ran) == 1
    assert run.metrics().commit_retries == 3
    expected = [(1, "new"), (2, "old"), (500, "new"), (501, "new"), *((row, None) for row in rows)]
    assert world.rows("a.t", "id", "v") == Counter(expected)


def test_a_merge_runs_again_for_a_key_that_was_appended_meanwhile(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = world.sink("a.t").upsert("id").format_version(2)
    world.run(Memory.source([{"id": i, "v": "old"} for i in (1, 500)]) >> sink)
    rows, ran = other_writer(world, monkeypatch, times=2), merges(monkeypatch)
    world.run(Memory.source([{"id": i, "v": "new"} for i in (1, 101)]) >> sink)
    assert rows == [100, 101]
    assert len(ran) == 2
    assert world.rows("a.t", "id", "v") == Counter([(1, "new"), (500, "old"), (100, None), (101, "new")])


def test_a_merge_runs_again_when_rows_of_its_keys_were_changed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = world.sink("a.t").upsert("id").format_version(2)
    world.run(Memory.source([{"id": i, "v": 1} for i in (1, 2)]) >> sink)
    real: Callable[..., None] = IdempotentTableOperations.commit
    changed: list[bool] = []

    def commit(self: IdempotentTableOperations, base: Any, metadata: Any) -> None:
        if not changed:
            changed.append(True)
            world.fill("a.t", [7], v="9")
            world.sql("UPDATE local.a.t SET v = 5 WHERE id = 1")
        real(self, base, metadata)

    monkeypatch.setattr(IdempotentTableOperations, "commit", commit)
    ran = merges(monkeypatch)
    world.run(Memory.source([{"id": i, "v": 3} for i in (1, 2)]) >> sink)
    assert len(ran) == 2
    assert world.rows("a.t", "id", "v") == Counter([(1, 3), (2, 3), (7, 9)])
