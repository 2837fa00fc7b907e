"""A PostgreSQL database mirrored through Debezium: foreign keys seen by readers, and equality through kills.

    python perf/mirror.py keys --seconds 60
    python perf/mirror.py random --minutes 10

keys: customers and orders with a foreign key change together in transactions, the first of which wait until Helios
starts. Two mirrors follow them, one with `atomic=True` and one without. A reader takes the metadata of both tables of
a mirror in one SQL statement of the catalog, over and over, and counts orders without their customer; at the end all
positions that the atomic one has had are read as well, and the mirrors equal the database. Exit status 1: they do not,
or the atomic one has had a broken key.

random: inserts, updates, deletes and key changes of five tables at random; one gets a column and a sixth comes in the
middle, and Debezium and Helios are killed (`tests/kafka/database.py`). At the end each Iceberg table must equal its
table of the database, column by column. Exit status 1: one does not.

The servers are those of `tests/services`: `python -m tests.services install kafka debezium` fetches them.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from helios import Catalog  # noqa: E402
from tests.kafka.database import (  # noqa: E402
    MOOD,
    Run,
    changes,
    committed,
    drained,
    five_tables,
    of_postgres,
    unequal,
)
from tests.kafka.foreign_keys import Reader, rows  # noqa: E402
from tests.services.debezium import Debezium  # noqa: E402
from tests.services.kafka import Kafka  # noqa: E402
from tests.services.postgres import Postgres  # noqa: E402

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (
    id int PRIMARY KEY,
    customer int NOT NULL REFERENCES customers ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);
INSERT INTO customers VALUES (0, 'first');
INSERT INTO orders VALUES (0, 0);
"""
NAMESPACES = {"together": ", atomic=True", "apart": ""}
PIPELINES = """
from helios import Cdc, Iceberg, Kafka
changes = Kafka.source(pattern=r"shop\\.public\\..*").servers("{servers}").incremental(poll=0.2, max_rows={max_rows})
"""
PIPELINE = """{name} = Cdc.debezium(changes) >> Iceberg.mirror("{name}"{options}).exactly_once()
"""
ORDERS, MANY = 3, 2500
"""Orders of a new customer; of one in a hundred so many that Debezium sends them in several parts."""
WIDE = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 3000) g)"
"""A name of 96 kB, as one customer in ten has: orders are in Kafka before it."""


class Broker(Kafka):
    """A broker whose topics are made by whoever writes to them first."""

    @override
    def settings(self) -> dict[str, str]:
        return {**super().settings(), "auto.create.topics.enable": "true", "num.partitions": "2"}

    def await_record(self, topic: str) -> None:
        """Waits until a topic has a record."""
        until = time.monotonic() + 120
        while not any(log.stat().st_size for log in self.folder.glob(f"data/{topic}-*/*.log")):
            if time.monotonic() > until:
                raise SystemExit(f"{topic} has no record")
            time.sleep(0.1)


def transactions(rng: random.Random) -> Iterator[str]:
    """Changes of both tables, each a transaction that keeps the foreign key only as a whole."""
    customers, number, last = [0], 0, 0
    while True:
        number += 1
        count = MANY if number % 100 == 0 else ORDERS
        orders = f"INSERT INTO orders SELECT g, {number} FROM generate_series({last + 1}, {last + count}) g;"
        name = WIDE if rng.random() < 0.1 else f"'c{number}'"
        new = f"INSERT INTO customers VALUES ({number}, {name});"
        kind = rng.choice(("new", "new", "new", "gone", "moved"))
        old = customers.pop(rng.randrange(len(customers))) if kind != "new" and len(customers) > 1 else None
        if old is None:
            customers.append(number)
            last += count
            yield f"BEGIN; {orders} {new} COMMIT;"
        elif kind == "gone":
            yield f"DELETE FROM customers WHERE id = {old};"  # its orders go after it
        else:
            customers.append(number)
            moved = f"UPDATE orders SET customer = {number} WHERE customer = {old};"
            yield f"BEGIN; {moved} DELETE FROM customers WHERE id = {old}; {new} COMMIT;"


@dataclass
class Writer:
    """Sends transactions until it is told to stop."""

    server: Postgres
    rng: random.Random
    pause: float
    sent: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._transactions = transactions(self.rng)

    def send(self, count: int, between: str = "") -> None:
        self.server.sql("\n".join(next(self._transactions) + between for _ in range(count)))
        self.sent += count

    def run(self) -> None:
        while not self.stop.is_set():
            self.send(10, f" SELECT pg_sleep({self.pause});")


