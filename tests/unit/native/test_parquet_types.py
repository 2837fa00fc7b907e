"""Types of parquet's columns: how they are written down, and which are read as which types of a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios.native.parquet_types import annotation, is_read

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
        (pa.null(), ""),
    ],
)
def test_a_type_is_written_as_parquet_writes_it(tmp_path: Path, kind: pa.DataType, expected: str) -> None:
    pq.write_table(pa.table({"x": pa.array([None], kind)}), tmp_path / "x.parquet")
    assert annotation(pq.ParquetFile(tmp_path / "x.parquet").schema.column(0)) == expected


@pytest.mark.parametrize(
    ("kind", "physical", "noted", "flat", "nested"),
    [
        ("int", "INT32", "INTEGER(16,false)", False, False),
        ("int", "INT32", "INTEGER(32,false)", False, False),
        ("long", "INT64", "", True, True),
        ("long", "INT64", "TIMESTAMP(MICROS,true)", False, True),
        ("timestamptz", "INT64", "TIMESTAMP(NANOS,true)", False, False),
        ("timestamptz", "INT96", "", True, True),
        ("decimal(9, 2)", "BINARY", "DECIMAL(9,2)", False, True),
        ("decimal(18, 2)", "INT32", "DECIMAL(9,2)", True, True),
        ("decimal(9, 2)", "INT64", "DECIMAL(18,2)", False, False),
        ("decimal(9, 2)", "INT32", "", False, False),
        ("string", "BINARY", "", True, False),
        ("timestamp_ns", "INT64", "TIMESTAMP(NANOS,false)", True, True),
        ("variant", "BINARY", "", True, True),
    ],
)
def test_a_type_is_read(kind: str, physical: str, noted: str, flat: bool, nested: bool) -> None:
    found = is_read(kind, physical, noted, flat=True), is_read(kind, physical, noted, flat=False)
    assert found == (flat, nested)
