"""Columns of types that Spark does not have, in files and in tables: they are named, and the others can be read."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType, TimeType

from helios import Files, Memory
from helios.errors import CheckFailed, RunError
from tests.streaming.conftest import World

pytestmark = [pytest.mark.promise("files"), pytest.mark.sampled(1)]

LACKING = {
    "time": (pa.array([datetime.time(9, 30)], pa.time64("us")), "TIME(MICROS"),
    "time-ms": (pa.array([datetime.time(9, 30)], pa.time32("ms")), "TIME(MILLIS"),
    "half": (pa.array([1.5], pa.float32()).cast(pa.float16()), "FLOAT16"),
    "decimal": (pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2)), "DECIMAL(50,2)"),
    "nested": (pa.array([{"a": datetime.time(9, 30)}], pa.struct([("a", pa.time64("us"))])), "TIME(MICROS"),
}


@pytest.mark.parametrize("kind", LACKING)
@pytest.mark.cases(short="time")
def test_a_column_of_a_file(world: World, tmp_path: Path, kind: str) -> None:
    values, named = LACKING[kind]
    (tmp_path / "in").mkdir()
    columns = {"id": pa.array([1], pa.int64()), "opens at": values, "name": pa.array(["x"])}
    pq.write_table(pa.table(columns), tmp_path / "in" / "a.parquet")
    with pytest.raises(RunError, match="Spark has no type for ") as refused:
        world.run(Files.source(tmp_path / "in", format="parquet") >> world.sink("a.t"))
    text = str(refused.value)
    assert "opens at" in text
    assert named in text
    way = 'schema="id bigint, name string", extra="ignore"'
    assert way in text
    source = Files.source(tmp_path / "in", format="parquet", schema="id bigint, name string", extra="ignore")
    world.run(source >> world.sink("a.t"))
    assert world.rows("a.t", "id", "name") == Counter({(1, "x"): 1})


@pytest.mark.parametrize("nested", [False, True])
def test_a_column_of_a_table(world: World, nested: bool) -> None:
    kind = StructType(NestedField(3, "at", TimeType())) if nested else TimeType()
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "opens", kind))
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.fill("a.other", [1])
    table = world.load("a.other").iceberg.catalog.create_table("a.s", schema)
    opens: Any = datetime.time(9, 30)
    arrow = pa.time64("us")
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "opens": pa.array(
                [{"at": opens}, None] if nested else [opens, None], pa.struct([("at", arrow)]) if nested else arrow
            ),
        }
    )
    table.append(rows)
    for pipeline in (
        world.source("a.s") >> world.sink("a.t"),
        world.source("a.s").select("id").incremental(poll=1) >> world.sink("a.t"),
        world.source("a.other") >> world.sink("a.s"),
    ):
        with pytest.raises(CheckFailed, match=r"local\.a\.s has columns of types that Spark does not have: opens "):
            world.plan(pipeline)
    ids = world.catalog.load("a.s").iceberg.scan(selected_fields=("id",)).to_arrow()
    world.run(Memory.source(ids) >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]
