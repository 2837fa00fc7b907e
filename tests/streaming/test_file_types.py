"""Types of file columns: unions and casts."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from helios.spark.sources.file_types import castable, extras, lossless, united, with_extras

pytestmark = pytest.mark.usefixtures("shared_spark")  # Spark parses the types


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
