"""A wrong composition is an error of the type checker, and a right one has its type."""

from __future__ import annotations

from pathlib import Path

from mypy import api

RIGHT = """
from helios import Iceberg, Memory, Pipeline, Pipelines, Stream, Transform, select, where
src = Memory.source([{"id": 1}])
sink = Iceberg.sink("a.t")
stream: Stream = src >> where("id > 0")
pipeline: Pipeline = stream >> sink
several: Pipelines = stream >> [sink, sink]
shape: Transform = where("x") >> select("y")
called: Stream = src >> (lambda df: df.limit(1))
"""
WRONG = ("src >> 5", "src >> src", 'where("x") >> sink', "pipeline >> sink", "sink >> sink", "several >> sink")


def test_compositions_are_typed(tmp_path: Path) -> None:
    script = tmp_path / "pipe.py"
    script.write_text(RIGHT + "\n".join(WRONG) + "\n")
    output, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(script)])
    lines = [int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line]
    first = RIGHT.count("\n") + 1
    assert lines == list(range(first, first + len(WRONG))), output
