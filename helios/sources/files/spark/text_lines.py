"""The text of csv, json and text files: line by line, or file by file and cut into records, each with its file.

Spark's own reader hands over a line only where it does not parse, and takes for good what its parser rounds, cuts or
replaces. Here texts are read, Spark's parser takes each apart into texts (`csv_lines`, `json_lines`), and `file_types`
makes values of these.
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
from helios.spark.jvm.functions import called

DECODED = Path(__file__).with_name("Decoded.java")

OF_THE_FILE = ("header", "comment", "encoding", "charset", "lineSep", "multiLine", "inferSchema", "samplingRatio")
"""Options about a file, and not about one line of it."""

UTF8 = ("utf-8", "utf8")

SPARKS_OWN = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of every read: no file is skipped, whatever the session says."""

PLAIN = "__helios_plain"
"""The columns of a line that is plain; null where the line itself says what it is."""

ROW = "row"
"""The field of `PLAIN` that has the columns, where a field `WHAT` is beside it."""

WHAT = "what"
"""The column that says what a line or record is: null for a row, or why it is none; of json, see `json_lines`."""

REPLACED = "\ufffd"
"""The replacement of bytes that are no text of the encoding."""

UNPARSED = "the row does not parse"
DAMAGED = "it holds bytes that are not"

RECORDS = ArrayType(ArrayType(StringType()))
"""The records of a file: each as its text, and why it cannot be a row or null."""


def of_lines(source: FilesSource) -> dict[str, str]:
    """The options of a source that apply to one line, for Spark's parser of one text."""
    given = {name: text for name, text in source.reader_options().items() if name not in OF_THE_FILE}
    return given | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": rejects.TEXT}


def refuse_encoding(source: FilesSource) -> None:
    """Refuses an encoding whose line ends cannot be found by their bytes.

    Raises:
        InputError: The source has one, and its rows are lines.
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
        options: Those of the source that tell where a line ends.
        what: Of the file, of where in it the task begins, and of the line: the column `WHAT`.
        plain: Of the same, and of the bytes of the line: the column `PLAIN`, without `what` as a struct of `ROW` and
            `WHAT`. Of lines that are plain there are neither text nor reasons.
    """
    given = {name: text for name, text in source.reader_options().items() if name in options}
    reader = spark.read.format("text").options(**given, **SPARKS_OWN)
    rows = loaded(spark, reader, files).select("value", *bad_rows.origin_of_lines())
    value, path, begin = F.col("value"), F.col(bad_rows.FILE), F.col(bad_rows.BEGIN)
    columns = []
    if plain is not None:
        # A column of its own, for which each line is looked at once.
        rows = rows.withColumn(PLAIN, plain(path, begin, value.cast("binary")))
        row = F.col(PLAIN) if what is not None else F.col(PLAIN)[ROW]
        value = F.when(row.isNull(), value)
        columns += [row.alias(PLAIN), *([F.col(PLAIN)[WHAT].alias(WHAT)] if what is None else [])]
    text, why = _text(spark, source.reader_options(), value)
    columns += [text.alias(bad_rows.LINE), *map(F.col, bad_rows.ORIGIN), why.alias(rejects.WHY)]
    columns += [what(path, begin, text).alias(WHAT)] if what is not None else []
    return rows.select(*columns)


def records(
    spark: SparkSession, source: FilesSource, files: Sequence[File], split: Callable[[Column], Column]
) -> DataFrame:
    """The records of files that are read whole, as `lines` has lines.

    Args:
        spark: The session.
        source: The source.
        files: The files.
        split: Of the text of a file, its `RECORDS`.
    """
    text, why = _text(spark, source.reader_options(), F.col("value"))
    reader = spark.read.format("text").options(wholetext=True, **SPARKS_OWN)
    columns = [*bad_rows.origin(), why.alias(rejects.WHY)]
    rows = loaded(spark, reader, files).select(split(text).alias("records"), *columns)
    rows = rows.select(F.explode("records").alias("record"), *bad_rows.ORIGIN, rejects.WHY)
    line = F.col("record")[0]
    # What is not text in a file lies in some of its records: those that hold what was put in its place.
    why = F.when(F.contains(line, F.lit(REPLACED)), F.col(rejects.WHY))
    what = F.col("record")[1].alias(WHAT)
    return rows.select(line.alias(bad_rows.LINE), *bad_rows.ORIGIN, why.alias(rejects.WHY), what)


def encoding_of(options: Mapping[str, str]) -> str:
    return options.get("encoding", options.get("charset", "UTF-8"))


def _text(spark: SparkSession, options: dict[str, str], value: Column) -> tuple[Column, Column]:
    """The text of a line, and the reason if it differs from the file's bytes; otherwise null."""
    encoding = encoding_of(options)
    if encoding.lower() in UTF8:
        text, whole = F.make_valid_utf8(value), F.is_valid_utf8(value)
    else:
        strict, lenient = (
            called(spark, f"helios_decoded_{how}", DECODED, [value.cast("binary")], [encoding, how == "strict"])
            for how in ("strict", "lenient")
        )
        text, whole = F.coalesce(strict, lenient), strict.isNotNull()
    return text, F.when(~whole, F.lit(f"{DAMAGED} {encoding}"))
