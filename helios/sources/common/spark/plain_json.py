"""Parses plain JSON in one pass, from bytes to Spark's internal rows.

`json_line` and Spark's parser can read every JSON object, but are slower. The parser of this module reads only plain
objects; for any other object it returns null. An object is plain if this parser is sure to return the row that Spark's
parser would return. PlainJson.java has the conditions.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StructType

from helios.sources.common.spark.types import as_nullable
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.java import JavaObject

PLAIN_JSON = Path(__file__).with_name("PlainJson.java")
PLAIN_BYTES = Path(__file__).with_name("PlainBytes.java")


def parse_plain_json(spark: SparkSession, value: Column, columns: StructType, *, skips_unknown: bool) -> Column:
    """Parses the bytes of a JSON object into a struct of columns; null if the object is not plain, see PlainJson.java.

    Args:
        skips_unknown: Whether to leave out fields without a column. If False, an object with an unknown field is not
            plain.
    """
    parser = instance(spark, PLAIN_JSON, columns.json(), skips_unknown, base=PLAIN_BYTES)
    return java_call(spark, parser, value, columns)


def java_call(spark: SparkSession, function: JavaObject, value: Column, columns: StructType) -> Column:
    """Calls a Java function for each value. Each result is a struct of columns in Spark's internal form, or null.

    Args:
        function: A `java.util.function.Function` that can be serialized.
        value: The function's argument, in Spark's internal form.
    """
    jvm = classes()
    expressions, utils = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    function_class = jvm.java.lang.Class.forName("java.util.function.Function")
    function_type = jvm.org.apache.spark.sql.types.ObjectType(function_class)
    result_type = spark._jsparkSession.parseDataType(as_nullable(columns).json())
    # A UDF would convert each value to a Java object, and each result to a row of Spark. `Invoke` converts nothing. The
    # call is declared nondeterministic, because Spark would otherwise repeat the call for each column of the struct.
    call = expressions.objects.Invoke(
        expressions.Literal(function, function_type),
        "apply",
        result_type,
        to_seq([utils.expression(value._jc)]),
        to_seq([]),
        True,  # propagateNull
        True,  # returnNullable
        False,  # isDeterministic
    )
    return Column(utils.column(call))
