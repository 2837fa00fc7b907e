"""Columns and names that change in a mirrored database, as Debezium's records tell them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Cdc
from helios.errors import InputError, RunError
from tests.kafka.changes import ID, NAME, Database
from tests.kafka.conftest import Topics
from tests.kafka.test_mirror import AT, created, mirror

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("mirror")]

TITLE = {"type": "string", "optional": True, "field": "title"}


@pytest.fixture
def database(topics: Topics) -> Database:
    return Database(topics)


@pytest.mark.parametrize("renamed", [True, False])
def test_a_column_that_is_lost_stops_the_run_unless_it_is_kept(world: Any, database: Database, renamed: bool) -> None:
    """A renamed or a dropped column; changes that are sent again lose nothing."""
    source = Cdc.debezium(database.source())
    pipeline = source >> mirror(world)
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10))
    database.send("public.other", {"id": 1}, created(1, "a", lsn=11))
    world.run(pipeline)
    fields = [ID, TITLE] if renamed else [ID]
    row = {"id": 2, "title": "b"} if renamed else {"id": 2}
    database.send("public.orders", {"id": 2}, {"op": "c", "after": row, "fields": fields, "lsn": 20})
    database.send("public.other", {"id": 2}, created(2, "b", lsn=21))
    gained = r" \(and new: title\)" if renamed else ""
    said = rf"public\.orders of {database.prefix} no longer has the column name{gained}: .* in local\.shop\.orders rows"
    for _ in range(2):
        with pytest.raises(InputError, match=said) as refused:
            world.run(pipeline)
        assert '.on_schema_change("keep")' in str(refused.value.fix)
    assert (world.ids("shop.orders"), world.ids("shop.other")) == ([1], [1])
    kept = source >> mirror(world).on_schema_change("keep")
    world.run(kept)
    told = [event.message for event in world.events if event.kind == "noted"]
    assert [message for message in told if "local.shop.orders keeps it, null in new and changed rows" in message]
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "a"): 1, (2, None): 1})
    assert world.ids("shop.other") == [1, 2]
    # What has been kept stays so, and Debezium sends again what it had sent.
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10))
    database.send("public.orders", {"id": 3}, {"op": "c", "after": {**row, "id": 3}, "fields": fields, "lsn": 30})
    world.run(pipeline)
    assert world.ids("shop.orders") == [1, 2, 3]


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.landing), True])
def test_a_snapshot_gives_all_rows_what_the_log_does_not_say(world: Any, database: Database, together: bool) -> None:
    """The table waits for it, over restarts, and other tables go on; with the change in one batch it does not wait."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot").exactly_once()
    for id in (1, 2, 3):
        database.send("public.orders", {"id": id}, created(id, f"n{id}", lsn=10 + id))
    database.send("public.other", {"id": 1}, created(1, "a", lsn=14))
    world.run(pipeline)
    fields = {"fields": [ID, TITLE]}
    changed = {"op": "u", "after": {"id": 1, "title": "t1"}, "lsn": 20, **fields}
    database.send("public.orders", {"id": 1}, changed)
    database.send("public.orders", {"id": 3}, {"op": "d", "before": {"id": 3}, "lsn": 21, **fields}, None)
    database.send("public.other", {"id": 2}, created(2, "b", lsn=22))
    if not together:
        world.run(pipeline)
        asked = '{"type": "blocking", "data-collections": ["public.orders"]}'
        assert [message for message in noted(world) if "until the snapshot of " in message and asked in message]
        assert world.rows("shop.orders", "id", "name", "title") == Counter({(1, None, "t1"): 1, (2, "n2", None): 1})
        assert world.ids("shop.other") == [1, 2]
        world.events.clear()
        database.send("public.orders", {"id": 1}, changed)  # sent again, and no snapshot
        database.send("public.orders", {"id": 4}, {"op": "c", "after": {"id": 4, "title": "t4"}, "lsn": 25, **fields})
        world.run(pipeline)
        assert [message for message in noted(world) if "waits for a snapshot" in message and asked in message]
        world.events.clear()
    snapshot = [(1, "t1", "first_in_data_collection"), (2, "t2", "true"), (4, "t4", "last_in_data_collection")]
    for id, title, mark in snapshot:
        row = {"op": "r", "after": {"id": id, "title": title}, "lsn": 30, "snapshot": mark, **fields}
        database.send("public.orders", {"id": id}, row)
    world.run(pipeline)
    assert [message for message in noted(world) if "has been read to its last row" in message]
    rows = Counter({(1, None, "t1"): 1, (2, None, "t2"): 1, (4, None, "t4"): 1})
    assert world.rows("shop.orders", "id", "name", "title") == rows
    world.events.clear()
    database.send("public.orders", {"id": 2}, {"op": "u", "after": {"id": 2, "title": "new"}, "lsn": 40, **fields})
    world.run(pipeline)
    assert noted(world) == []
    assert world.rows("shop.orders", "id", "title")[(2, "new")] == 1


