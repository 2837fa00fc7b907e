"""Files of other writers, which the engine reads as Spark does or leaves to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Iceberg, rename, select, where, with_columns
from helios.native import task
from helios.native.program import NotNative, Operation, Program
from helios.native.work import Column, InputFile, Partition, Sort, Target, Work
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_arrow

pytestmark = pytest.mark.promise("engine")


def done(
    path: Path, kind: str, *, transform: str | None = None, steps: Sequence[Operation] = (), sort: Sequence[Sort] = ()
) -> dict[str, Any]:
    """What a task tells that copies the column `x` of a file of no table."""
    columns = (("x", kind),)
    partition = (Partition("p", "x", kind, transform),) if transform is not None else ()
    made = Column("x", 1, kind, False, "truncate(16)")
    target = Target(str(path.parent / "data"), 0, (made,), partition, "zstd", 3, 1 << 30, 1 << 30, tuple(sort))
    work = Work("w", Program(columns, tuple(steps), columns), {}, target, (), ({"x": ("x", kind)},))
    file = InputFile(str(path), path.stat().st_size, None, group=0)
    told: dict[str, Any] = json.loads(task.run("write", work.to_json(), [astuple(file)], "0"))
    return told


def stored(path: Path, values: pa.Array) -> Path:
    pq.write_table(pa.table({"x": values}), path)
    return path


@pytest.mark.parametrize("zone", ["UTC", "+00:00", "America/New_York", "-05:00"])
@pytest.mark.parametrize(
    ("transform", "values"), [("year", [53, 54]), ("month", [647, 648]), ("day", ["2023-12-31", "2024-01-01"])]
)
def test_times_are_instants_whatever_zone_their_writer_has_noted(
    tmp_path: Path, zone: str, transform: str, values: list[Any]
) -> None:
    moments = [1_704_067_200_000_000 - 1, 1_704_067_200_000_000]  # the turn of a year, in UTC
    file = stored(tmp_path / "x.parquet", pa.array(moments, pa.timestamp("us", zone)))
    found = done(file, "timestamp", transform=transform)["files"]
    assert sorted(one["partition"][0] for one in found) == values


def test_categories_are_compared_as_texts(tmp_path: Path) -> None:
    """Polars compares and sorts them by an order of their own."""
    file, kinds = tmp_path / "x.parquet", pl.Enum(["S", "M", "L", "XL"])
    pl.DataFrame({"x": pl.Series(["XL", "S", "L"], dtype=kinds)}).write_parquet(file)
    steps = program_of(Iceberg.source("a.s") >> where("x >= 'M'"), from_arrow(pa.schema([("x", pa.string())]))).steps
    (told,) = done(file, "string", steps=steps, sort=(Sort("x", descending=False, nulls_last=False),))["files"]
    assert pq.read_table(told["file-path"])["x"].to_pylist() == ["S", "XL"]


def test_durations_are_spark_s(tmp_path: Path) -> None:
    """Without a look at Arrow's own schema they are whole numbers, of milliseconds where the file has seconds."""
    file = stored(tmp_path / "x.parquet", pa.array([1, 2, -3], pa.duration("s")))
    assert "as Duration(time_unit='ms'), not bigint" in done(file, "bigint")["refused"]


def test_a_damaged_file_is_spark_s(tmp_path: Path) -> None:
    """Whatever is damaged in it, and also where Rust panics: Spark names the file."""
    rows = pa.array([f"name {n % 50}" for n in range(3000)])
    whole = stored(tmp_path / "x.parquet", rows).read_bytes()
    random, refused = Random(7), 0
    for number in range(60):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[random.randrange(4, len(damaged))] = random.randrange(256)
        file = tmp_path / f"{number}.parquet"
        file.write_bytes(damaged)
        refused += "refused" in done(file, "string")
    assert refused > 10


@pytest.mark.parametrize("name", ["^x$", "*"])
def test_names_that_polars_takes_for_patterns_are_spark_s(name: str) -> None:
    schema = from_arrow(pa.schema([("x", pa.int64()), (name, pa.int64())]))
    with pytest.raises(NotNative, match="is a pattern of names"):
        program_of(Iceberg.source("a.s") >> select("x"), schema)
    plain = from_arrow(pa.schema([("x", pa.int64())]))
    for step in (rename({"x": name}), with_columns(**{name: "x"})):
        with pytest.raises(NotNative, match="is a pattern of names"):
            program_of(Iceberg.source("a.s") >> step, plain)


def test_a_file_s_own_names_are_no_patterns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"^x$": pa.array([2]), "x": pa.array([1])}), tmp_path / "x.parquet")
    columns = (("x", "bigint"),)
    target = Target(
        str(tmp_path / "data"), 0, (Column("x", 1, "bigint", False, "full"),), (), "zstd", 3, 1 << 30, 1 << 30
    )
    work = Work("w", Program(columns, (), columns), {}, target, (), ({"x": ("^x$", "bigint")},))
    file = InputFile(str(tmp_path / "x.parquet"), 100, None, group=0)
    told = json.loads(task.run("write", work.to_json(), [astuple(file)], "0"))
    assert told == {"refused": "the name of the column ^x$ is a pattern of names"}


@pytest.mark.parametrize("condition", [r"x = 'a\fb'", r"x LIKE 'a\f%'", r"coalesce(x, '\v') = 'a'"])
def test_backslashes_are_spark_s(condition: str) -> None:
    with pytest.raises(NotNative, match="has a backslash"):
        program_of(Iceberg.source("a.s") >> where(condition), from_arrow(pa.schema([("x", pa.string())])))
