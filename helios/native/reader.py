"""Data files as frames: the columns of a program, found by their field ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from helios.native.deletes import deleted
from helios.native.engine import FAILS, applied, polars_type
from helios.native.newest import ROW
from helios.native.program import NotNative
from helios.native.work import InputFile, Work

if TYPE_CHECKING:
    import polars as pl

VALUES = 1 << 24
"""Values of a file above which its rows come in parts, of a quarter of that."""


WIDENED = frozenset({("int", "bigint"), ("float", "double")})
"""Types of columns that have been promoted since; decimals, too, whose precision has grown."""


def frames(file: InputFile, work: Work, *, numbered: bool = False) -> Iterator[pl.DataFrame]:
    """The rows of a file after the steps, some at a time.

    Args:
        file: The file.
        work: What all tasks have in common.
        numbered: Whether the rows have their number in the file as the column `ROW`.

    Raises:
        NotNative: The file has not the table's columns, or Spark may fail on a row.
    """
    read = work.program.read
    kept = [ROW] if numbered else []
    rows = applied(work.program, _live(file, numbered).select(*checked(file, work), *kept), kept)
    if file.rows * len(read) <= VALUES:
        found: Iterator[pl.DataFrame] = iter([rows.collect()])
    else:
        size = max(1 << 14, VALUES // (4 * len(read)))
        found = iter(rows.collect_batches(chunk_size=size, maintain_order=True))
    for batch in found:
        if batch.get_column(FAILS).any():
            raise NotNative("Spark may fail on a value of the batch, and says then which")
        yield batch.drop(FAILS)


def _live(file: InputFile, numbered: bool) -> pl.LazyFrame:
    """The rows of a file that are not deleted."""
    import polars as pl

    gone = list(deleted(file)) if file.deletes else []
    rows = scanned(file, ROW if gone or numbered else None)
    return rows.filter(~pl.col(ROW).is_in(pl.Series(gone, dtype=pl.UInt32).implode())) if gone else rows


def scanned(file: InputFile, numbers: str | None = None) -> pl.LazyFrame:
    """All rows of a file, deleted ones too, with their numbers as a column where it is named."""
    import polars as pl

    return pl.scan_parquet(
        file.path,
        parallel="none",
        use_statistics=False,
        glob=False,
        hive_partitioning=False,
        low_memory=False,
        row_index_name=numbers,
    )


def checked(file: InputFile, work: Work) -> list[pl.Expr]:
    """The columns that are read, of a file whose columns are found by their ids.

    Raises:
        NotNative: A column is missing or of another type, or the file has another number of rows.
    """
    import polars as pl
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
        if parquet.metadata.num_rows != file.rows:
            raise NotNative("a file has other rows than the table's metadata says")
        known = {}
        for field in parquet.schema_arrow:
            number = (field.metadata or {}).get(b"PARQUET:field_id")
            if number is not None:
                known[int(number)] = field.name
        flat = {parquet.schema.column(i).path: parquet.schema.column(i) for i in range(len(parquet.schema))}
    if not known:
        raise NotNative("a file has no field ids")
    columns = []
    for name, kind in work.program.read:
        found = known.get(work.ids[name])
        if found is not None:
            columns.append(_read(flat.get(found), found, kind).alias(name))
        elif name in work.absent:
            columns.append(pl.lit(None, polars_type(kind)).alias(name))
        else:
            raise NotNative(f"a file was written before the column {name} came")
    return columns


def _read(column: Any, name: str, kind: str) -> pl.Expr:
    """A column of a file as one of the type that the table has now."""
    import polars as pl

    made = kind_of(column) if column is not None else None
    if made == kind:
        return pl.col(name)
    if made is None or not ((made, kind) in WIDENED or _wider(made, kind)):
        raise NotNative(f"a file has the column {name} in another form than {kind}")
    return pl.col(name).cast(polars_type(kind))


def _wider(made: str, kind: str) -> bool:
    if not (made.startswith("decimal(") and kind.startswith("decimal(")):
        return False
    (before, scale), (after, now) = (one[len("decimal(") : -1].split(",") for one in (made, kind))
    return scale == now and int(before) < int(after)


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
