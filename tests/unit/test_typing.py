"""A wrong composition is an error of the type checker, and a right one has its type."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.promise("compose")

RIGHT = """
from typing import assert_type
from helios import Catalog, CheckFailed, Iceberg, Memory, Pipeline, Pipelines, Snapshot, Stream, Table, Transform
from helios import expect, join, select, where
from helios.plan import Plan
from helios.plan.typing.schema import Schema
from helios.spark.run.run import PipelineRun
src = Memory.source([{"id": 1}])
sink = Iceberg.sink("a.t")
stream: Stream = src >> where("id > 0")
pipeline: Pipeline = stream >> sink
several: Pipelines = stream >> [sink, sink]
shape: Transform = where("x") >> select("y")
called: Stream = src >> (lambda df: df.limit(1))
table: Table = Catalog.local().load("a.t")
first: Snapshot = table.snapshots()[0]
joined: Stream = src >> join(src, on="id", how="left_anti") >> join(src, on="id", how="full")
written: Pipeline = joined >> sink.compression("zstd").write_mode("copy-on-write").format_version(3)
assert_type(pipeline.plan(), Plan)
assert_type(pipeline.run(once=True), PipelineRun)
assert_type(pipeline.schema(), Schema | None)
assert_type(src.schema(), Schema | None)
"""
WRONG = (
    'src >> join(src, on="id", how="outr")', 'src >> expect({"a": "id > 0"}, on_fail="stop")',
    'sink.compression("zip")', 'sink.tune("fast")', 'sink.distribution("random")', 'sink.write_mode("mor")',
    'sink.evolve_schema("all")', "sink.format_version(4)", "pipeline.run(spark=1)",
    'Iceberg.source("a.t").incremental(start="now")', 'Iceberg.source("a.t").on_overwrite("ignore")',
    'Iceberg.source("a.t").on_expired("skip")',
    "src >> 5", "src >> src", 'where("x") >> sink', "pipeline >> sink", "sink >> sink", "several >> sink",
)  # fmt: skip


def test_compositions_are_typed(tmp_path: Path) -> None:
    script = tmp_path / "pipe.py"
    script.write_text(RIGHT + "\n".join(WRONG) + "\n")
    output, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(script)])
    lines = [int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line]
    first = RIGHT.count("\n") + 1
    assert lines == list(range(first, first + len(WRONG))), output
