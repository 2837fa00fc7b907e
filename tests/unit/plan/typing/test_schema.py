from __future__ import annotations

import contextlib
import datetime as dt
from collections import namedtuple
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema as IcebergSchema

from helios.errors import DeclarationError, Origin
from helios.plan.typing.schema import Column, Schema, from_arrow, from_ddl, from_pyiceberg, from_rows
from helios.plan.typing.types import (
    SparkType,
    TypeProblem,
    array,
    decimal,
    parse_columns,
    parse_type,
    quoted,
    struct,
    unquoted,
    wider,
)

HERE = Origin("script.py", 12)


def shown(schema: Schema) -> dict[str, str]:
    return {c.name: c.type for c in schema.columns}


def test_a_schema_finds_names_without_regard_to_case() -> None:
    schema = Schema((Column("Id", "bigint", False), Column("my col", "string")))
    assert schema.names == ("Id", "my col")
    assert schema.get("ID") == Column("Id", "bigint", False)
    assert schema.get("nope") is None
    assert schema.as_json() == [
        {"name": "Id", "type": "bigint", "nullable": False},
        {"name": "my col", "type": "string", "nullable": True},
    ]
    assert schema.text() == "Id      bigint  not null\nmy col  string"


def test_an_empty_schema_has_an_empty_text() -> None:
    assert Schema(()).text() == ""


def test_a_schema_with_one_uncertain_name_is_not_exact() -> None:
    assert Schema((Column("a", "int"),)).exact
    assert not Schema((Column("a", "int"), Column("a + 1", "int", exact=False))).exact


# The right sides are what pyspark 4.1.4 reads from the same text.
DDL = [
    ("id bigint NOT NULL", "id", "bigint", False),
    ("`my col` decimal(10, 2) NOT NULL COMMENT 'a, b'", "my col", "decimal(10,2)", False),
    ("s STRUCT<a: INT, b: array<string> NOT NULL COMMENT 'x'>", "s", "struct<a:int,b:array<string>>", True),
    ("m map<string, struct<q:date>>", "m", "map<string,struct<q:date>>", True),
    ("v varchar(10)", "v", "varchar(10)", True),
    ("c character(3)", "c", "char(3)", True),
    ("t timestamp_ltz", "t", "timestamp", True),
    ("t timestamp_ntz", "t", "timestamp_ntz", True),
    ("iv interval day to second", "iv", "interval day to second", True),
    ("d dec", "d", "decimal(10,0)", True),
    ("d decimal(5)", "d", "decimal(5,0)", True),
    ("n numeric(5,1)", "n", "decimal(5,1)", True),
    ("l long", "l", "bigint", True),
    ("i INTEGER", "i", "int", True),
    ("y short", "y", "smallint", True),
    ("b byte", "b", "tinyint", True),
    ("r real", "r", "float", True),
    ("x: int", "x", "int", True),
    ("vd void", "vd", "void", True),
    ("st string collate UTF8_LCASE", "st", "string collate UTF8_LCASE", True),
    ("x int DEFAULT (1 + coalesce(2, 3)) COMMENT \"it's\"", "x", "int", True),
    ("`a``b` int", "a`b", "int", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "kind", "nullable"), DDL)
def test_ddl(text: str, name: str, kind: str, nullable: bool) -> None:
    assert from_ddl(text).columns == (Column(name, kind, nullable),)


