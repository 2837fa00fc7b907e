"""The columns of local files, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Catalog, Files, Iceberg, Memory
from helios.errors import CheckFailed


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_the_columns_of_all_parquet_files(tmp_path: Path) -> None:
    source = Files.source(str(tmp_path), "parquet")
    assert source.schema() is None
    write(tmp_path / "a.parquet", id=pa.array([1], pa.int32()))
    write(tmp_path / "b.parquet", note=["x"], ID=pa.array([1], pa.int64()))
    (tmp_path / "_SUCCESS").touch()
    found = source.schema()
    assert [(c.name, c.type) for c in found.columns] == [("id", "unknown"), ("note", "string")]
    (tmp_path / "c.parquet").write_bytes(b"damaged")
    assert source.schema() is None


def test_columns_beside_the_declared_ones() -> None:
    assert Files.source("x.csv", schema="id int", rescued="more").schema().names == ("id", "more")
    assert Files.source("x.csv", schema="id int", extra="add").schema() is None
    assert Files.source("x.csv", schema="id int", extra="ignore").schema().names == ("id",)


def test_a_missing_folder_is_told_with_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    sink = Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path / ".helios"))
    (Files.source(str(tmp_path / "orders"), "csv", schema="id int").incremental() >> sink).check()
    with pytest.raises(CheckFailed, match=r"there is nothing at .*ordes\. Did you mean 'orders'\? Fix: check the path"):
        (Files.source(str(tmp_path / "ordes"), "csv", schema="id int").incremental() >> sink).check()
    with pytest.raises(CheckFailed, match=r"there is nothing at .*\*\.json\. Fix: "):
        (Files.source(str(tmp_path / "*.json"), schema="id int") >> sink).check()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (
            Files.source("in/", "csv", schema="id int, c varchar(3)"),
            r"c is varchar\(3\).*declare string.*length\(c\) <= 3",
        ),
        (Files.source("in/", "json", schema="c array<char(2)>"), r"c holds char\(2\)"),
        (Memory.source([{"c": "abcd"}], schema="c varchar(3)"), r"c is varchar\(3\)"),
        (Files.source("in/", "csv", schema="id int NOT NULL"), r"id must not be null.*expect\(\{\"id is there\""),
    ],
)
def test_what_a_schema_declares_and_no_reader_looks_at(
    source: Any, what: str, problems: Callable[..., list[str]]
) -> None:
    [found] = problems(source >> Iceberg.sink("a.t"))
    assert re.search(what, found), found
