"""Calls Java functions on column values, and converts schemas to DDL."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.compiled import instance


def java_function(
    spark: SparkSession,
    name: str,
    source: Path,
    columns: Sequence[Column],
    settings: Sequence[object],
    *first_arguments: object,
    result_type: DataType | None = None,
) -> Column:
    """A column that a Java function computes. Spark calls the function once per row, in the order of a file's rows.

    Args:
        source: The source file of the function's class.
        columns: The arguments of the class's method `call`.
        settings: The last arguments of the constructor. Functions with the same name may have different settings.
        first_arguments: The first arguments of the constructor.
        result_type: The type of the column; string by default.
    """
    jvm = classes()
    function = instance(spark, source, *first_arguments, *settings)
    interface_name = f"UDF{len(columns)}"
    interface = next(i for i in function.getClass().getInterfaces() if i.getSimpleName() == interface_name)
    # `udf` is called by reflection, because py4j would choose another overload.
    functions = jvm.java.lang.Class.forName("org.apache.spark.sql.functions")
    data_type = jvm.java.lang.Class.forName("org.apache.spark.sql.types.DataType")
    types = java_array(jvm.java.lang.Class, [interface, data_type])
    result = spark._jsparkSession.parseDataType((result_type or StringType()).json())
    udf = functions.getMethod("udf", types).invoke(None, java_array(jvm.java.lang.Object, [function, result]))
    # The registered name depends on the settings, because pipelines of one session may have different settings.
    name = f"{name}_{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}"
    spark._jsparkSession.udf().register(name, udf.asNondeterministic())
    return F.call_function(name, *columns)


def ddl(spark: SparkSession, schema: StructType) -> str:
    return str(spark._jsparkSession.parseDataType(schema.json()).toDDL())
