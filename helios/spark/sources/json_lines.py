"""Rows of json files, with the line or record that each comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from helios.files.entry import File
from helios.model.files import LACKED, FilesSource
from helios.spark.jvm.classes import classes
from helios.spark.sources import bad_rows
from helios.spark.sources.file_types import united
from helios.spark.sources.plain_json import plain
from helios.spark.sources.text_lines import (
    PLAIN,
    RECORDS,
    UNPARSED,
    WHAT,
    called,
    ddl,
    lines,
    of_lines,
    records,
)
from helios.spark.sources.text_values import as_cast, texts

JSON_LINE = Path(__file__).with_name("JsonLine.java")
JSON_RECORDS = Path(__file__).with_name("JsonRecords.java")

REST, RAW = "__helios_rest", "__helios_raw"
"""Fields of a parsed line: what has no column, and the text of an object of an array."""

FEATURES: Mapping[str, tuple[str, bool]] = {
    "allowComments": ("ALLOW_COMMENTS", False),
    "allowUnquotedFieldNames": ("ALLOW_UNQUOTED_FIELD_NAMES", False),
    "allowSingleQuotes": ("ALLOW_SINGLE_QUOTES", True),
    "allowNumericLeadingZeros": ("ALLOW_NUMERIC_LEADING_ZEROS", False),
    "allowNonNumericNumbers": ("ALLOW_NON_NUMERIC_NUMBERS", True),
    "allowBackslashEscapingAnyCharacter": ("ALLOW_BACKSLASH_ESCAPING_ANY_CHARACTER", False),
    "allowUnquotedControlChars": ("ALLOW_UNQUOTED_CONTROL_CHARS", False),
}
"""Of each option of Spark's reader of json: Jackson's feature, and Spark's default (Spark 4.1: `JSONOptions`)."""


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
    found = _json_lines(spark, source, files, typed.json(), rest, typed=typed if fast else None)
    kept = [F.col(PLAIN)] if fast else []
    names = [*([rest] if rest else []), RAW, bad_rows.TEXT]
    schema = ddl(spark, StructType([*columns.fields, *[StructField(name, StringType()) for name in names]]))
    what = F.col(WHAT)
    why = F.coalesce(F.col(bad_rows.WHY), reason(what)).alias(bad_rows.WHY)
    values = F.when(~what.startswith("!"), _values(what))
    # An object of an array brings its own text: with the whole line at each, a long array would be quadratic.
    line = F.when(~what.startswith("[") | values.isNull(), F.col(bad_rows.LINE)).alias(bad_rows.LINE)
    parsed = found.select(line, *bad_rows.ORIGIN, why, *kept, F.explode_outer(values).alias(WHAT))
    parsed = parsed.withColumn("row", F.from_json(WHAT, schema, of_lines(source)))
    row, why = F.col("row"), F.col(bad_rows.WHY)
    unparsed = F.when(row.isNull() | row.getField(bad_rows.TEXT).isNotNull(), F.lit(UNPARSED))
    why = F.coalesce(why, unparsed)
    if rest == REST:
        more = F.concat(F.lit(LACKED), row.getField(REST))
        why = F.coalesce(why, F.when(row.getField(REST).isNotNull(), more))
    line = F.coalesce(bad_rows.LINE, row.getField(RAW)).alias(bad_rows.LINE)
    fields = [as_cast(row.getField(f.name), f.dataType, source).alias(f.name) for f in typed.fields]
    fields += [row.getField(source.rescued).alias(source.rescued)] if source.rescued else []
    return parsed.select(*fields, line, *bad_rows.ORIGIN, why.alias(bad_rows.WHY), *kept)


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
    found = _json_lines(spark, source, files, "", "", typed=known).where(f"{WHAT} NOT LIKE '!%'").select(WHAT)
    found = found.select(F.explode(_values(F.col(WHAT))))
    return schema_of_json(spark, found, of_lines(source))


def schema_of_json(spark: SparkSession, lines: DataFrame, options: Mapping[str, str]) -> StructType:
    """The columns of JSON objects, as Spark infers them from all of them.

    Args:
        spark: The session.
        lines: The objects, as texts in the only column.
        options: Of Spark's reader of json.
    """
    texts = getattr(lines._jdf, "as")(classes().org.apache.spark.sql.Encoders.STRING())
    reader = spark.read.options(**options).option("columnNameOfCorruptRecord", bad_rows.TEXT)
    found = reader._jreader.json(texts).schema()
    columns: StructType = _folded(StructType.fromJson(json.loads(found.json())))
    return StructType([field for field in columns.fields if field.name != bad_rows.TEXT])


def _folded(kind: Any) -> Any:
    """A type whose structs have no two fields that differ in their case alone."""
    if isinstance(kind, ArrayType):
        return ArrayType(_folded(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _folded(kind.valueType))
    if not isinstance(kind, StructType):
        return kind
    fields: dict[str, StructField] = {}
    for field in kind.fields:
        before, mine = fields.get(field.name.lower()), _folded(field.dataType)
        both = united(before.dataType, mine, inferred=True) if before is not None else mine
        fields[field.name.lower()] = StructField(field.name, both if both is not None else StringType())
    return StructType(list(fields.values()))


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
        found = records(spark, source, files, split)
        found = found.withColumn(WHAT, F.coalesce(F.concat(F.lit("!"), WHAT), what(F.col(bad_rows.LINE))))
    else:
        ignores = bool(columns) and not rescued
        fast = (lambda _file, _begin, value: plain(spark, value, typed, ignores=ignores)) if typed is not None else None
        found = lines(spark, source, files, what=lambda _file, _begin, line: what(line), plain=fast)
        if typed is not None:
            return found.where(f"{PLAIN} IS NOT NULL OR {WHAT} IS NOT NULL")
    return found.where(f"{WHAT} IS NOT NULL")


def json_line(
    spark: SparkSession,
    text: Column,
    columns: str,
    texts: Sequence[type[DataType]],
    features: Sequence[str],
    *,
    rescued: str = "",
    timestamps: str = "s",
) -> Column:
    """A text as JSON that Spark's parser reads without changing it; see JsonLine.java.

    Args:
        spark: The session.
        text: The text.
        columns: The wanted columns, as Spark writes a schema as JSON; empty for all fields.
        texts: The types whose values are texts then.
        features: Jackson's features that are not its defaults.
        rescued: The name of a field for what has no column.
        timestamps: What numbers for timestamps count, where these are texts then: "s", "ms" or "us".
    """
    settings = [columns, ",".join(kind.typeName() for kind in texts), ",".join(features), rescued, timestamps]
    return called(spark, "helios_json_line", JSON_LINE, [text], settings)


def reason(what: Column) -> Column:
    """Why a text is no good row, of what `json_line` has given for it; null for a good one."""
    return F.when(what.startswith("!"), F.substring(what, 2, 1 << 20))


def an_object(what: Column) -> Column:
    """A good text that is one object, of what `json_line` has given for it; null for any other."""
    return F.when(what.startswith("{"), what)


def _values(what: Column) -> Column:
    """The objects of a good text, each as a text."""
    return F.when(what.startswith("["), F.from_json(what, "array<string>")).otherwise(F.array(what))
