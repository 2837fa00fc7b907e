"""The example of TPC-H: every table, and two queries, beside DuckDB on the same files."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from helios.script import load_script

EXAMPLES = Path(__file__).parents[2] / "examples"
KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey, l_linenumber"}

NEWEST = """
    CREATE TABLE {name} AS SELECT * EXCLUDE (op, newest) FROM (
        SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY seq DESC) AS newest
        FROM read_parquet('{folder}/{name}/*.parquet')
    ) WHERE newest = 1 AND op <> 'D'
"""
QUERIES = {
    "pricing": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
            sum(l_extendedprice * (1 - l_discount)), count(*)
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL
    """,
    "local_sales": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount))
        FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
            JOIN supplier ON l_suppkey = s_suppkey AND s_nationkey = c_nationkey
            JOIN nation ON s_nationkey = n_nationkey
        GROUP BY n_name
    """,
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.promise("documents", "upsert")
def test_the_lakehouse_equals_duckdb(world: Any) -> None:
    folder = world.folder / "tpch"
    spec = importlib.util.spec_from_file_location("land_tpch", EXAMPLES / "land_tpch.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    landed = made.land(folder, 0.01)
    assert len(landed) == 24
    pipelines = load_script(EXAMPLES / "tpch.py", {"data": str(folder)}).choose(None)
    assert world.runner(pipelines, once=True).run()

    judge = duckdb.connect()
    for name in made.FIXED:
        judge.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{folder}/{name}/*.parquet')")
    for name, keys in KEYS.items():
        judge.execute(NEWEST.format(name=name, keys=keys, folder=folder))
    for name in (*made.FIXED, *KEYS):
        wanted = judge.execute(f"SELECT * FROM {name}")
        columns = [column[0] for column in wanted.description or ()]
        right = Counter(map(str, wanted.fetchall()))
        assert right.total() > 0
        table = world.catalog.load(f"tpch.{name}").iceberg.scan(selected_fields=tuple(columns)).to_arrow()
        ours = Counter(map(str, zip(*(table[column].to_pylist() for column in columns), strict=True)))
        assert ours == right, name
    for name, query in QUERIES.items():
        ours = world.catalog.load(f"tpch.{name}").iceberg.scan().to_arrow()
        rows = list(zip(*(ours[column].to_pylist() for column in ours.column_names), strict=True))
        right = judge.execute(query).fetchall()
        assert len(right) > 1
        assert sorted(rows) == sorted(right), name
