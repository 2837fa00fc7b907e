"""Failures of reading: rows and records that do not parse, and files that are damaged, in words for the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from helios.errors import HeliosError, InputError, RunError
from helios.model.files import LACKED
from helios.model.flow import flows
from helios.plan.nodes import Plan
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import BAD_ROW
from helios.spark.jvm.sql import struct_of

SHOWN = 400
"""How much of a row's text a message shows."""

FAILED_READ = re.compile(r"\[FAILED_READ_FILE[.\w]*\] .*?(?:reading file|File) (\S+?)\.? ", re.DOTALL)
CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
LOST = re.compile(r"Could not read records in offset \[(\d+), \d+\) for topic partition (\S+)-(\d+)")
"""Spark's words for records of Kafka that are gone."""
CODEC = re.compile(r"Class \S*?(\w+)Codec was not found")
"""Parquet's words for a codec that is in none of Spark's jars."""
LEVELS = re.compile(r"Should not read definition, past page end|Can't read value in column \[[^\]]*\] repeated ")
"""Iceberg's and parquet's words for lists of two levels, or for a damaged file."""
CODECS, THREE_LEVELS = "with zstd, snappy or gzip", "with lists of three levels"
CHUNK = 1 << 20


def file_of(error: BaseException) -> str | None:
    """The file that Spark could not read, as its message names it; None for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        found = FAILED_READ.search(str(cause))
        if found is not None:
            return found[1]
        cause = cause.__cause__
    return None


def file_failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The failure of a row or a file that a source cannot read; None for any other error."""
    text = str(error)
    if BAD_ROW in text:
        return _bad_row(text, plan)
    if (lost := LOST.search(text)) is not None:
        return RunError(
            f"{lost[2]}, partition {lost[3]}: records from offset {lost[1]} on were deleted before the batch had read "
            "them; nothing of it was written.",
            where=plan.origin,
            fix="run again: the next run says how many are lost. Keep records longer, and batches short (max_rows=).",
        )
    found = FAILED_READ.search(text)
    if found is None:
        return _table_failure(text, plan)
    causes = [f"{name}: {message}" if message else name for name, message in CAUSE.findall(text)]
    # Spark's own wrappers say no more than that the read failed.
    told = [cause for cause in causes if "FAILED_READ_FILE" not in cause and not cause.startswith("SparkException")]
    sources = [flow.source for flow in flows(plan.stream) if getattr(flow.source, "bad_file", None) == "fail"]
    aside = ', or set such files aside: .on_bad_file("quarantine")' if sources else ""
    return RunError(
        f"{unquote(found[1])} cannot be read: {told[-1] if told else 'it is damaged'}. "
        "Nothing of its batch was written.",
        where=sources[0].origin if sources else plan.origin,
        fix=f"mend or remove it{aside}.",
    )


def no_codec(codec: str) -> str:
    """What is told of data that Spark cannot unpack."""
    return f"compressed with {codec}, for which Spark has no codec."


def _table_failure(text: str, plan: Plan) -> RunError | None:
    """The failure of a data file of a table, which Iceberg does not name."""
    codec = CODEC.search(text)
    if codec is not None:
        what, how = f"with data {no_codec(codec[1].lower())}", CODECS
    elif LEVELS.search(text) is not None:
        what, how = "that is damaged, or has a list of two levels, which Iceberg does not read.", THREE_LEVELS
    else:
        return None
    tables = dict.fromkeys([*(read.name for read in plan.reads if read.table is not None), plan.write.table.text])
    return RunError(
        f"{plan.pipeline}: {' or '.join(tables)} has a file {what}",
        where=plan.origin,
        fix=f"replace the file by one that is written {how}: the files are in the table's metadata, `TABLE.files`.",
    )


def _bad_row(text: str, plan: Plan) -> HeliosError | None:
    row = _row(text.split(BAD_ROW, 1)[1])
    if row is None:
        return None
    if row["why"].startswith(LACKED):
        lacked = _lacked(row, plan)
        if lacked is not None:
            return lacked
    shown = row["text"] if len(row["text"]) <= SHOWN else f"{row['text'][:SHOWN]}..."
    sources = [flow.source for flow in flows(plan.stream) if getattr(flow.source, "bad_row", None) == "fail"]
    place, fix = _place(row)
    return RunError(
        f"{place}: {row['why']}: {shown}; nothing of its batch was written.",
        where=sources[0].origin if sources else plan.origin,
        fix=fix,
    )


def _lacked(row: dict[str, str], plan: Plan) -> InputError | None:
    """The error of a row of json with fields that the schema lacks, where these stop the run as those of a file do."""
    fields = _json(row["why"][len(LACKED) :])
    for flow in flows(plan.stream):
        source = getattr(flow.source, "as_files", lambda: flow.source)()  # noqa: B023
        told = (getattr(source, "format", None), getattr(source, "extra", None)) == ("json", "fail")
        lacks = getattr(source, "lacks", None)
        if told and lacks is not None and source.declared_schema is not None and fields:
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
    """Where a bad row is, and what to do about it."""
    if "file" not in row:
        return row["at"], row.get("fix", 'say what happens to such records: .on_bad_row("quarantine") or "drop".')
    file = unquote(row["file"])
    line = line_of(file, row["text"])
    # Without a schema such a field is one of which no type was inferred: the file is as it shall be.
    first = "declare the columns with schema=" if row.get("why", "").startswith(LACKED) else "mend the file"
    fix = f'{first}, or say what happens to such rows: .on_bad_row("quarantine"), "drop" or "null".'
    return f"{file}{f', line {line}' if line else ''}", fix


def _row(text: str) -> dict[str, str] | None:
    found = _json(text)
    return {"why": "the row does not parse", "text": "", **found} if found is not None else None


def _json(text: str) -> dict[str, Any] | None:
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError:
        return None  # Spark cut the message
    return dict(found)


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