def there(folder: Path, name: str) -> dict[str, str]:
    """The tables of a mirror, with their metadata."""
    database = folder / ".helios/catalog.db"
    if not database.exists():
        return {}
    with closing(sqlite3.connect(database, timeout=60)) as catalog:
        query = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = ?"
        try:
            return dict(catalog.execute(query, (name,)).fetchall())
        except sqlite3.OperationalError:  # there is no table of tables yet
            return {}


def awaited(seconds: float, done: Callable[[], bool]) -> None:
    """Waits until something is so, or for some time."""
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(1)


def equal(server: Postgres, folder: Path, name: str) -> bool:
    """Whether the tables of a mirror equal those of the database."""
    found = there(folder, name)
    for table in ("customers", "orders"):
        if table not in found:
            return False
        printed = server.sql(f"SELECT row_to_json({table}) FROM {table}")
        expected = Counter(json.dumps(json.loads(line), sort_keys=True) for line in printed.splitlines())
        if expected != Counter(json.dumps(row, sort_keys=True) for row in rows(found[table])):
            return False
    return True


def positions_of(folder: Path, name: str) -> Iterator[dict[str, int]]:
    """The snapshots of the tables at each position that a mirror has had."""
    table = Catalog.local(path=folder / ".helios").load(f"{name}.helios_mirror")
    for snapshot in table.snapshots():
        [row] = table.iceberg.scan(snapshot_id=snapshot.id).to_arrow().to_pylist()
        yield {full.removeprefix("local."): at for full, at in row["tables"]}


def broken(folder: Path, at: Mapping[str, int]) -> int:
    """How many orders lack their customer at a position."""
    catalog, ids = Catalog.local(path=folder / ".helios"), dict[str, list[Any]]()
    for name, snapshot in at.items():
        column = "customer" if name.endswith(".orders") else "id"
        scan = catalog.load(name).iceberg.scan(snapshot_id=snapshot, selected_fields=(column,))
        ids[name.rpartition(".")[2]] = scan.to_arrow()[column].to_pylist()
    known = set(ids.get("customers", ()))
    return sum(1 for customer in ids.get("orders", ()) if customer not in known)


