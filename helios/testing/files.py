"""Writes the files of a test: rows in the format of the source, or text unchanged."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from helios.errors import InputError
from helios.plan.typing.schema import Schema, from_ddl
from helios.sources.files.declare import FilesSource
from helios.testing.casts import arrow_schema, inferred
from helios.testing.diff import hidden
from helios.testing.json_text import json_text

__tracebackhide__ = hidden


def write_file(folder: Path, name: str, source: FilesSource, content: Any) -> None:
    """Writes one file. Readers see the file only when it is complete.

    Args:
        folder: The folder.
        name: The file's name without its extension.
        source: The source, which declares the format and the reader options.
        content: Text, bytes, or rows as dicts.
    """
    data = content.encode() if isinstance(content, str) else content
    if not isinstance(data, bytes):
        data = _bytes(source, data)
    extension = "txt" if source.format == "text" else source.format
    draft = folder / f".{name}.{extension}"
    draft.write_bytes(data)
    draft.rename(folder / f"{name}.{extension}")


def _bytes(source: FilesSource, rows: Sequence[dict[str, Any]]) -> bytes:
    declared = source.declared_schema
    schema = from_ddl(declared) if declared is not None else inferred(rows, source.path)
    match source.format:
        case "csv":
            return _csv(source, rows, schema)
        case "json":
            return "".join(json_text(row) + "\n" for row in rows).encode()
        case "parquet" | "orc":
            return _columnar(source.format, rows, schema)
        case "text":
            return "".join(f"{row[schema.names[0]]}\n" for row in rows).encode()
    raise InputError(f"{source.path}: rows cannot be written as {source.format}.", fix="give the bytes of a file.")


def _csv(source: FilesSource, rows: Sequence[dict[str, Any]], schema: Schema) -> bytes:
    options = source.reader_options()
    text = io.StringIO()
    writer = csv.writer(text, delimiter=options.get("sep", options.get("delimiter", ",")), lineterminator="\n")
    if source.flag("header"):
        writer.writerow(schema.names)
    for row in rows:
        writer.writerow([_text(row.get(name), options.get("nullValue", "")) for name in schema.names])
    return text.getvalue().encode()


def _columnar(format: str, rows: Sequence[dict[str, Any]], schema: Schema) -> bytes:
    import pyarrow as pa

    table = pa.Table.from_pylist(list(rows), schema=arrow_schema(schema))
    sink = pa.BufferOutputStream()
    if format == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, sink)
    else:
        import pyarrow.orc

        # Spark cannot read an ORC timestamp with a zone. It reads one without a zone in the session's zone, UTC.
        zoneless = pa.timestamp("us")
        fields = [field.with_type(zoneless) if pa.types.is_timestamp(field.type) else field for field in table.schema]
        pyarrow.orc.write_table(table.cast(pa.schema(fields)), sink)
    return bytes(sink.getvalue())


def _text(value: Any, null: str) -> Any:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value
