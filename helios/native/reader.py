"""Reads data files as frames: finds the columns that a program reads, and applies the program's steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from helios.native import lines
from helios.native.deletes import read_deleted_positions
from helios.native.engine import FAILS, apply_steps, polars_type
from helios.native.newest import ROW
from helios.native.parquet_types import refuse_misread
from helios.native.program import Expectation, NotNative, decimal_digits, refuse_wildcard
from helios.native.storage import is_local, open_file
from helios.native.work import InputFile, Work

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

MAX_VALUES = 1 << 24
"""A file with more values is read in parts, each with a quarter of this number of values."""
WIDENED = frozenset({("int", "bigint"), ("float", "double")})
"""The promotions of column types, besides decimals of greater precision."""
SPARK_KEY, LEGACY_PREFIX = b"org.apache.spark.version", b"org.apache.spark.legacy"
"""Keys in the parquet footer of a file from Spark: Spark's version, and marks of times in the calendar of Spark 2."""
NO_STORE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class StoredColumn:
    """A column of a program, as one file stores it.

    Attributes:
        name: The name in the program.
        kind: The Spark type in the program.
        stored: The name in the file; None if the file lacks the column, which is then null.
        stored_kind: The Spark type in the file.
    """

    name: str
    kind: str
    stored: str | None
    stored_kind: str

    def expression(self) -> pl.Expr:
        """The column with the name and the type that the program expects."""
        import polars as pl

        if self.stored is None:
            return pl.lit(None, polars_type(self.kind)).alias(self.name)
        column = pl.col(self.stored)
        return (column if self.stored_kind == self.kind else column.cast(polars_type(self.kind))).alias(self.name)


@dataclass
class Dropped:
    """The number of rows that expectations have dropped."""

    rows: int = 0


def frames(
    file: InputFile,
    work: Work,
    store: Mapping[str, str] = NO_STORE,
    *,
    numbered: bool = False,
    dropped: Dropped | None = None,
) -> Iterator[pl.DataFrame]:
    """Reads a file, and yields the rows after the steps, some rows at a time.

    Args:
        store: PyIceberg's properties of the object store that has the file.
        numbered: Whether to add the column `ROW` with the number of each row in the file.
        dropped: Is increased by the number of rows that expectations drop.

    Raises:
        NotNative: The file does not have the program's columns, a line of a csv or JSON file needs Spark's parser,
            Spark may fail on a row, or Spark must write the batch because a row fails an expectation.
    """
    counted = dropped if dropped is not None else Dropped()
    deleted_positions = list(read_deleted_positions(file, store)) if file.deletes else []
    read_parquet = _read_local if is_local(file.path) else _read_from_store
    read = _read_lines if work.line_formats else read_parquet
    _first, *later = work.program.stages()
    kept = [ROW] if numbered else []
    for part in read(file, work, deleted_positions, store, numbered):
        rows = _checked(part)
        for stage in later:
            before = len(rows)
            rows = _checked(apply_steps(stage, rows.lazy(), kept).collect())
            if isinstance(stage[0], Expectation) and len(rows) < before:
                if stage[0].refusal:
                    raise NotNative(stage[0].refusal)
                counted.rows += before - len(rows)
        yield rows


