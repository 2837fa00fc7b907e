"""Data files as frames: the columns of a program, found by their field ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from helios.native import lines
from helios.native.deletes import deleted
from helios.native.engine import FAILS, applied, polars_type
from helios.native.newest import ROW
from helios.native.parquet_types import refuse_misread
from helios.native.program import Expectation, NotNative, refuse_pattern
from helios.native.storage import is_local, opened
from helios.native.work import InputFile, Work

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

VALUES = 1 << 24
"""Values of a file above which its rows come in parts, of a quarter of that."""
WIDENED = frozenset({("int", "bigint"), ("float", "double")})
"""Types of columns that have been promoted since; decimals, too, whose precision has grown."""
SPARK, LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacy"
"""The keys of Spark's notes in a footer: its version, and that times are of the calendar that it had before 3.0."""
NOWHERE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class StoredColumn:
    """A column of a program in one file.

    Attributes:
        name: What the program calls it.
        kind: The Spark type that it has there.
        stored: What the file calls it; None where the file lacks it, and it is null.
        made: The Spark type that it has in the file.
    """

    name: str
    kind: str
    stored: str | None
    made: str

    def expression(self) -> pl.Expr:
        """The column as the program reads it."""
        import polars as pl

        if self.stored is None:
            return pl.lit(None, polars_type(self.kind)).alias(self.name)
        column = pl.col(self.stored)
        return (column if self.made == self.kind else column.cast(polars_type(self.kind))).alias(self.name)


@dataclass
class Dropped:
    """Counts the rows that expectations have left out."""

    rows: int = 0


def frames(
    file: InputFile,
    work: Work,
    store: Mapping[str, str] = NOWHERE,
    *,
    numbered: bool = False,
    dropped: Dropped | None = None,
) -> Iterator[pl.DataFrame]:
    """The rows of a file after the steps, some at a time.

    Args:
        file: The file.
        work: What all tasks have in common.
        store: PyIceberg's properties of the store that it is on.
        numbered: Whether the rows have their number in the file as the column `ROW`.
        dropped: Counts the rows that expectations leave out.

    Raises:
        NotNative: The file has not the table's columns, or Spark may fail on a row.
    """
    counted = dropped if dropped is not None else Dropped()
    gone = list(deleted(file, store)) if file.deletes else []
    read = _lined if work.texts else _scanned if is_local(file.path) else _streamed
    later, kept = work.program.stages()[1:], [ROW] if numbered else []
    for rows in read(file, work, gone, store, numbered):
        found = _sure(rows)
        for stage in later:
            before, found = len(found), _sure(applied(stage, found.lazy(), kept).collect())
            if isinstance(stage[0], Expectation) and len(found) < before:
                if stage[0].refusal:
                    raise NotNative(stage[0].refusal)
                counted.rows += before - len(found)
        yield found