def test_an_earlier_snapshot_is_not_the_one_that_is_awaited(world: Any, database: Database) -> None:
    """A column that somebody drops in the mirror's table; Debezium sends its first snapshot again, then a new one."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    first = {"op": "r", "after": {"id": 1, "name": "a"}, "lsn": 10, "snapshot": "last"}
    database.send("public.orders", {"id": 1}, first)
    world.run(pipeline)
    world.spark.sql("ALTER TABLE local.shop.orders DROP COLUMN name")
    database.send("public.other", {"id": 1}, created(1, "a", lsn=14))
    world.run(pipeline)
    assert [message for message in noted(world) if "renamed or dropped in the mirror; rows that do not" in message]
    database.send("public.orders", {"id": 1}, first)
    world.run(pipeline)
    world.events.clear()
    world.run(pipeline)
    assert [message for message in noted(world) if "waits for a snapshot" in message]
    database.send("public.orders", {"id": 1}, {**first, "lsn": 20})
    world.run(pipeline)
    world.events.clear()
    world.run(pipeline)
    assert noted(world) == []
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "a"): 1})


LABEL = {"type": "string", "optional": True, "field": "label"}
SENT = {"name": {}, "title": {"fields": [ID, TITLE]}, "label": {"fields": [ID, LABEL]}}


def change(op: str, id: int, column: str, value: str, *at: Any) -> dict[str, Any]:
    """A change of a row, with one column beside its id; `at` is its lsn, and Debezium's mark of a row of a snapshot."""
    lsn, mark = (*at, "false")[:2]
    return {"op": op, "after": {"id": id, column: value}, "lsn": lsn, "snapshot": mark, **SENT[column]}


def ended(world: Any) -> bool:
    return any("has been read to its last row" in message for message in noted(world))


def waits(world: Any, pipeline: Any) -> bool:
    """True if the next run names a table that waits."""
    world.events.clear()
    world.run(pipeline)
    return any("waits for a snapshot of" in message for message in noted(world))


def send(database: Database, *changes: dict[str, Any], partition: int = 0, table: str = "public.orders") -> None:
    for one in changes:
        database.send(table, {"id": one["after"]["id"]}, one, partition=partition)


