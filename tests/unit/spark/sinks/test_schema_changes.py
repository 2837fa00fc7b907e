"""The columns that the tables of a mirror lose, by the schemas of their changes."""

from __future__ import annotations

from helios.spark.checkpoint.mirrored import NewestSchema
from helios.spark.sinks.schema_changes import compared
from helios.spark.sources.connect_types import PLAIN
from helios.spark.sources.debezium_versions import Version

ID, NAME, TITLE = (("id", PLAIN["int32"]), ("name", PLAIN["string"]), ("title", PLAIN["string"]))


def version(*fields: object, first: int, last: int) -> Version:
    return Version(fields, (), (0, first), (0, last))  # type: ignore[arg-type]


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
    assert (within.lost, within.returned) == (("name",), ())


def test_a_column_that_is_added_is_no_loss() -> None:
    change = compared([version(ID, first=30, last=31), version(ID, NAME, first=32, last=40)], newest(1, id="int"))
    assert (change.lost, change.returned) == ((), ())
    assert change.newest == newest(32, id="int", name="string")
    assert compared([Version((ID,), ())], None).newest is None
