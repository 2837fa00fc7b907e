"""One text as JSON: whether Spark's parser reads it without changing it, and the columns of such texts."""

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
from helios.spark.jvm.functions import called

JSON_LINE = Path(__file__).with_name("JsonLine.java")

REST = "__helios_rest"
"""The field of a parsed text with what has no column."""

READ_AS_TEXT_IN_JSON: tuple[type[DataType], ...] = (
    ByteType,  # Jackson takes 255 for a byte
    DecimalType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""The types whose values Spark's parser leaves as texts, as it would round, cut or guess them."""

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


def schema_of_json(spark: SparkSession, lines: DataFrame, options: Mapping[str, str]) -> StructType:
    """The columns of JSON objects, as Spark infers them from all of them.

    Args:
        spark: The session.
        lines: The objects, as texts in the only column.
        options: Of Spark's reader of json.
    """
    texts = getattr(lines._jdf, "as")(classes().org.apache.spark.sql.Encoders.STRING())
    reader = spark.read.options(**options).option("columnNameOfCorruptRecord", rejects.TEXT)
    schema = reader._jreader.json(texts).schema()
    columns: StructType = _folded(StructType.fromJson(json.loads(schema.json())))
    return StructType([field for field in columns.fields if field.name != rejects.TEXT])


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
    """The reason why a text is a bad row, from the result of `json_line`; null for a good row."""
    return F.when(what.startswith("!"), F.substring(what, 2, 1 << 20))


def an_object(what: Column) -> Column:
    """The text of a good row that is one object, from the result of `json_line`; null for any other."""
    return F.when(what.startswith("{"), what)


def as_texts(kind: DataType, texts: tuple[type[DataType], ...]) -> DataType:
    """A type whose inner ones are strings where values are read as texts."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, as_texts(field.dataType, texts)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(as_texts(kind.elementType, texts))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, as_texts(kind.valueType, texts))
    return StringType() if isinstance(kind, texts) else kind
