"""Plain JSON in one pass, from its bytes to Spark's row; `json_lines` and Spark's parser judge what is not plain."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StructType

from helios.sources.common.spark.types import nullable
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.java import JavaObject

CODE = Path(__file__).with_name("PlainJson.java")
BYTES = Path(__file__).with_name("PlainBytes.java")


def plain(spark: SparkSession, value: Column, columns: StructType, *, ignores: bool) -> Column:
    """The bytes of a JSON object as a struct of columns; null where it is not plain, see PlainJson.java.

    Args:
        spark: The session.
        value: The bytes.
        columns: The columns.
        ignores: Whether fields that have no column are left out; they are not plain otherwise.
    """
    made = instance(spark, CODE, columns.json(), ignores, base=BYTES)
    return invoked(spark, made, value, columns)


def invoked(spark: SparkSession, made: JavaObject, value: Column, columns: StructType) -> Column:
    """The result of a function in Java for each value: Spark's own row of some columns, or null.

    Args:
        spark: The session.
        made: The function, a `java.util.function.Function` that can be serialized.
        value: What it takes, as Spark has it.
        columns: The columns.
    """
    jvm = classes()
    expressions, utils = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    listed = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    kind = jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName("java.util.function.Function"))
    gives = spark._jsparkSession.parseDataType(nullable(columns).json())
    # As `from_json` does it: a UDF would make a Java object of each value, and Spark's row of it again. Not
    # deterministic, so that Spark never calls it once for each column.
    call = expressions.objects.Invoke(
        expressions.Literal(made, kind),
        "apply",
        gives,
        listed([utils.expression(value._jc)]),
        listed([]),
        True,
        True,
        False,
    )
    return Column(utils.column(call))
