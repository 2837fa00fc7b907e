"""Reads plain lines of csv in one pass, from bytes to Spark's row; `csv_lines` and Spark's parser read all others."""

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

from helios.sources.common.spark.plain_json import BYTES, invoked
from helios.sources.files.spark.text_lines import ROW, WHAT
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.java import JavaObject

CODE = Path(__file__).with_name("PlainCsv.java")

LETTERS: Mapping[type[DataType], str] = {
    StringType: "t", BooleanType: "o", ByteType: "1", ShortType: "2", IntegerType: "4", LongType: "8", FloatType: "f",
    DoubleType: "d", DateType: "y", TimestampType: "z", TimestampNTZType: "n",
}  # fmt: skip
"""The letters of types in PlainCsv.java; a value of any other type is never plain."""

OTHER = "x"
MOST_DIGITS = 18
"""A plain decimal has at most so many digits, which fit into a long."""


def plain_csv(
    spark: SparkSession, line: Sequence[Column], csv_line: JavaObject, signs: list[str], columns: StructType
) -> Column:
    """A struct of `ROW`, which is null if the line is not plain, and `WHAT`; see PlainCsv.java.

    Args:
        spark: The session.
        line: The path of the file, the offset at which the task begins in the file, and the bytes of the line.
        csv_line: A CsvLine, which classifies a line that is not plain.
        signs: The separator, the quote and the escape.
        columns: The columns of the file, in their order.
    """
    letters = ";".join(_letter(field.dataType) for field in columns.fields)
    plain = instance(spark, CODE, csv_line, *signs, letters, base=BYTES)
    gives = StructType([StructField(ROW, columns), StructField(WHAT, StringType())])
    return invoked(spark, plain, F.struct(*line), gives)


def _letter(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"m,{kind.precision},{kind.scale}" if kind.precision <= MOST_DIGITS else OTHER
    return LETTERS.get(type(kind), OTHER)
