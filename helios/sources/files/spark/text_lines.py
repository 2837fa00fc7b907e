"""The text of csv, json and text files, with the file of each text: line by line, or as records of whole files.

Spark's own readers keep the text only of lines that do not parse, and silently accept values that their parser rounds,
cuts or replaces. So files are read as text here. `csv_lines` and `json_lines` let Spark's parser split each text into
fields, which are texts again; `text_values` and the casts of `helios.sources.common.spark.types` turn them into values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from helios.errors import InputError
from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark.listing import loaded
from helios.spark.jvm.classes import classes
from helios.spark.jvm.functions import java_function

DECODED = Path(__file__).with_name("Decoded.java")

FILE_OPTIONS = ("header", "comment", "encoding", "charset", "lineSep", "multiLine", "inferSchema", "samplingRatio")
"""Options that concern a whole file, and not a single line."""

UTF8 = ("utf-8", "utf8")

SKIP_NO_FILE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of every read: no file is skipped, whatever the session says."""

PLAIN = "__helios_plain"
"""The column with the row of a plain line, as a struct; null for any other line."""

ROW = "row"
"""The field with the row, in a struct of the row and `WHAT`."""

WHAT = "what"
"""The class of a line or record. csv: null for a row, empty for no row, else a reason. json: see `JsonLine.java`."""

REPLACED = "\ufffd"
"""Replaces bytes that are not valid in the encoding."""

UNPARSED = "the row does not parse"
DAMAGED = "it contains bytes that are not"

RECORDS = ArrayType(ArrayType(StringType()))
"""The records of a file: each is its text, and the reason why it cannot be a row; null if it can."""


def line_options(source: FilesSource) -> dict[str, str]:
    """The options of a source that concern one line, for Spark's parser of a single text."""
    settings = {name: text for name, text in source.reader_options().items() if name not in FILE_OPTIONS}
    return settings | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": rejects.TEXT}


def refuse_encoding(source: FilesSource) -> None:
    """Refuses an encoding whose line ends cannot be found by their bytes.

    Raises:
        InputError: The source has such an encoding, and its rows are lines.
    """
    encoding = encoding_of(source.reader_options())
    whole = source.flag("multiLine") or source.flag("wholetext")
    line_end = classes().java.nio.charset.Charset.forName(encoding).encode("\n")
    if not whole and (line_end.remaining() != 1 or line_end.get() != ord("\n")):
        option = "wholetext" if source.format == "text" else "multiLine"
        raise InputError(
            f"{source.label()}: in {encoding} a line does not end with the byte at which Spark's readers cut lines.",
            where=source.origin,
            fix=f"write .option({option}=True), or convert the files to UTF-8.",
        )


def read_text(spark: SparkSession, source: FilesSource, files: Sequence[File]) -> DataFrame:
    """The lines of text files, as `value`, and the hidden columns of `read_csv`."""
    rows = lines(spark, source, files, ("lineSep", "wholetext"))
    return rows.select(F.col(bad_rows.LINE).alias("value"), "*")


def lines(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    options: Sequence[str] = ("lineSep",),
    *,
    what: Callable[[Column, Column, Column], Column] | None = None,
    plain: Callable[[Column, Column, Column], Column] | None = None,
) -> DataFrame:
    """The lines of files, each with its file, and the reason if its bytes are not text of the encoding.

    Args:
        spark: The session.
        source: The source.
        files: The files.
        options: The names of the options that say where a line ends.
        what: Computes `WHAT` from the file, the offset at which the task begins in the file, and the text of the line.
        plain: Computes `PLAIN` from the file, the offset, and the bytes of the line. If `what` is None, it returns a
            struct of `ROW` and `WHAT`. A plain line has neither a text nor a reason.
    """
    settings = {name: text for name, text in source.reader_options().items() if name in options}
    reader = spark.read.format("text").options(**settings, **SKIP_NO_FILE)
    rows = loaded(spark, reader, files).select("value", *bad_rows.origin_of_lines())
    value, path, begin = F.col("value"), F.col(bad_rows.FILE), F.col(bad_rows.BEGIN)
    columns = []
    if plain is not None:
        # A column of its own, so that Spark evaluates `plain` once for each line.
        rows = rows.withColumn(PLAIN, plain(path, begin, value.cast("binary")))
        row = F.col(PLAIN) if what is not None else F.col(PLAIN)[ROW]
        value = F.when(row.isNull(), value)
        columns.append(row.alias(PLAIN))
        if what is None:
            columns.append(F.col(PLAIN)[WHAT].alias(WHAT))
    text, why = _text(spark, source.reader_options(), value)
    columns += [text.alias(bad_rows.LINE), *map(F.col, bad_rows.ORIGIN), why.alias(rejects.WHY)]
    if what is not None:
        columns.append(what(path, begin, text).alias(WHAT))
    return rows.select(*columns)


def records(
    spark: SparkSession, source: FilesSource, files: Sequence[File], split: Callable[[Column], Column]
) -> DataFrame:
    """The records of files that are read whole, with the columns of `lines`.

    Args:
        spark: The session.
        source: The source.
        files: The files.
        split: Splits the text of a file into its `RECORDS`.
    """
    text, why = _text(spark, source.reader_options(), F.col("value"))
    reader = spark.read.format("text").options(wholetext=True, **SKIP_NO_FILE)
    columns = [*bad_rows.origin(), why.alias(rejects.WHY)]
    rows = loaded(spark, reader, files).select(split(text).alias("records"), *columns)
    rows = rows.select(F.explode("records").alias("record"), *bad_rows.ORIGIN, rejects.WHY)
    line = F.col("record")[0]
    # The reason concerns the whole file. Only the records with replaced bytes are bad.
    why = F.when(F.contains(line, F.lit(REPLACED)), F.col(rejects.WHY))
    what = F.col("record")[1].alias(WHAT)
    return rows.select(line.alias(bad_rows.LINE), *bad_rows.ORIGIN, why.alias(rejects.WHY), what)


def encoding_of(options: Mapping[str, str]) -> str:
    return options.get("encoding", options.get("charset", "UTF-8"))


def _text(spark: SparkSession, options: dict[str, str], value: Column) -> tuple[Column, Column]:
    """The text of a line, and the reason if its bytes are not valid in the encoding; otherwise null."""
    encoding, value_bytes = encoding_of(options), value.cast("binary")
    if encoding.lower() in UTF8:
        text, valid = F.make_valid_utf8(value), F.is_valid_utf8(value)
    else:
        strict = java_function(spark, "helios_decoded_strict", DECODED, [value_bytes], [encoding, True])
        lenient = java_function(spark, "helios_decoded_lenient", DECODED, [value_bytes], [encoding, False])
        text, valid = F.coalesce(strict, lenient), strict.isNotNull()
    return text, F.when(~valid, F.lit(f"{DAMAGED} {encoding}"))
