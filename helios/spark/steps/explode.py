"""`explode`: makes a row for each element of an array."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from helios.plan.typing.steps.explode import not_an_array, taken_name
from helios.spark.jvm.sql import quoted
from helios.spark.steps.steps import Scope
from helios.steps.explode import Explode


def apply_step(df: DataFrame, step: Explode, scope: Scope) -> DataFrame:
    """The rows of the elements.

    Raises:
        DeclarationError: The column is not an array: `F.explode` would also take a map, and give two columns. Or there
            is a column with the element's name, which Spark would replace.
    """
    kind = next((field.dataType for field in df.schema if field.name.lower() == step.column.lower()), None)
    if kind is not None and not isinstance(kind, ArrayType):
        raise not_an_array(step, kind.simpleString())
    taken = next((name for name in df.columns if name.lower() == step.as_.lower()), None)
    if taken is not None and taken.lower() != step.column.lower():
        raise taken_name(step, taken)
    array = F.col(quoted(step.column))
    return df.withColumn(step.as_, F.explode_outer(array) if step.keep_empty else F.explode(array))