def test_ddl_of_many_columns_and_of_one_struct() -> None:
    text = ", ".join(f"c{n} {t.split(' ', 1)[1]}" for n, (t, *_) in enumerate(DDL) if t[0] not in "`x")
    assert len(from_ddl(text).columns) == sum(t[0] not in "`x" for t, *_ in DDL)
    assert shown(from_ddl("struct<a: int, b: array<long>>")) == {"a": "int", "b": "array<bigint>"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id bigit", "unknown type 'bigit'. Did you mean 'bigint'?"),
        ("id int, s struct<a:strin>", "unknown type 'strin'. Did you mean 'string'?"),
        ("id", "the column 'id' has no type"),
        ("id int, name", "the column 'name' has no type"),
        ("", "no column is declared"),
        ("id int name string", "'name' is not expected after the type of 'id'"),
        ("id decimal(40,2)", "out of range"),
        ("id decimal(a)", "decimal takes numbers, not 'a'"),
        ("id array<int", "'>' is missing at the end"),
        ("id array int", "'<' is missing before 'int'"),
        ("id varchar", "varchar needs a length"),
        ("my-col int", "unknown type '-'"),
        ("a int)", "')' is not expected"),
        ("(a int)", "'(' is not a column's name"),
    ],
)
def test_wrong_ddl_names_the_place_and_the_line(text: str, says: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        from_ddl(text, HERE)
    assert says in str(caught.value)
    assert str(caught.value).startswith("script.py:12: ")
    assert caught.value.fix


def test_every_iceberg_type() -> None:
    fields = {
        "bo": (ice.BooleanType(), "boolean"),
        "i": (ice.IntegerType(), "int"),
        "l": (ice.LongType(), "bigint"),
        "f": (ice.FloatType(), "float"),
        "d": (ice.DoubleType(), "double"),
        "de": (ice.DecimalType(10, 2), "decimal(10,2)"),
        "da": (ice.DateType(), "date"),
        "ti": (ice.TimeType(), "unknown"),
        "ts": (ice.TimestampType(), "timestamp_ntz"),
        "tz": (ice.TimestamptzType(), "timestamp"),
        "tn": (ice.TimestampNanoType(), "unknown"),
        "s": (ice.StringType(), "string"),
        "u": (ice.UUIDType(), "string"),
        "fx": (ice.FixedType(4), "binary"),
        "bi": (ice.BinaryType(), "binary"),
        "li": (ice.ListType(20, ice.LongType()), "array<bigint>"),
        "ma": (ice.MapType(21, ice.StringType(), 22, ice.DateType()), "map<string,date>"),
        "st": (ice.StructType(ice.NestedField(23, "a b", ice.IntegerType())), "struct<`a b`:int>"),
        "un": (ice.ListType(24, ice.TimeType()), "unknown"),
    }
    schema = IcebergSchema(
        *(ice.NestedField(n, name, t, required=name == "i") for n, (name, (t, _)) in enumerate(fields.items()))
    )
    read = from_pyiceberg(schema)
    assert shown(read) == {name: kind for name, (_, kind) in fields.items()}
    assert [c.name for c in read.columns if not c.nullable] == ["i"]


# The right sides are what Spark 4.1.4 reads from a Parquet file that Arrow wrote.
ARROW = [
    (pa.int8(), "tinyint"), (pa.int16(), "smallint"), (pa.int32(), "int"), (pa.int64(), "bigint"),
    (pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"), (pa.uint64(), "decimal(20,0)"),
    (pa.float32(), "float"), (pa.float64(), "double"), (pa.bool_(), "boolean"), (pa.string(), "string"),
    (pa.large_string(), "string"), (pa.string_view(), "string"), (pa.binary(), "binary"), (pa.binary(4), "binary"),
    (pa.date32(), "date"), (pa.timestamp("us"), "timestamp_ntz"), (pa.timestamp("ms", "UTC"), "timestamp"),
    (pa.timestamp("ns"), "unknown"), (pa.timestamp("ns", "UTC"), "timestamp"),
    (pa.time64("us"), "unknown"), (pa.decimal128(10, 2), "decimal(10,2)"),
    (pa.decimal256(60, 2), "unknown"), (pa.null(), "void"), (pa.list_(pa.int32()), "array<int>"),
    (pa.large_list(pa.string()), "array<string>"), (pa.map_(pa.string(), pa.int64()), "map<string,bigint>"),
    (pa.struct([("a", pa.int32())]), "struct<a:int>"), (pa.dictionary(pa.int32(), pa.string()), "string"),
    (pa.duration("us"), "unknown"), (pa.list_(pa.time32("s")), "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), ARROW, ids=str)
def test_arrow(kind: pa.DataType, expected: str) -> None:
    nullable = kind == pa.null()
    schema = pa.schema([pa.field("x", kind, nullable=nullable)])
    assert from_arrow(schema).columns == (Column("x", expected, nullable),)


Point = namedtuple("Point", ["x", "y"])

# The right sides are what pyspark 4.1.4's createDataFrame infers.
ROWS = [
    ([True], "boolean"), ([1], "bigint"), ([1.5], "double"), (["x"], "string"), ([b"x"], "binary"),
    ([bytearray(b"x")], "binary"), ([dt.date(2026, 1, 1)], "date"), ([dt.datetime(2026, 1, 1)], "timestamp"),
    ([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "timestamp"), ([Decimal("1.5")], "decimal(38,18)"),
    ([dt.timedelta(1)], "interval day to second"), ([[1, None]], "array<bigint>"), ([{"a": 1}], "map<string,bigint>"),
    ([{"a": None, "b": [1.5]}], "map<string,array<double>>"), ([(1, "x")], "struct<_1:bigint,_2:string>"),
    ([Point(1, 2.5)], "struct<x:bigint,y:double>"), ([None], "void"), ([None, 1, None], "bigint"),
    ([[], [1]], "array<bigint>"), ([1, "x"], "string"), ([1, 1.5], "unknown"), ([[1], [1.5]], "unknown"),
    ([frozenset()], "unknown"), ([1, [1]], "unknown"), ([(1, None), (None, "x")], "struct<_1:bigint,_2:string>"),
    ([], "void"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "expected"), ROWS, ids=lambda p: str(p)[:40])
def test_rows(values: list[object], expected: str) -> None:
    assert shown(from_rows(["c"], [(v,) for v in values])) == {"c": expected}


def test_rows_of_several_columns_keep_their_order() -> None:
    assert shown(from_rows(["b", "a"], [(1, "x"), (2, None)])) == {"b": "bigint", "a": "string"}


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("int", "bigint", "bigint"),
        ("tinyint", "smallint", "smallint"),
        ("int", "float", "double"),
        ("decimal(10,2)", "int", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,5)", "decimal(13,5)"),
        ("decimal(38,0)", "decimal(38,38)", "unknown"),
        ("decimal(10,2)", "double", "double"),
        ("date", "timestamp", "timestamp"),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("timestamp", "timestamp_ntz", "timestamp"),
        ("void", "string", "string"),
        ("string", "int", "unknown"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("array<int>", "array<string>", "unknown"),
        ("unknown", "int", "unknown"),
    ],
)
def test_the_wider_type(a: str, b: str, both: str) -> None:
    assert str(wider(parse_type(a), parse_type(b))) == both
    assert str(wider(parse_type(b), parse_type(a))) == both


PLAIN = [
    SparkType(n) for n in ("int", "bigint", "string", "date", "timestamp_ntz", "boolean", "void", "interval month")
]
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=8)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s)))
KINDS = st.recursive(
    st.sampled_from(PLAIN) | DECIMALS,
    lambda inner: (
        inner.map(array)
        | st.tuples(inner, inner).map(lambda p: SparkType("map", parts=p))
        | st.lists(st.tuples(NAMES, inner), max_size=3).map(struct)
    ),
    max_leaves=6,
)


@given(KINDS)
def test_a_type_reads_back_from_its_own_text(kind: SparkType) -> None:
    assert parse_type(str(kind)) == kind


@given(st.lists(st.tuples(NAMES, KINDS, st.booleans()), min_size=1, max_size=4))
def test_ddl_reads_back_any_name_and_type(columns: list[tuple[str, SparkType, bool]]) -> None:
    text = ", ".join(f"{quoted(n)} {k}{'' if nullable else ' NOT NULL'}" for n, k, nullable in columns)
    assert [(d.name, d.type, d.nullable) for d in parse_columns(text)] == columns


@given(st.text(st.sampled_from("ab <>(),:`'\"1decimal\n"), max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(TypeProblem):
        assert parse_columns(text)


@given(NAMES)
def test_quoting_is_undone(name: str) -> None:
    if name[0] == "`":
        return
    assert unquoted(quoted(name)) == name
