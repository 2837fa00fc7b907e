"""A database of PostgreSQL that is changed at random, its tables in Iceberg, and a run between them that is killed."""

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from helios import Catalog
from tests.services.debezium import Debezium
from tests.services.postgres import Postgres

IDS = range(1, 40)
ROUNDS = int(os.environ.get("HELIOS_ROUNDS", "60"))
KILLS = 2
MOST_SECONDS = 900

MOOD = "CREATE TYPE mood AS ENUM ('sad', 'ok');"
"""A type of some of the columns."""

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


@dataclass
class Table:
    """A table, whose columns grow.

    Attributes:
        name: Its name.
        columns: Its columns beside the key, as in `COLUMNS`.
        key: The columns of its key: `id`, and perhaps `part`.
    """

    name: str
    columns: dict[str, Any]
    key: tuple[str, ...] = ("id",)

    @property
    def declared(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in self.columns.items())
        part = "part text, " if "part" in self.key else ""
        # With FULL the log has large values that an update leaves as they are.
        return (
            f"CREATE TABLE {self.name} (id int, {part}{columns}, PRIMARY KEY ({', '.join(self.key)})); "
            f"ALTER TABLE {self.name} REPLICA IDENTITY FULL;"
        )

    def grow(self) -> str:
        """Adds the columns that come later."""
        self.columns |= LATER
        return "".join(f"ALTER TABLE {self.name} ADD COLUMN {name} {kind};" for name, (kind, _, _) in LATER.items())

    def change(self, rng: random.Random) -> str:
        """A random change of its rows `IDS`."""
        id, other = rng.choice(IDS), rng.choice(IDS)
        kind = rng.choice(("insert", "insert", "update", "update", "some", "delete", "key", "all"))
        row = assigned(rng, self.columns)
        if kind == "insert":
            keys = {"id": str(id), "part": rng.choice(("'a'", "'b'"))}
            values = {**{name: keys[name] for name in self.key}, **row}
            into = f"INSERT INTO {self.name} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
            return f"{into} ON CONFLICT ({', '.join(self.key)}) DO NOTHING;"
        if kind == "delete":
            return f"DELETE FROM {self.name} WHERE id = {id};"
        if kind == "key":
            free = f"NOT EXISTS (SELECT FROM {self.name} WHERE id = {other})"
            return f"UPDATE {self.name} SET id = {other} WHERE id = {id} AND {free};"
        if kind == "all":
            return f"UPDATE {self.name} SET s = {rng.randint(0, 9)} WHERE id % 5 = {rng.randint(0, 4)};"
        some = row if kind == "update" else dict(rng.sample(sorted(row.items()), 2))
        return f"UPDATE {self.name} SET {', '.join(f'{n} = {v}' for n, v in some.items())} WHERE id = {id};"


def changes(rng: random.Random, *tables: Table) -> str:
    """Some changes, one by one, in one transaction, or in one that is given up."""
    some = "\n".join(rng.choice(tables).change(rng) for _ in range(rng.randint(1, 8)))
    return rng.choice(("{}", "BEGIN; {} COMMIT;", "BEGIN; {} ROLLBACK;")).format(some)


def of_postgres(server: Postgres, table: Table) -> Counter[str]:
    """The rows of a table, as texts."""
    shown = {name: name for name in table.key} | {n: how.format(n) for n, (_, _, how) in table.columns.items()}
    pairs = ", ".join(f"'{name}', {how}" for name, how in shown.items())
    # More than a hundred arguments are too many for a function.
    printed = server.sql(f"SELECT jsonb_build_object({pairs}) FROM {table.name};")
    return Counter(as_text(json.loads(line)) for line in printed.splitlines())


