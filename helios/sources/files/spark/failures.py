"""Failures of files as errors for the user: rows that do not parse, and damaged files."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from helios.errors import HeliosError, InputError
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.sources.common.spark.failures import damaged
from helios.sources.files.declare import UNDECLARED_FIELDS
from helios.spark.iceberg.bad_rows import bad_row, json_in, row_in
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import struct_of

CHUNK = 1 << 20


def failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The failure of a row or a file that a source cannot read; None for any other error."""
    row = row_in(error)
    if row is None or "file" not in row:
        return damaged(error, plan)
    if row["why"].startswith(UNDECLARED_FIELDS) and (lacked := _lacked(row, plan)) is not None:
        return lacked
    place, fix = _place(row)
    return bad_row(row, plan, place, fix)


def _lacked(row: dict[str, str], plan: Plan) -> InputError | None:
    """The error of a row of json with fields that the schema lacks, where these stop the run as those of a file do."""
    fields = json_in(row["why"][len(UNDECLARED_FIELDS) :])
    for flow in flows(plan.stream):
        source = getattr(flow.source, "as_files", lambda: flow.source)()  # noqa: B023
        stops = (getattr(source, "format", None), getattr(source, "extra", None)) == ("json", "fail")
        lacks = getattr(source, "lacks", None)
        if stops and lacks is not None and source.declared_schema is not None and fields:
            declared = struct_of(source.declared_schema)
            names = list(dict.fromkeys(_names(fields, declared, "")))
            lacked: InputError = lacks(names, declared.names, unquote(row["file"]))
            return lacked
    return None


def _names(fields: object, kind: DataType, path: str) -> Iterator[str]:
    """The names of fields that a type lacks, those of inner ones with dots."""
    if isinstance(kind, ArrayType) and isinstance(fields, list):
        for one in fields:
            yield from _names(one, kind.elementType, path)
    elif isinstance(kind, (StructType, MapType)) and isinstance(fields, dict):
        known = {field.name.lower(): field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}
        for name, inner in fields.items():
            inside = kind.valueType if isinstance(kind, MapType) else known.get(name.lower())
            if inside is None:
                yield f"{path}{name}"
            else:
                yield from _names(inner, inside, f"{path}{name}.")


def _place(row: dict[str, str]) -> tuple[str, str]:
    """The place of a bad row, and the fix."""
    file = unquote(row["file"])
    line = line_of(file, row["text"])
    # Without a schema such a field is one of which no type was inferred: the file is as it shall be.
    first = (
        "declare the columns with schema=" if row.get("why", "").startswith(UNDECLARED_FIELDS) else "repair the file"
    )
    fix = f'{first}, or say what happens to such rows: .on_bad_row("quarantine"), "drop" or "null".'
    return f"{file}{f', line {line}' if line else ''}", fix


def line_of(file: str, text: str) -> int | None:
    """The number of the line with a text, found by reading the file once; None where it is not there.

    Args:
        file: Its path, with scheme.
        text: The text of a row; of several lines, the first counts.
    """
    wanted = text.splitlines()[0].encode() if text else b""
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
