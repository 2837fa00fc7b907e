"""Rows of json files, with the line or record that each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.common.spark.json_values import FEATURES, REST, json_line, reason, schema_of_json
from helios.sources.common.spark.plain_json import plain
from helios.sources.files.declare import UNDECLARED_FIELDS, FilesSource
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark.text_lines import PLAIN, RECORDS, UNPARSED, WHAT, lines, of_lines, records
from helios.sources.files.spark.text_values import as_cast, texts
from helios.spark.jvm.functions import called, ddl

JSON_RECORDS = Path(__file__).with_name("JsonRecords.java")

RAW = "__helios_raw"
"""The field of a parsed line with the text of an object of an array."""


def read_json(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    columns: StructType,
    typed: StructType,
    *,
    fast: bool,
) -> DataFrame:
    """The rows of json files, whose lines are values or which are values over lines: objects, or arrays of them.

    Args:
        spark: The session.
        source: The source.
        files: The files.
        columns: The columns that Spark's parser makes.
        typed: The same with the types that texts stand for.
        fast: Whether lines that are plain are read in one pass.

    Returns:
        As `read_csv`; with the column of `rescued=`, if the source has one.
    """
    rest = source.rescued or (REST if source.extra != "ignore" else "")
    rows = _json_lines(spark, source, files, typed.json(), rest, typed=typed if fast else None)
    kept = [F.col(PLAIN)] if fast else []
    names = [*([rest] if rest else []), RAW, rejects.TEXT]
    schema = ddl(spark, StructType([*columns.fields, *[StructField(name, StringType()) for name in names]]))
    what = F.col(WHAT)
    why = F.coalesce(F.col(rejects.WHY), reason(what)).alias(rejects.WHY)
    values = F.when(~what.startswith("!"), _values(what))
    # An object of an array brings its own text: with the whole line at each, a long array would be quadratic.
    line = F.when(~what.startswith("[") | values.isNull(), F.col(bad_rows.LINE)).alias(bad_rows.LINE)
    parsed = rows.select(line, *bad_rows.ORIGIN, why, *kept, F.explode_outer(values).alias(WHAT))
    parsed = parsed.withColumn("row", F.from_json(WHAT, schema, of_lines(source)))
    row, why = F.col("row"), F.col(rejects.WHY)
    unparsed = F.when(row.isNull() | row.getField(rejects.TEXT).isNotNull(), F.lit(UNPARSED))
    why = F.coalesce(why, unparsed)
    if rest == REST:
        more = F.concat(F.lit(UNDECLARED_FIELDS), row.getField(REST))
        why = F.coalesce(why, F.when(row.getField(REST).isNotNull(), more))
    line = F.coalesce(bad_rows.LINE, row.getField(RAW)).alias(bad_rows.LINE)
    fields = [as_cast(row.getField(f.name), f.dataType, source).alias(f.name) for f in typed.fields]
    fields += [row.getField(source.rescued).alias(source.rescued)] if source.rescued else []
    return parsed.select(*fields, line, *bad_rows.ORIGIN, why.alias(rejects.WHY), *kept)


def infer_json(
    spark: SparkSession, source: FilesSource, files: Sequence[File], known: StructType | None = None
) -> StructType:
    """The columns of json files as Spark infers them from all good lines or records.

    Args:
        spark: The session.
        source: The source.
        files: The files.
        known: Columns of which nothing is asked: lines that are plain and have no others are passed over.
    """
    values = _json_lines(spark, source, files, "", "", typed=known).where(f"{WHAT} NOT LIKE '!%'").select(WHAT)
    values = values.select(F.explode(_values(F.col(WHAT))))
    return schema_of_json(spark, values, of_lines(source))


def _json_lines(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    columns: str,
    rescued: str,
    *,
    typed: StructType | None,
) -> DataFrame:
    """The lines or records of json files with `WHAT`, see JsonLine.java; without those that are no row.

    With `typed`, lines that are plain are these columns in `PLAIN`, and nothing in `WHAT`.
    """
    features = [name for option, (name, on) in FEATURES.items() if source.flag(option, on)]

    def split(text: Column) -> Column:
        return called(spark, "helios_json_records", JSON_RECORDS, [text], [",".join(features)], gives=RECORDS)

    def what(line: Column) -> Column:
        return json_line(spark, line, columns, texts(source), features, rescued=rescued, timestamps=source.timestamps)

    if source.flag("multiLine"):
        rows = records(spark, source, files, split)
        rows = rows.withColumn(WHAT, F.coalesce(F.concat(F.lit("!"), WHAT), what(F.col(bad_rows.LINE))))
    else:
        ignores = bool(columns) and not rescued
        fast = (lambda _file, _begin, value: plain(spark, value, typed, ignores=ignores)) if typed is not None else None
        rows = lines(spark, source, files, what=lambda _file, _begin, line: what(line), plain=fast)
        if typed is not None:
            return rows.where(f"{PLAIN} IS NOT NULL OR {WHAT} IS NOT NULL")
    return rows.where(f"{WHAT} IS NOT NULL")


def _values(what: Column) -> Column:
    """The objects of a good text, each as a text."""
    return F.when(what.startswith("["), F.from_json(what, "array<string>")).otherwise(F.array(what))
