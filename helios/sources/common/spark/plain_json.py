"""Plain JSON, parsed in one pass from bytes to Spark's row; `json_lines` and Spark's parser read all other JSON."""

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
    """The bytes of a JSON object as a struct of columns; null if the object is not plain, see PlainJson.java.

    Args:
        spark: The session.
        value: The bytes.
        columns: The columns.
        ignores: Whether fields without a column are left out; otherwise an object with such a field is not plain.
    """
    parser = instance(spark, CODE, columns.json(), ignores, base=BYTES)
    return invoked(spark, parser, value, columns)


def invoked(spark: SparkSession, function: JavaObject, value: Column, columns: StructType) -> Column:
    """The result of a Java function for each value: a struct of columns in Spark's internal form, or null.

    Args:
        spark: The session.
        function: A `java.util.function.Function` that can be serialized.
        value: The function's argument, in Spark's internal form.
        columns: The columns.
    """
    jvm = classes()
    expressions, utils = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    listed = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    kind = jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName("java.util.function.Function"))
    result_type = spark._jsparkSession.parseDataType(nullable(columns).json())
    # `from_json` does the same: a UDF would convert each value to a Java object and back to Spark's row. The call is
    # declared nondeterministic, as Spark would otherwise repeat it for each column.
    call = expressions.objects.Invoke(
        expressions.Literal(function, kind),
        "apply",
        result_type,
        listed([utils.expression(value._jc)]),
        listed([]),
        True,  # propagateNull
        True,  # returnNullable
        False,  # isDeterministic
    )
    return Column(utils.column(call))
