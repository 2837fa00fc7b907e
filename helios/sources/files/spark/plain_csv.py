"""Plain lines of csv in one pass, from their bytes to Spark's row; `csv_lines` and Spark's parser judge all others."""

from __future__ import annotations

from collections.abc import Mapping
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

KINDS: Mapping[type[DataType], str] = {
    StringType: "t", BooleanType: "o", ByteType: "1", ShortType: "2", IntegerType: "4", LongType: "8", FloatType: "f",
    DoubleType: "d", DateType: "y", TimestampType: "z", TimestampNTZType: "n",
}  # fmt: skip
"""The letters of types; all others have none whose values are plain."""

OTHER = "x"
MOST_DIGITS = 18
"""Of a decimal that is plain."""


def plain_csv(
    spark: SparkSession, line: tuple[Column, Column, Column], judge: JavaObject, signs: list[str], columns: StructType
) -> Column:
    """Each line as a struct of `ROW`, null if it is not plain, and `WHAT`; see PlainCsv.java.

    Args:
        spark: The session.
        line: The path of the file, where in it the task begins, and the bytes of the line.
        judge: A CsvLine.
        signs: The separator, the quote and the escape.
        columns: The columns of the file, in their order.
    """
    made = instance(spark, CODE, judge, *signs, ";".join(_kind(field.dataType) for field in columns.fields), base=BYTES)
    gives = StructType([StructField(ROW, columns), StructField(WHAT, StringType())])
    return invoked(spark, made, F.struct(*line), gives)


def _kind(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"m,{kind.precision},{kind.scale}" if kind.precision <= MOST_DIGITS else OTHER
    return KINDS.get(type(kind), OTHER)
