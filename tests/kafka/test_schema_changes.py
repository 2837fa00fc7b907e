"""Schema changes of PostgreSQL's tables in a mirror, as Debezium tells them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from helios import Cdc, Iceberg, Pipeline
from helios.errors import InputError
from tests.kafka.conftest import Topics
from tests.services.debezium import Debezium
from tests.services.fixtures import named_skip
from tests.services.postgres import Postgres
from tests.suite import waiting

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.promise("mirror")]
PREFIX = "changed"


@pytest.fixture(scope="module")
def postgres(_topics: Topics) -> Iterator[Postgres]:
    with ExitStack() as stack:
        with named_skip():
            server = stack.enter_context(Postgres())
            server.sql("CREATE TABLE s_first (id int PRIMARY KEY); INSERT INTO s_first VALUES (1);")
            _topics.make(name=f"{PREFIX}.public.s_first")
            server.sql("CREATE TABLE s_signal (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048));")
            _topics.make(name=f"{PREFIX}.public.s_signal")
            signals = {"signal.data.collection": "public.s_signal"}
            stack.enter_context(
                Debezium(server, _topics.broker, tables=r"public\.s_.*", prefix=PREFIX, settings=signals)
            )
        _topics.await_record(f"{PREFIX}.public.s_first")
        yield server


class Followed:
    """A table of PostgreSQL with two rows, another one beside it, and their mirror."""

    def __init__(self, world: Any, postgres: Postgres, topics: Topics, table: str) -> None:
        self.world, self.postgres, self.topics, self.table = world, postgres, topics, table
        self._ends = [f"{table}_end{number}" for number in range(3)]
        for name in (table, f"{table}_new", *self._ends):
            topics.make(name=f"{PREFIX}.public.{name}")
        postgres.sql("".join(f"CREATE TABLE {name} (id int PRIMARY KEY);" for name in self._ends))
        postgres.sql(
            f"CREATE TABLE {table} (id int PRIMARY KEY, name text, n int, d double precision);"
            f"INSERT INTO {table} VALUES (1, 'a', 1, 0.1), (2, 'b', 2, 0.2);"
        )

    def mirror(self, choice: Any = "fail") -> Pipeline:
        source = self.topics.source(pattern=rf"{PREFIX}\.public\.{self.table}(_new)?").incremental()
        sink = Iceberg.mirror("shop", catalog=self.world.catalog)
        return Cdc.debezium(source) >> sink.on_schema_change(choice)

    def sent(self) -> None:
        """Waits until Debezium has sent what was changed."""
        end = self._ends.pop(0)
        self.postgres.sql(f"INSERT INTO {end} VALUES (1);")
        self.topics.await_record(f"{PREFIX}.public.{end}")

    def expected(self, name: str | None = None) -> list[dict[str, Any]]:
        printed = self.postgres.sql(f"SELECT row_to_json(x) FROM {name or self.table} x ORDER BY id;")
        return [json.loads(line) for line in printed.splitlines()]

    def rows(self, name: str | None = None) -> list[dict[str, Any]]:
        found = self.world.load(f"shop.{name or self.table}").iceberg.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("table", "how"),
    [
        ("s_rename", ("RENAME COLUMN name TO title", r"no longer has the column name \(and new: title\)")),
        ("s_drop", ("DROP COLUMN name", r"no longer has the column name: renamed, dropped")),
        (
            "s_again",
            ("DROP COLUMN name, ADD COLUMN name text", r"has the columns name, n, d in another place: renamed"),
        ),
        ("s_round", ("ALTER COLUMN d TYPE real", r"has columns of another type: d was double and is float")),
        ("s_filled", ("ADD COLUMN s text DEFAULT 'x'", r"has added the column s, NOT NULL or with a default")),
        ("s_moved", ("RENAME TO s_moved_new", r"s_moved_new of changed .* may be a table that was renamed")),
    ],
)
def test_what_the_log_does_not_say_stops_the_mirror(
    world: Any, postgres: Postgres, topics: Topics, table: str, how: tuple[str, str]
) -> None:
    change, said = how
    followed = Followed(world, postgres, topics, table)
    followed.sent()
    world.run(followed.mirror())
    before = followed.expected()
    assert followed.rows() == before
    now = "s_moved_new" if table == "s_moved" else table
    postgres.sql(f"ALTER TABLE {table} {change}; INSERT INTO {now} (id) VALUES (9);")
    followed.sent()
    with pytest.raises(InputError, match=said):
        world.run(followed.mirror())
    assert followed.rows() == before
    world.run(followed.mirror("keep"))
    assert [row["id"] for row in followed.rows(now)] == ([9] if table == "s_moved" else [1, 2, 9])
    assert [row["name"] for row in followed.rows()][:2] == ["a", "b"]
    world.run(followed.mirror())


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("s_snap_rename", "RENAME COLUMN name TO title"),
        ("s_snap_drop", "DROP COLUMN name"),
        ("s_snap_again", "DROP COLUMN name, ADD COLUMN name text DEFAULT 'y'"),
        ("s_snap_round", "ALTER COLUMN d TYPE real"),
        ("s_snap_filled", "ADD COLUMN s text DEFAULT 'x'"),
        ("s_snap_moved", "RENAME TO s_snap_moved_new"),
    ],
)
def test_a_snapshot_brings_what_the_log_does_not_say(
    world: Any, postgres: Postgres, topics: Topics, table: str, change: str
) -> None:
    """The signal that the mirror names, sent to a real Debezium: the table equals the database's again."""
    followed = Followed(world, postgres, topics, table)
    followed.sent()
    world.run(followed.mirror("snapshot"))
    now = f"{table}_new" if table == "s_snap_moved" else table
    postgres.sql(f"ALTER TABLE {table} {change}; INSERT INTO {now} (id) VALUES (9); DELETE FROM {now} WHERE id = 2;")
    followed.sent()
    with pytest.raises(InputError, match="nothing was written") as refused:
        world.run(followed.mirror())
    world.run(followed.mirror("snapshot"))
    found = re.search(r"signal (\S+) with (\{.*?\})", str(refused.value.fix))
    assert found is not None
    postgres.sql(f"INSERT INTO s_signal VALUES ('{table}', '{found[1]}', '{found[2]}');")
    postgres.sql(f"INSERT INTO {now} (id) VALUES (10);")
    followed.sent()
    waiting.until(lambda: snapshot_is_read(world, followed))
    columns = list(followed.expected(now)[0])
    rows = [{name: row[name] for name in columns} for row in followed.rows(now)]
    assert [single(row) for row in rows] == [single(row) for row in followed.expected(now)]
    assert [row["id"] for row in rows] == [1, 9, 10]
    world.events.clear()
    world.run(followed.mirror())
    assert not [event for event in world.events if event.kind == "noted"]


def single(row: dict[str, Any]) -> dict[str, Any]:
    """A row with a real as PostgreSQL prints it: the column stays double here."""
    return row if row["d"] is None else {**row, "d": struct.unpack("f", struct.pack("f", row["d"]))[0]}


def snapshot_is_read(world: Any, followed: Followed) -> bool:
    world.run(followed.mirror("snapshot"))
    return any("has been read to its last row" in event.message for event in world.events)


def test_widened_types_are_followed(world: Any, postgres: Postgres, topics: Topics) -> None:
    followed = Followed(world, postgres, topics, "s_wide")
    followed.sent()
    world.run(followed.mirror())
    postgres.sql(
        "ALTER TABLE s_wide ALTER COLUMN n TYPE bigint, ALTER COLUMN id TYPE bigint; "
        "INSERT INTO s_wide VALUES (9999999999, 'new', 9999999999); UPDATE s_wide SET n = 8 WHERE id = 1; "
        "DELETE FROM s_wide WHERE id = 2;"
    )
    followed.sent()
    world.run(followed.mirror())
    assert followed.rows() == followed.expected()
    assert len(followed.rows()) == 2
