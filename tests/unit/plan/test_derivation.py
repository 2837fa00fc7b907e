"""Whether a row has the same values of some columns by the steps that wrote it and by those of now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from helios.errors import InputError
from helios.plan.backfills import columns_named, cut_of, refuse_zone
from helios.plan.derivation import split_arguments, why_values_may_differ

pytestmark = pytest.mark.promise("backfill")


def plan(*steps: str, **source: Any) -> dict[str, Any]:
    schema = [{"name": name, "type": kind} for name, kind in (("id", "bigint"), ("ts", "timestamp"), ("a", "bigint"))]
    followed = {"name": "a.s", "followed": True, "schema": schema, **source}
    dim = {"name": "a.d", "followed": False, "schema": [{"name": "id", "type": "bigint"}, {"name": "k", "type": "int"}]}
    joins = any(step.startswith("join(") for step in steps)
    return {"steps": list(steps), "sources": [followed, *([dim] if joins else [])]}


DAY = "with_columns(day=cast(ts as date), v=id * 2)"
JOIN = "join(Iceberg.source(a.d), on=id, how=left)"
STAYS: list[tuple[Sequence[str], Sequence[str]]] = [
    ((DAY,), ("with_columns(day=cast(ts as date), v=id * 3)",)),
    ((DAY,), ("with_columns(v=id * 3)", "with_columns(day=cast(ts as date))")),
    ((DAY,), (DAY, "where(id > 3)", "expect(some=id > 1, on_fail=drop)", "drop(v)")),
    ((DAY,), (DAY, "select(id, day, v)")),
    (("with_columns(day=cast(ts as date))",), (JOIN, "with_columns(day=cast(ts as date))")),
    (("with_columns(t=ts)", "rename(t -> day)"), ("with_columns(t=ts)", "with_columns(v=1)", "rename(t -> day)")),
    (("sql(SELECT id, ts AS day FROM input)",), ("sql(SELECT id, ts AS day FROM input)", "with_columns(v=1)")),
]
MOVES: list[tuple[Sequence[str], Sequence[str], str]] = [
    (
        (DAY,),
        ("with_columns(day=cast(ts + interval 6 hour as date), v=id * 2)",),
        r"came from day=cast\(ts as date\) before",
    ),
    ((DAY,), ("with_columns(ts=ts + interval 6 hour)", DAY), "and from ts=ts"),
    ((DAY,), (DAY, "with_columns(day=if(id = 1, null, day))"), "day=if"),
    ((DAY,), ("with_columns(d=date(ts))", "rename(d -> day)"), "rename"),
    ((DAY,), (DAY, "cast(day=string)"), "cast"),
    ((DAY,), ("select(id, date_trunc('day', ts) AS day)",), "date_trunc"),
    ((DAY,), (DAY, "call(clean)"), "the function clean may give other values"),
    ((DAY, "call(clean)"), (DAY, "call(clean)"), "functions are not compared"),
    ((DAY, JOIN, "with_columns(day=day + k)"), (DAY, JOIN, "with_columns(day=day + k)"), "is read as it is now"),
    (("with_columns(day=current_date())",), ("with_columns(day=current_date())",), r"has current_date\(\)"),
    (
        ("where(id > 1)", "sql(SELECT max(ts) AS day FROM input)"),
        ("where(id > 2)", "sql(SELECT max(ts) AS day FROM input)"),
        "where",
    ),
    ((DAY,), ("select(id, stack(2, ts, ts) AS (x, day))",), "stack"),
    ((DAY,), (DAY, "with_columns(day=r'x')"), "it is unknown what"),
]


@pytest.mark.parametrize(("before", "now"), STAYS)
def test_columns_that_come_of_the_same_steps(before: Sequence[str], now: Sequence[str]) -> None:
    assert why_values_may_differ([plan(*before)], plan(*now), ["day"]) == ""


@pytest.mark.parametrize(("before", "now", "why"), MOVES)
def test_columns_that_may_have_other_values(before: Sequence[str], now: Sequence[str], why: str) -> None:
    import re

    assert re.search(why, why_values_may_differ([plan(*now), plan(*before)], plan(*now), ["day"]))


def test_a_source_that_is_read_otherwise() -> None:
    read = {"options": {"dateFormat": "yyyy"}}
    assert why_values_may_differ([plan(DAY, **read)], plan(DAY), ["day"]) == "a.s is read differently than before"
    other = [{"name": "ts", "type": "timestamp_ntz"}]
    assert why_values_may_differ([plan(DAY, schema=other)], plan(DAY), ["day"]) == "a.s is read differently than before"
    assert why_values_may_differ([plan(DAY, name="a.t")], plan(DAY), ["day"])
    assert why_values_may_differ([plan(DAY, branch="b", snapshot=3)], plan(DAY), ["day"]) == ""
    assert why_values_may_differ([plan(DAY, tls={"ca": "a.pem"}, batch_size=5)], plan(DAY), ["day"]) == ""
    for setting in ({"on_bad_row": "null"}, {"metadata": {"ts": "_modified"}}, {"rescued": "a"}, {"extra": "add"}):
        assert why_values_may_differ([plan(DAY, **setting)], plan(DAY), ["day"])


def test_arguments_with_quotes_and_brackets() -> None:
    first, second = r"""a=f('x, \', y', "(")""", "`b, c`=map('k', array(1, 2))[1]"
    assert split_arguments(f"{first}, {second}") == [first, second]


FLOATING = {
    "f": "double",
    "s": "struct<k:string,f:float>",
    "t": "struct<a:struct<x:float>,x:int>",
    "id": "int",
    "ts": "timestamp",
    "day": "date",
}


@pytest.mark.parametrize("where", ["f > 1", "id = 1 OR F = 0.0", "s.f < 3", "t.a.x < 3"])
def test_a_filter_by_a_float_is_refused(where: str) -> None:
    with pytest.raises(InputError, match="is a float or double, and Iceberg uses column bounds to find the rows"):
        columns_named(where, FLOATING, "a.t")


def test_a_filter_beside_a_float() -> None:
    assert columns_named("s.k = 'a' AND id = 1", FLOATING, "a.t") == ["s", "id"]
    assert columns_named("t.x = 1", FLOATING, "a.t") == ["t"]
    assert columns_named("m.key = 'x'", {"m": "map<string,double>"}, "a.t") == ["m"]
    assert columns_named("g.x = 'x'", {"g": "geometry"}, "a.t") == ["g"]
    with pytest.raises(InputError, match="is not cut by a nested column"):
        cut_of("s.k", ["s"], FLOATING, "a.t")


def test_times_in_another_zone_than_utc() -> None:
    refuse_zone("Etc/UTC", ["ts"], FLOATING)
    refuse_zone("Europe/Berlin", ["day", "id"], FLOATING)
    with pytest.raises(InputError, match="ts is a timestamp, and spark"):
        refuse_zone("Europe/Berlin", ["day", "ts"], FLOATING)
