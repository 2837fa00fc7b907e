"""Writes the parquet files of an Iceberg table, and returns their metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from helios.native.metrics import ColumnMetrics
from helios.native.partitions import Values, as_json, folder_name, grouped_by_partition
from helios.native.program import NotNative, decimal_digits
from helios.native.storage import create_file, delete, is_local, is_storage_error
from helios.native.work import Sort, Target

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

MAX_OPEN_LOCAL = 100
"""The maximum number of local files that a task keeps open. Above it, the least recently written file is closed."""
MAX_OPEN_ON_STORE = 32
"""The same for a store, whose client keeps up to 10 MB of each file in memory."""
MAX_UNSORTED_BYTES = 256 << 20
"""The bytes of rows that a task collects in memory before it splits the rows by partition, without a sort order."""
MAX_SORTED_BYTES = 512 << 20
"""The maximum bytes of rows that a task sorts. A task sorts all its rows at once, in memory."""
SAMPLE_VALUES = 20_000
"""The number of values at the beginning of a column by which the encoding is chosen."""
WRITE_BATCH = 1 << 14
"""The number of values that Arrow encodes at a time. Arrow's default of 1,024 takes a tenth more time."""


def arrow_schema(target: Target) -> pa.Schema:
    """The Arrow schema of a table's files, with the field ids of the columns."""
    import pyarrow as pa

    fields = [
        pa.field(
            column.name, arrow_type(column.kind), not column.required, metadata={"PARQUET:field_id": str(column.id)}
        )
        for column in target.columns
    ]
    return pa.schema(fields)


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a flat Spark type."""
    import pyarrow as pa

    if kind.startswith("decimal("):
        return pa.decimal128(*decimal_digits(kind))
    plain: dict[str, pa.DataType] = {
        "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "string": pa.large_string(), "binary": pa.large_binary(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return plain[kind]


class TableWriter:
    """Writes the rows of one task. Each partition gets its own files.

    Rows are collected in memory up to a limit. Then the rows are split by partition and written.

    Args:
        name: The prefix of the files' names.
        store: PyIceberg's properties of the table's store.
    """

    def __init__(self, target: Target, name: str, store: Mapping[str, str] = MappingProxyType({})) -> None:
        self._target = target
        self._store = store
        self._name = name
        self._schema = arrow_schema(target)
        self._max_open_files = MAX_OPEN_LOCAL if is_local(target.folder) else MAX_OPEN_ON_STORE
        unsorted_bytes = MAX_UNSORTED_BYTES if target.partition else target.group_size
        self._max_waiting_bytes = MAX_SORTED_BYTES if target.sort else unsorted_bytes
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0.0
        self._open: dict[Values, _File] = {}
        self._done: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def write(self, frame: pl.DataFrame) -> None:
        """Writes rows.

        Raises:
            NotNative: A null in a required column, a time outside of the years 1 to 9999, or too many rows to sort.
        """
        if frame.is_empty():
            return
        frame = frame.select(column.name for column in self._target.columns)
        for column in self._target.columns:
            if column.required and frame.get_column(column.name).null_count():
                raise NotNative(f"a row has null in {column.name}, which the table requires")
        self._waiting.append(frame)
        self._waiting_bytes += frame.estimated_size()
        if self._waiting_bytes >= self._max_waiting_bytes:
            if self._target.sort:
                raise NotNative("a task has more rows than it sorts in memory")
            self._flush()

    def _flush(self) -> None:
        import polars as pl

        if not self._waiting:
            return
        rows = pl.concat(self._waiting, how="vertical")
        group = max(1, int(self._target.group_size * len(rows) / max(1.0, self._waiting_bytes)))
        self._waiting, self._waiting_bytes = [], 0.0
        if self._target.sort:
            rows = _sorted(rows, self._target.sort)
        spans: list[tuple[Values, int, int]] = [((), 0, len(rows))]
        if self._target.partition:
            rows, spans = grouped_by_partition(rows, self._target.partition)
        # All rows are converted at once, because to convert a small part takes as long.
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self._schema)
        for values, start, count in spans:
            self._append(values, table.slice(start, count), rows.slice(start, count), group)

    def _append(self, values: Values, table: pa.Table, rows: pl.DataFrame, group: int) -> None:
        """Appends rows to the file of a partition, in row groups of about `group` rows.

        `table` and `rows` are the same rows, as an Arrow table and as a frame.
        """
        file = self._open.pop(values, None)
        if file is None:
            repeating = [column.name for column in self._target.columns if _repeats(rows.get_column(column.name))]
            path = self._path(values)
            file = _File(self._target, self._schema, path, repeating, create_file(path, self._store))
        self._open[values] = file  # at the end: `_open` is in the order of the last writes
        groups = max(1, round(len(table) / group))  # of equal size, so that the last group is not small
        file.write(table, math.ceil(len(table) / groups))
        if file.size >= self._target.file_size:
            self._close_file(values)
        if len(self._open) > self._max_open_files:
            self._close_file(next(iter(self._open)))

    def _path(self, values: Values) -> str:
        parts = [folder_name(value, field) for value, field in zip(values, self._target.partition, strict=True)]
        path = "/".join((self._target.folder, *parts, f"{self._name}-{len(self._paths) + 1:05}.parquet"))
        self._paths.append(path)
        return path

    def _close_file(self, values: Values) -> None:
        fields = zip(values, self._target.partition, strict=True)
        partition = [as_json(value, field) for value, field in fields]
        metadata = self._open.pop(values).close()
        self._done.append({**metadata, "partition": partition, "spec-id": self._target.spec})

    def close(self) -> list[dict[str, Any]]:
        """Closes all files, and returns the metadata of each file as Iceberg's JSON of content files."""
        self._flush()
        for values in list(self._open):
            self._close_file(values)
        return self._done

    def abort(self) -> None:
        """Deletes the written files."""
        for file in self._open.values():
            file.abandon()
        for path in self._paths:
            delete(path, self._store)


