"""Rewrites JSON texts so that Spark's parser reads them without changing a value, and infers their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from helios.sources.common.spark import rejects
from helios.sources.common.spark.types import united
from helios.spark.jvm.classes import classes
from helios.spark.jvm.functions import java_function

JSON_LINE = Path(__file__).with_name("JsonLine.java")

NO_OBJECT = "!it is neither a JSON object nor an array of JSON objects"
"""The result of `json_line` for a JSON text without an object, as JsonLine.java writes it."""

REST = "__helios_rest"
"""The field of a parsed text that holds all fields without a column, as JSON."""

READ_AS_TEXT_IN_JSON: tuple[type[DataType], ...] = (
    ByteType,  # Jackson accepts values up to 255
    DecimalType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""The types whose values are parsed as strings, since Spark's parser would round, truncate or guess the values."""

FEATURES: Mapping[str, tuple[str, bool]] = {
    "allowComments": ("ALLOW_COMMENTS", False),
    "allowUnquotedFieldNames": ("ALLOW_UNQUOTED_FIELD_NAMES", False),
    "allowSingleQuotes": ("ALLOW_SINGLE_QUOTES", True),
    "allowNumericLeadingZeros": ("ALLOW_NUMERIC_LEADING_ZEROS", False),
    "allowNonNumericNumbers": ("ALLOW_NON_NUMERIC_NUMBERS", True),
    "allowBackslashEscapingAnyCharacter": ("ALLOW_BACKSLASH_ESCAPING_ANY_CHARACTER", False),
    "allowUnquotedControlChars": ("ALLOW_UNQUOTED_CONTROL_CHARS", False),
}
"""For each option of Spark's JSON reader, Jackson's feature and Spark's default (Spark 4.1: `JSONOptions`)."""


def schema_of_json(spark: SparkSession, lines: DataFrame, options: Mapping[str, str]) -> StructType:
    """The columns of JSON objects, as Spark infers them from all objects.

    Args:
        lines: A DataFrame with a single column, which has an object as text in each row.
        options: The options of Spark's JSON reader.
    """
    texts = getattr(lines._jdf, "as")(classes().org.apache.spark.sql.Encoders.STRING())
    reader = spark.read.options(**options).option("columnNameOfCorruptRecord", rejects.TEXT)
    schema = reader._jreader.json(texts).schema()
    columns: StructType = _folded(StructType.fromJson(json.loads(schema.json())))
    return StructType([field for field in columns.fields if field.name != rejects.TEXT])


def _folded(kind: Any) -> Any:
    """A type in which struct fields whose names differ only in case are merged into one."""
    if isinstance(kind, ArrayType):
        return ArrayType(_folded(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _folded(kind.valueType))
    if not isinstance(kind, StructType):
        return kind
    fields: dict[str, StructField] = {}
    for field in kind.fields:
        name, folded = field.name.lower(), _folded(field.dataType)
        common = united(fields[name].dataType, folded, inferred=True) if name in fields else folded
        fields[name] = StructField(field.name, common if common is not None else StringType())
    return StructType(list(fields.values()))


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
    """Rewrites a text of JSON so that Spark's parser reads it without changing a value; see JsonLine.java.

    Args:
        columns: The wanted columns, as Spark's JSON form of a schema; empty for all fields.
        texts: The types whose values become strings.
        features: Jackson's features to enable. `ALONE` is Helios's own feature: only white space may follow the value.
        rescued: The name of the field that gets all fields without a column; empty to leave those fields out.
        timestamps: The unit of numbers in timestamp columns, if timestamps become strings: "s", "ms" or "us".

    Returns:
        The rewritten JSON; "!" and the reason for a bad row; null for a null or blank text, and for an empty array.
    """
    settings = [columns, ",".join(kind.typeName() for kind in texts), ",".join(features), rescued, timestamps]
    return java_function(spark, "helios_json_line", JSON_LINE, [text], settings)


def bad_row_reason(result: Column) -> Column:
    """The reason why a row is bad, from the result of `json_line`; null for a good row."""
    return F.when(result.startswith("!"), F.substring(result, 2, 1 << 20))


def is_no_object(result: Column) -> Column:
    """Whether the row is JSON but not an object, from the result of `json_line`."""
    return result.startswith("[") | (result == NO_OBJECT)


def object_text(result: Column) -> Column:
    """The text of a good row that is one object, from the result of `json_line`; null for any other row."""
    return F.when(result.startswith("{"), result)


def as_texts(kind: DataType, texts: tuple[type[DataType], ...]) -> DataType:
    """A type in which the types of `texts`, at any depth, are replaced by string."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, as_texts(field.dataType, texts)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(as_texts(kind.elementType, texts))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, as_texts(kind.valueType, texts))
    return StringType() if isinstance(kind, texts) else kind
