"""Reads csv, json and text files as text: line by line, or split into records. Each text comes with its file.

Spark's own readers keep the text only of lines that do not parse, and silently accept values that their parser rounds,
truncates or replaces. So this module reads the files as text. `csv_lines` and `json_lines` let Spark's parser split
each line into fields, which are still texts. `text_values` and `helios.sources.common.spark.types` turn these texts
into values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
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
"""The options that concern a whole file instead of a single line."""

UTF8 = ("utf-8", "utf8")

SKIP_NO_FILE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""The options of every read: no file is skipped, even if the conf of the session allows that."""

PLAIN = "__helios_plain"
"""The column with the row of a plain line (see `helios.native.lines`), as a struct; null for any other line."""

ROW = "row"
"""The field with the row, in a struct of the row and the `LINE_RESULT`."""

LINE_RESULT = "line_result"
"""The column with the result of the Java code for a line or record: for json, see JsonLine.java.

For csv, CsvLine.java returns null for a row, an empty text for a line without a row, and otherwise the reason why the
line is bad.
"""

REPLACED = "\ufffd"
"""The character that replaces bytes which are not valid in the encoding."""

UNPARSED = "the row does not parse"
INVALID_BYTES = "it contains bytes that are not"

RECORDS = ArrayType(ArrayType(StringType()))
"""The type of the records of a file. A record has its text, and the reason why it cannot be a row, or null."""


def line_options(source: FilesSource) -> dict[str, str]:
    """The options of a source for Spark's parser of a single text: those that do not concern a whole file."""
    settings = {name: text for name, text in source.reader_options().items() if name not in FILE_OPTIONS}
    return settings | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": rejects.TEXT}


def refuse_encoding(source: FilesSource) -> None:
    """Refuses an encoding that Java lacks, or in which a line does not end with the byte of a line feed.

    Raises:
        InputError: The encoding is unknown; or the rows are lines, and a line does not end with that byte.
    """
    encoding = encoding_of(source.reader_options())
    multi_line = source.flag("multiLine") or source.flag("wholetext")
    try:
        charset = classes().java.nio.charset.Charset.forName(encoding)
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"{source.label()}: Java knows no encoding {encoding!r}.",
            where=source.origin,
            fix='write it as Java does: .option(encoding="UTF-8"), "ISO-8859-1" or "windows-1252".',
        ) from error
    line_end = charset.encode("\n")
    if not multi_line and (line_end.remaining() != 1 or line_end.get() != ord("\n")):
        option = "wholetext" if source.format == "text" else "multiLine"
        raise InputError(
            f"{source.label()}: in {encoding} a line does not end with the byte at which Spark's readers cut lines.",
            where=source.origin,
            fix=f"write .option({option}=True), or convert the files to UTF-8.",
        )


def read_text(spark: SparkSession, source: FilesSource, files: Sequence[File]) -> DataFrame:
    """The lines of text files, in the column `value`, with the hidden columns of `read_csv`."""
    rows = lines(spark, source, files, ("lineSep", "wholetext"))
    return rows.select(F.col(bad_rows.LINE).alias("value"), "*")


def lines(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    options: Sequence[str] = ("lineSep",),
    *,
    classify: Callable[[Column, Column, Column], Column] | None = None,
    read_plain: Callable[[Column, Column, Column], Column] | None = None,
) -> DataFrame:
    """The lines of files, each with its file, and the reason if its bytes are not valid in the encoding.

    Args:
        options: The names of the options that say where a line ends.
        classify: Computes the `LINE_RESULT` from the file, the offset in the file at which the task begins, and the
            text of the line.
        read_plain: Computes `PLAIN` from the file, the offset, and the bytes of the line. If `classify` is None, it
            returns a struct of `ROW` and `LINE_RESULT`. A plain line gets neither a text nor a reason.
    """
    settings = {name: text for name, text in source.reader_options().items() if name in options}
    reader = spark.read.format("text").options(**settings, **SKIP_NO_FILE)
    rows = loaded(spark, reader, files).select("value", *bad_rows.origin_of_lines())
    value, path, begin = F.col("value"), F.col(bad_rows.FILE), F.col(bad_rows.BEGIN)
    columns = []
    if read_plain is not None:
        # This is a separate column, so that Spark evaluates `read_plain` once for each line.
        rows = rows.withColumn(PLAIN, read_plain(path, begin, value.cast("binary")))
        row = F.col(PLAIN) if classify is not None else F.col(PLAIN)[ROW]
        value = F.when(row.isNull(), value)
        columns.append(row.alias(PLAIN))
        if classify is None:
            columns.append(F.col(PLAIN)[LINE_RESULT].alias(LINE_RESULT))
    text, why = _decoded(spark, source.reader_options(), value)
    columns += [text.alias(bad_rows.LINE), *map(F.col, bad_rows.ORIGIN), why.alias(rejects.WHY)]
    if classify is not None:
        columns.append(classify(path, begin, text).alias(LINE_RESULT))
    return rows.select(*columns)


def records(
    spark: SparkSession, source: FilesSource, files: Sequence[File], split: Callable[[Column], Column]
) -> DataFrame:
    """The records of files that are read as a whole, with the columns of `lines`.

    `split` returns the `RECORDS` of the text of a file.
    """
    text, why = _decoded(spark, source.reader_options(), F.col("value"))
    reader = spark.read.format("text").options(wholetext=True, **SKIP_NO_FILE)
    columns = [*bad_rows.origin(), why.alias(rejects.WHY)]
    rows = loaded(spark, reader, files).select(split(text).alias("records"), *columns)
    rows = rows.select(F.explode("records").alias("record"), *bad_rows.ORIGIN, rejects.WHY)
    line = F.col("record")[0]
    # The reason concerns the whole file, but only the records with replaced bytes are bad.
    why = F.when(F.contains(line, F.lit(REPLACED)), F.col(rejects.WHY))
    line_result = F.col("record")[1].alias(LINE_RESULT)
    return rows.select(line.alias(bad_rows.LINE), *bad_rows.ORIGIN, why.alias(rejects.WHY), line_result)


def encoding_of(options: Mapping[str, str]) -> str:
    """The encoding of files, from the options of their reader."""
    return options.get("encoding", options.get("charset", "UTF-8"))


def _decoded(spark: SparkSession, options: dict[str, str], value: Column) -> tuple[Column, Column]:
    """The text of a line, and the reason if its bytes are not valid in the encoding, or null."""
    encoding, value_bytes = encoding_of(options), value.cast("binary")
    if encoding.lower() in UTF8:
        text, valid = F.make_valid_utf8(value), F.is_valid_utf8(value)
    else:
        strict = java_function(spark, "helios_decoded_strict", DECODED, [value_bytes], [encoding, True])
        lenient = java_function(spark, "helios_decoded_lenient", DECODED, [value_bytes], [encoding, False])
        text, valid = F.coalesce(strict, lenient), strict.isNotNull()
    return text, F.when(~valid, F.lit(f"{INVALID_BYTES} {encoding}"))
