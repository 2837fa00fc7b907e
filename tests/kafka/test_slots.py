"""`helios doctor` looks at the replication slot of PostgreSQL by which Debezium reads."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from helios import Cdc, Kafka
from helios.errors import DeclarationError, EnvironmentProblem, NotFound, RunError
from helios.sources.changes.slot import Slot
from helios.sources.changes.slot_check import check_slot
from tests.kafka.changes import Table, event
from tests.kafka.conftest import Topics
from tests.kafka.test_doctor import seen
from tests.services.fixtures import named_skip
from tests.services.postgres import PROGRAMS, Postgres
from tests.services.server import Port

pytestmark = pytest.mark.promise("cdc", "doctor-servers")

WAL = "INSERT INTO filler SELECT md5(g::text) FROM generate_series(1, 9000) g; SELECT pg_switch_wal(); CHECKPOINT;"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with ExitStack() as stack:
        with named_skip():
            server = stack.enter_context(Postgres())
        server.sql("CREATE TABLE filler (t text); CREATE USER helios PASSWORD 'a password'; CREATE DATABASE other;")
        yield server


def make(server: Postgres, name: str) -> Slot:
    server.sql(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    return slot(server, name)


def slot(server: Postgres, name: str, database: str = "postgres") -> Slot:
    return Slot.of(name, f"postgresql://helios@127.0.0.1:{server.port}/{database}", "a password")


@contextmanager
def reading(server: Postgres, name: str) -> Iterator[None]:
    """Reads a slot as Debezium does, by PostgreSQL's own program."""
    given = ["--start", "-f", "-", "--slot", name, "-o", "proto_version=1", "-o", "publication_names=p"]
    at = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-d", "postgres"]
    reader = subprocess.Popen([PROGRAMS.find() / "pg_recvlogical", *at, *given], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        reader.terminate()
        reader.wait()


def await_active(server: Postgres, name: str, expected: str = "t") -> None:
    until = time.monotonic() + 30
    while server.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'") != expected:
        assert time.monotonic() < until, f"{name} is not read"
        time.sleep(0.05)


@pytest.mark.landing
def test_a_slot_that_is_read(postgres: Postgres) -> None:
    read = make(postgres, "read")
    with pytest.raises(RunError, match=r"slot read of 127\.0\.0\.1:\d+/postgres is not read by anyone: \d+ bytes beh"):
        check_slot(read, None)
    postgres.sql("CREATE PUBLICATION p FOR ALL TABLES")
    with reading(postgres, "read"):
        await_active(postgres, "read")
        said = check_slot(read, None)
    await_active(postgres, "read", "f")
    assert re.fullmatch(r"read, .* behind; .* of the log are kept, without a limit", said)
    postgres.sql("SELECT pg_drop_replication_slot('read')")


def test_slots_that_are_not_there_or_of_another_database(postgres: Postgres) -> None:
    make(postgres, "debezium")
    with pytest.raises(NotFound, match=r"slot debezum .* is not there\. Did you mean 'debezium'") as error:
        check_slot(slot(postgres, "debezum"), None)
    assert "snapshot.mode=when_needed, which reads the tables again" in str(error.value.fix)
    with pytest.raises(RunError, match=r"slot debezium of .*/other reads the database postgres"):
        check_slot(slot(postgres, "debezium", "other"), None)
    postgres.sql("SELECT pg_drop_replication_slot('debezium')")


def test_a_lost_slot_is_told_with_the_remedy(postgres: Postgres, tmp_path: Path) -> None:
    lost = make(postgres, "lost")
    postgres.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf();")
    time.sleep(0.5)
    for _ in range(4):
        postgres.sql(WAL)
    status = postgres.sql("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'lost'")
    assert status == "lost"
    with pytest.raises(RunError) as error:
        check_slot(lost, None)
    assert error.value.what == (
        f"slot lost of {lost.address} is lost: PostgreSQL no longer keeps what Debezium has not read "
        "(max_slot_wal_keep_size is 1MB)."
    )
    assert "SELECT pg_drop_replication_slot('lost')" in str(error.value.fix)
    # A broker that is away: its topics are not asked, for which Spark would start.
    port = Port()
    code, checks = seen(
        tmp_path,
        f"""
        from helios import Cdc
        shop = Cdc.debezium(Kafka.source(pattern="shop.*").servers("127.0.0.1:{port.number}").incremental())
        shop = shop.slot("lost", "postgresql://helios:a%20password@127.0.0.1:{postgres.port}/postgres")
        mirror = shop >> Iceberg.mirror("shop")
        """,
    )
    port.release()
    assert code == 1
    assert checks["replication slot lost"]["detail"] == error.value.what
    assert checks["replication slot lost"]["fix"] == error.value.fix
    postgres.sql("SELECT pg_drop_replication_slot('lost'); ALTER SYSTEM RESET max_slot_wal_keep_size;")


def test_a_server_that_is_away_or_refuses(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    port = Port()
    with pytest.raises(RunError, match=r"PostgreSQL at .* does not list its slots: .*refused"):
        check_slot(Slot.of("a", f"postgresql://helios@127.0.0.1:{port.number}/shop", None), None)
    port.release()
    at = f"127.0.0.1:{postgres.port}"
    with pytest.raises(RunError, match='does not list its slots: database "nothing" does not exist'):
        check_slot(Slot.of("a", f"postgresql://helios@{at}/nothing", None), None)
    with pytest.raises(RunError, match="does not list its slots: Server refuses SSL"):
        check_slot(Slot.of("a", f"postgresql://helios@{at}/postgres?sslmode=verify-full", None), None)
    monkeypatch.setitem(sys.modules, "pg8000", None)
    with pytest.raises(EnvironmentProblem, match="PostgreSQL is queried with pg8000") as error:
        check_slot(slot(postgres, "a"), None)
    assert error.value.fix == "pip install 'helios-iceberg[postgres]'."


@pytest.mark.parametrize(
    ("name", "database", "message"),
    [
        ("Debezium", "postgresql://a@b/c", "'Debezium' is not a slot name"),
        ("debezium", "jdbc:postgresql://b/c", "the address is not of the form postgresql://user@host"),
        ("debezium", "postgresql://b/c", "the address is not of the form postgresql://user@host"),
        ("debezium", "postgresql://a:secret@b:port/c", "the address is not of the form postgresql://user@host"),
        ("debezium", "postgresql://a@b/c?sslmod=require", "'sslmod' is not an option of the address. Did you mean"),
        ("debezium", "postgresql://a@b/c?sslmode=on", "sslmode"),
    ],
)
def test_wrong_slots_are_refused_where_they_are_written(name: str, database: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as error:
        Cdc.debezium(Kafka.source("t").servers("b:1")).slot(name, database)
    assert "secret" not in str(error.value)


def test_a_password_is_never_shown() -> None:
    made = Cdc.debezium(Kafka.source("t")).slot("debezium", "postgresql://a:secret@[::1]:7/c")
    assert made.replication_slot is not None
    assert made.replication_slot.password is not None
    assert made.replication_slot.password.reveal() == "secret"
    assert "secret" not in repr(made) + "".join(made.details())
    assert made.replication_slot.address == "[::1]:7/c"


@pytest.mark.jars("kafka")
def test_a_run_that_ends_tells_that_nobody_reads_the_slot(world: Any, postgres: Postgres, topics: Topics) -> None:
    make(postgres, "dead")
    table = Table(topics)
    table.send(1, event("c", {"id": 1, "name": "a"}))
    address = f"postgresql://helios@127.0.0.1:{postgres.port}/postgres"
    world.run(table.source().slot("dead", address, password="a password") >> world.sink("a.t").upsert())
    postgres.sql("SELECT pg_drop_replication_slot('dead')")
    assert world.ids("a.t") == [1]
    told = [found.message for found in world.events if found.kind == "noted"]
    said = "the topics may lack changes: slot dead of"
    assert any(message.startswith(said) and "is not read by anyone" in message for message in told)
