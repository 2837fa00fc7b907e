"""Parses plain JSON in one pass, from bytes to Spark's internal rows.

Every JSON object can be read by `json_line` with Spark's parser, which is slower. An object is plain if the parser of
this module is certain to return the same row.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StructType

from helios.sources.common.spark.types import nullable
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.java import JavaObject

PLAIN_JSON = Path(__file__).with_name("PlainJson.java")
PLAIN_BYTES = Path(__file__).with_name("PlainBytes.java")


def parse_plain_json(spark: SparkSession, value: Column, columns: StructType, *, skips_unknown: bool) -> Column:
    """The bytes of a JSON object as a struct of columns; null if the object is not plain, see PlainJson.java.

    Args:
        skips_unknown: Whether fields without a column are left out; otherwise an object with such a field is not plain.
    """
    parser = instance(spark, PLAIN_JSON, columns.json(), skips_unknown, base=PLAIN_BYTES)
    return invoked(spark, parser, value, columns)


def invoked(spark: SparkSession, function: JavaObject, value: Column, columns: StructType) -> Column:
    """The result of a Java function for each value: a struct of columns in Spark's internal form, or null.

    Args:
        function: A `java.util.function.Function` that can be serialized.
        value: The function's argument, in Spark's internal form.
    """
    jvm = classes()
    expressions, utils = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    function_class = jvm.java.lang.Class.forName("java.util.function.Function")
    function_type = jvm.org.apache.spark.sql.types.ObjectType(function_class)
    result_type = spark._jsparkSession.parseDataType(nullable(columns).json())
    # A UDF would convert each value to a Java object, and the result back to Spark's row. `Invoke` does not. The call
    # is declared nondeterministic, because Spark would otherwise repeat it for each column of the struct.
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
