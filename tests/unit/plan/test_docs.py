"""The examples of docs/reading.md compile, one after the other."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Pipeline
from helios.plan import Context, ReadPath, compile_pipelines
from tests.suite.pages import ROOT, blocks

PAGE = ROOT / "docs" / "reading.md"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("country", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("updated_at", pa.timestamp("us", tz="UTC")),
    ]
)


@pytest.fixture
def events(catalog: Catalog) -> None:
    """shop.events with a commit each month since December 2025, the tag `q4` and the branch `staged`."""
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.events", SCHEMA)
    for month in range(3):
        table.iceberg.append(pa.Table.from_pylist([{"id": month}], schema=SCHEMA))
    table.tag("q4", table.snapshots()[0].id)
    table.branch("staged")
    table.iceberg.refresh()
    file = Path(table.iceberg.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    for entries in (metadata["snapshots"], metadata["snapshot-log"]):
        for index, entry in enumerate(entries):
            moment = datetime(2025, 12, 15, tzinfo=UTC) + timedelta(days=31 * index)
            entry["timestamp-ms"] = int(moment.timestamp() * 1000)
    file.write_text(json.dumps(metadata))


def test_the_examples_compile(events: None, context: Context) -> None:
    made: dict[str, Any] = {}
    for block in blocks("docs/reading.md"):
        exec(block, made)
    pipelines = {name: value for name, value in made.items() if isinstance(value, Pipeline)}
    plans, problems = compile_pipelines(list(pipelines.values()), context)
    assert [str(problem) for problem in problems] == []
    paths = {name: plan.path for name, plan in zip(pipelines, plans, strict=True)}
    batches = {"audited", "new_year", "january", "removed"}
    assert {name for name, path in paths.items() if path is ReadPath.BATCH} == batches
    followed = {"copy", "staged", "current", "replica", "totals", "german", "landed", "orders", "arrived"}
    assert {name for name, path in paths.items() if path is ReadPath.RANGES} == followed
    views = {name for name, plan in zip(pipelines, plans, strict=True) if plan.view is not None}
    assert views == {"totals"}


def test_every_error_of_the_page_is_one_that_is_told() -> None:
    """The words of its last table stand in the code."""
    words = re.findall(
        r"`([^`]+)`",
        " ".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text().split("## What is refused")[1], re.M)),
    )
    code = (
        "".join(
            re.sub(r'"\s*\n\s*f?"', "", file.read_text())
            for folder in ("plan", "sources")
            for file in (ROOT / "helios" / folder).rglob("*.py")
        )
        + (ROOT / "helios" / "table" / "snapshots.py").read_text()
    )
    parts = [part.strip(" ,") for word in words for part in word.split("...")]
    assert len(parts) > 20
    assert [part for part in parts if part not in code] == []