def keys(stack: ExitStack, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Changes two tables with a foreign key, mirrors them twice, and looks at the mirrors all the time."""
    broker, server = stack.enter_context(Broker(folder / "broker")), stack.enter_context(Postgres())
    server.sql(TABLES)
    tables = r"public\.customers,public\.orders"
    settings = {"poll.interval.ms": "500"}  # Debezium's default
    debezium = Debezium(server, broker, tables=tables, prefix="shop", settings=settings, folder=folder / "debezium")
    stack.enter_context(debezium)
    broker.await_record("shop.public.orders")
    script = PIPELINES.format(servers=broker.servers, max_rows=given.max_rows)
    script += "".join(PIPELINE.format(name=name, options=options) for name, options in NAMESPACES.items())
    (folder / "pipeline.py").write_text(script)
    writer, reader = (
        Writer(server, random.Random(given.seed), given.pause),
        Reader(folder / ".helios/catalog.db", NAMESPACES),
    )
    writer.send(given.backlog)
    threads = [threading.Thread(target=one.run) for one in (writer, reader)]
    command = [sys.executable, "-m", "helios", "run", "pipeline.py"]
    with (folder / "run.log").open("w") as log:
        run = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    stack.callback(run.kill)
    try:
        for thread in threads:
            thread.start()
        awaited(300, lambda: all(len(there(folder, name)) > 1 for name in NAMESPACES))
        time.sleep(given.seconds)
        writer.stop.set()
        threads[0].join()
        awaited(300, lambda: all(equal(server, folder, name) for name in NAMESPACES))
        run.send_signal(signal.SIGTERM)
        status = run.wait(120)
    finally:
        for one in (writer, reader):
            one.stop.set()
    threads[1].join()
    if status:
        raise SystemExit((folder / "run.log").read_text()[-3000:])
    mirrors = {
        name: {"looks": reader.looks[name], "broken": reader.broken[name], "orphans": reader.orphans[name]}
        for name in NAMESPACES
    }
    unequal = [name for name in NAMESPACES if not equal(server, folder, name)]
    positions = [broken(folder, at) for at in positions_of(folder, "together")]
    bad = bool(unequal or reader.broken["together"] or any(positions))
    told = {"positions": len(positions), "broken_positions": sum(map(bool, positions))}
    return {"transactions": writer.sent, **mirrors, **told, "unequal": unequal, "bad": bad}


RANDOM = """
from helios import Cdc, Iceberg, Kafka
changes = Kafka.source(pattern=r"two\\.public\\..*").servers("{servers}").incremental(poll=0.2, max_rows=2000)
shop = Cdc.debezium(changes) >> Iceberg.mirror("a"{options}).exactly_once()
"""


class Changer:
    """Changes the tables of a database at random until it is told to stop: one grows, and one comes later."""

    def __init__(self, server: Postgres, rng: random.Random, seconds: float) -> None:
        self.server = server
        self.rng = rng
        self.tables, self._late = five_tables(rng)
        self.statements = 0
        self.error: BaseException | None = None
        self._begun = time.monotonic()
        self._seconds = seconds
        self._events = [(0.4, self._grow), (0.5, self._add)]
        for table in self.tables:
            server.sql(table.declared)
        for _ in range(40):
            server.sql(changes(rng, *self.tables))

    def _grow(self) -> None:
        self.server.sql(self.tables[0].grow())

    def _add(self) -> None:
        self.server.sql(self._late.declared)
        self.tables.append(self._late)

    @property
    def passed(self) -> float:
        """The part of the time that has passed."""
        return (time.monotonic() - self._begun) / self._seconds

    def run(self) -> None:
        self._begun = time.monotonic()
        try:
            while self.passed < 1:
                if self._events and self.passed > self._events[0][0]:
                    self._events.pop(0)[1]()
                self.server.sql(changes(self.rng, *self.tables))
                self.statements += 1
                time.sleep(self.rng.uniform(0, 0.3))
        except BaseException as error:
            self.error = error


def randomly(stack: ExitStack, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Changes tables at random, kills whatever follows them at random, and compares."""
    broker, server = stack.enter_context(Broker(folder / "broker")), stack.enter_context(Postgres())
    server.sql(MOOD)
    rng = random.Random(given.seed)
    changer = Changer(server, random.Random(given.seed + 1), given.minutes * 60)
    settings = {"slot.max.retries": "30"}  # PostgreSQL may not know yet that the one before it is dead
    debezium = Debezium(
        server, broker, tables=r"public\.m_.*", prefix="two", settings=settings, folder=folder / "debezium"
    )
    stack.enter_context(debezium)
    broker.await_record("two.public.m_orders")
    options = ", atomic=True" if given.atomic else ""
    (folder / "pipeline.py").write_text(RANDOM.format(servers=broker.servers, options=options))
    run, kills, commits = Run(folder), Counter[str](), 0
    stack.callback(run.kill)
    changing = threading.Thread(target=changer.run)

    def more(than: int) -> bool:
        return committed(folder, changer.tables) > than or not changing.is_alive()

    run.start()
    awaited(300, lambda: committed(folder, changer.tables) > 0)  # the first batch takes long on a small machine
    changing.start()
    while changing.is_alive():
        if rng.random() < 0.7:  # else it may be killed while it starts
            awaited(180, partial(more, commits))
        commits = committed(folder, changer.tables)
        changing.join(rng.uniform(2, given.every))
        if run.ended:
            raise SystemExit(f"the run ended by itself: {run.log[-3000:]}")
        if not changing.is_alive():
            break
        victim = rng.choice(("Helios", "Helios", "Debezium"))
        kills[victim] += 1
        if victim == "Helios":
            run.start()  # kills the one before
        else:
            debezium.kill()
            debezium.start()
        print(f"{changer.passed:.0%}: {victim} killed, {committed(folder, changer.tables)} commits", flush=True)
    if changer.error is not None:
        raise changer.error
    drained(run, server, changer.tables)
    rows = {table.name: sum(of_postgres(server, table).values()) for table in changer.tables}
    return {
        "statements": changer.statements,
        "kills": dict(kills),
        "commits": committed(folder, changer.tables),
        "rows": rows,
        "unequal": unequal(server, folder, changer.tables),
        "bad": len(rows) < 6 or not all(rows.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--folder", type=Path, help="where all files go, a new one; by default a temporary folder")
    commands = parser.add_subparsers(dest="command", required=True)
    of_keys = commands.add_parser("keys")
    of_keys.add_argument("--seconds", type=float, default=60, help="how long transactions go on once there are tables")
    of_keys.add_argument("--backlog", type=int, default=200, help="transactions before Helios starts")
    of_keys.add_argument("--pause", type=float, default=0.1, help="seconds between two transactions")
    of_keys.add_argument("--max-rows", type=int, default=20_000, help="of a batch")
    of_random = commands.add_parser("random")
    of_random.add_argument("--minutes", type=float, default=10)
    of_random.add_argument("--every", type=float, default=20, help="the most seconds between a commit and a kill")
    of_random.add_argument("--atomic", action="store_true", help="mirror with atomic=True")
    given = parser.parse_args()
    measured: Callable[[ExitStack, Path, argparse.Namespace], dict[str, Any]]
    measured = keys if given.command == "keys" else randomly
    with tempfile.TemporaryDirectory(prefix="helios-mirror-") as made, ExitStack() as stack:
        told = measured(stack, (given.folder or Path(made)).resolve(), given)
    print(json.dumps({**told, "seed": given.seed}))
    return 1 if told["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