def _sure(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, after a check that Spark fails on none of them.

    Raises:
        NotNative: It may fail on one.
    """
    if rows.get_column(FAILS).any():
        raise NotNative("Spark may fail on a value of the batch, and names it then")
    return rows.drop(FAILS)


def _rows(work: Work) -> int:
    """Rows of a part of a file."""
    return max(1 << 14, VALUES // (4 * max(1, len(work.program.read))))


def _computed(
    rows: pl.LazyFrame, columns: Sequence[StoredColumn], gone: Sequence[int], work: Work, numbered: bool
) -> pl.LazyFrame:
    """The rows after the steps in front of expectations.

    They come with row numbers where some are deleted, or they are to keep them.
    """
    import polars as pl

    if gone:
        rows = rows.filter(~pl.col(ROW).is_in(pl.Series(gone, dtype=pl.UInt32).implode()))
    read = [column.expression() for column in columns]
    # Without a column of the file nothing would tell how many rows there are.
    counted = [] if any(column.stored is not None for column in columns) and not numbered else [pl.col(ROW)]
    return applied(work.program.stages()[0], rows.select(*read, *counted), [ROW] if numbered else [])


def scanned(file: InputFile, work: Work, numbers: str | None) -> tuple[pl.LazyFrame, list[StoredColumn], int]:
    """All rows of a file on the local disk, deleted ones too, where its columns of the program are, and the count.

    Args:
        file: The file.
        work: What all tasks have in common.
        numbers: What the column of the rows' numbers is called; None for none, where a column of the file is read.
    """
    import polars as pl
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, pre_buffer=False) as parquet:
        columns, count = found(parquet, file, work), int(parquet.metadata.num_rows)
    if numbers is None and all(column.stored is None for column in columns):
        numbers = ROW
    rows = pl.scan_parquet(
        file.path,
        parallel="none",
        use_statistics=False,
        glob=False,
        hive_partitioning=False,
        low_memory=False,
        row_index_name=numbers,
    )
    noted = rows.collect_schema()
    return (
        rows.with_columns(_physical(column, noted) for column in columns if column.stored is not None),
        columns,
        count,
    )


def _physical(column: StoredColumn, noted: Mapping[str, Any]) -> pl.Expr:
    """A stored column by its type in parquet: Polars reads by the schema of Arrow that a footer may have beside it.

    Raises:
        NotNative: That has another type, of which no value is certain.
    """
    import polars as pl

    stored, kind = pl.col(str(column.stored)), noted[str(column.stored)]
    if kind == polars_type(column.made):
        return stored
    if isinstance(kind, (pl.Categorical, pl.Enum)) and column.made == "string":
        return stored.cast(pl.String)  # categories are compared by an order of their own
    if isinstance(kind, pl.Datetime) and (kind.time_unit, column.made) == ("us", "timestamp") and kind.time_zone:
        return stored.dt.convert_time_zone("UTC")  # years and months are taken in the zone
    raise NotNative(f"a file notes the column {column.stored} as {kind}, and not as {column.made}")


def _scanned(
    file: InputFile, work: Work, gone: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    """The rows of a file on the local disk, as Polars reads it."""
    rows, columns, count = scanned(file, work, ROW if gone or numbered else None)
    yield from collected(_computed(rows, columns, gone, work, numbered), count, work)


def _lined(
    file: InputFile, work: Work, gone: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    """The rows of a file of lines, some at a time."""
    assert file.group is not None
    names, start = work.groups[file.group], 0
    owned = ((name, kind, names[name] or (None, kind)) for name, kind in work.program.read)
    columns = [StoredColumn(name, kind, *own) for name, kind, own in owned]
    for rows in lines.rows(file, work.texts[file.group]):
        counted = rows.with_row_index(ROW, start)
        start += len(rows)
        yield _computed(counted.lazy(), columns, gone, work, numbered).collect()


def collected(rows: pl.LazyFrame, count: int, work: Work) -> Iterator[pl.DataFrame]:
    """The rows of a file: at once, or for a large file in parts."""
    if count * len(work.program.read) <= VALUES:
        yield rows.collect()
    else:
        yield from rows.collect_batches(chunk_size=_rows(work), maintain_order=True)


def _streamed(
    file: InputFile, work: Work, gone: Sequence[int], store: Mapping[str, str], numbered: bool
) -> Iterator[pl.DataFrame]:
    """The rows of a file on a store, as Arrow reads it: of each row group the columns that are asked for."""
    import polars as pl
    import pyarrow.parquet as pq

    with opened(file.path, store) as stream, pq.ParquetFile(stream, pre_buffer=True) as parquet:
        columns = found(parquet, file, work)
        start = 0
        for group in range(parquet.num_row_groups):
            for part in _parts(parquet, group, columns, _rows(work)):
                rows = part.with_columns(pl.int_range(start, start + len(part), dtype=pl.UInt32).alias(ROW))
                start += len(part)
                yield _computed(rows.lazy(), columns, gone, work, numbered).collect()


def _parts(parquet: pq.ParquetFile, group: int, columns: Sequence[StoredColumn], size: int) -> Iterator[pl.DataFrame]:
    """The columns of a row group that are read, some rows at a time."""
    import polars as pl

    stored = {column.stored: column.made for column in columns if column.stored is not None}
    if not stored:
        yield pl.DataFrame({ROW: pl.Series([0], dtype=pl.UInt32).new_from_index(0, _count(parquet, group))})
        return
    # Arrow takes names as paths into nested columns: it may read more than is asked for.
    for batch in parquet.iter_batches(size, [group], list(stored), use_threads=False):
        yield pl.DataFrame({name: _plain(batch.column(name), kind) for name, kind in stored.items()})


def _count(parquet: pq.ParquetFile, group: int) -> int:
    rows: int = parquet.metadata.row_group(group).num_rows
    return rows


def _plain(values: pa.Array, kind: str) -> pl.Series:
    """A column of the type that a file has it in, whatever Arrow type its writer has noted."""
    import polars as pl
    import pyarrow as pa

    from helios.native.writer import arrow_type

    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values.validate(full=True)  # Polars would take bytes that are no text for some
    elif values.type != arrow_type(kind):
        values = values.cast(arrow_type(kind))
    made = pl.from_arrow(values)
    assert isinstance(made, pl.Series)
    return made


def found(parquet: pq.ParquetFile, file: InputFile, work: Work) -> list[StoredColumn]:
    """The columns that are read, of a file whose columns are found by their ids.

    Raises:
        NotNative: A column is missing or of another type, or the file has another number of rows.
    """
    flat = {parquet.schema.column(i).path: parquet.schema.column(i) for i in range(len(parquet.schema))}
    if file.group is not None:
        return _named(parquet, flat, work.groups[file.group], work)
    if parquet.metadata.num_rows != file.rows:
        raise NotNative("a file has other rows than the table's metadata says")
    known = {}
    for field in parquet.schema_arrow:
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            known[int(number)] = field.name
    if not known:
        raise NotNative("a file has no field ids")
    columns = []
    for name, kind in work.program.read:
        stored = known.get(work.ids[name])
        if stored is not None:
            refuse_pattern(stored)
            refuse_misread(parquet, stored, name, kind, file.path)
            columns.append(StoredColumn(name, kind, stored, _made(flat.get(stored), stored, kind)))
        elif name in work.absent:
            columns.append(StoredColumn(name, kind, None, kind))
        else:
            raise NotNative(f"a file was written before the column {name} came")
    return columns


def _named(
    parquet: pq.ParquetFile, flat: Mapping[str, Any], names: Mapping[str, Sequence[str] | None], work: Work
) -> list[StoredColumn]:
    """The columns that are read of a file outside of a table, as Spark reads its footer.

    Raises:
        NotNative: The footer says another type, or that Spark takes its times for those of another calendar.
    """
    noted = parquet.metadata.metadata or {}
    if noted.get(SPARK, b"3").startswith((b"1.", b"2.")) or any(key.startswith(LEGACY) for key in noted):
        raise NotNative("a file was written in Spark's legacy calendar")
    columns = []
    for name, kind in work.program.read:
        own = names[name]
        if own is None:
            columns.append(StoredColumn(name, kind, None, kind))
            continue
        stored, made = own
        refuse_pattern(stored)
        if _made(flat.get(stored), stored, kind) != made:
            raise NotNative(f"a file has the column {stored} in another form than {made}")
        columns.append(StoredColumn(name, kind, stored, made))
    return columns


def _made(column: Any, name: str, kind: str) -> str:
    """The type of a file's column, which is read as the table's current type."""
    made = kind_of(column) if column is not None else None
    if made is None or not widens(made, kind):
        raise NotNative(f"a file has the column {name} in another form than {kind}")
    return made


def widens(made: str, kind: str) -> bool:
    """True if the two types are equal, or the first may have become the second by promotion.

    Examples:
        >>> widens("int", "bigint"), widens("decimal(9,2)", "decimal(12,2)"), widens("bigint", "int")
        (True, True, False)
    """
    if made == kind or (made, kind) in WIDENED:
        return True
    if not (made.startswith("decimal(") and kind.startswith("decimal(")):
        return False
    (before, scale), (after, now) = (decimal[len("decimal(") : -1].split(",") for decimal in (made, kind))
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
