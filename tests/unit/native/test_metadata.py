"""What the engine says of its files, beside what PyIceberg reads from their footers."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.schema import Schema

from helios.native.reader import spark_type
from helios.native.work import Column, Target
from helios.native.writer import TableWriter, arrow_schema, arrow_type
from tests.streaming.native_cases import KINDS, table

FLOATING = ("float", "double")


@pytest.mark.parametrize("rows", [10, 300_000])
def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    target = Target(str(tmp_path), 0, (Column("id", 1, "bigint", False, "full"),), (), "zstd", 3, 1 << 30, 1 << 20)
    monkeypatch.setattr("helios.native.writer.create_file", lambda *_: pa.OSFile("/dev/full", "wb"))
    writer = TableWriter(target, "w")

    def written() -> None:
        writer.write(pl.DataFrame({"id": range(rows)}))
        writer.close()

    with pytest.raises(OSError, match="No space left"):
        written()
    writer.abort()


@pytest.mark.parametrize("mode", ["truncate(3)", "full", "counts", "none"])
def test_counts_and_bounds_are_those_that_pyiceberg_finds(tmp_path: Path, mode: str) -> None:
    for seed in range(5):
        rows = table(Random(seed), KINDS, 50)
        columns = tuple(
            Column(name, i + 1, kind, False, mode)
            for i, (name, kind) in enumerate(zip(rows.column_names, KINDS, strict=True))
        )
        target = Target(str(tmp_path), 0, columns, (), "zstd", 3, 1 << 30, 1 << 30)
        writer = TableWriter(target, f"w{seed}")
        writer.write(pl.from_arrow(rows))  # type: ignore[arg-type]
        (told,) = writer.close()
        footer = pq.read_metadata(told["file-path"])
        schema = pyarrow_to_schema(arrow_schema(target))
        found = data_file_statistics_from_parquet_metadata(
            footer,
            compute_statistics_plan(schema, {"write.metadata.metrics.default": mode}),
            parquet_path_to_id_mapping(schema),
        )
        sizes = {number: told_of(told, "column-sizes")[number] for number in found.column_sizes}
        assert (told["record-count"], sizes) == (found.record_count, found.column_sizes)
        assert told_of(told, "value-counts") == found.value_counts
        assert told_of(told, "null-value-counts") == found.null_value_counts
        assert told["split-offsets"] == found.split_offsets
        plain = [column.id for column in columns if column.kind not in FLOATING]  # footers do not tell of NaN
        bounds_of = found.to_serialized_dict()
        for key in ("lower-bounds", "upper-bounds"):
            bounds = bounds_of[key.replace("-", "_")]
            mine = {number: bytes.fromhex(value) for number, value in told_of(told, key).items() if number in plain}
            theirs = {number: value for number, value in bounds.items() if number in plain}
            assert read(schema, mine) == read(schema, theirs)


def told_of(told: dict[str, Any], key: str) -> dict[int, Any]:
    return dict(zip(told[key]["keys"], told[key]["values"], strict=True))


def read(schema: Schema, bounds: dict[int, bytes]) -> dict[int, Any]:
    return {number: from_bytes(schema.find_type(number), value) for number, value in bounds.items()}  # type: ignore[arg-type]


def test_a_files_types_are_known_as_they_were_written(tmp_path: Path) -> None:
    schema = pa.schema([pa.field(f"c{i}", arrow_type(kind)) for i, kind in enumerate(KINDS)])
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    written = pq.ParquetFile(tmp_path / "a.parquet").schema
    assert tuple(spark_type(written.column(i)) for i in range(len(KINDS))) == KINDS
