"""Data files as frames: the columns of a program, found by their field ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from helios.native.engine import FAILS, applied, polars_type
from helios.native.program import NotNative
from helios.native.work import InputFile, Work

if TYPE_CHECKING:
    import polars as pl

VALUES = 1 << 24
"""Values of a file above which its rows come in parts, of a quarter of that."""


def frames(file: InputFile, work: Work) -> Iterator[pl.DataFrame]:
    """The rows of a file after the steps, some at a time.

    Raises:
        NotNative: The file is not as the table's current columns are, or Spark may fail on a row.
    """
    import polars as pl

    names = checked(file, work)
    scanned = pl.scan_parquet(
        file.path, parallel="none", use_statistics=False, glob=False, hive_partitioning=False, low_memory=False
    )
    frame = scanned.select(pl.col(names[name]).alias(name) for name, _ in work.program.read)
    width = len(work.program.read)
    if file.rows * width <= VALUES:
        found: Iterator[pl.DataFrame] = iter([applied(work.program, frame).collect()])
    else:
        rows = max(1 << 14, VALUES // (4 * width))
        found = iter(applied(work.program, frame).collect_batches(chunk_size=rows, maintain_order=True))
    for batch in found:
        if batch.get_column(FAILS).any():
            raise NotNative("Spark may fail on a value of the batch, and says then which")
        yield batch.drop(FAILS)


def checked(file: InputFile, work: Work) -> Mapping[str, str]:
    """The names in a file of the columns that are read, by their names in the table.

    Raises:
        NotNative: A column is missing or of another type, or the file has another number of rows.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
        if parquet.metadata.num_rows != file.rows:
            raise NotNative("a file has other rows than the table's metadata says")
        known = {}
        for index, field in enumerate(parquet.schema_arrow):
            number = (field.metadata or {}).get(b"PARQUET:field_id")
            if number is not None:
                known[int(number)] = (field.name, index)
        flat = {parquet.schema.column(i).path: parquet.schema.column(i) for i in range(len(parquet.schema))}
    names = {}
    for name, kind in work.program.read:
        found = known.get(work.ids[name])
        if found is None:
            raise NotNative(f"a file was written before the column {name} came")
        column = flat.get(found[0])
        if column is None or kind_of(column) != kind or polars_type(kind) is None:
            raise NotNative(f"a file has the column {name} in another form than {kind}")
        names[name] = found[0]
    return names


def kind_of(column: Any) -> str | None:
    """The Spark type of a flat parquet column, as Iceberg stores it; None for any other one."""
    if column.max_repetition_level or column.max_definition_level > 1:
        return None
    logical = json.loads(column.logical_type.to_json())
    physical, what = column.physical_type, logical["Type"]
    if what == "None":
        plain = {
            "BOOLEAN": "boolean", "INT32": "int", "INT64": "bigint", "FLOAT": "float", "DOUBLE": "double",
            "BYTE_ARRAY": "binary",
        }  # fmt: skip
        return plain.get(physical)
    if what == "Decimal":
        return f"decimal({logical['precision']},{logical['scale']})"
    if what == "Timestamp" and logical["timeUnit"] == "microseconds":
        return "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
    if what == "Int" and logical["isSigned"]:
        return {(32, "INT32"): "int", (64, "INT64"): "bigint"}.get((logical["bitWidth"], physical))
    return {"String": "string", "Date": "date"}.get(what)
