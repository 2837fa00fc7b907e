"""Turns failures of file sources into errors for the user: rows that do not parse, and damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from helios.errors import HeliosError, InputError
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.sources.common.spark.failures import damaged_file_error
from helios.sources.files.declare import UNDECLARED_FIELDS, FilesSource
from helios.spark.iceberg.bad_rows import bad_row_error, json_in, row_in
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import struct_of

CHUNK = 1 << 20
"""The bytes of a file that are read at a time in the search for the line of a bad row."""


def failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The error for the user if a row or a file cannot be read; None for any other error."""
    row = row_in(error)
    if row is None or "file" not in row:
        return damaged_file_error(error, plan)
    if row["why"].startswith(UNDECLARED_FIELDS):
        undeclared = _undeclared_fields_error(row, plan)
        if undeclared is not None:
            return undeclared
    place, fix = _place_and_fix(row)
    return bad_row_error(row, plan, place, fix)


def _undeclared_fields_error(row: dict[str, str], plan: Plan) -> InputError | None:
    """The error for a json row with undeclared fields, if its source stops at such fields; otherwise None."""
    fields = json_in(row["why"][len(UNDECLARED_FIELDS) :])
    for flow in flows(plan.stream):
        as_files = getattr(flow.source, "as_files", None)  # only other kinds that store their rows in files have it
        source = as_files() if as_files is not None else flow.source
        if not isinstance(source, FilesSource) or (source.format, source.extra) != ("json", "fail"):
            continue
        if source.declared_schema is not None and fields:
            declared = struct_of(source.declared_schema)
            names = list(dict.fromkeys(_undeclared_names(fields, declared, "")))
            return source.undeclared_error(names, declared.names, unquote(row["file"]))
    return None


def _undeclared_names(fields: object, kind: DataType, path: str) -> Iterator[str]:
    """The names of the fields that a type lacks; for a nested field, the dotted name."""
    if isinstance(kind, ArrayType) and isinstance(fields, list):
        for item in fields:
            yield from _undeclared_names(item, kind.elementType, path)
    elif isinstance(kind, (StructType, MapType)) and isinstance(fields, dict):
        known = {field.name.lower(): field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}
        for name, value in fields.items():
            value_type = kind.valueType if isinstance(kind, MapType) else known.get(name.lower())
            if value_type is None:
                yield f"{path}{name}"
            else:
                yield from _undeclared_names(value, value_type, f"{path}{name}.")


def _place_and_fix(row: dict[str, str]) -> tuple[str, str]:
    """The location of a bad row, with its file and line, and the advice to the user."""
    file = unquote(row["file"])
    line = line_of(file, row["text"])
    # With inferred columns, an undeclared field is a field that was not inferred. The file need not be repaired then.
    undeclared = row.get("why", "").startswith(UNDECLARED_FIELDS)
    repair = "declare the columns with schema=" if undeclared else "repair the file"
    fix = f'{repair}, or say what happens to such rows: .on_bad_row("quarantine"), "drop" or "null".'
    return f"{file}{f', line {line}' if line else ''}", fix


def line_of(file: str, text: str) -> int | None:
    """Finds the number of the line with a text by reading the file once; None if it is not found.

    Args:
        file: The path of the file, with scheme.
        text: The text of a row; only its first line is searched for.
    """
    wanted = text.partition("\n")[0].rstrip("\r").encode()
    if not wanted:
        return None
    jvm = classes()
    conf = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf()
    try:
        path = jvm.org.apache.hadoop.fs.Path(file)
        stream = jvm.org.apache.spark.sql.execution.datasources.CodecStreams.createInputStream(conf, path)
    except Py4JError:
        return None
    number, rest = 0, b""
    try:
        while chunk := bytes(stream.readNBytes(CHUNK)):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                if line.rstrip(b"\r") == wanted:
                    return number
    except Py4JError:
        return None
    finally:
        stream.close()
    return number + 1 if rest.rstrip(b"\r") == wanted else None
