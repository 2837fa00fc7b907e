"""Which pipelines upsert the groups of their aggregate: those whose later steps leave the group columns as they are."""

from __future__ import annotations

from typing import Any

import pytest

from helios import Iceberg, aggregate, cast, rename, select, sql, with_columns
from helios.plan.typing.aggregates import upserts_groups

pytestmark = pytest.mark.promise("stateful")

COUNTED = Iceberg.source("a.s").incremental() >> aggregate("id", n="count(*)")


@pytest.mark.parametrize(
    ("step", "key", "upserts"),
    [
        (with_columns(double="n * 2"), "id", True),
        (rename({"id": "number"}), "number", True),
        (select("id AS number", "n"), "number", True),
        (select("id", "n + 1 AS n"), "id", True),
        (with_columns(id="id % 10"), "id", False),
        (with_columns(ID="id % 10"), "id", False),
        (cast(id="int"), "id", False),
        (select("id % 10 AS id", "n"), "id", False),
        (select("*", "id AS copy"), "id", True),
        (rename({"id": "a", "a": "b"}), "b", True),
        (sql("SELECT id AS number, n FROM input"), "number", True),
        (sql("SELECT *, n + 1 AS more FROM input"), "id", True),
        (sql("SELECT (id) AS id, n FROM input"), "id", True),
        (sql("SELECT id % 10 AS id, n FROM input"), "id", False),
    ],
)
def test_a_step_that_changes_a_group_column(step: Any, key: str, upserts: bool) -> None:
    pipeline = COUNTED >> step >> Iceberg.sink("a.t").upsert(key)
    assert upserts_groups(pipeline.stream, pipeline.sink) is upserts


def test_a_query_may_group_by_all_columns_that_are_no_aggregate() -> None:
    counted = Iceberg.source("a.s").incremental() >> sql("SELECT id, day, count(*) AS n FROM input GROUP BY ALL")
    for keys in (["id", "day"], ["id"]):
        pipeline = counted >> Iceberg.sink("a.t").upsert(*keys)
        assert upserts_groups(pipeline.stream, pipeline.sink) is (keys == ["id", "day"])
