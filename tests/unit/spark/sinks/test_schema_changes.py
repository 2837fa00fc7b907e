"""The columns that the tables of a mirror lose, by the schemas of their changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from pyspark.sql import Row

from helios.sources.changes.spark.tables import SourceTable
from helios.sources.changes.spark.types import NAMED, PLAIN, ConnectType, of_connect
from helios.sources.changes.spark.versions import Version, columns_of, versions_of
from helios.spark.checkpoint.mirrored import NewestSchema
from helios.spark.sinks.schema_changes import compared, messages_of
from tests.kafka.changes import schema

ID, NAME, TITLE = (("id", PLAIN["int32"]), ("name", PLAIN["string"]), ("title", PLAIN["string"]))


def version(*fields: object, first: int, last: int, file: int = 0, filled: Iterable[str] = ()) -> Version:
    return Version(fields, (), (file, first), (file, last), frozenset(filled))  # type: ignore[arg-type]


def newest(since: int, *kept: str, **columns: str) -> NewestSchema:
    return NewestSchema(columns, (0, since), kept)


def test_a_column_that_a_later_schema_lacks_is_lost() -> None:
    change = compared([version(ID, NAME, first=1, last=5), version(ID, TITLE, first=6, last=9)], None)
    assert (change.lost, change.gained) == (("name",), ("title",))
    assert change.newest == newest(6, "name", id="int", title="string")
    # Read again, and what Debezium sends again, is no new loss; nor is what comes after it.
    again = compared([version(ID, NAME, first=1, last=5), version(ID, TITLE, first=6, last=9)], change.newest)
    assert (again.lost, again.returned) == ((), ())
    later = compared([version(ID, TITLE, first=10, last=12)], again.newest)
    assert (later.lost, later.returned) == ((), ())


def test_older_schemas_that_are_sent_again_lose_nothing() -> None:
    before = newest(20, id="int", name="string")
    change = compared([version(ID, first=10, last=15)], before)
    assert (change.lost, change.newest) == ((), before)
    assert compared([version(ID, first=10, last=21)], before).lost == ("name",)


def test_a_column_that_comes_again_is_told() -> None:
    before = newest(20, "name", id="int")
    change = compared([version(ID, NAME, first=30, last=40)], before)
    assert (change.lost, change.returned) == ((), ("name",))
    assert change.newest == newest(30, id="int", name="string")
    within = compared([version(ID, NAME, first=1, last=9), version(ID, first=3, last=4)], None)
    assert (within.lost, within.returned) == ((), ("name",))
    # The same batch once more, after it was kept.
    assert not compared([version(ID, NAME, first=1, last=9), version(ID, first=3, last=4)], within.newest).unsent


def test_a_column_that_is_added_is_no_loss() -> None:
    change = compared([version(ID, first=30, last=31), version(ID, NAME, first=32, last=40)], newest(1, id="int"))
    assert (change.lost, change.returned) == ((), ())
    assert change.newest == newest(32, id="int", name="string")
    assert compared([Version((ID,), ())], None).newest is None


INT, LONG, FLOAT, DOUBLE, TEXT = (PLAIN[name] for name in ("int32", "int64", "float", "double", "string"))
MILLIS, MICROS = (NAMED[f"io.debezium.time.{name}"]({}) for name in ("Timestamp", "MicroTimestamp"))
UUID = of_connect({"type": "string", "name": "io.debezium.data.Uuid"})
LIST, LONGS = (of_connect({"type": "array", "items": {"type": name}}) for name in ("int32", "int64"))


def decimal(precision: int, scale: int) -> object:
    parameters = {"scale": scale, "connect.decimal.precision": precision}
    return NAMED["org.apache.kafka.connect.data.Decimal"]({"parameters": parameters})


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        *((INT, LONG, True), (LONG, INT, True), (FLOAT, DOUBLE, True), (DOUBLE, FLOAT, False), (DOUBLE, INT, False)),
        *(
            (MILLIS, MICROS, True),
            (MICROS, MILLIS, False),
            (UUID, PLAIN["string"], True),
            (PLAIN["string"], UUID, False),
        ),
        *((LIST, LONGS, True), (decimal(12, 2), decimal(9, 2), True), (decimal(12, 4), decimal(12, 2), False)),
    ],
)
def test_a_type_whose_values_may_be_others_is_told(old: object, new: object, same: bool) -> None:
    versions = [version(ID, ("n", old), first=1, last=5), version(ID, ("n", new), first=6, last=9)]
    change = compared(versions, None)
    assert change.unsent is not same
    assert [name for name, _, _ in change.retyped] == ([] if same else ["n"])
    assert not compared(versions, change.newest).unsent  # a batch that is written once more, and what is sent again
    assert compared(versions[1:], compared(versions[:1], None).newest).unsent is not same


def test_columns_in_another_order_were_renamed_or_made_again() -> None:
    before = newest(5, id="int", name="string", title="string")
    swapped = compared([version(ID, TITLE, NAME, first=6, last=9)], before)
    assert swapped.moved == ("name", "title")
    assert not compared([version(ID, TITLE, NAME, first=7, last=9)], swapped.newest).unsent
    of_a_binlog = NewestSchema(before.columns, (3, 5))
    assert not compared([version(ID, TITLE, NAME, first=6, last=9, file=3)], of_a_binlog).unsent


def test_a_new_column_with_a_value_in_rows_from_before_is_told() -> None:
    before, more = newest(5, id="int"), version(ID, NAME, first=6, last=9, filled=["id", "name"])
    change = compared([more], before)
    assert change.filled == ("name",)
    assert not compared([more], change.newest).unsent
    assert not compared([more], None).unsent  # a table that begins with it
    # A default that came after the column has filled no row.
    assert not compared(
        [replace(more, filled_columns=frozenset()), version(ID, TITLE, NAME, first=10, last=11)], before
    ).filled


def test_what_fills_a_new_column_is_read_from_the_schema() -> None:
    fields = [{"type": "int32", "field": name, "optional": True} for name in ("a", "b", "c")]
    text = json.dumps(schema({**fields[0], "optional": False}, {**fields[1], "default": 0}, fields[2]))
    at = {"file": 0, "position": 7}
    row = Row(
        schema=text,
        names=["a"],
        good=True,
        newest=1,
        first=Row(**at),
        last=Row(**at),
        begin=None,
        snapshot=False,
        taken=None,
        ended=None,
    )
    [found] = versions_of([Row(**{**row.asDict(), "begin": Row(timestamp=1, partition=0, offset=3, op="c")})]).versions
    assert (found.filled_columns, found.first_position) == ({"a", "b"}, (0, 7))
    assert [name for name, _ in columns_of(text)] == ["a", "b", "c"]


def test_all_that_has_changed_is_told() -> None:
    change = compared(
        [version(ID, NAME, ("n", DOUBLE), first=1, last=2), version(ID, TITLE, ("n", INT), first=3, last=4)], None
    )
    what, stays, values = messages_of(change, SourceTable("p", "db", "public", "t"), "a.t")
    assert what == (
        "db.public.t of p no longer has the column name (and new: title): renamed, dropped, or left out by Debezium, "
        "and has columns of another type: n was double and is int"
    )
    assert stays.startswith("a.t keeps it, null in new and changed rows, and a.t keeps the former values in rows")
    assert "keep those of a dropped one, and rows that do not change would keep the values from before" in values


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("decimal(50,10)", "decimal(50,2)", False),
        ("decimal(50,10)", "text", True),
        ("decimal(50,10)", "any scale", True),
        ("text", "any scale", False),
        ("any scale", "text", True),
        ("text", "time", False),
        ("time", "text", True),
        ("time", "time(3)", False),
        ("time(3)", "time", True),
        ("timestamp[]", "timestamp(3)[]", False),
        ("text[]", "uuid[]", False),
        ("uuid[]", "text[]", True),
        ("enum(sad,ok)", "enum(sad,ok,glad)", True),
        ("enum(sad,ok)", "enum(blue,ok)", False),
        ("enum(sad,ok,glad)", "enum(sad,ok)", True),
        ("enum(sad,ok)", "text", True),
    ],
)
def test_types_that_are_text_here_are_told_apart(old: str, new: str, same: bool) -> None:
    one, other = (version(ID, ("v", KINDS[kind]), first=at, last=at) for kind, at in ((old, 1), (new, 5)))
    assert bool(compared([one, other], None).retyped) is not same
    known = compared([one], None).newest
    assert bool(compared([other], known).retyped) is not same


def _decimal(scale: int) -> ConnectType:
    parameters = {"scale": str(scale), "connect.decimal.precision": "50"}
    return of_connect({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters})


def _named(name: str, kind: str = "string", **more: object) -> ConnectType:
    return of_connect({"type": kind, "name": f"io.debezium.{name}", **more})


def _array(name: str | None, kind: str) -> ConnectType:
    return of_connect({"type": "array", "items": {"type": kind, "name": name and f"io.debezium.{name}"}})


KINDS = {
    "decimal(50,10)": _decimal(10),
    "decimal(50,2)": _decimal(2),
    "any scale": _named("data.VariableScaleDecimal", "struct", fields=[]),
    "text": PLAIN["string"],
    "time": _named("time.MicroTime", "int64"),
    "time(3)": _named("time.Time", "int32"),
    "timestamp[]": _array("time.MicroTimestamp", "int64"),
    "timestamp(3)[]": _array("time.Timestamp", "int64"),
    "text[]": _array(None, "string"),
    "uuid[]": _array("data.Uuid", "string"),
    **{
        f"enum({values})": _named("data.Enum", parameters={"allowed": values})
        for values in ("sad,ok", "sad,ok,glad", "blue,ok")
    },
}


def test_a_column_behind_a_new_one_was_made_anew() -> None:
    """PostgreSQL adds columns behind all others: it was renamed, and added again."""
    change = compared([version(ID, NAME, first=1, last=1), version(ID, TITLE, NAME, first=5, last=5)], None)
    assert change.moved == ("name",)
    assert not compared([version(ID, NAME, first=1, last=1), version(ID, NAME, TITLE, first=5, last=5)], None).unsent
    binlog = [version(ID, NAME, first=1, last=1, file=3), version(ID, TITLE, NAME, first=5, last=5, file=3)]
    assert not compared(binlog, None).unsent


def test_the_log_of_a_server_that_was_restored_goes_on_from_its_snapshot() -> None:
    before = newest(1000, id="int", name="string")
    snapshot = replace(version(ID, NAME, first=50, last=50), snapshot_position=(0, 50))
    restored = compared([snapshot], before)
    assert not restored.unsent
    assert restored.newest is not None
    assert (restored.newest.start, restored.newest.snapshots) == ((0, 49), ((0, 50),))
    assert compared([snapshot], restored.newest).newest == restored.newest
    assert compared([version(ID, TITLE, first=60, last=60)], restored.newest).lost == ("name",)
    other = replace(version(ID, first=50, last=50), snapshot_position=(0, 50))
    assert compared([other], before).lost == ("name",)


@pytest.mark.parametrize("last", [100, 1000])
def test_a_snapshot_that_is_read_again_is_none_of_a_restored_server(last: int) -> None:
    """The same batch once more, and the rest of the snapshot that another partition has behind the log."""
    snapshot = replace(version(ID, NAME, first=100, last=last), snapshot_position=(0, 100))
    grown = version(ID, NAME, TITLE, first=200, last=max(200, last))
    change = compared([snapshot, grown], None)
    again = compared([snapshot, grown], change.newest)
    assert not again.unsent
    assert again.newest == change.newest
    assert not compared([replace(snapshot, last_position=(0, 100))], change.newest).unsent


def test_a_restored_snapshot_among_the_last_changes_from_before_is_the_newest() -> None:
    before = newest(400, id="int", name="string")
    snapshot = replace(version(ID, first=500, last=500), snapshot_position=(0, 500))
    change = compared([version(ID, NAME, first=900, last=1000), snapshot], replace(before, start=(0, 800)))
    assert change.lost == ("name",)
    assert change.newest is not None
    assert list(change.newest.columns) == ["id"]


def test_changes_that_are_sent_again_after_a_restart_count_one_way() -> None:
    """Debezium says an enum's values as they are when it starts, and times in another unit."""
    for old, new in (("enum(sad,ok)", "enum(sad,ok,glad)"), ("time(3)", "time")):
        versions = [version(("v", KINDS[old]), first=1, last=100), version(("v", KINDS[new]), first=90, last=150)]
        assert not compared(versions, None).unsent