@pytest.mark.parametrize("earlier", [50, 100002])
def test_a_change_behind_a_snapshot_waits_for_another_one(world: Any, database: Database, earlier: int) -> None:
    """Of the same server, and of one that was restored to a position before what has been read."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    send(database, *(change("c", id, "name", f"n{id}", earlier + id) for id in (1, 2)))
    world.run(pipeline)
    send(database, change("r", 1, "name", "n1", 500, "true"), change("r", 2, "name", "n2", 500, "last"))
    send(database, change("u", 1, "title", "t1", 600))
    world.run(pipeline)
    assert not ended(world)
    assert waits(world, pipeline)
    send(database, change("r", 1, "title", "t1", 700, "true"), change("r", 2, "title", "t2", 700, "last"))
    world.run(pipeline)
    assert ended(world)
    assert world.rows("shop.orders", "id", "title") == Counter({(1, "t1"): 1, (2, "t2"): 1})
    assert not waits(world, pipeline)


@pytest.mark.parametrize("choice", ["fail", "keep", "snapshot"])
def test_a_second_change_in_the_batch_of_the_snapshot_is_not_passed_over(
    world: Any, database: Database, choice: Any
) -> None:
    awaiting = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    send(database, *(change("c", id, "name", f"n{id}", 10 + id) for id in (1, 2)))
    send(database, change("u", 1, "title", "t1", 20))
    world.run(awaiting)
    send(database, change("r", 1, "title", "t1", 30, "true"), change("r", 2, "title", "t2", 30, "last"))
    send(database, change("u", 1, "label", "l1", 40))
    world.events.clear()
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change(choice)
    if choice == "fail":
        with pytest.raises(InputError, match="no longer has the column title"):
            world.run(pipeline)
        assert not ended(world)
        return
    world.run(pipeline)
    assert [message for message in noted(world) if "no longer has the column title" in message]
    assert ended(world) == (choice == "keep"), "the first change was made good, the second was not"
    assert waits(world, pipeline) == (choice == "snapshot")


def test_a_snapshot_that_was_read_in_part_is_not_the_one_that_is_awaited(world: Any, database: Database) -> None:
    """Somebody drops a column of the mirror's table between its first rows and its last one."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    send(database, change("r", 1, "name", "n1", 30, "first"))
    world.run(pipeline)
    world.spark.sql("ALTER TABLE local.shop.orders DROP COLUMN name")
    send(database, change("r", 2, "name", "n2", 30, "last"))
    world.run(pipeline)
    assert not ended(world)
    assert waits(world, pipeline)


