"""Reads the rows of json files, each with the line or record that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.common.spark.json_values import FEATURES, REST, bad_row_reason, json_line, schema_of_json
from helios.sources.common.spark.plain_json import parse_plain_json
from helios.sources.files.declare import UNDECLARED_FIELDS, FilesSource
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark.text_lines import LINE_RESULT, PLAIN, RECORDS, UNPARSED, line_options, lines, records
from helios.sources.files.spark.text_values import as_cast_text, text_types
from helios.spark.jvm.functions import ddl, java_function

JSON_RECORDS = Path(__file__).with_name("JsonRecords.java")

RAW = "__helios_raw"
"""The field with the raw text of an object, if the line is an array of objects."""


def read_json(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    columns: StructType,
    typed: StructType,
    *,
    fast: bool,
) -> DataFrame:
    """The rows of json files. Each line, or with multiLine each value, is an object or an array of objects.

    Args:
        columns: The columns, with the types that Spark's parser returns.
        typed: The same columns, with the types to which their texts will be cast.
        fast: Whether plain lines are read in one pass.

    Returns:
        The columns and the hidden columns, as `read_csv` returns them, and the column of `rescued=`, if there is one.
    """
    # The field that gets the undeclared fields; empty to ignore the undeclared fields.
    rest_field = source.rescued or (REST if source.extra != "ignore" else "")
    rows = _json_lines(spark, source, files, typed.json(), rest_field, typed=typed if fast else None)
    plain_columns = [F.col(PLAIN)] if fast else []
    added = [rest_field, RAW, rejects.TEXT] if rest_field else [RAW, rejects.TEXT]
    schema = ddl(spark, StructType([*columns.fields, *[StructField(name, StringType()) for name in added]]))
    line_result = F.col(LINE_RESULT)
    why = F.coalesce(F.col(rejects.WHY), bad_row_reason(line_result)).alias(rejects.WHY)
    values = F.when(~line_result.startswith("!"), _objects(line_result))
    # Each object of an array keeps only its own text: copies of the whole line would take quadratic memory.
    line = F.when(~line_result.startswith("[") | values.isNull(), F.col(bad_rows.LINE)).alias(bad_rows.LINE)
    parsed = rows.select(line, *bad_rows.ORIGIN, why, *plain_columns, F.explode_outer(values).alias(LINE_RESULT))
    parsed = parsed.withColumn("row", F.from_json(LINE_RESULT, schema, line_options(source)))
    row, why = F.col("row"), F.col(rejects.WHY)
    unparsed = F.when(row.isNull() | row.getField(rejects.TEXT).isNotNull(), F.lit(UNPARSED))
    why = F.coalesce(why, unparsed)
    if rest_field == REST:
        undeclared = F.concat(F.lit(UNDECLARED_FIELDS), row.getField(REST))
        why = F.coalesce(why, F.when(row.getField(REST).isNotNull(), undeclared))
    line = F.coalesce(bad_rows.LINE, row.getField(RAW)).alias(bad_rows.LINE)
    fields = [as_cast_text(row.getField(f.name), f.dataType, source).alias(f.name) for f in typed.fields]
    fields += [row.getField(source.rescued).alias(source.rescued)] if source.rescued else []
    return parsed.select(*fields, line, *bad_rows.ORIGIN, why.alias(rejects.WHY), *plain_columns)


def infer_json(
    spark: SparkSession, source: FilesSource, files: Sequence[File], known: StructType | None = None
) -> StructType:
    """The columns of json files as Spark infers them from all good lines or records.

    Args:
        known: The columns with known types. Plain lines that have only such columns are skipped.
    """
    values = (
        _json_lines(spark, source, files, "", "", typed=known).where(f"{LINE_RESULT} NOT LIKE '!%'").select(LINE_RESULT)
    )
    values = values.select(F.explode(_objects(F.col(LINE_RESULT))))
    return schema_of_json(spark, values, line_options(source))


def _json_lines(
    spark: SparkSession,
    source: FilesSource,
    files: Sequence[File],
    columns: str,
    rest_field: str,
    *,
    typed: StructType | None,
) -> DataFrame:
    """The lines or records of json files that are not blank. `LINE_RESULT` is the result of JsonLine.java.

    If `typed` is given, a plain line has these columns in `PLAIN`, and null in `LINE_RESULT`.
    """
    features = [name for option, (name, on) in FEATURES.items() if source.flag(option, on)]

    def split(text: Column) -> Column:
        return java_function(
            spark, "helios_json_records", JSON_RECORDS, [text], [",".join(features)], result_type=RECORDS
        )

    def classify(line: Column) -> Column:
        types = text_types(source)
        return json_line(spark, line, columns, types, features, rescued=rest_field, timestamps=source.timestamps)

    if source.flag("multiLine"):
        rows = records(spark, source, files, split)
        rows = rows.withColumn(
            LINE_RESULT, F.coalesce(F.concat(F.lit("!"), LINE_RESULT), classify(F.col(bad_rows.LINE)))
        )
    else:

        def plain_line(_file: Column, _begin: Column, value: Column) -> Column:
            assert typed is not None
            return parse_plain_json(spark, value, typed, skips_unknown=bool(columns) and not rest_field)

        read_plain = plain_line if typed is not None else None
        rows = lines(spark, source, files, classify=lambda _file, _begin, line: classify(line), read_plain=read_plain)
        if typed is not None:
            return rows.where(f"{PLAIN} IS NOT NULL OR {LINE_RESULT} IS NOT NULL")
    return rows.where(f"{LINE_RESULT} IS NOT NULL")


def _objects(line_result: Column) -> Column:
    """The objects of a good line or record, as an array of texts."""
    return F.when(line_result.startswith("["), F.from_json(line_result, "array<string>")).otherwise(
        F.array(line_result)
    )
