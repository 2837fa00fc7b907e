"""A column of the table is traced to its source through steps that pass it on, and through no other."""

from __future__ import annotations

import pytest

from helios import (
    aggregate,
    cast,
    dedupe,
    drop,
    expect,
    explode,
    join,
    rename,
    sample,
    select,
    sql,
    union,
    watermark,
    where,
    with_columns,
)
from helios.iceberg import Iceberg
from helios.lineage.passed import key_in_source, source_column
from helios.model.flow import Transform

pytestmark = pytest.mark.promise("why")

OTHER = Iceberg.source("a.other")


def steps(transform: Transform) -> list[str]:
    """Steps as a plan shows them."""
    return [step.text() for step in transform.steps]


@pytest.mark.parametrize(
    ("transform", "column"),
    [
        (where("id > 0 AND name IN ('a', 'b)')"), "id"),
        (expect({"positive": "id > 0"}, on_fail="drop"), "id"),
        (dedupe("id", within="1 hour"), "id"),
        (sample(0.5, seed=1), "id"),
        (watermark("at", "1 hour"), "id"),
        (drop("name"), "id"),
        (cast(name="int"), "id"),
        (with_columns(name="upper(concat(id, ', id='))"), "id"),
        (with_columns(id="other"), "other"),
        (select("name", "id"), "id"),
        (select("other AS id", "coalesce(name, 'id, x') AS name"), "other"),
        (rename({"other": "id"}), "other"),
        (rename({"id": "first"}) >> rename({"first": "id"}), "id"),
        (rename({"other": "b", "b": "id"}), "other"),
        (select("*", "upper(name) AS n", "name", "nested.other", "`my id`"), "id"),
        (explode("names", as_="name"), "id"),
        (aggregate("id", total="sum(amount)"), "id"),
        (where("x > 1") >> select("other AS k") >> rename({"k": "id"}) >> with_columns(n="1"), "other"),
    ],
    ids=lambda value: value if isinstance(value, str) else " >> ".join(steps(value)),
)
def test_a_column_that_is_passed_on(transform: Transform, column: str) -> None:
    assert source_column(steps(transform), "id") == (column, None)


def unknown(df: object) -> object:
    return df


@pytest.mark.parametrize(
    "transform",
    [
        with_columns(id="id + 1"),
        with_columns(id="null"),
        with_columns(id="if(a = b, id, 0)"),
        with_columns(name=r"replace(name, '\', id=id', 'x')", id="id + 1"),
        with_columns(name="upper(name) /* , */", n="1"),
        select("id + 1 AS id"),
        select("name"),
        select("*", "nested.id"),
        select("*", "upper(name) id"),
        cast(id="int"),
        rename({"id": "other"}),
        explode("ids", as_="id"),
        aggregate("name", id="max(id)"),
        sql("SELECT other AS id FROM input"),
        join(OTHER, on="id"),
        union(OTHER),
        where("id > 0") >> unknown,
    ],
    ids=lambda value: " >> ".join(steps(value)),
)
def test_a_column_that_may_be_computed(transform: Transform) -> None:
    assert source_column(steps(transform), "id") == (None, steps(transform)[-1])


def test_a_key_is_looked_up_by_the_columns_of_the_source_or_not_at_all() -> None:
    assert key_in_source(["rename(other -> id)"], {"id": 1, "day": 2}) == ({"other": 1, "day": 2}, None)
    key, again = key_in_source(["sql(SELECT 1 AS id)"], {"id": 1})
    assert not key
    assert again is not None
    assert again.note == "the rows of the source are not looked up: sql(SELECT 1 AS id) may compute id."
    key, again = key_in_source(None, {"id": 1})
    assert not key
    assert again is not None
    assert "is not kept" in str(again.note)
