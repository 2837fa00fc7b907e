"""The examples of docs/writing.md, docs/metrics.md, docs/migrating.md and the end of docs/quickstart.md."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from functools import partialmethod
from typing import Any

import pytest

from helios import Pipeline
from tests.suite.pages import blocks

pytestmark = pytest.mark.promise("documents")


def test_the_examples_run(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.shop")
    world.sql(
        "CREATE TABLE local.shop.events (id bigint, customer string, country string, amount decimal(10,2), op string, "
        "updated_at timestamp) USING iceberg"
    )
    for rows in (
        "(1, 'a', 'DE', 5.00, 'u', 1), (2, 'b', 'FR', 7.50, 'u', 1), (3, null, 'DE', 1.00, 'u', 1)",
        "(1, 'a', 'DE', 9.00, 'u', 3), (2, '', 'FR', 0.00, 'd', 3), (4, 'd', 'DE', -1.00, 'c', 2)",
        "(1, 'a', 'FR', 6.00, 'u', 2), (3, 'c', 'DE', 1.00, 'erase', 4)",
    ):
        world.sql(
            f"INSERT INTO local.shop.events SELECT id, customer, country, amount, op, timestamp_seconds(t) FROM VALUES "
            f"{rows} AS v(id, customer, country, amount, op, t)"
        )
    world.sql("CREATE TABLE local.shop.growing (id bigint, remark string) USING iceberg")
    made: dict[str, Any] = {}
    ran = 0
    for block in blocks("docs/writing.md"):
        before = dict(made)
        exec(block, made)
        for name, value in made.items():
            if isinstance(value, Pipeline) and before.get(name) is not value:
                world.run(value)
                ran += 1
    assert ran == 12

    def of(table: str, *columns: str) -> Counter[tuple[Any, ...]]:
        return Counter(world.rows(f"shop.{table}", *columns))

    assert of("customers", "id", "amount") == Counter([(1, Decimal("9.00")), (4, Decimal("-1.00"))])
    table = world.catalog.load("shop.customers").iceberg
    assert [f.name for f in table.schema().fields] == ["id", "customer", "country", "amount", "updated_at"]
    assert of("totals") == Counter([("DE", Decimal("15.00")), ("FR", Decimal("13.50"))])
    assert of("by_country", "country") == Counter({("DE",): 4, ("FR",): 2})
    assert of("growing", "note")[("from FR",)] == 3
    assert of("checked", "id") == Counter([(1,), (1,), (1,), (2,), (3,)])
    assert of("rejected", "reason") == Counter({("positive (amount > 0)",): 2})
    assert of("audited", "id").total() == 8
    assert of("events_FR", "id").total() == 3
    assert {str(f.transform) for f in world.catalog.load("shop.laid_out").iceberg.spec().fields} == {
        "month",
        "bucket[4]",
    }


@pytest.fixture
def here(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory, and `pipeline.run()` in the session of the tests."""
    monkeypatch.chdir(world.folder)
    monkeypatch.setattr(Pipeline, "run", partialmethod(Pipeline.run, spark=world.spark))


def test_the_metrics_page_runs(world: Any, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    made: dict[str, Any] = {}
    for block in blocks("docs/metrics.md"):
        exec(block, made)
    said = capsys.readouterr().out
    assert said.startswith("2 ")
    assert '"records_written": 2' in said
    assert said.endswith("http://127.0.0.1:9464\n")
    assert world.ids("shop.orders") == [1, 2]


def test_the_end_of_the_quickstart_runs(world: Any, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    made: dict[str, Any] = {}
    exec(blocks("docs/quickstart.md")[-1], made)
    made["main"]()
    said = capsys.readouterr().out
    assert "write     local.shop.from_python, append, exactly once; will be created" in said
    assert "'state': 'finished'" in said
    assert world.ids("shop.from_python") == [1]


@pytest.mark.landing
def test_the_page_of_moving_gives_the_same_table_both_ways(world: Any) -> None:
    """docs/migrating.md: the job by hand fills a table, and Helios goes on with it behind the last snapshot read."""
    declared, by_hand, moved = blocks("docs/migrating.md")
    for table in ("raw.orders", "hand.orders"):
        world.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{table.partition('.')[0]}")
        world.sql(f"CREATE TABLE local.{table} (id bigint, amount double, updated_at timestamp) USING iceberg")
    world.sql("CREATE NAMESPACE local.shop")

    def arrive(*rows: str) -> None:
        values = f"VALUES {', '.join(rows)} AS v(id, amount, t)"
        world.sql(f"INSERT INTO local.raw.orders SELECT id, amount, timestamp_seconds(t) FROM {values}")

    arrive("(1, 5.0, 1)", "(2, 7.0, 1)", "(1, 6.0, 2)", "(3, -1.0, 1)")
    names: dict[str, Any] = {}
    exec(by_hand.replace("shop.orders", "local.hand.orders"), names)
    table = world.spark.table("local.raw.orders")
    # As in a stream, the batch is no table: Spark 4.1 has no plan for a MERGE from a view of one.
    names["upsert"](world.spark.createDataFrame(table.collect(), table.schema), 0)
    read = world.catalog.load("raw.orders").snapshots()[-1].id
    arrive("(2, 1.0, 0)", "(1, 9.0, 3)", "(4, 2.0, 1)")
    for block in (declared, moved.replace("1808074851068478710", str(read)).replace("shop.orders", "hand.orders")):
        exec(block, names)
        world.run(names["orders"])
    rows = Counter(world.rows("shop.orders", "id", "amount"))
    assert rows == Counter(world.rows("hand.orders", "id", "amount")) == Counter([(1, 9.0), (2, 7.0), (4, 2.0)])