def test_a_wait_ends_with_the_commit(world: Any, database: Database) -> None:
    """A bad record of another table stops the batch: nothing of it was written, and the table waits still."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    send(database, *(change("c", id, "name", f"n{id}", 10 + id) for id in (1, 2)))
    send(database, change("c", 1, "name", "x", 15), table="public.other")
    send(database, change("u", 1, "title", "t1", 20))
    world.run(pipeline)
    send(database, change("r", 1, "title", "t1", 30, "true"), change("r", 2, "title", "t2", 30, "last"))
    database.send("public.other", {"id": 2}, {"op": "c", "after": None, "lsn": 31})
    for _ in range(2):
        world.events.clear()
        with pytest.raises(RunError):
            world.run(pipeline)
        assert not ended(world)
    assert [message for message in noted(world) if "waits for a snapshot of" in message]
    world.run(Cdc.debezium(database.source().on_bad_row("drop")) >> mirror(world).on_schema_change("snapshot"))
    assert ended(world)
    assert world.rows("shop.orders", "id", "title") == Counter({(1, "t1"): 1, (2, "t2"): 1})


def test_a_renamed_table_waits_for_its_rows(world: Any, database: Database) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("snapshot")
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10))
    world.run(pipeline)
    database.send("public.late", {"id": 2}, {"op": "u", "after": {"id": 2, "name": "b"}, "lsn": 20})
    world.run(pipeline)
    assert [message for message in noted(world) if "until the snapshot of postgres.public.late" in message]
    for id, mark in ((1, "first"), (2, "last")):
        row = {"op": "r", "after": {"id": id, "name": "s"}, "lsn": 30, "snapshot": mark}
        database.send("public.late", {"id": id}, row)
    world.run(pipeline)
    assert [message for message in noted(world) if "has been read to its last row" in message]
    assert world.rows("shop.late", "id", "name") == Counter({(1, "s"): 1, (2, "s"): 1})


def noted(world: Any) -> list[str]:
    return [event.message for event in world.events if event.kind == "noted"]


def test_a_column_that_comes_back_stops_the_run_unless_it_is_kept(world: Any, database: Database) -> None:
    source = Cdc.debezium(database.source())
    kept, pipeline = source >> mirror(world).on_schema_change("keep"), source >> mirror(world)
    database.send("public.orders", {"id": 1}, created(1, "a"))
    database.send("public.orders", {"id": 2}, {"op": "c", "after": {"id": 2}, "fields": [ID]})
    world.run(kept)
    database.send("public.orders", {"id": 3}, created(3, "c"))
    with pytest.raises(InputError, match="has the column name again, which it had lost"):
        world.run(pipeline)
    world.run(kept)
    world.run(pipeline)
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "a"): 1, (2, None): 1, (3, "c"): 1})


def test_changes_that_are_sent_again_with_fewer_columns_lose_nothing(world: Any, database: Database) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    more = {"op": "c", "after": {"id": 2, "name": "b", "at": 1}, "fields": [ID, NAME, AT], "lsn": 20}
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10))
    database.send("public.orders", {"id": 2}, more)
    world.run(pipeline)
    database.send("public.orders", {"id": 1}, created(1, "a", lsn=10))
    world.run(pipeline)
    database.send("public.orders", {"id": 2}, more)
    world.run(pipeline)
    assert world.load("shop.orders").iceberg.schema().column_names == ["id", "name", "at"]
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "a"): 1, (2, "b"): 1})


def test_types_that_widen_and_one_that_changes(world: Any, database: Database) -> None:
    """An int that becomes a bigint, of a key too; a text stops the run, or is quarantined."""
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    narrow = {"type": "int32", "optional": True, "field": "name"}
    database.send("public.orders", {"id": 1}, created(1, 1, fields=[ID, narrow]))
    database.send("public.texts", {"id": 1}, created(1, 1, fields=[ID, narrow]))
    world.run(pipeline)
    wide = [{**ID, "type": "int64"}, {**narrow, "type": "int64"}]
    changed = {"op": "u", "after": {"id": 1, "name": 2**40}, "fields": wide}
    database.send("public.orders", {"id": 1}, changed)
    database.send("public.orders", {"id": 2**40}, created(2**40, 2, fields=wide))
    world.run(pipeline)
    assert world.rows("shop.orders", "id", "name") == Counter({(1, 2**40): 1, (2**40, 2): 1})
    database.send("public.texts", {"id": 2}, created(2, "x"))
    database.send("public.orders", {"id": 3}, created(3, 3, fields=wide))
    with pytest.raises(InputError, match=r"does not fit local\.shop\.texts(.|\n)*name *int -> string") as refused:
        world.run(pipeline)
    assert 'on_bad_row("quarantine")' in str(refused.value.fix)
    aside = Cdc.debezium(database.source().on_bad_row("quarantine")) >> mirror(world).quarantine("bad.rows")
    world.run(aside)
    database.send("public.texts", {"id": 3}, created(3, "y"))
    database.send("public.orders", {"id": 4}, created(4, 4, fields=wide))
    world.run(aside)
    assert (world.ids("shop.orders"), world.ids("shop.texts")) == ([1, 3, 4, 2**40], [1])
    reasons = [reason for (reason,) in world.rows("bad.rows", "reason").elements()]
    assert len(reasons) == 2
    assert all("does not fit local.shop.texts" in reason for reason in reasons)


def test_a_table_that_was_renamed_stops_the_run(world: Any, database: Database) -> None:
    """One that begins like another one of the mirror, without a key of it, or with changes of rows never sent."""
    source = Cdc.debezium(database.source())
    pipeline = source >> mirror(world)
    database.send("public.orders", {"id": 1}, created(1, "a"))
    world.run(pipeline)
    database.send("public.sizes", {"id": 1}, created(1, "a key of orders too"))
    world.run(pipeline)
    assert world.ids("shop.sizes") == [1]
    database.send("public.late", {"id": 1}, {"op": "u", "after": {"id": 1, "name": "b"}})
    with pytest.raises(InputError, match=r"public\.late of \w+ begins with changes of rows that Debezium never sent"):
        world.run(pipeline)
    world.run(source >> mirror(world).on_schema_change("keep"))
    world.run(pipeline)
    assert world.ids("shop.late") == [1]


def test_a_table_with_the_columns_of_another_one_stops_the_run(world: Any, database: Database) -> None:
    source = Cdc.debezium(database.source())
    pipeline = source >> mirror(world)
    database.send("public.orders", {"id": 1}, created(1, "a"))
    world.run(pipeline)
    database.send("public.renamed", {"id": 2}, created(2, "b"))
    said = r"public\.renamed of \w+ is new, and local\.shop\.orders has the same columns and key: \S+ of \w+ may be a"
    with pytest.raises(InputError, match=said):
        world.run(pipeline)
    assert world.catalog.tables("shop") == ["shop.orders"]
    world.run(source >> mirror(world).on_schema_change("keep"))
    world.run(pipeline)
    assert (world.ids("shop.orders"), world.ids("shop.renamed")) == ([1], [2])
    told = [event.message for event in world.events if event.kind == "noted"]
    assert [message for message in told if "local.shop.orders stays as it is" in message]


def test_values_that_rows_get_unsent_stop_the_run_unless_they_are_left_out(world: Any, database: Database) -> None:
    """A new column with a default, and a type whose values are rounded: rows that do not change are not sent."""
    source = Cdc.debezium(database.source())
    number = {"type": "double", "optional": True, "field": "name"}
    database.send("public.orders", {"id": 1}, created(1, 0.1, fields=[ID, number]))
    world.run(source >> mirror(world))
    fields = [ID, {**number, "type": "float"}, {**AT, "default": 3}]
    later = {"op": "c", "after": {"id": 2, "name": 0.5, "at": 3}, "fields": fields}
    database.send("public.orders", {"id": 2}, later)
    said = r"another type: name was double and is float, and has added the column at, NOT NULL or with a default"
    with pytest.raises(InputError, match=said):
        world.run(source >> mirror(world))
    assert world.load("shop.orders").iceberg.schema().column_names == ["id", "name"]
    world.run(source >> mirror(world).on_schema_change("keep"))
    database.send("public.orders", {"id": 2}, later)
    world.run(source >> mirror(world))
    assert world.rows("shop.orders", "id", "name") == Counter({(1, 0.1): 1, (2, 0.5): 1})
    assert [at is None for (at,) in world.rows("shop.orders", "at").elements()].count(True) == 1


def test_a_table_that_was_renamed_before_the_first_run_stops_it(world: Any, database: Database) -> None:
    """The snapshot of the former name, and what came under the new one, in one batch."""
    database.send("public.orders", {"id": 1}, {"op": "r", "after": {"id": 1, "name": "a"}, "snapshot": "last"})
    database.send("public.renamed", {"id": 2}, created(2, "b"))
    database.send("public.moved", {"id": 2}, {"op": "u", "after": {"id": 2, "name": "b"}, "fields": [ID, NAME, AT]})
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    with pytest.raises(InputError, match=r"(renamed|moved) of \w+ (is new|begins with).* may be a table that"):
        world.run(pipeline)
    assert not world.catalog.exists("shop.orders")
    world.run(Cdc.debezium(database.source()) >> mirror(world).on_schema_change("keep"))
    told = " ".join(event.message for event in world.events if event.kind == "noted")
    assert "public.renamed" in told
    assert "public.moved" in told
    world.run(pipeline)
    assert (world.ids("shop.orders"), world.ids("shop.renamed"), world.ids("shop.moved")) == ([1], [2], [2])


def changed(database: Database, row: dict[str, Any], *fields: dict[str, Any], op: str = "u", **how: Any) -> None:
    database.send("public.orders", {"id": row["id"]}, {"op": op, "after": row, "fields": [ID, *fields], **how})


def field(column: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": column, **more}


def test_the_placeholder_of_an_hstore_is_no_value(world: Any, database: Database) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    shown, hidden = field("h", name="io.debezium.data.Json"), "__debezium_unavailable_value"
    changed(database, {"id": 1, "h": '{"a":"x"}'}, shown, op="c")
    changed(database, {"id": 1, "h": f'{{"{hidden}":"{hidden}"}}'}, shown)
    with pytest.raises(RunError, match="was not in the log"):
        world.run(pipeline)


@pytest.mark.parametrize("later", [("b_old", "b"), ("c", "b")], ids=["renamed", "dropped"])
def test_a_column_that_is_made_again_behind_a_new_one_stops_the_run(
    world: Any, database: Database, later: tuple[str, str]
) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    for id in (1, 2):
        changed(database, {"id": id, "b": id * 10}, field("b", "int64"), op="c")
    world.run(pipeline)
    changed(database, {"id": 1, later[0]: 10, later[1]: 111}, *(field(name, "int64") for name in later))
    with pytest.raises(InputError, match="has the column b in another place: renamed, recreated, or after"):
        world.run(pipeline)
    assert world.rows("shop.orders", "id", "b") == Counter({(1, 10): 1, (2, 20): 1})


def test_a_kept_column_is_null_in_changed_rows_whatever_comes_with_them(world: Any, database: Database) -> None:
    kept = Cdc.debezium(database.source()) >> mirror(world).on_schema_change("keep")
    for id in (1, 2):
        changed(database, {"id": id, "name": f"a{id}"}, NAME, op="c")
    world.run(kept)
    changed(database, {"id": 1, "title": "b"}, TITLE)
    world.run(kept)
    changed(database, {"id": 3, "title": "c"}, TITLE, op="c")
    world.run(kept)
    wanted = {(1, None, "b"): 1, (2, "a2", None): 1, (3, None, "c"): 1}
    assert world.rows("shop.orders", "id", "name", "title") == Counter(wanted)


@pytest.mark.parametrize("how", ["DROP COLUMN name", "RENAME COLUMN name TO called"], ids=["dropped", "renamed"])
def test_a_column_that_somebody_takes_from_a_table_of_the_mirror_stops_the_run(
    world: Any, database: Database, how: str
) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    for id in (1, 2):
        changed(database, {"id": id, "name": f"a{id}"}, NAME, op="c")
    world.run(pipeline)
    world.sql(f"ALTER TABLE local.shop.orders {how}")
    changed(database, {"id": 2, "name": "b"}, NAME)
    with pytest.raises(InputError, match=r"local\.shop\.orders has no column name any more, which .*orders") as refused:
        world.run(pipeline)
    if "DROP" in how:
        world.run(Cdc.debezium(database.source()) >> mirror(world).on_schema_change("keep"))
        assert world.rows("shop.orders", "id", "name") == Counter({(1, None): 1, (2, "b"): 1})
    if "RENAME" in how:  # the fix, as it is written
        assert str(refused.value.fix).startswith("rename it back: ALTER TABLE ... RENAME COLUMN")
        world.sql("ALTER TABLE local.shop.orders RENAME COLUMN called TO name")
        world.run(pipeline)
        assert world.rows("shop.orders", "id", "name") == Counter({(1, "a1"): 1, (2, "b"): 1})


def test_columns_that_iceberg_keeps_for_itself_are_bad_records_before_anything_is_written(
    world: Any, database: Database
) -> None:
    changed(database, {"id": 1, "_pos": 7}, field("_pos", "int64"), op="c")
    database.send("public.other", {"id": 1}, created(1, "a"))
    with pytest.raises(InputError, match="has the column _pos, a name that Iceberg or Helios reserves"):
        world.run(Cdc.debezium(database.source()) >> mirror(world))
    aside = Cdc.debezium(database.source().on_bad_row("quarantine")) >> mirror(world).quarantine("bad.rows")
    world.run(aside)
    assert world.ids("shop.other") == [1]
    assert sum(world.rows("bad.rows", "reason").values()) == 1


def test_a_restored_server_goes_on_from_its_snapshot(world: Any, database: Database) -> None:
    pipeline = Cdc.debezium(database.source()) >> mirror(world)
    for id in (1, 2):
        changed(database, {"id": id, "name": f"a{id}"}, NAME, op="c", lsn=100_000 + id)
    world.run(pipeline)
    for id in (1, 2):
        changed(database, {"id": id, "name": f"b{id}"}, NAME, op="r", lsn=500, snapshot="true")
    world.run(pipeline)
    assert world.rows("shop.orders", "id", "name") == Counter({(1, "b1"): 1, (2, "b2"): 1})
    changed(database, {"id": 1, "title": "new"}, TITLE, lsn=600)
    with pytest.raises(InputError, match="no longer has the column name"):
        world.run(pipeline)
