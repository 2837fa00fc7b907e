"""Schema evolution as a pure function: modes, nested fields, renames and drops, messages, and what always holds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema as IcebergSchema

from helios.errors import Origin
from helios.plan.evolution.changes import Add, Mode, Policy, Target, evolved
from helios.plan.evolution.evolve import ALLOWED, Evolution, evolve
from helios.plan.evolution.fields import (
    Field,
    Fields,
    Path,
    cast_plan,
    from_pyiceberg,
    from_schema,
    iceberg_type,
    lossless,
    promotions,
)
from helios.plan.typing.schema import from_ddl
from helios.plan.typing.types import SparkType, decimal, parse_type

pytestmark = pytest.mark.promise("evolve")

HERE = Origin("script.py", 12)


def cols(ddl: str, *required: str) -> Fields:
    """Columns as Spark reports them: everything may be null but map keys and the dotted names in `required`."""

    def sure(known: Field, path: Path) -> Field:
        here = (*path, known.name)
        nullable = known.nullable is not False and ".".join(here) not in required
        return replace(known, nullable=nullable, parts=tuple(sure(p, here) for p in known.parts))

    return tuple(sure(f, ()) for f in from_schema(from_ddl(ddl)))


def found(
    stream: str | Fields,
    table: str | Fields,
    mode: Mode,
    *,
    renames: Iterable[tuple[str, str]] = (),
    drops: Iterable[str] = (),
    partitioned_by: Iterable[str] = (),
    sorted_by: Iterable[str] = (),
    identifiers: Iterable[str] = (),
    version: int = 2,
) -> Evolution:
    target = Target(
        name="a.t",
        fields=cols(table) if isinstance(table, str) else table,
        partitioned_by=frozenset(partitioned_by),
        sorted_by=frozenset(sorted_by),
        identifiers=frozenset(identifiers),
        format_version=version,
    )
    policy = Policy(mode=mode, renames=tuple(renames), drops=tuple(drops))
    return evolve(cols(stream) if isinstance(stream, str) else stream, target, policy, HERE)


def changes(evolution: Evolution) -> list[str]:
    assert [str(p) for p in evolution.problems] == []
    return [str(change) for change in evolution.changes]


def problem(evolution: Evolution) -> str:
    (only,) = evolution.problems
    assert evolution.changes == ()
    assert only.where == HERE
    return str(only)


def line(evolution: Evolution, column: str) -> str:
    """The line of the diff that tells of a column, with single spaces."""
    lines = [" ".join(text.split()) for text in problem(evolution).splitlines()]
    return next(text for text in lines if text[2:].startswith(f"{column} "))


STRICT_DIFFERENCES = [
    ("id bigint, b int", "id bigint", "+ b int"),
    ("id bigint", "id bigint, b int", "- b int"),
    ("id int", "id bigint", "~ id bigint -> int"),
    ("id bigint", "id int", "~ id int -> bigint"),
    ("s struct<a:int,b:int>", "s struct<a:int>", "+ s.b int"),
    ("s struct<a:int>", "s struct<a:int,b:int>", "- s.b int"),
    ("l array<struct<a:int,b:date>>", "l array<struct<a:int>>", "+ l.element.b date"),
    ("m map<string,int>", "m map<string,bigint>", "~ m.value bigint -> int"),
    ("s struct<a:int>", "s int", "~ s int -> struct<a:int>"),
    ("id void", "id bigint", "~ id bigint -> void"),
    ("id string", "id bigint", "~ id bigint -> string"),
]


@pytest.mark.parametrize(("stream", "table", "shown"), STRICT_DIFFERENCES)
def test_strict_stops_at_every_difference(stream: str, table: str, shown: str) -> None:
    assert line(found(stream, table, "strict"), shown.split()[1]) == shown


STRICT_EQUALS = [
    ("b int, A bigint", "a bigint, b int"),
    ("s struct<B:int,a:int>", "s struct<a:int,b:int>"),
    ("a tinyint, b smallint, c varchar(3), d char(2)", "a int, b int, c string, d string"),
    ("a string collate UTF8_LCASE, l array<smallint>", "a string, l array<int>"),
]


@pytest.mark.parametrize(("stream", "table"), STRICT_EQUALS)
def test_strict_takes_what_iceberg_stores_alike_in_any_order_and_case(stream: str, table: str) -> None:
    assert changes(found(stream, table, "strict")) == []


def test_strict_stops_where_the_stream_may_hold_nulls_that_the_table_refuses() -> None:
    stream, table = cols("id bigint, s struct<a:int>"), cols("id bigint, s struct<a:int>", "id", "s.a")
    refused = found(stream, table, "strict")
    assert line(refused, "id") == "~ id bigint not null -> bigint"
    assert line(refused, "s.a") == "~ s.a int not null -> int"
    assert changes(found(table, table, "strict")) == []
    assert changes(found(table, stream, "strict")) == []  # the other way round nothing is lost


def test_strict_leaves_to_the_run_what_inference_cannot_tell() -> None:
    inferred = from_schema(from_ddl("id bigint, s struct<a:int>, u unknown"))
    assert changes(found(inferred, cols("id bigint, s struct<a:int>, u date", "id", "s.a"), "strict")) == []


ADDED = [
    ("id bigint, c date", "id bigint", ["ADD COLUMN c date"], []),
    ("id bigint", "id bigint, c date", [], ["c: NULL"]),
    ("s struct<b:string,a:int>", "s struct<a:int>", ["ADD COLUMN s.b string"], []),
    (
        "l array<struct<a:int,b:map<string,tinyint>>>",
        "l array<struct<a:int>>",
        ["ADD COLUMN l.element.b map<string,int>"],
        ["l.element.b.value: CAST AS int"],
    ),
    ("m map<string,struct<a:int,b:int>>", "m map<string,struct<a:int>>", ["ADD COLUMN m.value.b int"], []),
    ("s struct<`b c`:int,a:int>", "s struct<a:int>", ["ADD COLUMN s.`b c` int"], []),
    (
        "a tinyint, b smallint, c varchar(3), d struct<x:char(2)>",
        "id int",
        ["ADD COLUMN a int", "ADD COLUMN b int", "ADD COLUMN c string", "ADD COLUMN d struct<x:string>"],
        ["id: NULL", "a: CAST AS int", "b: CAST AS int", "c: CAST AS string", "d.x: CAST AS string"],
    ),
    ("a int, B float, c decimal(9,2)", "a bigint, b double, c decimal(10,2)", [], [
        "a: CAST AS bigint", "b: CAST AS double", "c: CAST AS decimal(10,2)"]),
    ("n int, x smallint", "n decimal(12,2), x double", [], ["n: CAST AS decimal(12,2)", "x: CAST AS double"]),
    ("a void, s void, l array<void>", "a int, s struct<x:int>, l array<struct<y:int>>", [], [
        "a: CAST AS int", "s: CAST AS struct<x:int>", "l.element: CAST AS struct<y:int>"]),
    ("k map<int,int>", "k map<bigint,int>", [], ["k.key: CAST AS bigint"]),
    ("s struct<>", "s struct<a:int>", [], ["s.a: NULL"]),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["add_columns", "full"])
@pytest.mark.parametrize(("stream", "table", "made", "cast"), ADDED)
def test_new_columns_are_added_missing_ones_null_and_narrower_ones_cast(
    stream: str, table: str, made: list[str], cast: list[str], mode: Mode
) -> None:
    evolution = found(stream, table, mode)
    assert changes(evolution) == made
    assert [s for cell in cast_plan(cols(stream), evolution.fields) for s in cell.texts()] == cast


def test_what_is_new_is_optional_in_every_part() -> None:
    stream = cols("id int, s struct<a:int,l:array<int>,m:map<int,int>>", "s", "s.a", "s.l", "s.l.element", "s.m.value")
    evolution = found(stream, "id int", "full")
    assert evolution.fields == cols("id int, s struct<a:int,l:array<int>,m:map<int,int>>")


WIDENED = [
    ("n bigint", "n int", "n", "bigint"),
    ("n double", "n float", "n", "double"),
    ("n int", "n float", "n", "double"),
    ("n decimal(12,2)", "n decimal(9,2)", "n", "decimal(12,2)"),
    ("n decimal(9,1)", "n decimal(9,2)", "n", "decimal(10,2)"),
    ("n bigint", "n decimal(9,2)", "n", "decimal(21,2)"),
    ("s struct<a:bigint>", "s struct<a:int>", "s.a", "bigint"),
    ("l array<bigint>", "l array<int>", "l.element", "bigint"),
    ("l array<struct<a:double>>", "l array<struct<a:float>>", "l.element.a", "double"),
    ("m map<int,bigint>", "m map<int,int>", "m.value", "bigint"),
]


@pytest.mark.parametrize(("stream", "table", "column", "kind"), WIDENED)
def test_wider_types_need_full(stream: str, table: str, column: str, kind: str) -> None:
    assert changes(found(stream, table, "full")) == [f"ALTER COLUMN {column} TYPE {kind}"]
    refused = found(stream, table, "add_columns")
    assert line(refused, column).endswith("wider than the table's")
    assert 'Fix: write .evolve_schema("full")' in problem(refused)


UNFIT = [
    ("n string", "n int", "no lossless cast from string"),
    ("n int", "n string", "no lossless cast from int"),
    ("n bigint", "n double", "no lossless cast from bigint"),
    ("n double", "n bigint", "no lossless cast from double"),
    ("n decimal(9,3)", "n decimal(9,2)", "no lossless cast from decimal"),
    ("n decimal(38,2)", "n decimal(38,4)", "no lossless cast from decimal"),
    ("n timestamp", "n date", "no lossless cast from timestamp"),
    ("n timestamp_ntz", "n timestamp", "no lossless cast from timestamp_ntz"),
    ("n date", "n timestamp_ntz", "no lossless cast from date"),
    ("n timestamp_ntz", "n date", "no lossless cast from timestamp_ntz"),
    ("n struct<a:int>", "n int", "no lossless cast from struct"),
    ("n int", "n array<int>", "no lossless cast from int"),
    ("n map<string,int>", "n struct<a:int>", "no lossless cast from map"),
]


@pytest.mark.parametrize("mode", ["add_columns", "full"])
@pytest.mark.parametrize(("stream", "table", "why"), UNFIT)
def test_narrowing_and_unlike_types_always_stop(stream: str, table: str, why: str, mode: Mode) -> None:
    refused = found(stream, table, mode, version=3)
    assert why in line(refused, "n")
    assert "evolve_schema" not in problem(refused)


KEYS = [
    ("m map<bigint,int>", "m map<int,int>", "m.key"),
    ("m map<struct<a:int,b:int>,int>", "m map<struct<a:int>,int>", "m.key.b"),
    ("m map<struct<a:int>,int>", "m map<struct<a:int,b:int>,int>", "m.key.b"),
    ("m map<struct<a:bigint>,int>", "m map<struct<a:int>,int>", "m.key.a"),
]


@pytest.mark.parametrize("mode", ["add_columns", "full"])
@pytest.mark.parametrize(("stream", "table", "column"), KEYS)
def test_the_keys_of_a_map_are_never_altered(stream: str, table: str, column: str, mode: Mode) -> None:
    assert line(found(stream, table, mode), column).endswith("the keys of a map cannot be altered")


UNSTORABLE = [
    ("c void", "it has no type", 'cast(c="string")'),
    ("c struct<x:int,y:void>", "y: it has no type", 'drop("c")'),
    ("c array<struct<y:void>>", "element: y: it has no type", 'drop("c")'),
    ("c interval day to second", "Iceberg has no such type", 'cast(c="string")'),
    ("c time(6)", "Iceberg has no such type", 'cast(c="string")'),
    ("c variant", "needs a table of format version 3", 'cast(c="string")'),
    ("c struct<>", "a struct needs fields", 'drop("c")'),
    ("_row_id bigint", "Iceberg reserves this name", 'rename({"_row_id": "row_id"})'),
]


@pytest.mark.parametrize("mode", ["add_columns", "full"])
@pytest.mark.parametrize(("column", "why", "remedy"), UNSTORABLE)
def test_a_new_column_that_iceberg_cannot_store_stops(column: str, why: str, remedy: str, mode: Mode) -> None:
    refused = found(f"id int, {column}", "id int", mode)
    assert line(refused, column.split(maxsplit=1)[0]).endswith(why)
    assert problem(refused).endswith(f"Fix: make the stream fit with {remedy}.")


def test_a_variant_is_added_to_a_table_of_format_3() -> None:
    assert changes(found("id int, v variant", "id int", "add_columns", version=3)) == ["ADD COLUMN v variant"]


def test_under_add_columns_a_required_column_stays_required_and_may_not_be_missing() -> None:
    table = cols("id bigint, n int, s struct<a:int>", "id", "s.a")
    assert changes(found("id bigint, n int, s struct<a:int>", table, "add_columns")) == []
    refused = found("n int, s struct<b:int>", table, "add_columns")
    assert line(refused, "id") == "- id bigint not null the table requires it"
    assert line(refused, "s.a") == "- s.a int not null the table requires it"
    assert line(refused, "s.b") == "+ s.b int"
    assert problem(refused).endswith('1 other column is equal. Fix: write .evolve_schema("full").')


def test_nothing_but_nulls_for_a_required_column_stops_under_add_columns() -> None:
    table = cols("id bigint, n int", "id")
    refused = found("id void, n int", table, "add_columns")
    assert line(refused, "id") == "~ id bigint not null -> void the table refuses nulls"
    assert changes(found("id void, n int", table, "full")) == ["ALTER COLUMN id DROP NOT NULL"]


def test_full_makes_optional_what_the_stream_lacks_or_may_hold_as_null() -> None:
    ddl = "id bigint, n int, s struct<a:int,b:int>, l array<int>, m map<string,int>"
    table = cols(ddl, "id", "n", "s", "s.a", "s.b", "l.element", "m.value")
    stream = cols("n int, s struct<a:int>, l array<int>, m map<string,int>", "n", "s")
    assert changes(found(stream, table, "full")) == [
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN s.a DROP NOT NULL",
        "ALTER COLUMN s.b DROP NOT NULL",
        "ALTER COLUMN l.element DROP NOT NULL",
        "ALTER COLUMN m.value DROP NOT NULL",
    ]


def test_full_widens_and_relaxes_one_column_at_once() -> None:
    assert changes(found("id bigint", cols("id int", "id"), "full")) == [
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN id TYPE bigint",
    ]


def test_an_identifier_column_stays_required() -> None:
    table = cols("id bigint, s struct<key:int>", "id", "s", "s.key")
    of = {"identifiers": ["id", "s.key"]}
    assert changes(found("id bigint, s struct<key:int>", table, "full", **of)) == []
    refused = found("x int", table, "full", **of)
    assert line(refused, "id").endswith("the table requires it: it is an identifier column")
    assert line(refused, "s").endswith("the table requires it: it is an identifier column")


def test_a_required_column_with_a_default_may_be_missing() -> None:
    table = (Field("id", SparkType("int"), True), Field("c", SparkType("string"), False, default="'x'"))
    for mode in ("add_columns", "full"):
        evolution = found("id int", table, mode)
        assert changes(evolution) == []
        assert [step for cell in cast_plan(cols("id int"), evolution.fields) for step in cell.texts()] == ["c: 'x'"]


# the message


def test_the_diff_is_aligned_and_shows_only_what_differs() -> None:
    table = cols("id bigint, n int, country string, address struct<zip:int,city:string>, a int, b int", "id")
    stream = "id bigint, n bigint, address struct<zip:string,city:string>, a int, b int, `my note` string"
    assert problem(found(stream, table, "strict")) == (
        "script.py:12: the stream does not fit a.t (+ only in the stream, - only in the table, ~ from the table's to "
        "the stream's):\n"
        "  ~ id           bigint not null -> bigint\n"
        "  ~ n            int -> bigint\n"
        "  - country      string\n"
        "  ~ address.zip  int -> string\n"
        "  + `my note`    string\n"
        "  2 other columns are equal. "
        "Fix: give the stream the table's columns, or write another table."
    )


FIXES = [
    ("id bigint, b int", "id bigint", "strict", 'write .evolve_schema("add_columns"), or make the stream fit with '
     'drop("b").'),
    ("id bigint", "id int", "strict", 'write .evolve_schema("full"), or make the stream fit with cast(id="int").'),
    ("id bigint", "id bigint, b int", "strict", 'write .evolve_schema("add_columns"), or make the stream fit with '
     'with_columns(b="CAST(NULL AS int)").'),
    ("id string", "id int", "full", 'make the stream fit with cast(id="int").'),
    ("id bigint, s struct<a:string>", "id int, s struct<a:int>", "add_columns",
     "give the stream the table's columns, or write another table."),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "table", "mode", "fix"), FIXES)
def test_the_fix_names_the_mode_that_takes_it_or_steps_that_make_it_fit(
    stream: str, table: str, mode: Mode, fix: str
) -> None:
    assert problem(found(stream, table, mode)).endswith(f"equal. Fix: {fix}")


def test_names_that_differ_in_case_alone_are_refused() -> None:
    assert "the stream has two fields s.a and s.A" in problem(found("s struct<a:int,A:int>", "id int", "full"))
    assert "a.t has two fields id and ID" in problem(found("id int", "id int, ID int", "full"))


# renames and drops


def test_a_rename_keeps_the_column_and_is_done_once() -> None:
    policy = {"renames": [("Old", "new"), ("s.a", "s.b")]}
    evolution = found("new bigint, s struct<b:int>", "old bigint, s struct<a:int>", "full", **policy)
    assert changes(evolution) == ["RENAME COLUMN old TO new", "RENAME COLUMN s.a TO b"]
    assert evolution.fields == cols("new bigint, s struct<b:int>")
    assert changes(found("new bigint, s struct<b:int>", evolution.fields, "full", **policy)) == []


def test_changes_in_a_renamed_struct_follow_by_its_new_name() -> None:
    evolution = found("t struct<a:bigint,b:int>", cols("s struct<a:int>", "s"), "full", renames=[("s", "t")])
    assert changes(evolution) == [
        "RENAME COLUMN s TO t",
        "ALTER COLUMN t DROP NOT NULL",
        "ALTER COLUMN t.a TYPE bigint",
        "ADD COLUMN t.b int",
    ]


def test_a_rename_of_nothing_is_no_change_where_the_stream_brings_the_new_name() -> None:
    assert changes(found("id int, new int", "id int", "full", renames=[("old", "new")])) == ["ADD COLUMN new int"]


def test_drops_are_made_once_and_only_when_they_are_named() -> None:
    table = "id int, a int, s struct<x:int,y:int>"
    evolution = found("id int", table, "full", drops=["A", "s.y"])
    assert changes(evolution) == ["DROP COLUMN a", "DROP COLUMN s.y"]
    assert changes(found("id int", evolution.fields, "full", drops=["A", "s.y"])) == []
    assert changes(found("id int", table, "full")) == []


def test_a_struct_may_lose_all_its_fields_only_to_new_ones() -> None:
    refused = found("id int", "id int, s struct<x:int>", "full", drops=["s.x"])
    assert ".drops() empties s of a.t" in problem(refused)
    evolution = found("id int, s struct<y:int>", "id int, s struct<x:int>", "full", drops=["s.x"])
    assert changes(evolution) == ["DROP COLUMN s.x", "ADD COLUMN s.y int"]


TABLE = "id int, old int, other int, s struct<a:int,b:int>, l array<struct<a:int>>, m map<struct<k:int>,int>"
WRONG_RENAMES = [
    ([("old", "other")], "id int", "has both 'old' and 'other': a rename onto an existing column"),
    ([("s.a", "s.B")], "id int", "has both 's.a' and 's.B'"),
    ([("odl", "x")], "id int", r"has no column 'odl'. Did you mean 'old'?"),
    ([("old", "x")], "old int", "the stream still carries 'old'"),
    ([("s.a", "a")], "id int", "'s.a' cannot become 'a': a field cannot move out of its struct"),
    ([("s.a", "l.c")], "id int", "'s.a' cannot become 'l.c'"),
    ([("old", "s.c")], "id int", "'old' cannot become 's.c'"),
    ([("l.element", "l.x")], "id int", "'l.element' cannot become 'l.x'"),
    ([("m.key.k", "m.key.j")], "id int", "'m.key.k' cannot become 'm.key.j'"),
    ([("old", "_file")], "id int", "Iceberg reserves the name '_file'"),
    ([("old", "other"), ("other", "old")], "id int", "'old' and 'old' overlap, so a second run could not tell"),
    ([("old", "x"), ("x", "y")], "id int", "'x' and 'x' overlap"),
    ([("old", "x"), ("other", "X")], "id int", "'x' and 'X' overlap"),
    ([("old", "OLD")], "id int", "'old' and 'OLD' overlap"),
    ([("s", "t"), ("s.a", "s.c")], "id int", "'s' and 's.a' overlap"),
]  # fmt: skip


@pytest.mark.parametrize(("renames", "stream", "why"), WRONG_RENAMES)
def test_a_rename_that_cannot_be_or_is_unclear_is_refused(
    renames: list[tuple[str, str]], stream: str, why: str
) -> None:
    assert why in problem(found(stream, TABLE, "full", renames=renames))


def test_a_nested_identifier_cannot_be_renamed_but_a_whole_one_can() -> None:
    table = cols("id int, s struct<key:int,x:int>", "id", "s", "s.key")
    for pair in (("s.key", "s.k2"), ("s", "t")):
        refused = found("id int", table, "full", renames=[pair], identifiers=["s.key"])
        assert "Iceberg cannot rename" in problem(refused)
    evolution = found(cols("key int", "key"), cols("id int", "id"), "full", renames=[("id", "key")], identifiers=["id"])
    assert changes(evolution) == ["RENAME COLUMN id TO key"]
    evolution = found("key int", cols("id int", "id"), "full", renames=[("id", "key")], identifiers=["id"])
    assert changes(evolution) == ["RENAME COLUMN id TO key"]  # an identifier stays required under its new name too


WRONG_DROPS = [
    (["old"], "old int", "the stream still carries 'old'"),
    (["l.element"], "id int", "'l.element' of a.t is part of an array or map"),
    (["m.key.k"], "id int", "'m.key.k' of a.t is part of an array or map"),
    (["m.value"], "id int", "'m.value' of a.t is part of an array or map"),
    (["s", "s.a"], "id int", "'s' and 's.a' overlap"),
    (["old", "OLD"], "id int", "'old' and 'OLD' overlap"),
    (["Id"], "x int", "the rows of a.t are identified by 'Id'"),
    (["s"], "x int", "the rows of a.t are partitioned by 's'"),
    (["s.a"], "x int", "the rows of a.t are partitioned by 's.a'"),
    (["other"], "x int", "the rows of a.t are sorted by 'other'"),
]


@pytest.mark.parametrize(("drops", "stream", "why"), WRONG_DROPS)
def test_a_drop_of_what_is_carried_or_relied_on_is_refused(drops: list[str], stream: str, why: str) -> None:
    used = {"partitioned_by": ["s.a"], "sorted_by": ["Other"], "identifiers": ["id"]}
    assert why in problem(found(stream, TABLE, "full", drops=drops, **used))


def test_a_column_that_is_renamed_may_be_partitioned_by() -> None:
    evolution = found("id int, new int", "id int, old int", "full", renames=[("old", "new")], partitioned_by=["old"])
    assert changes(evolution) == ["RENAME COLUMN old TO new"]


@pytest.mark.parametrize("mode", ["strict", "add_columns"])
def test_renames_and_drops_need_full(mode: Mode) -> None:
    for named in ({"renames": [("old", "new")]}, {"drops": ["old"]}):
        refused = problem(found("id int", "id int, old int", mode, **named))
        assert f'renames and drops need .evolve_schema("full"), not .evolve_schema("{mode}")' in refused


def test_every_wrong_name_is_told_at_once() -> None:
    evolution = found("id int", TABLE, "full", renames=[("odl", "x"), ("s.a", "a")], drops=["m.value"])
    assert len(evolution.problems) == 3


# the table as PyIceberg and inference see it


def test_pyiceberg_tells_what_is_required_at_every_level() -> None:
    schema = IcebergSchema(
        ice.NestedField(1, "id", ice.LongType(), required=True, doc="the key"),
        ice.NestedField(
            2, "s", ice.StructType(ice.NestedField(3, "a", ice.IntegerType(), required=True)), required=False
        ),
        ice.NestedField(4, "l", ice.ListType(5, ice.DecimalType(9, 2), element_required=True), required=False),
        ice.NestedField(6, "m", ice.MapType(7, ice.StringType(), 8, ice.UUIDType(), value_required=False)),
        ice.NestedField(9, "t", ice.ListType(10, ice.TimeType(), element_required=True)),
        ice.NestedField(11, "d", ice.StringType(), required=True, write_default="x"),
    )
    fields = from_pyiceberg(schema)
    expected = cols(
        "id bigint, s struct<a:int>, l array<decimal(9,2)>, m map<string,string>, t unknown, d string",
        *("id", "s.a", "l.element", "d"),
    )
    assert [replace(f, default=None) for f in fields] == list(expected)
    assert fields[0].doc == "the key"
    assert fields[-1].default == "'x'"
    # A type that Spark cannot show is left to the run.
    assert changes(found("id bigint, t int", fields, "full"))[:1] == ["ALTER COLUMN id DROP NOT NULL"]


def test_a_comment_travels_with_a_new_column() -> None:
    stream = (replace(cols("c int")[0], doc="how many"),)
    (change,) = found(stream, "id int", "add_columns").changes
    assert isinstance(change, Add)
    assert change.doc == "how many"


# types


LOSSLESS = {
    "tinyint": {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,0)", "decimal(19,0)"}
    | {"decimal(9,2)"},
    "smallint": {"smallint", "int", "bigint", "float", "double", "decimal(10,0)", "decimal(19,0)", "decimal(9,2)"},
    "int": {"int", "bigint", "double", "decimal(10,0)", "decimal(19,0)"},
    "bigint": {"bigint", "decimal(19,0)"},
    "float": {"float", "double"},
    "double": {"double"},
    "decimal(10,0)": {"decimal(10,0)", "decimal(19,0)"},
    "decimal(19,0)": {"decimal(19,0)"},
    "decimal(9,2)": {"decimal(9,2)"},
    "date": {"date"},
    "timestamp": {"timestamp"},
    "string": {"string"},
    "binary": {"binary"},
    "boolean": {"boolean"},
    "void": set(),
}


def test_lossless_casts_are_exactly_these() -> None:
    for stream, table in ((a, b) for a in LOSSLESS for b in LOSSLESS):
        expected = stream == "void" or table in LOSSLESS[stream]
        # A tinyint of Spark is an int of Iceberg.
        expected = expected or table == str(iceberg_type(parse_type(stream)))
        assert lossless(parse_type(stream), parse_type(table)) is expected, f"{stream} into {table}"


def test_a_promotion_is_one_of_iceberg_and_keeps_every_value() -> None:
    assert list(map(str, promotions(SparkType("int")))) == ["bigint"]
    assert promotions(decimal(36, 3)) == (decimal(37, 3), decimal(38, 3))
    assert promotions(decimal(38, 0)) == promotions(SparkType("date")) == promotions(SparkType("void")) == ()


# what always holds


PLAIN = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(12,2)")
PLAIN += ("decimal(12,4)", "string", "varchar(3)", "binary", "date", "timestamp", "timestamp_ntz")
NAMES = ("a", "b", "c", "d", "e", "my col", "x.y", "B2", "Ä")


def types(depth: int) -> st.SearchStrategy[SparkType]:
    plain = st.sampled_from(PLAIN).map(parse_type)
    if depth == 0:
        return plain
    inner = types(depth - 1)
    structs = st.lists(st.tuples(st.sampled_from(NAMES), inner), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return st.one_of(
        plain,
        structs.map(lambda fs: SparkType("struct", parts=tuple(t for _, t in fs), fields=tuple(n for n, _ in fs))),
        inner.map(lambda t: SparkType("array", parts=(t,))),
        st.tuples(plain, inner).map(lambda kv: SparkType("map", parts=kv)),
    )


def schemas(stored_types: bool) -> st.SearchStrategy[Fields]:
    """Schemas of a stream, or of a table, which has only types that Iceberg has."""
    named = st.lists(st.tuples(st.sampled_from(NAMES), types(2)), min_size=1, max_size=4, unique_by=lambda f: f[0])

    def make(drawn: tuple[Sequence[tuple[str, SparkType]], int]) -> Fields:
        rng = random.Random(drawn[1])
        made = (_nullable(Field.of(n, t, True), rng) for n, t in drawn[0])
        return tuple(_stored(f) if stored_types else f for f in made)

    return st.tuples(named, st.integers(0, 2**32)).map(make)


def _nullable(known: Field, rng: random.Random) -> Field:
    nullable = known.nullable is not False and rng.random() < 0.6
    return replace(known, nullable=nullable, parts=tuple(_nullable(p, rng) for p in known.parts))


def _stored(known: Field) -> Field:
    return replace(known, type=iceberg_type(known.type), parts=tuple(map(_stored, known.parts)))


def mutated(table: Fields, rng: random.Random, in_key: bool = False, container: str = "struct") -> Fields:
    """A stream that `full` must take: fields gone, new, renamed in case, widened, narrowed, nullable, in any order."""
    made = []
    for one in table:
        key = in_key or (container == "map" and one.name == "key")
        if container == "struct" and not key and rng.random() < 0.2:
            continue
        name = one.name.swapcase() if container == "struct" and rng.random() < 0.2 else one.name
        kind = one.type
        if not one.nested:
            kinds = [k for k in map(parse_type, PLAIN) if lossless(k, kind)]
            kind = rng.choice([*kinds, *(() if key else promotions(kind)[:3])])
        nullable = rng.random() < 0.5 and not (container == "map" and one.name == "key")
        made.append(
            replace(one, name=name, type=kind, nullable=nullable, parts=mutated(one.parts, rng, key, kind.name))
        )
    if container == "struct" and not in_key:
        names = {f.name.lower() for f in table}
        new = [n for n in ("n1", "N2") if n.lower() not in names and rng.random() < 0.4]
        made += [Field.of(n, parse_type(rng.choice(("int", "tinyint", "struct<q:varchar(2)>"))), True) for n in new]
        rng.shuffle(made)
    return tuple(made)


def paths(fields: Fields, path: Path = ()) -> dict[Path, Field]:
    here: dict[Path, Field] = {}
    for one in fields:
        place = (*path, one.name.lower())
        here |= {place: one, **paths(one.parts, place)}
    return here


def of(fields: Fields) -> Target:
    return Target(name="a.t", fields=fields)


FULL = Policy(mode="full")


@settings(max_examples=300, deadline=None)
@given(schemas(stored_types=True), st.integers(0, 2**32))
def test_full_takes_every_lossless_evolution_and_then_has_nothing_to_do(table: Fields, seed: int) -> None:
    stream = mutated(table, random.Random(seed))
    first = evolve(stream, of(table), FULL)
    assert [str(p) for p in first.problems] == []
    assert first.fields == evolved(table, first.changes)
    again = evolve(stream, of(first.fields), FULL)
    assert (again.changes, again.problems, again.fields) == ((), (), first.fields)
    assert evolve(stream, of(first.fields), Policy(mode="add_columns")).changes == ()
    _nothing_is_lost(stream, table, first)


@settings(max_examples=300, deadline=None)
@given(schemas(stored_types=True), schemas(stored_types=False), st.integers(0, 2**32), st.integers(0, 3))
def test_of_any_two_schemas_each_mode_takes_what_the_one_before_it_takes(
    table: Fields, other: Fields, seed: int, kind: int
) -> None:
    rng = random.Random(seed)
    stream = (other, mutated(table, rng), table, tuple(_nullable(f, rng) for f in table[::-1]))[kind]
    results = [evolve(stream, of(table), Policy(mode=mode)) for mode in ALLOWED]
    taken = [not result.problems for result in results]
    assert taken == sorted(taken)
    assert taken[0] == (_shape(stream) == _shape(table) and _nulls_fit(stream, table))
    for result in results:
        if result.problems:
            assert result.changes == ()
            assert result.fields == table
        else:
            assert evolve(stream, of(result.fields), FULL).problems == ()
            _nothing_is_lost(stream, table, result)


@settings(max_examples=200, deadline=None)
@given(schemas(stored_types=True), st.integers(0, 2**32))
def test_renames_and_drops_of_any_columns_are_made_once(table: Fields, seed: int) -> None:
    rng = random.Random(seed)
    chosen = [f.name for f in table if rng.random() < 0.6 and "." not in f.name]
    drops = tuple(n for n in chosen if rng.random() < 0.3)[: len(table) - 1]
    renames = tuple((n, f"{n}_new") for n in chosen if n not in drops)
    names = dict(renames)
    stream = tuple(replace(f, name=names.get(f.name, f.name)) for f in table if f.name not in drops)
    policy = Policy(mode="full", renames=renames, drops=drops)
    first = evolve(stream, of(table), policy)
    assert [str(p) for p in first.problems] == []
    assert first.fields == stream
    assert evolve(stream, of(first.fields), policy).changes == ()


def _nothing_is_lost(stream: Fields, table: Fields, result: Evolution) -> None:
    after, before, ours = paths(result.fields), paths(table), paths(stream)
    assert set(after) == set(before) | set(ours)
    for path, known in ours.items():
        assert known.nested or lossless(known.type, after[path].type)
    for path, known in before.items():
        assert known.nested or lossless(known.type, after[path].type)
        assert not (known.nullable and after[path].nullable is False)


def _shape(fields: Fields) -> dict[Path, SparkType]:
    return {path: iceberg_type(known.type) for path, known in paths(fields).items()}


def _nulls_fit(stream: Fields, table: Fields) -> bool:
    ours = paths(stream)
    return not any(f.nullable is False and ours[path].nullable for path, f in paths(table).items())


# columns that a source has renamed


def after_renames(stream: str, table: str, *sources: tuple[str, str], mode: Mode = "add_columns") -> Evolution:
    return evolve(cols(stream), of(cols(table)), Policy(mode=mode, source_renames=sources), HERE)


@pytest.mark.parametrize("mode", ["strict", "add_columns", "full"])
def test_a_column_that_its_source_has_renamed_is_not_added_beside_the_former_one(mode: Mode) -> None:
    text = problem(after_renames("id int, Cost int", "ID int, Price int", ("price", "cost"), mode=mode))
    assert "its source has renamed price, which would be null" in text
    assert 'rename({"Cost": "price"})' in text
    assert '.evolve_schema("full").renames({"price": "cost"})' in text
    assert 'write .evolve_schema("full"),' not in text


def test_a_nested_field_that_its_source_has_renamed_stops_too() -> None:
    text = problem(after_renames("s struct<b: int>", "s struct<a: int>", ("s.a", "s.b")))
    assert '.renames({"s.a": "s.b"})' in text


def test_names_of_sources_that_split_nothing_change_nothing() -> None:
    assert changes(after_renames("a int, b int", "a int", ("a", "b"))) == ["ADD COLUMN b int"]
    assert changes(after_renames("b int", "c int", ("a", "b"))) == ["ADD COLUMN b int"]
    assert changes(after_renames("b int", "a int, b int", ("a", "b"))) == []