def _sorted(rows: pl.DataFrame, order: Sequence[Sort]) -> pl.DataFrame:
    """Rows in the table's sort order. In Polars, as in Spark, NaN is the largest number, and -0.0 equals 0.0."""
    return rows.sort(
        [part.column for part in order],
        descending=[part.descending for part in order],
        nulls_last=[part.nulls_last for part in order],
        maintain_order=True,
    )


def _repeats(values: pl.Series) -> bool:
    """True if the first values repeat so often that a dictionary is worth its cost."""
    sample = values.head(SAMPLE_VALUES)
    return sample.n_unique() * 2 <= len(sample)


class _File:
    """One parquet file."""

    def __init__(self, target: Target, schema: pa.Schema, path: str, repeating: list[str], sink: Any) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._metadata: list[Any] = []
        self._sink = sink
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=target.codec,
            compression_level=target.level,
            store_schema=False,
            use_dictionary=repeating,
            write_batch_size=WRITE_BATCH,
            metadata_collector=self._metadata,
        )
        self._sort_id = target.sort_id
        self._metrics = [ColumnMetrics(column) for column in target.columns]

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, rows: pa.Table, group: int) -> None:
        """Writes rows, in row groups of `group` rows each."""
        self._writer.write_table(rows, row_group_size=group)
        for metrics, values in zip(self._metrics, rows.columns, strict=True):
            metrics.add(values)

    def close(self) -> dict[str, Any]:
        self._writer.close()
        size = self.size
        self._sink.close()
        (footer,) = self._metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        for index, metrics in enumerate(self._metrics):
            metrics.size = sum(group.column(index).total_compressed_size for group in groups)
        kept = [metrics for metrics in self._metrics if metrics.column.metrics != "none"]
        bounds = [(metrics.column.id, *metrics.bounds()) for metrics in kept]
        return {
            "content": "data",
            "file-path": self._path,
            "file-format": "parquet",
            "record-count": footer.num_rows,
            "file-size-in-bytes": size,
            "column-sizes": _map({metrics.column.id: metrics.size for metrics in self._metrics}),
            "value-counts": _map({metrics.column.id: metrics.values for metrics in kept}),
            "null-value-counts": _map({metrics.column.id: metrics.nulls for metrics in kept}),
            "nan-value-counts": _map({metrics.column.id: metrics.nans for metrics in kept if metrics.floating}),
            "lower-bounds": _map({number: low.hex().upper() for number, low, _ in bounds if low is not None}),
            "upper-bounds": _map({number: high.hex().upper() for number, _, high in bounds if high is not None}),
            "sort-order-id": self._sort_id,
            "split-offsets": [_offset(group) for group in groups],
        }

    def abandon(self) -> None:
        """Closes the file. The caller then deletes it."""
        import pyarrow as pa

        # The task ends with an earlier error, which must not be hidden.
        for close in (self._writer.close, self._sink.close):
            try:
                close()
            except Exception as error:
                if not (is_storage_error(error) or isinstance(error, pa.ArrowException)):
                    raise


def _offset(group: Any) -> int:
    """The offset of a row group in its file."""
    first = group.column(0)
    offset: int = first.data_page_offset
    return min(offset, first.dictionary_page_offset) if first.dictionary_page_offset else offset


def _map(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    """A map in Iceberg's JSON."""
    return {"keys": list(values), "values": list(values.values())}