def of_iceberg(folder: Path, table: Table) -> Counter[str]:
    catalog = Catalog.local(path=folder / ".helios")
    if not catalog.exists(f"a.{table.name}"):
        return Counter()
    found = catalog.load(f"a.{table.name}").iceberg.scan().to_arrow()
    assert set(found.column_names) <= {*table.key, *table.columns}
    names = (*table.key, *table.columns)
    return Counter(as_text({name: plain(row.get(name), name) for name in names}) for row in found.to_pylist())


def unequal(server: Postgres, folder: Path, tables: Iterable[Table]) -> dict[str, str]:
    """The tables that differ, and the first rows that do."""
    found: dict[str, str] = {}
    for table in tables:
        expected, has = of_postgres(server, table), of_iceberg(folder, table)
        if expected != has:
            found[table.name] = f"lacks {list(expected - has)[:2]}, has {list(has - expected)[:2]}"
    return found


def committed(folder: Path, tables: Iterable[Table]) -> int:
    """How many snapshots some tables have."""
    catalog = Catalog.local(path=folder / ".helios")
    there = [f"a.{table.name}" for table in tables if catalog.exists(f"a.{table.name}")]
    return sum(len(catalog.load(name).snapshots()) for name in there)


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


class Run:
    """A `helios run` of a script, which is killed and started again.

    Attributes:
        kills: How often it was killed after it had committed something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "helios", "run", "pipeline.py"]
        self.kills = 0
        self._commits = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ended(self) -> bool:
        """Whether it was started, and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        return (self.folder / "run.log").read_text()

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

    def kill_at_work(self, tables: Iterable[Table]) -> None:
        """Kills it, and starts it again, if it has committed since it was started."""
        assert self._process is not None
        assert self._process.poll() is None, self.log[-3000:]  # it must not end by itself
        if committed(self.folder, tables) > self._commits:
            self.kill()
            self._commits = committed(self.folder, tables)
            self.kills += 1
            self.start()

    def once(self) -> subprocess.CompletedProcess[str]:
        self.kill()
        return subprocess.run([*self.command, "--once"], cwd=self.folder, capture_output=True, text=True, check=False)


def stop_and_go(
    rng: random.Random,
    run: Run,
    debezium: Debezium,
    tables: list[Table],
    events: Mapping[int, Callable[[], object]],
) -> None:
    """Changes tables at random, and kills Debezium and Helios: Helios as soon as it has committed something."""
    run.start()
    number, begun = 0, time.monotonic()
    while number < ROUNDS or run.kills < KILLS:
        assert time.monotonic() < begun + MOST_SECONDS, run.log[-3000:]
        events.get(number, lambda: None)()
        debezium.postgres.sql(changes(rng, *tables))
        run.kill_at_work(tables)
        if number in (ROUNDS // 3, ROUNDS * 2 // 3):
            debezium.kill()
            debezium.start()
        number += 1
        time.sleep(0.5)


def some(rng: random.Random, *names: str) -> dict[str, Any]:
    """Some of the columns: those named, and others."""
    return {name: COLUMNS[name] for name in dict.fromkeys((*names, *rng.sample(sorted(COLUMNS), 6)))}


def five_tables(rng: random.Random) -> tuple[list[Table], Table]:
    """Five tables of several columns and keys, and a sixth that comes later."""
    tables = [
        Table("m_orders", dict(COLUMNS)),
        Table("m_items", some(rng, "s", "n"), key=("id", "part")),
        *(Table(f"m_{name}", some(rng, "s")) for name in ("customers", "stock", "notes")),
    ]
    return tables, Table("m_late", some(rng, "s", "tx"), key=("id", "part"))


def drained(run: Run, postgres: Postgres, tables: Sequence[Table]) -> None:
    """Runs a pipeline until its tables equal those of the database."""
    until = time.monotonic() + 400
    done = run.once()
    while done.returncode == 0 and unequal(postgres, run.folder, tables) and time.monotonic() < until:
        done = run.once()
    assert done.returncode == 0, done.stdout + done.stderr + run.log[-3000:]
    assert unequal(postgres, run.folder, tables) == {}
