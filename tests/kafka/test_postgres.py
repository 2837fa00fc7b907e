"""Tables of PostgreSQL, followed by Debezium and Helios: random changes, and kills of both."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

import pytest

from tests.kafka.conftest import Topics
from tests.kafka.database import (
    COLUMNS,
    MOOD,
    ROUNDS,
    Run,
    Table,
    changes,
    committed,
    drained,
    five_tables,
    of_postgres,
    stop_and_go,
)
from tests.services.debezium import Debezium
from tests.services.fixtures import named_skip
from tests.services.postgres import Postgres

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.promise("cdc")]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with ExitStack() as stack:
        with named_skip():
            server = stack.enter_context(Postgres())
        server.sql(MOOD)
        yield server


def followed(
    stack: ExitStack, postgres: Postgres, topics: Topics, prefix: str, tables: str, *, first: str = "orders"
) -> Debezium:
    """A server of Debezium that has sent a first record of a table: a topic without any says no columns."""
    settings = {"slot.max.retries": "30"}
    with named_skip():
        debezium = Debezium(postgres, topics.broker, tables=tables, prefix=prefix, settings=settings)
        stack.enter_context(debezium)
    topics.await_record(f"{prefix}.public.{first}")
    return debezium


def test_a_table_equals_its_source_through_kills(postgres: Postgres, topics: Topics, tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("HELIOS_SEED", "13")))
    table = Table("orders", dict(COLUMNS))
    postgres.sql(table.declared)
    for _ in range(20):
        postgres.sql(changes(rng, table))
    name = topics.make(partitions=2, name="one.public.orders")
    (tmp_path / "pipeline.py").write_text(
        dedent(f"""
            from helios import Cdc, Iceberg, Kafka

            topic = Kafka.source("{name}").servers("{topics.broker.servers}").incremental(poll=0.2, max_rows=2000)
            orders = Cdc.debezium(topic) >> Iceberg.sink("a.orders").upsert().exactly_once()
        """)
    )
    run = Run(tmp_path)
    with ExitStack() as stack:
        debezium = followed(stack, postgres, topics, "one", r"public\.orders")
        stack.callback(run.kill)
        stop_and_go(rng, run, debezium, [table], {ROUNDS // 2: lambda: postgres.sql(table.grow())})
        drained(run, postgres, [table])
    rows = sum(of_postgres(postgres, table).values())
    assert rows > 10
    print(f"{rows} rows equal, {committed(tmp_path, [table])} commits, Helios killed {run.kills} times")


def test_a_database_equals_its_mirror_through_kills(postgres: Postgres, topics: Topics, tmp_path: Path) -> None:
    """Five tables, one of which gets a column, and a sixth that comes in the middle."""
    rng = random.Random(int(os.environ.get("HELIOS_SEED", "13")))
    tables, late = five_tables(rng)

    def make(table: Table) -> None:
        topics.make(partitions=2, name=f"two.public.{table.name}")
        postgres.sql(table.declared)

    for table in tables:
        make(table)
    for _ in range(40):
        postgres.sql(changes(rng, *tables))
    (tmp_path / "pipeline.py").write_text(
        dedent(f"""
            from helios import Cdc, Iceberg, Kafka

            topics = Kafka.source(pattern=r"two\\.public\\..*").servers("{topics.broker.servers}")
            shop = Cdc.debezium(topics.incremental(poll=0.2, max_rows=2000)) >> Iceberg.mirror("a").exactly_once()
        """)
    )
    run = Run(tmp_path)
    events: dict[int, Callable[[], object]] = {
        ROUNDS // 2: lambda: postgres.sql(tables[0].grow()),
        ROUNDS // 2 + 3: lambda: (make(late), tables.append(late)),
    }
    with ExitStack() as stack:
        debezium = followed(stack, postgres, topics, "two", r"public\.m_.*", first="m_orders")
        stack.callback(run.kill)
        stop_and_go(rng, run, debezium, tables, events)
        drained(run, postgres, tables)
    rows = {table.name: sum(of_postgres(postgres, table).values()) for table in tables}
    assert len(rows) == 6
    assert all(rows.values()), rows
    print(f"{rows} rows equal, {committed(tmp_path, tables)} commits, Helios killed {run.kills} times")
