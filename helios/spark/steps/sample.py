"""`sample`: keeps a share of the rows, by the hash of their values or at random."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from helios.spark.jvm.sql import quoted
from helios.spark.steps.steps import HIDDEN, Scope
from helios.steps.sample import Sample

BITS = 53
"""How many bits of a hash are compared: a double can represent numbers of so many bits exactly."""


def apply_step(df: DataFrame, step: Sample, scope: Scope) -> DataFrame:
    if step.seed is None:
        return df.where(F.rand() < step.fraction)
    columns = [
        F.col(quoted(field.name)) for field in df.schema if field.name not in HIDDEN and _hashable(field.dataType)
    ]
    bits = F.shiftrightunsigned(F.xxhash64(F.lit(step.seed), *columns), 64 - BITS)
    return df.where(bits < F.lit(step.fraction * 2**BITS))


def _hashable(data_type: DataType) -> bool:
    """True if Spark can hash values of a type: the type contains no map and no variant."""
    if isinstance(data_type, StructType):
        return all(_hashable(field.dataType) for field in data_type)
    if isinstance(data_type, ArrayType):
        return _hashable(data_type.elementType)
    return not isinstance(data_type, (MapType, VariantType))
