"""Parquet files of an Iceberg table, with the field ids of its columns, and what its metadata says of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from helios.native.metrics import ColumnMetrics
from helios.native.program import NotNative
from helios.native.work import Target

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

MOST_PARTITIONS = 200
"""Partitions that one task writes at once: each keeps a writer and a row group."""


SAMPLE = 20_000
"""Values of a column by which its encoding is chosen."""
WRITE_BATCH = 1 << 14
"""Values that Arrow encodes at a time; by default 1,024, which costs a tenth."""


def arrow_schema(target: Target) -> pa.Schema:
    """The schema of a table's files, in Arrow's form."""
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
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        return pa.decimal128(precision, scale)
    plain: dict[str, pa.DataType] = {
        "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "string": pa.large_string(), "binary": pa.large_binary(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return plain[kind]


class TableWriter:
    """Writes the rows of one task, each partition into files of its own.

    Args:
        target: The table.
        name: The beginning of the files' names.
    """

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name
        self._schema = arrow_schema(target)
        self._partitions: dict[tuple[Any, ...], _PartitionWriter] = {}
        self._made = 0
        self._paths: list[str] = []

    def write(self, frame: pl.DataFrame) -> None:
        """Writes rows.

        Raises:
            NotNative: There are too many partitions, or a null where the table takes none.
        """
        if frame.is_empty():
            return
        frame = frame.select(column.name for column in self._target.columns)
        for column in self._target.columns:
            if column.required and frame.get_column(column.name).null_count():
                raise NotNative(f"a row has null in {column.name}, which the table requires")
        if not self._target.partition:
            self._writer(()).write(frame)
            return
        keys = [source for _, source in self._target.partition]
        for part in frame.partition_by(keys, maintain_order=True):
            self._writer(part.select(keys).row(0)).write(part)

    def _writer(self, values: tuple[Any, ...]) -> _PartitionWriter:
        if values not in self._partitions:
            if len(self._partitions) >= MOST_PARTITIONS:
                raise NotNative(f"a task has rows of more than {MOST_PARTITIONS} partitions")
            self._partitions[values] = _PartitionWriter(self._target, self._schema, values, self._path)
        return self._partitions[values]

    def _path(self, values: tuple[Any, ...]) -> str:
        names = [name for name, _ in self._target.partition]
        parts = [f"{quote_plus(name)}={quote_plus(_shown(one))}" for name, one in zip(names, values, strict=True)]
        self._made += 1
        path = os.path.join(self._target.folder, *parts, f"{self._name}-{self._made:05}.parquet")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._paths.append(path)
        return path

    def close(self) -> list[dict[str, Any]]:
        """Ends all files, and returns what the table's metadata says of each, as Iceberg's JSON of content files."""
        return [file for one in self._partitions.values() for file in one.close()]

    def abort(self) -> None:
        """Deletes what was written."""
        for one in self._partitions.values():
            one.abandon()
        for path in self._paths:
            if os.path.exists(path):
                os.unlink(path)


def _shown(value: Any) -> str:
    """A partition value in a path, as Iceberg writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


class _PartitionWriter:
    """The files of one partition, one after the other."""

    def __init__(
        self, target: Target, schema: pa.Schema, values: tuple[Any, ...], path: Callable[[tuple[Any, ...]], str]
    ) -> None:
        self._target = target
        self._schema = schema
        self._values = values
        self._path = path
        self._waiting: list[pl.DataFrame] = []
        self._waits = 0.0
        self._file: _File | None = None
        self._done: list[dict[str, Any]] = []

    def write(self, frame: pl.DataFrame) -> None:
        self._waiting.append(frame)
        self._waits += frame.estimated_size()
        if self._waits >= self._target.group_size:
            self._flush()

    def _flush(self) -> None:
        import polars as pl

        if not self._waiting:
            return
        rows = pl.concat(self._waiting, how="vertical")
        self._waiting, self._waits = [], 0.0
        if self._file is None:
            repeating = [column.name for column in self._target.columns if _repeats(rows.get_column(column.name))]
            self._file = _File(self._target, self._schema, self._path(self._values), repeating)
        self._file.write(rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self._schema))
        if self._file.size >= self._target.file_size:
            self._end()

    def _end(self) -> None:
        if self._file is not None:
            self._done.append({**self._file.close(), **self._partition()})
            self._file = None

    def _partition(self) -> Mapping[str, Any]:
        return {"partition": [_json_value(one) for one in self._values], "spec-id": self._target.spec}

    def close(self) -> list[dict[str, Any]]:
        self._flush()
        self._end()
        return self._done

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()


def _repeats(values: pl.Series) -> bool:
    """Whether a dictionary is worth its making, as far as the first values tell."""
    some = values.head(SAMPLE)
    return some.n_unique() * 2 <= len(some)


def _json_value(value: Any) -> Any:
    """A partition value in Iceberg's JSON single-value form."""
    return value if value is None or isinstance(value, (bool, int, str)) else value.isoformat()


class _File:
    """One parquet file."""

    def __init__(self, target: Target, schema: pa.Schema, path: str, repeating: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path
        self._metadata: list[Any] = []
        self._sink = pa.OSFile(path, "wb")
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
        self._metrics = [ColumnMetrics(column) for column in target.columns]

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(1, len(rows)))
        for metrics, values in zip(self._metrics, rows.columns, strict=True):
            metrics.add(values)

    def close(self) -> dict[str, Any]:
        self._writer.close()
        self._sink.close()
        (footer,) = self._metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        for index, metrics in enumerate(self._metrics):
            metrics.size = sum(group.column(index).total_compressed_size for group in groups)
        kept = [one for one in self._metrics if one.column.metrics != "none"]
        bounds = [(one.column.id, *one.bounds()) for one in kept]
        return {
            "content": "data",
            "file-path": self._path,
            "file-format": "parquet",
            "record-count": footer.num_rows,
            "file-size-in-bytes": os.path.getsize(self._path),
            "column-sizes": _map({one.column.id: one.size for one in self._metrics}),
            "value-counts": _map({one.column.id: one.values for one in kept}),
            "null-value-counts": _map({one.column.id: one.nulls for one in kept}),
            "nan-value-counts": _map({one.column.id: one.nans for one in kept if one.floating}),
            "lower-bounds": _map({number: low.hex().upper() for number, low, _ in bounds if low is not None}),
            "upper-bounds": _map({number: high.hex().upper() for number, _, high in bounds if high is not None}),
            "sort-order-id": 0,
            "split-offsets": [_offset(group) for group in groups],
        }

    def abandon(self) -> None:
        """Closes the file, which is deleted then."""
        import pyarrow as pa

        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._sink.close()


def _offset(group: Any) -> int:
    """Where a row group begins in its file."""
    first = group.column(0)
    found: int = first.data_page_offset
    return min(found, first.dictionary_page_offset) if first.dictionary_page_offset else found


def _map(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}
