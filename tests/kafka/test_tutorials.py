"""Tutorials that need servers, followed as they are written: a broker, PostgreSQL and Debezium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka.conftest import Topics
from tests.services.debezium import Debezium
from tests.services.fixtures import named_skip
from tests.services.postgres import Postgres
from tests.suite.pages import ROOT
from tests.suite.tutorial import differences

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("documents"), pytest.mark.timeout(900)]

PAGES = ROOT / "docs" / "tutorials"


def test_the_tutorial_of_kafka_prints_what_it_shows(tmp_path: Path, topics: Topics) -> None:
    topics.make(2, "clicks")
    assert differences(PAGES / "kafka.md", tmp_path, {"localhost:9092": topics.broker.servers}) == []


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with named_skip(), Postgres() as server:
        yield server


class OfThePage(Debezium):
    """Debezium as the page has configured it, in the folder of the page."""

    def prepare(self) -> None:
        with (self.folder / "config" / "application.properties").open("a") as settings:
            settings.write(f"quarkus.http.host=127.0.0.1\nquarkus.http.port={self.port}\n")


class Database:
    """The servers of the page: PostgreSQL, and Debezium, which is started before the mirror first runs.

    Args:
        postgres: The database.
        topics: The topics of its tables.
        folder: The folder of the page.
    """

    NAMES = ("shop.public.customers", "shop.public.orders")
    SENT = (5, 10, 11, 12, 12, 15)
    """Records in the topics before each run of the mirror; a delete has two, its tombstone is the second one."""

    def __init__(self, stack: ExitStack, postgres: Postgres, topics: Topics, folder: Path) -> None:
        self.topics = topics
        self._sent = iter(self.SENT)
        self._debezium = OfThePage(postgres, topics.broker, tables="", prefix="", folder=folder)
        stack.callback(self._debezium.close)
        self.addresses = {
            "localhost:9092": topics.broker.servers,
            "localhost:5432": f"127.0.0.1:{postgres.port}",
            "hostname=localhost": "hostname=127.0.0.1",
            "port=5432": f"port={postgres.port}",
        }

    def before(self, line: str) -> None:
        if line.startswith("helios run mirror.py"):
            with named_skip():
                self._debezium.start()
            self.topics.await_records(next(self._sent), *self.NAMES)


def test_the_tutorial_of_postgresql_prints_what_it_shows(tmp_path: Path, topics: Topics, postgres: Postgres) -> None:
    for name in Database.NAMES:
        topics.make(1, name)
    with ExitStack() as stack:
        servers = Database(stack, postgres, topics, tmp_path)
        assert differences(PAGES / "postgresql.md", tmp_path, servers.addresses, servers.before) == []
