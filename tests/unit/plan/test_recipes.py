"""The recipes of docs/recipes.md compile."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from helios import Catalog, Pipeline
from helios.plan import Context, ReadPath, compile_pipelines
from tests.suite.pages import blocks

TIME = pa.timestamp("us", tz="UTC")
TABLES = {
    "iot.readings": [("sensor", pa.string()), ("ts", TIME), ("value", pa.float64())],
    "shop.price_changes": [("item", pa.string()), ("price", pa.float64()), ("since", TIME)],
    "shop.orders": [("id", pa.int64()), ("item", pa.string()), ("quantity", pa.int32()), ("ts", TIME)],
    "shop.payments": [("id", pa.int64()), ("amount", pa.float64()), ("ts", TIME)],
}


def test_the_recipes_compile(context: Context, catalog: Catalog) -> None:
    for namespace in ("iot", "shop"):
        catalog.create_namespace(namespace)
    for name, columns in TABLES.items():
        catalog.create_table(name, pa.schema(columns))
    made: dict[str, Any] = {}
    for block in blocks("docs/recipes.md"):
        exec(block, made)
    pipelines = {name: value for name, value in made.items() if isinstance(value, Pipeline)}
    plans, problems = compile_pipelines(list(pipelines.values()), context)
    assert [str(problem) for problem in problems] == []
    paths = {name: plan.path for name, plan in zip(pipelines, plans, strict=True)}
    assert {name for name, path in paths.items() if path is ReadPath.BATCH} == {"filled", "smoothed"}
    assert {name for name, path in paths.items() if path is ReadPath.RANGES} == {"latest", "prices", "valued"}
    assert len(paths) == 10
