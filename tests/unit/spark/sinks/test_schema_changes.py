"""The columns that the tables of a mirror lose, by the schemas of their changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from pyspark.sql import Row

from helios.spark.checkpoint.mirrored import NewestSchema
from helios.spark.sinks.schema_changes import compared, told
from helios.spark.sources.connect_types import NAMED, PLAIN, of_connect
from helios.spark.sources.debezium_tables import SourceTable
from helios.spark.sources.debezium_versions import Version, columns_of, found_in
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
    assert not compared([replace(more, filled=frozenset()), version(ID, TITLE, NAME, first=10, last=11)], before).filled


def test_what_fills_a_new_column_is_read_from_the_schema() -> None:
    fields = [{"type": "int32", "field": name, "optional": True} for name in ("a", "b", "c")]
    text = json.dumps(schema({**fields[0], "optional": False}, {**fields[1], "default": 0}, fields[2]))
    at = {"file": 0, "position": 7}
    row = Row(
        schema=text, names=["a"], good=True, newest=1, first=Row(**at), last=Row(**at), begin=None, snapshot=False
    )
    [found] = found_in([Row(**{**row.asDict(), "begin": Row(timestamp=1, partition=0, offset=3, op="c")})]).versions
    assert (found.filled, found.first) == ({"a", "b"}, (0, 7))
    assert [name for name, _ in columns_of(text)] == ["a", "b", "c"]


def test_all_that_has_changed_is_told() -> None:
    change = compared(
        [version(ID, NAME, ("n", DOUBLE), first=1, last=2), version(ID, TITLE, ("n", INT), first=3, last=4)], None
    )
    what, stays, values = told(change, SourceTable("p", "db", "public", "t"), "a.t")
    assert what == (
        "db.public.t of p no longer has the column name (and new: title): renamed, dropped, or left out by Debezium, "
        "and has columns of another type: n was double and is int"
    )
    assert stays.startswith("a.t keeps it, null in new and changed rows, and a.t keeps the former values in rows")
    assert "keep those of a dropped one, and rows that do not change would keep the values from before" in values
