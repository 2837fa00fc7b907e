"""Types of parquet's columns: how they are written down, and which are read as which types of a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios.native.parquet_types import ALL, annotation, readers

pytestmark = pytest.mark.promise("bad-sources")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), ""),
        (pa.uint8(), "INTEGER(8,false)"),
        (pa.timestamp("ns"), "TIMESTAMP(NANOS,false)"),
        (pa.timestamp("ms", "UTC"), "TIMESTAMP(MILLIS,true)"),
        (pa.time64("us"), "TIME(MICROS,false)"),
        (pa.decimal128(9, 2), "DECIMAL(9,2)"),
        (pa.string(), "STRING"),
        (pa.date32(), "DATE"),
        (pa.float16(), "FLOAT16"),
        (pa.null(), "UNKNOWN"),
    ],
)
def test_a_type_is_written_as_parquet_writes_it(tmp_path: Path, kind: pa.DataType, expected: str) -> None:
    pq.write_table(pa.table({"x": pa.array([None], kind)}), tmp_path / "x.parquet")
    assert annotation(pq.ParquetFile(tmp_path / "x.parquet").schema.column(0)) == expected


@pytest.mark.parametrize(
    ("kind", "physical", "noted", "read"),
    [
        ("int", "INT32", "INTEGER(16,false)", {"batches"}),
        ("int", "INT32", "INTEGER(32,false)", set()),
        ("int", "INT32", "UNKNOWN", {"rows"}),
        ("long", "INT64", "", ALL),
        ("long", "INT64", "TIMESTAMP(MICROS,true)", set()),
        ("timestamptz", "INT64", "TIMESTAMP(NANOS,true)", set()),
        ("timestamptz", "INT64", "TIMESTAMP(MILLIS,true)", {"batches", "rows"}),
        ("timestamptz", "INT96", "", ALL),
        ("decimal(9, 2)", "BINARY", "DECIMAL(9,2)", {"dictionaries", "rows"}),
        ("decimal(18, 2)", "INT32", "DECIMAL(9,2)", ALL),
        ("decimal(9, 2)", "INT64", "DECIMAL(18,2)", set()),
        ("decimal(9, 2)", "INT32", "DECIMAL(9,3)", set()),
        ("decimal(9, 2)", "INT32", "", set()),
        ("string", "BINARY", "", {"batches"}),
        ("timestamp_ns", "INT64", "TIMESTAMP(NANOS,false)", ALL),
        ("variant", "BINARY", "", ALL),
    ],
)
def test_a_type_is_read_right(kind: str, physical: str, noted: str, read: set[str]) -> None:
    assert readers(kind, physical, noted) == read
