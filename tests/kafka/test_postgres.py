"""A table of PostgreSQL, followed by Debezium and Helios: random changes, and kills of both."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from helios import Catalog
from tests.kafka.conftest import Topics
from tests.services.debezium import Debezium
from tests.services.fixtures import named_skip
from tests.services.postgres import Postgres

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.slow, pytest.mark.timeout(1800)]

IDS = range(1, 40)
ROUNDS = 60
KILLS = 2
MOST_SECONDS = 400

WORDS = ("a", "", "é 雪", "it''s", "back\\slash", "{1,2}", 'quo"te', "null")


def text(rng: random.Random) -> str:
    return f"'{rng.choice(WORDS)}'"


def large(rng: random.Random) -> str:
    """Sometimes so large that the log of an update does not have it."""
    size = rng.choice((1, 1, 400))
    return f"(SELECT string_agg(md5(g::text || {rng.random()}), '') FROM generate_series(1, {size}) g)"


def number(least: int, most: int, scale: int = 0) -> Callable[[random.Random], str]:
    return lambda rng: f"{Decimal(rng.randint(least, most)).scaleb(-scale)}"


def moment(rng: random.Random) -> str:
    day = f"{rng.randint(1, 9999):04}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}"
    return f"'{day} 0{rng.randint(0, 9)}:11:12.{rng.randint(0, 999999):06}'"


def quoted(make: Callable[[random.Random], str], kind: str = "") -> Callable[[random.Random], str]:
    return lambda rng: f"'{make(rng)}'{kind}"


def choice(*values: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(values)


def micros(name: str) -> str:
    return f"to_char({name}, 'YYYY-MM-DD HH24:MI:SS.US')"


PLAIN = "{0}"
TEXT = "{0}::text"
LIST = "array_to_json({0})"
COLUMNS: Mapping[str, tuple[str, Callable[[random.Random], str], str]] = {
    "s": ("smallint", number(-32768, 32767), PLAIN),
    "b": ("bigint", number(-(2**63), 2**63 - 1), TEXT),
    "n": ("numeric(10,2)", number(-(10**10) + 1, 10**10 - 1, 2), TEXT),
    "n38": ("numeric(38,10)", number(-(10**38) + 1, 10**38 - 1, 10), TEXT),
    "nn": ("numeric", number(-(10**50), 10**50, 17), TEXT),
    "r": ("real", number(-999, 999, 1), TEXT),
    "d": ("double precision", choice("1e300", "-2.5", "'NaN'", "'Infinity'", "0.1"), TEXT),
    "flag": ("boolean", choice("true", "false"), PLAIN),
    "v": ("varchar(20)", text, PLAIN),
    "tx": ("text", large, PLAIN),
    "ch": ("char(3)", choice("'a'", "'abc'"), PLAIN),
    "by": ("bytea", choice("'\\xdeadbeef'", "''", "'\\x00'"), "encode({0}, 'hex')"),
    "da": ("date", quoted(lambda rng: f"{rng.randint(1, 9999):04}-02-0{rng.randint(1, 9)}"), TEXT),
    "ti": ("time", quoted(lambda rng: f"0{rng.randint(0, 9)}:11:12.{rng.randint(0, 999999):06}"), TEXT),
    "ti3": ("time(3)", choice("'10:11:12.5'", "'00:00'"), TEXT),
    "tz": ("timetz", choice("'10:11:12+02'"), "({0} AT TIME ZONE 'UTC')::time::text || 'Z'"),
    "ts": ("timestamp", moment, micros("{0}")),
    "ts3": ("timestamp(3)", moment, micros("{0}")),
    "tsz": ("timestamptz", moment, micros("{0} AT TIME ZONE 'UTC'")),
    "u": ("uuid", choice("gen_random_uuid()"), TEXT),
    "j": ("json", choice("""'{"a": 1.0,  "b": [null]}'""", "'7'"), TEXT),
    "jb": ("jsonb", choice("""'{"a": 1.0,  "b": [null]}'""", "'\"x\"'"), TEXT),
    "ai": ("int[]", choice("'{1,2,NULL}'", "'{}'"), LIST),
    "at": ("text[]", choice("""'{a,NULL,"b,c"}'""", "'{}'"), LIST),
    "an": ("numeric(6,2)[]", choice("'{1.25,-2.50,NULL}'"), "array_to_json({0}::text[])"),
    "ad": ("date[]", choice("'{2026-01-02}'"), LIST),
    "au": ("uuid[]", choice("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"), LIST),
    "m": ("mood", choice("'sad'", "'ok'"), TEXT),
    "ip": ("inet", choice("'10.0.0.1'"), "host({0})"),
    "iv": ("interval", choice("'1 day 02:00:00.000001'"), "(extract(epoch FROM {0}) * 1000000)::bigint"),
    "mo": ("money", choice("'12.34'", "'-1'"), "{0}::numeric::text"),
    "bi": ("bit(1)", choice("B'1'", "B'0'"), "{0}::int = 1"),
    "rg": ("int4range", choice("'[1,5)'"), TEXT),
}
"""By name: the type, a random value of it, and how it is compared."""
LATER = {"z": ("date", choice("'2026-02-03'"), TEXT)}
"""Columns that are added in the middle."""


def assigned(rng: random.Random, columns: Mapping[str, Any]) -> dict[str, str]:
    return {name: rng.choice(("NULL", made(rng), made(rng))) for name, (_, made, _) in columns.items()}


def change(rng: random.Random, table: str, columns: Mapping[str, Any]) -> str:
    """A random change of a table, of its rows `IDS`."""
    id, other = rng.choice(IDS), rng.choice(IDS)
    kind = rng.choice(("insert", "insert", "update", "update", "some", "delete", "key", "all"))
    row = assigned(rng, columns)
    if kind == "insert":
        return (
            f"INSERT INTO {table} (id, {', '.join(row)}) VALUES ({id}, {', '.join(row.values())}) "
            "ON CONFLICT (id) DO NOTHING;"
        )
    if kind == "delete":
        return f"DELETE FROM {table} WHERE id = {id};"
    if kind == "key":
        return (
            f"UPDATE {table} SET id = {other} WHERE id = {id} AND NOT EXISTS (SELECT FROM {table} WHERE id = {other});"
        )
    if kind == "all":
        return f"UPDATE {table} SET s = {rng.randint(0, 9)} WHERE id % 5 = {rng.randint(0, 4)};"
    some = row if kind == "update" else dict(rng.sample(sorted(row.items()), 2))
    return f"UPDATE {table} SET {', '.join(f'{n} = {v}' for n, v in some.items())} WHERE id = {id};"


def changes(rng: random.Random, table: str, columns: Mapping[str, Any]) -> str:
    """Some changes, one by one, in one transaction, or in one that is given up."""
    some = "\n".join(change(rng, table, columns) for _ in range(rng.randint(1, 8)))
    return rng.choice(("{}", "BEGIN; {} COMMIT;", "BEGIN; {} ROLLBACK;")).format(some)


def declared(table: str) -> str:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    # With FULL the log has large values that an update leaves as they are.
    return f"CREATE TABLE {table} (id int PRIMARY KEY, {columns}); ALTER TABLE {table} REPLICA IDENTITY FULL;"


def of_postgres(server: Postgres, table: str, columns: Mapping[str, Any]) -> Counter[str]:
    """The rows of a table, as texts."""
    pairs = ", ".join(f"'{name}', {shown.format(name)}" for name, (_, _, shown) in columns.items())
    # More than a hundred arguments are too many for a function.
    printed = server.sql(f"SELECT jsonb_build_object('id', id, {pairs}) FROM {table};")
    return Counter(as_text(json.loads(line)) for line in printed.splitlines())


def of_iceberg(folder: Path, table: str, columns: Mapping[str, Any]) -> Counter[str]:
    catalog = Catalog.local(path=folder / ".helios")
    if not catalog.exists(table):
        return Counter()
    rows = catalog.load(table).iceberg.scan().to_arrow().to_pylist()
    return Counter(as_text({name: plain(row.get(name), name) for name in ("id", *columns)}) for row in rows)


def committed(folder: Path, table: str) -> int:
    """How many snapshots a table has."""
    catalog = Catalog.local(path=folder / ".helios")
    return len(catalog.load(table).snapshots()) if catalog.exists(table) else 0


def as_text(row: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)


def plain(value: Any, name: str) -> Any:
    """A value of pyarrow as PostgreSQL shows it."""
    if value is None:
        return None
    if isinstance(value, list):
        return [plain(one, name) for one in value]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    if isinstance(value, float):
        special = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return "NaN" if math.isnan(value) else special.get(value) or shortest(value, name)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, date) or name == "b" else value


def shortest(value: float, name: str) -> str:
    """A number as PostgreSQL shows it: a real with the fewest digits that tell it from others."""
    shown = f"{value:.6g}" if name == "r" else repr(value)
    return shown.removesuffix(".0")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with ExitStack() as stack:
        with named_skip():
            server = stack.enter_context(Postgres())
        server.sql("CREATE TYPE mood AS ENUM ('sad', 'ok');")
        yield server


class Run:
    """A `helios run` of a script, which is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "helios", "run", "pipeline.py"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.kill()
        with (self.folder / "run.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def once(self) -> subprocess.CompletedProcess[str]:
        self.kill()
        return subprocess.run([*self.command, "--once"], cwd=self.folder, capture_output=True, text=True, check=False)


def test_a_table_equals_its_source_through_kills(postgres: Postgres, topics: Topics, tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("HELIOS_SEED", "13")))
    postgres.sql(declared("orders"))
    for _ in range(20):
        postgres.sql(changes(rng, "orders", COLUMNS))
    name = topics.make(partitions=2, name="one.public.orders")
    (tmp_path / "pipeline.py").write_text(
        dedent(f"""
            from helios import Cdc, Iceberg, Kafka

            topic = Kafka.source("{name}").servers("{topics.broker.servers}").incremental(poll=0.2, max_rows=2000)
            orders = Cdc.debezium(topic) >> Iceberg.sink("a.orders").upsert().exactly_once()
        """)
    )
    columns = dict(COLUMNS)
    run = Run(tmp_path)
    with ExitStack() as stack:
        with named_skip():
            debezium = stack.enter_context(
                Debezium(
                    postgres, topics.broker, tables="public.orders", prefix="one", settings={"slot.max.retries": "30"}
                )
            )
        stack.callback(run.kill)
        kills, number, begun = Counter[str](), 0, time.monotonic()
        run.start()
        commits = 0
        while number < ROUNDS or (kills["helios"] < KILLS and time.monotonic() < begun + MOST_SECONDS):
            if number == ROUNDS // 2:
                postgres.sql("ALTER TABLE orders ADD COLUMN z date;")
                columns |= LATER
            postgres.sql(changes(rng, "orders", columns))
            if (seen := committed(tmp_path, "a.orders")) > commits:  # it has begun, and is at work
                run.start()
                kills["helios"] += 1
                commits = seen
            if number in (ROUNDS // 3, ROUNDS * 2 // 3):
                debezium.kill()
                debezium.start()
                kills["debezium"] += 1
            number += 1
            time.sleep(0.5)
        until = time.monotonic() + 400
        done = run.once()
        while of_iceberg(tmp_path, "a.orders", columns) != of_postgres(postgres, "orders", columns):
            if time.monotonic() > until or done.returncode:
                break
            done = run.once()
    log = (tmp_path / "run.log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log[-3000:]
    expected, found = of_postgres(postgres, "orders", columns), of_iceberg(tmp_path, "a.orders", columns)
    assert found == expected, f"lacks {list(expected - found)[:2]}, has {list(found - expected)[:2]}"
    assert sum(expected.values()) > 10
    commits = len(Catalog.local(path=tmp_path / ".helios").load("a.orders").snapshots())
    print(
        f"{sum(expected.values())} rows equal in {len(columns) + 1} columns, {commits} commits, killed: {dict(kills)}"
    )
