"""Computes the difference of multisets of rows, exactly for each type."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from helios.spark.jvm.sql import quoted


def net(rows: DataFrame, fields: Sequence[StructField], by: Sequence[str], sign: str) -> DataFrame:
    """The distinct rows, each with the sum of the signs of its copies; rows whose signs add up to 0 are left out.

    Spark cannot group by some types, and groups values of others inexactly. Columns of such types are grouped by an
    exact substitute.

    Args:
        rows: The rows, with the columns of `fields` and of `by`, and a sign: 1 for an added row, -1 for a removed row.
        fields: The columns that are compared.
        by: Further columns that distinguish rows; they come first in the result.
        sign: The name of the column with the sign of each row, and of the column with the sum.
    """
    columns = {field.name: F.col(quoted(field.name)) for field in fields}
    inexact = [field for field in fields if not _groups_exactly(field.dataType)]
    plain = [column for name, column in columns.items() if name not in {field.name for field in inexact}]
    exact = [
        _grouping_value(columns[field.name], field.dataType).alias(f"__helios_exact_{i}")
        for i, field in enumerate(inexact)
    ]
    carried = [F.first(columns[field.name]).alias(field.name) for field in inexact]
    grouped = rows.groupBy(*by, *plain, *exact)
    counted = grouped.agg(F.sum(sign).alias(sign), *carried).where(F.col(sign) != 0)
    return counted.select(*by, *columns.values(), sign)


def is_one_pair(by: Sequence[str], sign: str) -> Column:
    """A condition that matches the old and the new row of one update.

    It is true if, among the rows that are equal in `by`, exactly one was removed and exactly one was added.

    Args:
        by: The columns that identify a row.
        sign: The column with the sum of the signs of each row, from `net`.
    """
    same = Window.partitionBy(*map(quoted, by))
    removed = F.sum(F.greatest(-F.col(sign), F.lit(0))).over(same)
    added = F.sum(F.greatest(F.col(sign), F.lit(0))).over(same)
    return (removed == 1) & (added == 1)


def _groups_exactly(kind: DataType) -> bool:
    """True if Spark groups a type exactly, without merging or altering values."""
    if isinstance(kind, StructType):
        return all(_groups_exactly(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _groups_exactly(kind.elementType)
    return not isinstance(kind, (FloatType, DoubleType, MapType, VariantType))


def _grouping_value(value: Column, kind: DataType) -> Column:
    """A substitute for a value for grouping: two substitutes are equal if and only if the values are equal."""
    if isinstance(kind, (FloatType, DoubleType)):
        # Spark's grouping treats -0.0 and 0.0 as equal.
        return F.struct(value, F.when(value == 0, value.cast("string")))
    if isinstance(kind, VariantType):
        return F.struct(F.to_json(value), F.schema_of_variant(value))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda element: _grouping_value(element, kind.elementType))
    if isinstance(kind, StructType):
        parts = [_grouping_value(value.getField(f.name), f.dataType).alias(f"f{i}") for i, f in enumerate(kind.fields)]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, MapType):
        entries = F.map_entries(value)
        pairs = F.transform(
            entries,
            lambda e: F.struct(_grouping_value(e["key"], kind.keyType), _grouping_value(e["value"], kind.valueType)),
        )
        return F.array_sort(pairs)
    return value
