"""Reads the rows of csv files, each with the line or record that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark.plain_csv import plain_csv
from helios.sources.files.spark.text_lines import (
    LINE_RESULT,
    PLAIN,
    RECORDS,
    UNPARSED,
    encoding_of,
    line_options,
    lines,
    records,
)
from helios.sources.files.spark.text_values import as_cast_text
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.functions import ddl, java_function

CSV_LINE = Path(__file__).with_name("CsvLine.java")

DEFAULT_MAX_COLUMNS = 20_480
"""Spark's default of `maxColumns`."""

FATAL_REASONS = ("it has more fields than", "it has a field of quoted spaces")
"""For lines at which Spark's parser would stop the run: the beginnings of the reasons why the lines are bad."""

WRONG_FIELD_COUNT = "it has another number of fields than the file has columns"


def read_csv(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    columns: StructType,
    typed: StructType,
    *,
    fast: bool,
) -> DataFrame:
    """The rows of csv files.

    Args:
        files: Files with equal columns.
        columns: The columns in the order of the files, with the types that Spark's parser returns.
        typed: The same columns, with the types to which their texts will be cast.
        fast: Whether plain lines are read in one pass.

    Returns:
        The columns, and the hidden columns: each row's file and line, and the reason why the line does not parse (null
        if it does). If `fast`, the column `PLAIN` has the row of a plain line, whose other columns are null.
    """
    multi_line, classify = source.flag("multiLine"), _csv_line(spark, source, len(columns.fields))
    if multi_line:
        rows = records(spark, source, files, lambda text: classify([text], RECORDS))
    elif fast:
        rows = lines(spark, source, files, read_plain=lambda *line: _plain(spark, source, line, typed))
    else:
        rows = lines(spark, source, files, classify=lambda *line: classify(line, StringType()))
    rows = rows.where(f"{LINE_RESULT} IS NULL OR {LINE_RESULT} != ''")
    schema = StructType([*columns.fields, StructField(rejects.TEXT, StringType())])
    line = F.col(bad_rows.LINE)
    for reason in FATAL_REASONS:
        line = F.when(~F.coalesce(F.col(LINE_RESULT), F.lit("")).startswith(reason), line)
    # For records of several lines, the parser needs multiLine: otherwise it would change line breaks inside fields.
    options = line_options(source) | {"multiLine": str(multi_line).lower()}
    parsed = rows.withColumn("row", F.from_csv(line, ddl(spark, schema), options))
    # If all columns are strings, a line can only fail to parse because of a wrong number of fields.
    all_strings = all(isinstance(field.dataType, StringType) for field in columns.fields)
    unparsed = F.when(F.col(f"row.{rejects.TEXT}").isNotNull(), F.lit(WRONG_FIELD_COUNT if all_strings else UNPARSED))
    why = F.coalesce(F.col(LINE_RESULT), F.col(rejects.WHY), unparsed).alias(rejects.WHY)
    row = F.col("row")
    fields = [as_cast_text(row.getField(f.name), f.dataType, source).alias(f.name) for f in typed.fields]
    return parsed.select(*fields, bad_rows.LINE, *bad_rows.ORIGIN, why, *([PLAIN] if fast else []))


def _plain(
    spark: SparkSession, source: FilesSource, line: tuple[Column, Column, Column], columns: StructType
) -> Column:
    """A struct with the row of a plain line, or the `LINE_RESULT` of any other line; see `plain_csv`."""
    conf, settings = _settings(spark, source, len(columns.fields))
    csv_line = instance(spark, CSV_LINE, conf, *settings)
    return plain_csv(spark, line, csv_line, [separator_of(source), *_quoting(source)], columns)


def _csv_line(spark: SparkSession, source: FilesSource, width: int) -> Callable[[Sequence[Column], DataType], Column]:
    """Returns a function that classifies a line of a csv file, or the records of a whole file; see CsvLine.java."""
    conf, settings = _settings(spark, source, width)

    def classify(columns: Sequence[Column], result_type: DataType) -> Column:
        name = f"helios_csv_{len(columns)}"
        return java_function(spark, name, CSV_LINE, columns, settings, conf, result_type=result_type)

    return classify


def _settings(spark: SparkSession, source: FilesSource, width: int) -> tuple[object, list[object]]:
    """The arguments of a CsvLine: Hadoop's configuration, and the other arguments in their order."""
    options = source.reader_options()
    conf = classes().org.apache.spark.util.SerializableConfiguration(
        spark._jsparkSession.sessionState().newHadoopConf()
    )
    return conf, [
        encoding_of(options),
        options.get("lineSep", ""),
        separator_of(source),
        *_quoting(source),
        options.get("comment", ""),
        source.flag("header"),
        source.flag("ignoreLeadingWhiteSpace"),
        options.get("unescapedQuoteHandling", "").upper() == "STOP_AT_CLOSING_QUOTE",
        source.flag("ignoreTrailingWhiteSpace"),
        int(options.get("maxColumns", DEFAULT_MAX_COLUMNS)),
        width == 1,
    ]


def separator_of(source: FilesSource) -> str:
    """The separator of the fields, after Spark's handling of escapes."""
    options = source.reader_options()
    utils = getattr(classes().org.apache.spark.sql.catalyst.csv, "CSVExprUtils$")
    return str(getattr(utils, "MODULE$").toDelimiterStr(options.get("sep", options.get("delimiter", ","))))


def _quoting(source: FilesSource) -> list[str]:
    """The quote character and the escape character."""
    return [source.reader_options().get("quote", '"'), source.reader_options().get("escape", "\\")]
