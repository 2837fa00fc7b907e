"""Types of file columns: unions, casts, and nanoseconds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from helios import Files
from helios.errors import InputError, RunError
from helios.sources.common.spark.schema_differences import extras, with_extras
from helios.sources.common.spark.types import castable, lossless, united

pytestmark = [pytest.mark.usefixtures("shared_spark"), pytest.mark.promise("files")]  # Spark parses the types


def kind(text: str) -> Any:
    schema = StructType.fromDDL(f"x {text}")
    assert isinstance(schema, StructType)
    return schema.fields[0].dataType


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("int", "bigint", "bigint"),
        ("float", "double", "double"),
        ("decimal(8,1)", "decimal(9,4)", "decimal(11,4)"),
        ("int", "decimal(4,2)", "decimal(12,2)"),
        ("int", "double", None),
        ("string", "int", None),
        ("timestamp", "timestamp_ntz", None),
        ("decimal(38,0)", "decimal(38,38)", None),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("struct<a:int>", "struct<A:bigint,b:string>", "struct<a:bigint,b:string>"),
        ("map<string,int>", "map<string,bigint>", "map<string,bigint>"),
    ],
)
def test_the_union_of_two_types(a: str, b: str, both: str | None) -> None:
    found = united(kind(a), kind(b))
    assert (found.simpleString() if found is not None else None) == both


@pytest.mark.parametrize(
    ("a", "b", "both"), [("int", "double", "double"), ("int", "string", "string"), ("date", "timestamp", "timestamp")]
)
def test_the_union_of_two_guesses(a: str, b: str, both: str) -> None:
    assert united(kind(a), kind(b), inferred=True).simpleString() == both  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("own", "wanted", "keeps", "may"),
    [
        ("int", "bigint", True, True),
        ("bigint", "int", False, True),
        ("bigint", "double", False, True),
        ("decimal(8,1)", "double", False, True),
        ("decimal(8,1)", "decimal(10,2)", True, True),
        ("decimal(8,1)", "decimal(8,2)", False, True),
        ("int", "decimal(10,0)", True, True),
        ("timestamp", "date", False, True),
        ("boolean", "int", False, False),
        ("binary", "int", False, False),
        ("int", "timestamp", False, False),
        ("struct<a:int>", "struct<a:bigint,b:int>", True, True),
        ("struct<a:bigint>", "struct<a:int>", False, False),
        ("array<string>", "array<int>", False, False),
    ],
)
def test_which_casts_keep_every_value(own: str, wanted: str, keeps: bool, may: bool) -> None:
    assert (lossless(kind(own), kind(wanted)), castable(kind(own), kind(wanted))) == (keeps, may)


def test_nested_fields_that_are_not_wanted() -> None:
    own = StructType.fromDDL("id int, s struct<a:int,b:array<struct<c:int,d:int>>>, more int")
    wanted = StructType.fromDDL("ID int, s struct<b:array<struct<c:int>>>")
    assert isinstance(own, StructType)
    assert isinstance(wanted, StructType)
    assert extras(own, wanted) == ["s.a", "s.b.d", "more"]
    assert with_extras(wanted, own).simpleString() == (
        "struct<ID:int,s:struct<b:array<struct<c:int,d:int>>,a:int>,more:int>"
    )


# nanoseconds

BEFORE, EXACT, ODD = -1_000, 1_767_323_045_123_456_000, 1_767_323_045_123_456_789
"""A microsecond before 1970, an instant in whole microseconds, and one between two of them."""


def write(folder: Path, name: str, **columns: pa.Array) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)


def nanos(*values: int | None, zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.timestamp("ns", zone))


@pytest.mark.landing
def test_timestamps_in_nanoseconds_are_read_beside_others(world: Any) -> None:
    folder = world.folder / "in"
    write(folder, "a.parquet", t=nanos(BEFORE, EXACT, None), u=nanos(BEFORE, EXACT, None, zone="Europe/Berlin"))
    exact, before = datetime(2026, 1, 2, 3, 4, 5, 123456), datetime(1969, 12, 31, 23, 59, 59, 999999)
    write(folder, "b.parquet", t=pa.array([exact]), u=pa.array([exact.replace(tzinfo=UTC)]))
    world.run(Files.source(str(folder)).incremental(poll=1) >> world.sink("a.t"))
    assert [str(field.field_type) for field in world.load("a.t").iceberg.schema().fields] == [
        "timestamp",
        "timestamptz",
    ]
    expected = {(t, t and t.replace(tzinfo=UTC)): n for t, n in ((before, 1), (exact, 2), (None, 1))}
    assert world.rows("a.t", "t", "u") == expected


def test_a_timestamp_between_two_microseconds_is_a_bad_row(world: Any) -> None:
    folder = world.folder / "in"
    write(folder, "a.parquet", t=nanos(EXACT, ODD))
    source = Files.source(str(folder))
    with pytest.raises(
        RunError, match=rf"a\.parquet: t, in nanoseconds, does not fit timestamp_ntz.*{ODD}.*on_bad_row"
    ):
        world.run(source >> world.sink("a.fail"))
    world.run(source.on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert world.rows("a.t") == {(datetime(2026, 1, 2, 3, 4, 5, 123456),): 1}
    [(payload, reason)] = world.rows("a.q", "payload", "reason")
    assert json.loads(json.loads(payload)["text"]) == {"t": ODD}
    assert reason == "t, in nanoseconds, does not fit timestamp_ntz (bigint does)"
    world.run(Files.source(str(folder), schema="t bigint") >> world.sink("a.n"))
    assert world.rows("a.n") == {(EXACT,): 1, (ODD,): 1}
    with pytest.raises(InputError, match="t is timestamp_ntz, which cannot be read as int"):
        world.run(Files.source(str(folder), schema="t int") >> world.sink("a.i"))
    write(folder, "a.parquet", id=pa.array([1]), u=nanos(EXACT), t=pa.array([datetime(2026, 1, 2, 3, 4, 5, 123456)]))
    world.run(Files.source(str(folder), schema="id bigint", rescued="more") >> world.sink("a.r"))
    assert world.rows("a.r", "more") == {(f'{{"u":{EXACT},"t":"2026-01-02T03:04:05.123456"}}',): 1}


def test_nanoseconds_inside_a_column_are_refused(world: Any) -> None:
    write(world.folder / "in", "a.parquet", s=pa.array([[EXACT]], pa.list_(pa.timestamp("ns"))))
    with pytest.raises(RunError, match=r"a\.parquet cannot be read: s has nested timestamps in nanoseconds"):
        world.run(Files.source(str(world.folder / "in")) >> world.sink("a.t"))