def _checked(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows without their marks; raises `NotNative` if Spark may fail on a row."""
    if rows.get_column(FAILS).any():
        raise NotNative("Spark may fail on a value of the batch, with an error that names the value")
    return rows.drop(FAILS)


def _part_rows(work: Work) -> int:
    """The number of rows in a part of a file: rows with a quarter of `MAX_VALUES` values, but at least 16,384 rows."""
    return max(1 << 14, MAX_VALUES // (4 * max(1, len(work.program.read))))


def _computed(
    rows: pl.LazyFrame, columns: Sequence[StoredColumn], deleted_positions: Sequence[int], work: Work, numbered: bool
) -> pl.LazyFrame:
    """Removes deleted rows, and applies the first stage (the steps before any expectation).

    `rows` must have the column `ROW` if there are deleted rows, if the result needs `ROW` (`numbered`), or if the
    program reads no column of the file.
    """
    import polars as pl

    if deleted_positions:
        rows = rows.filter(~pl.col(ROW).is_in(pl.Series(deleted_positions, dtype=pl.UInt32).implode()))
    read = [column.expression() for column in columns]
    # If the program reads no column of the file, ROW keeps the number of rows.
    numbers = [pl.col(ROW)] if numbered or all(column.stored is None for column in columns) else []
    return apply_steps(work.program.stages()[0], rows.select(*read, *numbers), [ROW] if numbered else [])


def scan(file: InputFile, work: Work, row_numbers: str | None) -> tuple[pl.LazyFrame, list[StoredColumn], int]:
    """Scans a local file. Returns all rows (also deleted ones), the program's columns in the file, and the row count.

    Args:
        row_numbers: The name of a column of row numbers to add; None for no such column. If the program reads no column
            of the file, `ROW` is added in any case.
    """
    import polars as pl
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
        columns, count = stored_columns(parquet, file, work), int(parquet.metadata.num_rows)
    if row_numbers is None and all(column.stored is None for column in columns):
        row_numbers = ROW
    rows = pl.scan_parquet(
        file.path,
        parallel="none",
        use_statistics=False,
        glob=False,
        hive_partitioning=False,
        low_memory=False,
        row_index_name=row_numbers,
    )
    schema = rows.collect_schema()
    return (
        rows.with_columns(_in_parquet_type(column, schema) for column in columns if column.stored is not None),
        columns,
        count,
    )


def _in_parquet_type(column: StoredColumn, schema: Mapping[str, Any]) -> pl.Expr:
    """Casts a stored column to its parquet type, since Polars uses the type of the Arrow schema in the footer, if any.

    Raises:
        NotNative: The Arrow schema has a type whose values may differ.
    """
    import polars as pl

    stored, kind = pl.col(str(column.stored)), schema[str(column.stored)]
    if kind == polars_type(column.stored_kind):
        return stored
    if isinstance(kind, (pl.Categorical, pl.Enum)) and column.stored_kind == "string":
        return stored.cast(pl.String)  # Polars compares categories by their own order
    if isinstance(kind, pl.Datetime) and (kind.time_unit, column.stored_kind) == ("us", "timestamp") and kind.time_zone:
        return stored.dt.convert_time_zone("UTC")  # years and months depend on the time zone
    raise NotNative(f"the Arrow schema of a file has the column {column.stored} as {kind}, not {column.stored_kind}")


def _read_local(
    file: InputFile, work: Work, deleted_positions: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    rows, columns, count = scan(file, work, ROW if deleted_positions or numbered else None)
    yield from collected(_computed(rows, columns, deleted_positions, work, numbered), count, work)


def _read_lines(
    file: InputFile, work: Work, deleted_positions: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    """Reads the rows of a csv or JSON file, some at a time."""
    assert file.group is not None
    stored, start = work.groups[file.group], 0
    # A column that the file lacks is null.
    columns = [StoredColumn(name, kind, *(stored[name] or (None, kind))) for name, kind in work.program.read]
    for rows in lines.rows(file, work.line_formats[file.group]):
        with_numbers = rows.with_row_index(ROW, start)
        start += len(rows)
        yield _computed(with_numbers.lazy(), columns, deleted_positions, work, numbered).collect()


def collected(rows: pl.LazyFrame, count: int, work: Work) -> Iterator[pl.DataFrame]:
    """Yields the rows of a file: in parts for a large file, otherwise at once."""
    if count * len(work.program.read) <= MAX_VALUES:
        yield rows.collect()
    else:
        yield from rows.collect_batches(chunk_size=_part_rows(work), maintain_order=True)


def _read_from_store(
    file: InputFile, work: Work, deleted_positions: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    """Reads the rows of a file on an object store with Arrow, which reads only the program's columns."""
    import polars as pl
    import pyarrow.parquet as pq

    with open_file(file.path, store) as stream, pq.ParquetFile(stream, pre_buffer=True) as parquet:
        columns = stored_columns(parquet, file, work)
        start = 0
        for row_group in range(parquet.num_row_groups):
            for part in _parts(parquet, row_group, columns, _part_rows(work)):
                rows = part.with_columns(pl.int_range(start, start + len(part), dtype=pl.UInt32).alias(ROW))
                start += len(part)
                yield _computed(rows.lazy(), columns, deleted_positions, work, numbered).collect()


def _parts(
    parquet: pq.ParquetFile, row_group: int, columns: Sequence[StoredColumn], size: int
) -> Iterator[pl.DataFrame]:
    """Reads the program's columns of a row group, some rows at a time."""
    import polars as pl

    stored = {column.stored: column.stored_kind for column in columns if column.stored is not None}
    if not stored:
        yield pl.DataFrame({ROW: pl.Series([0], dtype=pl.UInt32).new_from_index(0, _count(parquet, row_group))})
        return
    # Arrow takes a name also as a path into nested columns, so a batch may have further columns.
    for batch in parquet.iter_batches(size, [row_group], list(stored), use_threads=False):
        yield pl.DataFrame({name: _as_stored(batch.column(name), kind) for name, kind in stored.items()})


def _count(parquet: pq.ParquetFile, row_group: int) -> int:
    rows: int = parquet.metadata.row_group(row_group).num_rows
    return rows


def _as_stored(values: pa.Array, kind: str) -> pl.Series:
    """Converts a column to its parquet type, since Arrow uses the type of the Arrow schema in the footer, if any."""
    import polars as pl
    import pyarrow as pa

    from helios.native.writer import arrow_type

    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values.validate(full=True)  # Polars would accept bytes that are not UTF-8
    elif values.type != arrow_type(kind):
        values = values.cast(arrow_type(kind))
    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    return series


def stored_columns(parquet: pq.ParquetFile, file: InputFile, work: Work) -> list[StoredColumn]:
    """Finds the program's columns in a file: by field ids, or by names if the file belongs to no table.

    Raises:
        NotNative: A column is missing or of another type, or the number of rows is not that of the metadata.
    """
    flat = {parquet.schema.column(i).path: parquet.schema.column(i) for i in range(len(parquet.schema))}
    if file.group is not None:
        return _columns_by_name(parquet, flat, work.groups[file.group], work)
    if parquet.metadata.num_rows != file.rows:
        raise NotNative("a file has another number of rows than the table's metadata says")
    names_by_id = {}
    for field in parquet.schema_arrow:
        field_id = (field.metadata or {}).get(b"PARQUET:field_id")
        if field_id is not None:
            names_by_id[int(field_id)] = field.name
    if not names_by_id:
        raise NotNative("a file has no field ids")
    columns = []
    for name, kind in work.program.read:
        stored = names_by_id.get(work.ids[name])
        if stored is not None:
            refuse_wildcard(stored)
            refuse_misread(parquet, stored, name, kind, file.path)
            columns.append(StoredColumn(name, kind, stored, _stored_kind(flat.get(stored), stored, kind)))
        elif name in work.absent:
            columns.append(StoredColumn(name, kind, None, kind))
        else:
            raise NotNative(f"a file lacks the column {name}, which is required, or has a default or a partition value")
    return columns


def _columns_by_name(
    parquet: pq.ParquetFile, flat: Mapping[str, Any], names: Mapping[str, Sequence[str] | None], work: Work
) -> list[StoredColumn]:
    """Finds the program's columns in a file that belongs to no table.

    `names` has the name and type of each column in the file, as Spark read them from the footer earlier.

    Raises:
        NotNative: A type in the footer has changed, or the footer marks times in Spark's legacy calendar.
    """
    footer = parquet.metadata.metadata or {}
    if footer.get(SPARK_KEY, b"3").startswith((b"1.", b"2.")) or any(key.startswith(LEGACY_PREFIX) for key in footer):
        raise NotNative("a file was written in Spark's legacy calendar")
    columns = []
    for name, kind in work.program.read:
        stored_column = names[name]
        if stored_column is None:
            columns.append(StoredColumn(name, kind, None, kind))
            continue
        stored, stored_kind = stored_column
        refuse_wildcard(stored)
        if _stored_kind(flat.get(stored), stored, kind) != stored_kind:
            raise NotNative(f"a file has the column {stored} in another form than {stored_kind}")
        columns.append(StoredColumn(name, kind, stored, stored_kind))
    return columns


def _stored_kind(column: Any, name: str, kind: str) -> str:
    """Returns the Spark type of a file's column. Refuses a type that cannot be widened to `kind`."""
    stored_kind = spark_type(column) if column is not None else None
    if stored_kind is None or not widens(stored_kind, kind):
        raise NotNative(f"a file has the column {name} in another form than {kind}")
    return stored_kind


def widens(stored_kind: str, kind: str) -> bool:
    """True if the two types are equal, or Iceberg can promote the first to the second.

    Examples:
        >>> widens("int", "bigint"), widens("decimal(9,2)", "decimal(12,2)"), widens("bigint", "int")
        (True, True, False)
    """
    if stored_kind == kind or (stored_kind, kind) in WIDENED:
        return True
    if not (stored_kind.startswith("decimal(") and kind.startswith("decimal(")):
        return False
    (precision, scale), (new_precision, new_scale) = decimal_digits(stored_kind), decimal_digits(kind)
    return scale == new_scale and precision < new_precision


def spark_type(column: Any) -> str | None:
    """The Spark type of a flat parquet column, as Iceberg stores it; None for any other column."""
    if column.max_repetition_level or column.max_definition_level > 1:
        return None
    logical = json.loads(column.logical_type.to_json())
    physical, name = column.physical_type, logical["Type"]
    if name == "None":
        plain = {
            "BOOLEAN": "boolean", "INT32": "int", "INT64": "bigint", "FLOAT": "float", "DOUBLE": "double",
            "BYTE_ARRAY": "binary",
        }  # fmt: skip
        return plain.get(physical)
    if name == "Decimal":
        return f"decimal({logical['precision']},{logical['scale']})"
    if name == "Timestamp" and logical["timeUnit"] == "microseconds":
        return "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
    if name == "Int" and logical["isSigned"]:
        return {(32, "INT32"): "int", (64, "INT64"): "bigint"}.get((logical["bitWidth"], physical))
    return {"String": "string", "Date": "date"}.get(name)
