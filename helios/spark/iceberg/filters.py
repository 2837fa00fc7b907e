"""Predicates as Iceberg takes them: by these it leaves out files that cannot hold a row that meets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from helios.spark.jvm.classes import classes


def expression(spark: SparkSession, table: str, predicates: Iterable[str]) -> Any | None:
    """What Iceberg can tell of predicates; None when nothing.

    Spark resolves and simplifies them, and translates each of their conjuncts as it does for its own reads; a conjunct
    that Iceberg does not know is left out, since Spark evaluates the predicates on the rows anyway.

    Args:
        spark: The session.
        table: The table's name as Spark parses it.
        predicates: Spark SQL, over the table's columns.
    """
    jvm = classes()
    converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    make = jvm.org.apache.iceberg.expressions.Expressions
    found: Any | None = None
    for predicate in predicates:
        try:
            resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, table, predicate)
        except (AnalysisException, Py4JJavaError):
            continue  # it is refused where the rows are filtered, in the user's own words
        for conjunct in _conjuncts(resolved):
            try:
                told = converter.convertToIcebergExpression(conjunct)
            except (IllegalArgumentException, Py4JJavaError):
                continue
            found = told if found is None else getattr(make, "and")(found, told)
    return found


def _conjuncts(expression: Any) -> Sequence[Any]:
    if expression.getClass().getSimpleName() != "And":
        return [expression]
    return [*_conjuncts(expression.left()), *_conjuncts(expression.right())]
