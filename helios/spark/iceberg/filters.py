"""Spark SQL predicates as Iceberg expressions, by which a scan leaves out files that cannot hold a matching row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.jvm.types.java import JavaObject, ScalaOption
from helios.spark.jvm.types.spark import JavaBinaryExpression, JavaSparkExpression


def expression(spark: SparkSession, table: str, predicates: Iterable[str]) -> JavaExpression | None:
    """The Iceberg expression of predicates; None when Iceberg can use none of them.

    Spark resolves and simplifies them, and translates each of their conjuncts as it does for its own reads; a conjunct
    that Iceberg does not know is left out, since Spark evaluates the predicates on the rows anyway.

    Args:
        spark: The session.
        table: The table's name as Spark parses it.
        predicates: Spark SQL, over the table's columns.
    """
    jvm = classes()
    sources = jvm.org.apache.spark.sql.execution.datasources
    converter, strategy = sources.SparkExpressionConverter, getattr(sources.v2, "DataSourceV2Strategy$")
    translate = getattr(strategy, "MODULE$").translateFilterV2
    both = getattr(jvm.org.apache.iceberg.expressions.Expressions, "and")
    found: JavaExpression | None = None
    for predicate in predicates:
        try:
            resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, table, predicate)
        except (AnalysisException, Py4JJavaError):
            continue  # it is refused where the rows are filtered, in the user's own words
        for conjunct in _conjuncts(resolved):
            # As the converter's own convertToIcebergExpression, whose exceptions cost more than the rest.
            translated: ScalaOption[JavaObject] = translate(conjunct)
            if not translated.isDefined():
                continue
            try:
                converted = jvm.org.apache.iceberg.spark.SparkV2Filters.convert(translated.get())
            except (IllegalArgumentException, Py4JJavaError):
                continue
            if converted is None:
                continue
            found = converted if found is None else both(found, converted)
    return found


def _conjuncts(expression: JavaSparkExpression) -> Sequence[JavaSparkExpression]:
    if expression.getClass().getSimpleName() != "And":
        return [expression]
    both = cast("JavaBinaryExpression", expression)
    return [*_conjuncts(both.left()), *_conjuncts(both.right())]
