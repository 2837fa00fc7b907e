"""Creates small DataFrames whose rows are part of the plan, so that Spark runs no job to create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from helios.spark.jvm.sql import struct_of


def inline(spark: SparkSession, schema: str, columns: Mapping[str, Sequence[object]]) -> DataFrame:
    """A DataFrame that contains a few given values.

    Args:
        schema: The columns and their types, as DDL.
        columns: The values of each column; all columns have the same length.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return spark.createDataFrame(pa.table(dict(columns), to_arrow_schema(struct_of(schema))), schema)
