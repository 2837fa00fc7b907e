"""Reads plain lines of csv in one pass, from bytes to Spark's rows. `csv_lines` and Spark's parser read other lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from helios.sources.common.spark.plain_json import PLAIN_BYTES, java_call
from helios.sources.files.spark.text_lines import LINE_RESULT, ROW
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.java import JavaObject

PLAIN_CSV = Path(__file__).with_name("PlainCsv.java")

TYPE_CODES: Mapping[type[DataType], str] = {
    StringType: "t", BooleanType: "o", ByteType: "1", ShortType: "2", IntegerType: "4", LongType: "8", FloatType: "f",
    DoubleType: "d", DateType: "y", TimestampType: "z", TimestampNTZType: "n",
}  # fmt: skip
"""The codes of types in PlainCsv.java, besides decimals. A value of any other type is never plain."""

OTHER_TYPE = "x"
MAX_DIGITS = 18
"""The maximum number of digits of a plain decimal. So many digits always fit into a long."""


def plain_csv(
    spark: SparkSession, line: Sequence[Column], csv_line: JavaObject, punctuation: list[str], columns: StructType
) -> Column:
    """A struct of `ROW`, which is null if the line is not plain, and `LINE_RESULT`; see PlainCsv.java.

    Args:
        line: The path of the file, the offset in the file at which the task begins, and the bytes of the line.
        csv_line: A CsvLine, which classifies a line that is not plain.
        punctuation: The separator, the quote and the escape.
        columns: The columns of the file, in their order.
    """
    type_codes = ";".join(_type_code(field.dataType) for field in columns.fields)
    plain = instance(spark, PLAIN_CSV, csv_line, *punctuation, type_codes, base=PLAIN_BYTES)
    result_type = StructType([StructField(ROW, columns), StructField(LINE_RESULT, StringType())])
    return java_call(spark, plain, F.struct(*line), result_type)


def _type_code(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"m,{kind.precision},{kind.scale}" if kind.precision <= MAX_DIGITS else OTHER_TYPE
    return TYPE_CODES.get(type(kind), OTHER_TYPE)
