"""A catalog in a folder, and compiling against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, day
from helios.config import load
from helios.plan import Context, Plan, compile_pipelines

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """`local` with the table a.orders: id, name, ts; partitioned by day(ts)."""
    catalog = Catalog.local(path=tmp_path / ".helios")
    catalog.create_namespace("a")
    catalog.create_table("a.orders", SCHEMA, partition_by=(day("ts"),))
    return Context(config=load(tmp_path), catalogs={"local": catalog})


@pytest.fixture
def catalog(context: Context) -> Catalog:
    return context.catalogs["local"]


@pytest.fixture
def problems(context: Context) -> Callable[..., list[str]]:
    """What is wrong with pipelines."""
    return lambda *pipelines: [str(p) for p in compile_pipelines(pipelines, context)[1]]


@pytest.fixture
def planned(context: Context) -> Callable[[Any], Plan]:
    """The plan of a pipeline with which nothing is wrong."""

    def plan(pipeline: Any) -> Plan:
        plans, found = compile_pipelines([pipeline], context)
        assert [str(p) for p in found] == []
        return plans[0]

    return plan
