"""Rows of csv files, with the line or record that each comes from."""

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
from helios.sources.files.spark.text_lines import PLAIN, RECORDS, UNPARSED, WHAT, encoding_of, lines, of_lines, records
from helios.sources.files.spark.text_values import as_cast
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.functions import called, ddl

CSV_LINE = Path(__file__).with_name("CsvLine.java")

MOST_COLUMNS = 20_480
"""Spark's default of `maxColumns`."""

UNREAD = ("it has more fields than", "it has spaces alone in quotes")
"""How the reasons of lines begin at which Spark's parser would stop the run."""

FIELDS = "it has another number of fields than the file has columns"


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
        spark: The session.
        source: The source.
        files: Files with equal columns.
        columns: Their columns in their order, with the types that Spark's parser gives.
        typed: The same with the types that texts stand for.
        fast: Whether lines that are plain are read in one pass.

    Returns:
        The columns, and the hidden ones: each row's file and line, and why the line does not parse; null if it does.
        And the columns of a plain line, of which all others are null.
    """
    whole, judged = source.flag("multiLine"), _csv_line(spark, source, len(columns.fields))
    if whole:
        rows = records(spark, source, files, lambda text: judged([text], RECORDS))
    elif fast:
        rows = lines(spark, source, files, plain=lambda *line: _plain(spark, source, line, typed))
    else:
        rows = lines(spark, source, files, what=lambda *line: judged(line, StringType()))
    rows = rows.where(f"{WHAT} IS NULL OR {WHAT} != ''")
    schema = StructType([*columns.fields, StructField(rejects.TEXT, StringType())])
    line = F.col(bad_rows.LINE)
    for reason in UNREAD:
        line = F.when(~F.coalesce(F.col(WHAT), F.lit("")).startswith(reason), line)
    # Without multiLine the parser would change the line breaks of a field.
    parsing = of_lines(source) | {"multiLine": str(whole).lower()}
    parsed = rows.withColumn("row", F.from_csv(line, ddl(spark, schema), parsing))
    counted = all(isinstance(field.dataType, StringType) for field in columns.fields)
    unparsed = F.when(F.col(f"row.{rejects.TEXT}").isNotNull(), F.lit(FIELDS if counted else UNPARSED))
    why = F.coalesce(F.col(WHAT), F.col(rejects.WHY), unparsed).alias(rejects.WHY)
    row = F.col("row")
    fields = [as_cast(row.getField(f.name), f.dataType, source).alias(f.name) for f in typed.fields]
    return parsed.select(*fields, bad_rows.LINE, *bad_rows.ORIGIN, why, *([PLAIN] if fast else []))


def _plain(
    spark: SparkSession, source: FilesSource, line: tuple[Column, Column, Column], columns: StructType
) -> Column:
    """The row of a plain line, or the class of any other line."""
    conf, settings = _settings(spark, source, len(columns.fields))
    judge = instance(spark, CSV_LINE, conf, *settings)
    return plain_csv(spark, line, judge, [separator_of(source), *_quoting(source)], columns)


def _csv_line(spark: SparkSession, source: FilesSource, width: int) -> Callable[[Sequence[Column], DataType], Column]:
    """A function that classifies a line of a csv file, or the records of a whole file; see CsvLine.java."""
    conf, settings = _settings(spark, source, width)

    def judged(columns: Sequence[Column], gives: DataType) -> Column:
        name = f"helios_csv_{len(columns)}"
        return called(spark, name, CSV_LINE, columns, settings, conf, gives=gives)

    return judged


def _settings(spark: SparkSession, source: FilesSource, width: int) -> tuple[object, list[object]]:
    """The arguments of a CsvLine: Hadoop's configuration, and all others."""
    options, jvm = source.reader_options(), classes()
    texts = [*_quoting(source), options.get("comment", "")]
    flags = [source.flag("header"), source.flag("ignoreLeadingWhiteSpace")]
    flags += [options.get("unescapedQuoteHandling", "").upper() == "STOP_AT_CLOSING_QUOTE"]
    flags += [source.flag("ignoreTrailingWhiteSpace")]
    most = int(options.get("maxColumns", MOST_COLUMNS))
    settings = [encoding_of(options), options.get("lineSep", ""), separator_of(source)]
    conf = jvm.org.apache.spark.util.SerializableConfiguration(spark._jsparkSession.sessionState().newHadoopConf())
    return conf, [*settings, *texts, *flags, most, width == 1]


def separator_of(source: FilesSource) -> str:
    """The separator of the fields, as Spark takes the option."""
    options = source.reader_options()
    utils = getattr(classes().org.apache.spark.sql.catalyst.csv, "CSVExprUtils$")
    return str(getattr(utils, "MODULE$").toDelimiterStr(options.get("sep", options.get("delimiter", ","))))


def _quoting(source: FilesSource) -> list[str]:
    """The quote and the escape."""
    return [source.reader_options().get("quote", '"'), source.reader_options().get("escape", "\\")]
