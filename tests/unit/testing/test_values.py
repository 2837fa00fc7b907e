"""The parts of `helios.testing` that need no Spark: casts, names, differences, records and cuts."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from helios import Iceberg, Memory, join, union, where, with_columns
from helios.errors import InputError
from helios.plan.typing.schema import from_ddl
from helios.plan.typing.types import parse_type
from helios.sources.files.declare import Files
from helios.testing.casts import Misfit, arrow_schema, canonical, cast, cast_rows, inferred
from helios.testing.diff import Different, difference
from helios.testing.files import write_file
from helios.testing.invariant import _cut_positions, _last_that_agrees
from helios.testing.names import sources_of, value_named, with_sources
from helios.testing.plans import assert_plan
from helios.testing.records import Record, envelope
from helios.testing.tasks import refuse_task_dependence

pytestmark = pytest.mark.promise("testing")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        ("bigint", "7", 7),
        ("int", 7.0, 7),
        ("double", "1.5", 1.5),
        ("decimal(10,2)", 12.5, Decimal("12.50")),
        ("decimal(10,2)", "12.50", Decimal("12.50")),
        ("decimal(38,18)", "12345678901.5", Decimal("12345678901.5")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("boolean", "true", True),
        ("date", "2026-01-01", date(2026, 1, 1)),
        ("timestamp", "2026-01-01T13:00+01:00", NOON),
        ("timestamp", datetime(2026, 1, 1, 12), NOON),
        ("timestamp_ntz", "2026-01-01T12:00", datetime(2026, 1, 1, 12)),
        ("binary", b"x", b"x"),
        ("array<int>", ["1", 2], [1, 2]),
        ("map<string,int>", {"a": "1"}, [("a", 1)]),
        ("struct<a:int,b:string>", {"A": 1}, {"a": 1, "b": None}),
        ("bigint", None, None),
    ],
)
def test_a_value_is_cast_where_nothing_is_lost(kind: str, value: Any, made: Any) -> None:
    assert cast(value, parse_type(kind)) == made


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("bigint", "x", "not a whole number"),
        ("bigint", 1.5, "not a whole number"),
        ("bigint", True, "not a whole number"),
        ("tinyint", 128, "out of the range"),
        ("double", "much", "not a number"),
        ("decimal(4,2)", "12.345", "more digits"),
        ("decimal(4,2)", 123, "more digits"),
        ("boolean", 1, "neither True nor False"),
        ("string", 1, "did you mean '1'"),
        ("date", "1.1.2026", "write '2026-01-01'"),
        ("date", NOON, "not a date"),
        ("timestamp", "noon", "not a time"),
        ("timestamp_ntz", NOON, "has a zone"),
        ("binary", "x", "not bytes"),
        ("array<int>", 1, "not a list"),
        ("map<string,int>", 1, "not a mapping"),
        ("struct<amount:int>", {"amont": 1}, "Did you mean 'amount'"),
    ],
)
def test_a_value_that_does_not_fit_says_why(kind: str, value: Any, why: str) -> None:
    with pytest.raises(Misfit, match=why):
        cast(value, parse_type(kind))


def test_rows_name_their_place_and_the_near_miss() -> None:
    columns = from_ddl("id bigint, amount double")
    assert cast_rows([{"ID": "1"}], columns, "orders") == [{"id": 1}]
    for row, said in (({"amont": 1}, "row 2 has no column 'amont'"), (7, "7 is not a row"), ({"id": "x"}, "'id'")):
        with pytest.raises(InputError, match=said):
            cast_rows([{"id": 1}, row], columns, "orders")  # type: ignore[list-item]


def test_columns_of_rows_are_inferred() -> None:
    rows = [{"id": 1, "s": {"a": "x"}, "l": [1.5], "at": NOON}, {"id": 2, "more": True}]
    found = inferred(rows, "orders")
    assert {one.name: one.type for one in found.columns} == {
        "id": "bigint", "s": "struct<a:string>", "l": "array<double>", "at": "timestamp", "more": "boolean",
    }  # fmt: skip
    assert arrow_schema(found).names == ["id", "s", "l", "at", "more"]
    with pytest.raises(InputError, match="type of column 'id' is not clear"):
        inferred([{"id": None}], "orders")


def test_floating_numbers_are_compared_to_twelve_digits() -> None:
    kind = parse_type("struct<a:double,b:array<float>>")
    assert canonical({"a": 0.1 + 0.2, "b": [0.1]}, kind) == canonical({"a": 0.3, "b": [0.1]}, kind)
    assert canonical(float("nan"), parse_type("double")) == "NaN"


def test_differences_are_told_by_key_and_count() -> None:
    rows = [("ann", 1), ("bob", 2), ("bob", 2)]
    assert difference(rows, rows[::-1], ["name", "n"]) == []
    assert difference(rows, [("ann", 3), ("bob", 2)], ["name", "n"], ["name"]) == [
        "name='ann': n is 3, expected 1",
        "missing: name='bob', n=2 (1 times, expected 2)",
    ]
    assert difference([("a", None)], [("b", NOON)], ["name", "at"]) == [
        "missing: name='a', at=None",
        "not expected: name='b', at=2026-01-01T12:00:00Z",
    ]
    assert difference([(n,) for n in range(12)], [], ["n"])[-1] == "... and 2 more"


def test_names_mean_one_source() -> None:
    known = {"local.shop.orders": 1, "local.web.orders": 2, "local.shop.users": 3}
    assert (value_named("users", known, "source"), value_named("web.orders", known, "source")) == (3, 2)
    with pytest.raises(InputError, match="several sources"):
        value_named("orders", known, "source")
    with pytest.raises(InputError, match="'usrs' is not a source of the pipeline"):
        value_named("usrs", known, "source")


def test_the_sources_of_joins_and_unions_are_replaced_in_order() -> None:
    one, two, three = (Memory.source([{"id": n}]) for n in range(3))
    pipeline = one >> union(two >> where("id > 0")) >> join(three, on="id") >> Iceberg.sink("a.t")
    assert sources_of(pipeline) == [one, two, three]
    other = with_sources(pipeline, [three, one, two])
    assert sources_of(other) == [three, one, two]
    assert other.stream.steps[0].text().startswith("union")


def test_envelopes_have_keys_and_columns() -> None:
    record = envelope(("u", None, {"id": 1, "name": "x"}), keys=(), topic="shop.public.t", number=7, with_schema=True)
    value, key = json.loads(record.value), json.loads(record.key)
    assert key["payload"] == {"id": 1}
    assert (value["payload"]["op"], value["payload"]["source"]["table"]) == ("u", "t")
    assert [one["field"] for one in value["schema"]["fields"][0]["fields"]] == ["id", "name"]
    assert envelope(b"raw", keys=(), topic="t", number=1, with_schema=True) == Record(value=b"raw")
    for change, said in (
        (("x", None, {}), "not an operation"),
        (("c", None, None), "has no row"),
        (7, "is not a change"),
    ):
        with pytest.raises(InputError, match=said):
            envelope(change, keys=(), topic="t", number=1, with_schema=True)


def test_files_have_the_format_of_their_source(tmp_path: Any) -> None:
    source = Files.source(str(tmp_path), "csv", schema="id bigint, name string").option(sep=";")
    write_file(tmp_path, "1", source, [{"id": 1, "name": "a;b"}, {"id": 2}])
    assert (tmp_path / "1.csv").read_text() == 'id;name\n1;"a;b"\n2;\n'
    with pytest.raises(InputError, match="cannot be written as avro"):
        write_file(tmp_path, "1", Files.source(str(tmp_path), "avro", schema="id bigint"), [{"id": 1}])


def test_rows_are_cut_into_as_many_pieces_as_asked() -> None:
    for count, pieces in ((0, 1), (1, 1), (7, 1), (7, 3), (2, 4)):
        for even in (True, False):
            places = _cut_positions(count, pieces, random.Random(1), even=even)
            assert (places[0], places[-1], len(places)) == (0, count, pieces + 1)
            assert places == sorted(places)


@pytest.mark.parametrize("wrong", range(1, 6))
def test_the_step_is_found_by_bisection(wrong: int) -> None:
    asked: list[int] = []
    assert _last_that_agrees(5, lambda steps: asked.append(steps) or steps < wrong) == wrong - 1  # type: ignore[func-returns-value]
    assert len(asked) <= 3


# plans


def test_each_wanted_line_takes_a_line_of_the_plan() -> None:
    pipeline = Memory.source([{"id": 1}]) >> where("id > 0") >> where("id > 0 OR id < 9") >> Iceberg.sink("a.t")
    assert_plan(pipeline, "\n  where(id > 0)\n\n  where(id > 0\n")
    with pytest.raises(Different, match=r"has no line 'where\(id > 0\)' after 'where\(id > 0\)':\n  nearest: "):
        assert_plan(pipeline, "where(id > 0)\nwhere(id > 0)")
    with pytest.raises(Different, match=r"has no line 'where\(id > 0\)' after "):
        assert_plan(pipeline, "where(id > 0 OR\nwhere(id > 0)")


def test_expressions_that_depend_on_tasks_are_named_unless_their_column_is_ignored() -> None:
    made = with_columns({"Task": "spark_partition_id()", "said": "'spark_partition_id()'", "c": "rand()"})
    pipeline = Memory.source([{"id": 1}]) >> made >> Iceberg.sink("a.t")
    with pytest.raises(Different, match=r"test_values.py:\d+\): spark_partition_id\(\) depends on how rows are spread"):
        refuse_task_dependence([pipeline], ())
    refuse_task_dependence([pipeline], ["task"])
    with pytest.raises(Different, match=r"where\(monotonically_increasing_id"):
        refuse_task_dependence(
            [pipeline.stream >> where("monotonically_increasing_id() > 1") >> pipeline.sink], ["task"]
        )


def test_maps_with_keys_of_nan_are_compared() -> None:
    kind = parse_type("map<double,string>")
    pairs = [(float("nan"), "a"), (1.0, "b"), (-1.0, None)]
    assert canonical(pairs, kind) == canonical(pairs[::-1], kind)
