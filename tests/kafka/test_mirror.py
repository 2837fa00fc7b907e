"""`Iceberg.mirror(...)`: the tables of a database, each with its own columns and key, on a real broker."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helios import Cdc, Iceberg, Pipeline
from helios.errors import CheckpointError, HeliosError, InputError, RunError
from helios.model.mirror import MirrorSink
from helios.spark.iceberg import catalog_commit
from helios.spark.sinks import joint, many_tables
from helios.spark.sinks.protocol import Outcome, Partial
from helios.spark.sinks.table import TableSink
from tests.kafka.changes import ID, NAME, Database
from tests.kafka.conftest import Topics

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("mirror")]

LINE = {"type": "int32", "optional": False, "field": "line"}
AT = {"type": "int32", "optional": True, "field": "at", "name": "io.debezium.time.Date"}


@pytest.fixture
def database(topics: Topics) -> Database:
    return Database(topics)


def mirror(world: Any, **options: Any) -> MirrorSink:
    return Iceberg.mirror("shop", catalog=world.catalog, **options)


def created(id: int, name: object, **options: Any) -> Mapping[str, Any]:
    return {"op": "c", "after": {"id": id, "name": name}, **options}


def item(id: int, line: int, name: str, op: str = "c") -> Mapping[str, Any]:
    return {"op": op, "after": {"id": id, "line": line, "name": name}, "fields": [ID, LINE, NAME]}


def test_each_table_has_its_own_columns_and_key(world: Any, database: Database) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world).exactly_once()
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10), {"op": "u", "after": {"id": 1, "name": "b"}})
    database.send("public.orders", {"id": 2}, created(2, "gone"), {"op": "d", "before": {"id": 2}}, None)
    database.send("public.items", {"id": 1, "line": 1}, item(1, 1, "x"))
    database.send("public.items", {"id": 1, "line": 2}, item(1, 2, "y"))
    world.run(pipeline)
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "b"): 1})
    assert world.rows("shop.items", "id", "line", "name") == Counter({(1, 1, "x"): 1, (1, 2, "y"): 1})
    # A new table, a new column, a changed key, and a change that comes late.
    database.send("public.orders", {"id": 1}, created(1, "late", lsn=5))
    database.send("public.items", {"id": 1, "line": 2}, {"op": "d", "before": {}, "fields": [ID, LINE, NAME]}, None)
    database.send("public.items", {"id": 1, "line": 3}, item(1, 3, "y"))
    more = {"op": "c", "after": {"id": 3, "name": "c", "at": 1}, "fields": [ID, NAME, AT]}
    database.send("public.orders", {"id": 3}, more)
    database.send("public.people", {"id": 7}, created(7, "p"))
    world.run(pipeline)
    assert {(id, name) for id, name in world.rows("shop.orders", "id", "name")} == {(1, "b"), (3, "c")}
    assert world.load("shop.orders").iceberg.schema().column_names == ["id", "name", "at"]
    assert world.rows("shop.items", "id", "line", "name") == Counter({(1, 1, "x"): 1, (1, 3, "y"): 1})
    assert world.rows("shop.people", "id", "name") == Counter({(7, "p"): 1})
    assert sorted(world.catalog.tables("shop")) == ["shop.items", "shop.orders", "shop.people"]


@pytest.mark.landing
def test_a_death_between_two_tables_and_a_lost_commit(
    world: Any, database: Database, monkeypatch: pytest.MonkeyPatch, forget_commit: Callable[[Path, int], None]
) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    outcomes: list[Outcome] = []
    commit, find = TableSink._commit, many_tables.ManyTables.find

    def dies(self: TableSink, staged: Any) -> Any:
        if self.name.table == "b":
            raise RuntimeError("the driver died")
        return commit(self, staged)

    def looked_up(self: many_tables.ManyTables, batch: Any) -> Outcome:
        outcomes.append(find(self, batch))
        return outcomes[-1]

    monkeypatch.setattr(many_tables.ManyTables, "find", looked_up)
    database.send("public.a", {"id": 1}, created(1, "a"))
    database.send("public.b", {"id": 1}, created(1, "b"), {"op": "d", "before": {"id": 1}}, None, created(1, "c"))
    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "_commit", dies)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline)
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([1], [])
    world.run(pipeline)
    assert [outcome.tables for outcome in outcomes if isinstance(outcome, Partial)] == [("local.shop.a",)]
    assert (world.rows("shop.a", "name"), world.rows("shop.b", "name")) == (Counter([("a",)]), Counter([("c",)]))
    forget_commit(world.checkpoint(pipeline), 0)
    world.run(pipeline)
    assert world.kinds().count("skipped") == 1
    assert [len(world.load(f"shop.{name}").snapshots()) for name in ("a", "b")] == [1, 1]


def test_records_that_are_of_no_table_are_quarantined(world: Any, database: Database) -> None:
    database.send("public.orders", {"name": "x"}, created(3, "other key"))  # a later record says the key
    database.send("public.orders", {"id": 1}, created(1, "good"), {"op": "t"})
    database.send("public.log", None, created(1, "no key"))
    database.send("public.odd name", {"id": 1}, created(1, "odd"))
    database.send("public.plain", {"id": 1}, created(1, "no schema", fields=None))
    database.send("public.orders", {"id": 2}, created(2, "no table", source={"connector": "postgresql", "lsn": 1}))
    database.topics.send(f"{database.prefix}.public.log", [b"not json"])
    source = Cdc.debezium(database.source().on_bad_row("quarantine"))
    run = world.run(source >> mirror(world).quarantine("bad.rows"))
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "good"): 1})
    assert world.catalog.tables("shop") == ["shop.orders"]
    found = sorted(reason for (reason,) in world.rows("bad.rows", "reason"))
    expected = (
        "its key is (name), and the upsert is by (id)",
        "its source names no table",
        f"postgres.public.odd name of {database.prefix} would be mirrored to 'odd name', but table names may have only",
        "the record has no key that is JSON",
        "the record has no schema part, from which its columns come",
        "the table was truncated",
        "the value is not one JSON object",
    )
    assert len(found) == len(expected)
    for reason, start in zip(found, sorted(expected), strict=True):
        assert reason.startswith(start), reason
    assert run.metrics().records_failed == len(expected)


@pytest.mark.slow
def test_a_bad_record_stops_the_run_before_any_table_is_written(world: Any, database: Database) -> None:
    database.send("public.a", {"id": 1}, created(1, "good"))
    database.send("public.b", {"id": 1}, created(1, "good"))
    database.send("public.b", {"id": 2}, {"op": "c", "after": {"id": "x"}})
    with pytest.raises(RunError, match=r"public.b, partition 0, offset 1: id does not fit int"):
        world.run(Cdc.debezium(database.source()) >> mirror(world))
    assert [len(world.load(name).snapshots()) for name in world.catalog.tables("shop")] in ([0], [0, 0])
    dropped = Cdc.debezium(database.source().on_bad_row("drop")) >> mirror(world)
    assert world.run(dropped).metrics().records_failed == 1
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([1], [1])


@pytest.mark.slow
def test_two_tables_of_one_name_stop_the_run(world: Any, database: Database) -> None:
    database.send("public.orders", {"id": 1}, created(1, "a"))
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    world.run(pipeline)
    database.send("archive.Orders", {"id": 1}, created(1, "b"))
    message = f"postgres.public.orders of {database.prefix} and postgres.archive.Orders .* would both be mirrored to"
    with pytest.raises(InputError, match=message):
        world.run(pipeline)
    assert world.ids("shop.orders") == [1]
    renamed = Cdc.debezium(database.source()) >> mirror(world, names="{schema}_{table}")
    with pytest.raises(CheckpointError, match=r"has been mirrored to local\.shop\.orders, and names="):
        world.run(renamed)
    other = Iceberg.mirror("both", catalog=world.catalog, names="{schema}_{table}")
    world.run(Cdc.debezium(database.source()) >> other)
    assert (world.ids("both.public_orders"), world.ids("both.archive_Orders")) == ([1], [1])


def pointers(world: Any) -> dict[str, str]:
    """The metadata of each table, as one look at the catalog shows them."""
    with closing(sqlite3.connect(world.folder / ".helios/catalog.db")) as db:
        rows = db.execute("SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = 'shop'")
        return dict(rows.fetchall())


def control(world: Any) -> tuple[int, dict[str, int]]:
    """The batch and the snapshots that the control table names."""
    [row] = world.load("shop.helios_mirror").iceberg.scan().to_arrow().to_pylist()
    return row["batch"], dict(row["tables"])


@pytest.mark.slow
def test_tables_that_change_together(
    world: Any, database: Database, monkeypatch: pytest.MonkeyPatch, forget_commit: Callable[[Path, int], None]
) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world, atomic=True).exactly_once()
    database.send("public.a", {"id": 1}, created(1, "a"))
    database.send("public.b", {"id": 1}, created(1, "b"), created(1, "c"))
    moved = catalog_commit.commit_tables
    seen: list[dict[str, str]] = []

    def dies(*given: Any) -> bool:
        seen.append(pointers(world))
        raise RuntimeError("the driver died")

    with monkeypatch.context() as patched:
        patched.setattr(joint, "commit_tables", dies)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline)
    assert pointers(world) == seen[0]
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([], [])

    def beside_another(*given: Any) -> bool:
        if not world.rows("shop.a", "name"):  # another writer comes before the first try
            world.sql("INSERT INTO local.shop.a VALUES (7, 'other')")
        return moved(*given)

    with monkeypatch.context() as patched:
        patched.setattr(joint, "commit_tables", beside_another)
        run = world.run(pipeline)
    assert (world.ids("shop.a"), world.rows("shop.b", "name")) == ([1, 7], Counter([("c",)]))
    assert run.metrics().commit_retries == 1
    first = control(world)
    assert first == (0, {f"local.shop.{name}": world.load(f"shop.{name}").current_snapshot().id for name in "ab"})
    forget_commit(world.checkpoint(pipeline), 0)
    world.run(pipeline)
    assert world.kinds().count("skipped") == 1
    database.send("public.b", {"id": 1}, {"op": "d", "before": {"id": 1}}, None)
    before = pointers(world)
    world.run(pipeline)
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([1, 7], [])
    after = pointers(world)
    assert {name for name in after if after[name] != before[name]} == {"b", "helios_mirror"}
    assert control(world)[1]["local.shop.a"] == first[1]["local.shop.a"]


def test_a_control_table_that_is_dropped_is_made_anew(
    world: Any, database: Database, forget_commit: Callable[[Path, int], None]
) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world, atomic=True).exactly_once()
    database.send("public.a", {"id": 1}, created(1, "a"))
    world.run(pipeline)
    for remake in ("", "CREATE TABLE local.shop.helios_mirror (id int) USING iceberg"):
        world.sql("DROP TABLE IF EXISTS local.shop.helios_mirror")
        world.sql(remake or "SELECT 1")
        why = "is not the same table as before" if remake else "is gone"
        with pytest.raises(
            CheckpointError, match=rf"the control table local\.shop\.helios_mirror of local\.shop {why}"
        ):
            world.run(pipeline)
    world.sql("DROP TABLE local.shop.helios_mirror")
    known = world.checkpoint(pipeline) / "helios/tables.json"
    known.write_text(json.dumps({"local.shop.a": json.loads(known.read_text())["local.shop.a"]}))
    forget_commit(world.checkpoint(pipeline), 0)
    world.run(pipeline)
    database.send("public.a", {"id": 2}, created(2, "b"))
    world.run(pipeline)
    assert world.ids("shop.a") == [1, 2]
    assert control(world) == (1, {"local.shop.a": world.load("shop.a").current_snapshot().id})


@pytest.mark.slow
def test_tables_that_are_not_the_mirrors_are_refused(world: Any, database: Database) -> None:
    database.send("public.a", {"id": 1}, created(1, "a"))
    database.send("public.b", {"id": 1}, created(1, "b"))
    world.fill("shop.a", [7])
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    with pytest.raises(InputError, match=r"local\.shop\.a has rows that local\.shop did not write"):
        world.run(pipeline)
    world.sql("DROP TABLE local.shop.a")
    changed = "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"
    world.sql(f"CREATE TABLE local.shop.a (id int, name string) USING iceberg PARTITIONED BY (bucket(2, id)) {changed}")
    world.run(pipeline)
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([1], [1])
    assert len(world.load("shop.a").iceberg.spec().fields) == 1
    swap(world, "a", "b")
    with pytest.raises(CheckpointError, match=r"is the table that local\.shop knows as local\.shop\.b"):
        world.run(pipeline)
    swap(world, "a", "b")
    world.sql("DROP TABLE local.shop.b")
    with pytest.raises(CheckpointError, match=r"the mirrored table local\.shop\.b is gone"):
        world.run(pipeline)


def swap(world: Any, one: str, other: str) -> None:
    for before, after in ((one, "swapped"), (other, one), ("swapped", other)):
        world.sql(f"ALTER TABLE local.shop.{before} RENAME TO shop.{after}")


@pytest.mark.slow
def test_a_lost_checkpoint_is_noticed(world: Any, database: Database) -> None:
    pipeline: Pipeline = Cdc.debezium(database.source()) >> mirror(world)
    database.send("public.a", {"id": 1}, created(1, "a"))
    world.run(pipeline)
    notes = world.checkpoint(pipeline) / "helios/mirror.json"
    assert json.loads(notes.read_text())["tables"]["a"]["keys"] == ["id"]
    kept = notes.read_text()
    notes.unlink()
    with pytest.raises(CheckpointError, match="does not say which table of the database a is of"):
        world.run(pipeline)
    notes.write_text(kept)
    for option in ("new_checkpoint", "full_refresh"):
        with pytest.raises(InputError, match=r"do not apply to local\.shop: each of its many tables"):
            world.run(pipeline, **{option: True})
    world.checkpoint(pipeline).rename(world.folder / "lost")
    with pytest.raises(CheckpointError, match=r"local\.shop\.a holds rows of local\.shop, but its checkpoint"):
        world.run(pipeline)


@pytest.mark.slow
def test_a_mirror_that_is_read_once(world: Any, database: Database) -> None:
    source = database.topics.source(pattern=rf"{database.prefix}\..*")
    pipeline = Cdc.debezium(source) >> mirror(world)
    database.send("public.a", {"id": 1}, created(1, "a"))
    database.send("public.b", {"id": 1}, created(1, "a"))
    world.run(pipeline)
    database.send("public.a", {"id": 1}, {"op": "d", "before": {"id": 1}}, None)
    database.send("public.a", {"id": 2}, created(2, "b"))
    world.run(pipeline)
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([2], [1])
