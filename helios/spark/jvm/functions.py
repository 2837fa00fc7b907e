"""Functions in Java of the values of columns, and schemas as Spark writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.compiled import instance


def called(
    spark: SparkSession,
    name: str,
    code: Path,
    columns: Sequence[Column],
    settings: Sequence[object],
    *more: object,
    gives: DataType | None = None,
) -> Column:
    """A function in Java of the values of columns, which sees each row once, and those of a file in their order.

    Args:
        spark: The session.
        name: Its name.
        code: Its class.
        columns: What it takes: the class has a `call` of so many.
        settings: What its constructor takes, by which it is told from others of its name.
        more: What the constructor takes before these.
        gives: The type of what it gives; a string by default.
    """
    jvm = classes()
    made = instance(spark, code, *more, *settings)
    kind = next(
        interface for interface in made.getClass().getInterfaces() if interface.getSimpleName() == f"UDF{len(columns)}"
    )
    # By reflection: py4j takes another one of the functions of this name.
    functions = jvm.java.lang.Class.forName("org.apache.spark.sql.functions")
    types = java_array(jvm.java.lang.Class, [kind, jvm.java.lang.Class.forName("org.apache.spark.sql.types.DataType")])
    result = spark._jsparkSession.parseDataType((gives or StringType()).json())
    udf = functions.getMethod("udf", types).invoke(None, java_array(jvm.java.lang.Object, [made, result]))
    # Pipelines of one session read with settings of their own.
    name = f"{name}_{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}"
    spark._jsparkSession.udf().register(name, udf.asNondeterministic())
    return F.call_function(name, *columns)


def ddl(spark: SparkSession, schema: StructType) -> str:
    return str(spark._jsparkSession.parseDataType(schema.json()).toDDL())
