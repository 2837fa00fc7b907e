"""Text of which nobody says the type is a number where it comes back from it, and text elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import Files
from tests.streaming.landing import land, read

pytestmark = pytest.mark.promise("files")

PATIENCE = 90
"""Seconds in which a batch is written."""

INFERRED = {
    "zeros": (("12345", "01234"), "string"),
    "version": (("1.9", "1.10"), "string"),
    "power": (("12E5",), "string"),
    "plus": (("+5",), "string"),
    "minus": (("-0",), "string"),
    "point": (("5.",), "string"),
    "fraction": ((".5", "1.5"), "string"),
    "java": (("1d",), "string"),
    "long": (("1.5", "9007199254740993"), "string"),
    "digits": (("0.12345678901234567890",), "string"),
    "whole": (("0", "-7", "2147483647"), "int"),
    "wide": (("12345678901234567890",), "decimal(20,0)"),
    "double": (("1", "0.1", "-1.5", "1.0", "39.019999999999996", "NaN", "Inf", "-0.0"), "double"),
    "powers": (("1e-05", "1.5e+16", "1E-7", "1.0E7", "2.5E-4"), "double"),
    "spaced": ((" 5", "1.5 "), "double"),
}
"""By column: texts, and the type that they get together."""


@pytest.fixture(params=["header", "positions"])
def landed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    width = max(len(texts) for texts, _ in INFERRED.values())
    rows = [[texts[i % len(texts)] for texts, _ in INFERRED.values()] for i in range(width)]
    lines = [",".join(row) for row in ([list(INFERRED)] if request.param == "header" else []) + rows]
    folder = land(tmp_path / "in", "a.csv", "\n".join(lines) + "\n")
    return Files.source(str(folder), "csv").option(header=request.param == "header")


def test_text_that_does_not_come_back_from_its_number_is_text(world: Any, landed: Any) -> None:
    rows, aside = read(world, landed)
    kinds = [field.dataType.simpleString() for field in world.spark.table("local.a.t").schema.fields]
    assert dict(zip(INFERRED, kinds, strict=True)) == {name: kind for name, (_, kind) in INFERRED.items()}
    assert aside == []
    for place, (name, (texts, kind)) in enumerate(INFERRED.items()):
        if kind == "string":
            assert {row[place] for row in rows} == set(texts), name


def _batches(run: Any, wanted: int) -> None:
    until = time.monotonic() + PATIENCE
    while run.batches < wanted:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("quote", ["", '"'], ids=["plain", "quoted"])
def test_a_later_text_with_zeros_is_no_number_of_an_inferred_type(world: Any, quote: str) -> None:
    folder = land(world.folder / "in", "a.csv", "code,price\n12345,2.5\n")
    source = Files.source(str(folder), "csv").incremental(poll="200ms").on_bad_row("quarantine")
    run = world.start(source >> world.sink("a.t").quarantine("a.q"))
    _batches(run, 1)
    land(folder, "b.csv", f"code,price\n{quote}01234{quote},3.50\n{quote}777{quote},4.50\n")
    _batches(run, 2)
    run.stop()
    assert run.await_termination(60)
    assert world.rows("a.t") == Counter([(12345, 2.5), (777, 4.5)])
    [reason] = [reason for (reason,) in world.rows("a.q", "reason").elements()]
    assert reason == "code would lose its leading zeros as int, the inferred type: declare it as string, or as int"


def test_the_types_of_folders_stay_too(world: Any) -> None:
    for month, code in (("09", "9"), ("10", "10")):
        land(world.folder / "in" / f"month={month}" / f"code={code}", "a.csv", f"id\n{code}\n")
    source = Files.source(str(world.folder / "in"), "csv").incremental(poll="200ms", max_files=1)
    run = world.start(source.on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    _batches(run, 2)
    land(world.folder / "in" / "month=11" / "code=011", "a.csv", "id\n11\n")
    _batches(run, 3)
    run.stop()
    assert run.await_termination(60)
    assert world.rows("a.t") == Counter([(9, "09", 9), (10, "10", 10)])
    assert [reason[:31] for (reason,) in world.rows("a.q", "reason").elements()] == [
        "code would lose its leading zeros as int"[:31]
    ]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_folder_that_is_no_value_of_the_declared_type_makes_bad_rows(world: Any, format: str) -> None:
    line = "id\n1\n" if format == "csv" else '{"id": 1}\n'
    for code in ("7", "07", "x"):
        land(world.folder / "in" / f"code={code}", "a", line)
    rows, aside = read(world, Files.source(str(world.folder / "in"), format, schema="id bigint, code int"))
    assert rows == Counter({(1, 7): 2})
    assert aside == [(line.strip().splitlines()[-1], "code does not fit int")]
