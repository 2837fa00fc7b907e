"""Converts Spark SQL predicates to Iceberg expressions, with which a scan skips files that have no matching row.

In Spark, NaN is the largest number, and -0.0 equals 0.0. Iceberg's bounds of files and row groups do not include NaN,
and order -0.0 below 0.0. So a predicate over floating-point numbers is widened: it also matches NaN, or both zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.files import JavaExpression, JavaJunction, JavaPredicate
from helios.spark.jvm.types.iceberg import JavaSchema, JavaTable
from helios.spark.jvm.types.java import JavaObject, ScalaOption
from helios.spark.jvm.types.spark import JavaBinaryExpression, JavaLogicalPlan, JavaSparkExpression

FLOATING = (FloatType, DoubleType)
NESTED = (ArrayType, MapType, StructType)
ALIAS = "__helios"
"""The alias of the table in predicates. Without it, `s.x` in a table `s` with a struct column `s` would mean the column
`x` of the table."""


def expression(spark: SparkSession, table: JavaTable, name: str, predicates: Iterable[str]) -> JavaExpression | None:
    """The conjunction of predicates as an Iceberg expression; None if Iceberg can use none of them.

    Spark resolves and simplifies the predicates, and translates each conjunct as it does for its own reads. Conjuncts
    that Iceberg does not support are left out: Spark evaluates the predicates on the rows anyway.

    Args:
        name: The table's name, as Spark parses it.
    """
    conjunction = getattr(classes().org.apache.iceberg.expressions.Expressions, "and")
    expressions = [expr for expr in _converted(spark, table, name, predicates) if expr is not None]
    return reduce(conjunction, expressions) if expressions else None


def convertible(spark: SparkSession, table: JavaTable, name: str, predicate: str) -> bool:
    """True if Iceberg can delete by a predicate, because it supports each of its conjuncts."""
    return None not in _converted(spark, table, name, [predicate])


def _converted(
    spark: SparkSession, table: JavaTable, name: str, predicates: Iterable[str]
) -> list[JavaExpression | None]:
    """The Iceberg expression of each conjunct of the predicates; None for a conjunct that Iceberg does not support."""
    jvm = classes()
    sources = jvm.org.apache.spark.sql.execution.datasources
    translate = getattr(getattr(sources.v2, "DataSourceV2Strategy$"), "MODULE$").translateFilterV2
    relation = _relation(spark, name)
    converted: list[JavaExpression | None] = []
    for predicate in predicates:
        try:
            resolved = _resolved(spark, relation, predicate)
        except (AnalysisException, Py4JJavaError):
            converted.append(None)  # Spark refuses the predicate again when it filters the rows, and quotes it
            continue
        for conjunct in _conjuncts(resolved) if resolved is not None else ():
            # convertToIcebergExpression does the same, but the exceptions that it raises are slow.
            translated: ScalaOption[JavaObject] = translate(conjunct)
            converted.append(_iceberg_expression(translated.get(), table) if translated.isDefined() else None)
    return converted


def _iceberg_expression(translated: JavaObject, table: JavaTable) -> JavaExpression | None:
    jvm = classes()
    try:
        converted = jvm.org.apache.iceberg.spark.SparkV2Filters.convert(translated)
    except (IllegalArgumentException, Py4JJavaError):
        return None
    if converted is None:
        return None
    return _by_sparks_order(jvm.org.apache.iceberg.expressions.Expressions.rewriteNot(converted), table.schema())


def _relation(spark: SparkSession, name: str) -> JavaLogicalPlan:
    """A relation with a table's columns, qualified by `ALIAS`, against which predicates are resolved."""
    datasources = classes().org.apache.spark.sql.execution.datasources
    output = spark._jsparkSession.table(name).alias(ALIAS).queryExecution().analyzed().output()
    relation: JavaLogicalPlan = getattr(datasources, "SparkExpressionConverter$DummyRelation")(output)
    return relation


def _resolved(spark: SparkSession, relation: JavaLogicalPlan, predicate: str) -> JavaSparkExpression | None:
    """A predicate after Spark's optimizer; None if the predicate is always true."""
    jvm, state = classes(), spark._jsparkSession.sessionState()
    plan = jvm.org.apache.spark.sql.catalyst.plans.logical.Filter(
        state.sqlParser().parseExpression(predicate), relation
    )
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    optimized = state.executePlan(plan, skip).optimizedPlan()
    node = str(optimized.getClass().getSimpleName())
    if node == "Filter":
        condition: JavaSparkExpression = optimized.condition()
        return condition
    if node == "LocalRelation":  # Spark's optimizer has found that no row meets the predicate
        false: JavaSparkExpression = jvm.org.apache.spark.sql.catalyst.expressions.Literal.FalseLiteral()
        return false
    return None


def without_pushdown(df: DataFrame, unordered: frozenset[str] = frozenset()) -> DataFrame:
    """The same rows, but Spark does not push down predicates that Iceberg would evaluate differently from Spark.

    Spark pushes down predicates on plain columns to Iceberg. It cannot push down predicates on `nanvl(x, x)` and
    `greatest(x, x)`, which have the value of x.

    Args:
        unordered: Columns whose partitions or bounds are not in the order of their values. Floating-point columns
            always count as unordered.
    """
    columns = {field: _opaque(F.col(quoted(field.name)), field.dataType, field.name, unordered) for field in df.schema}
    if all(column is None for column in columns.values()):
        return df
    return df.select(
        *(
            F.col(quoted(field.name)) if column is None else column.alias(field.name, metadata=field.metadata)
            for field, column in columns.items()
        )
    )


def _opaque(column: Column, kind: DataType, name: str, unordered: frozenset[str]) -> Column | None:
    """A column with the same values on which Spark cannot push down predicates; None if Spark may push them down."""
    if isinstance(kind, FLOATING):
        return F.nanvl(column, column)
    if name in unordered and not isinstance(kind, NESTED):
        return F.greatest(column, column)
    if not isinstance(kind, StructType):
        return None
    if not all(field.nullable for field in kind):  # `withField` would make a required field nullable
        return None
    if len({field.name.lower() for field in kind}) < len(kind.fields):  # names that differ in case alone are ambiguous
        return None
    fields = {
        field.name: _opaque(column.getField(field.name), field.dataType, f"{name}.{field.name}", unordered)
        for field in kind
    }
    opaque = {field: copy for field, copy in fields.items() if copy is not None}
    for field, copy in opaque.items():
        column = column.withField(quoted(field), copy)
    return column if opaque else None


def _by_sparks_order(expression: JavaExpression, schema: JavaSchema) -> JavaExpression:
    """An expression without NOT, widened to all rows that meet it in Spark's order of floating-point numbers."""
    expressions, operator = classes().org.apache.iceberg.expressions.Expressions, str(expression.op())
    if operator in ("AND", "OR"):
        junction = cast("JavaJunction", expression)
        return getattr(expressions, operator.lower())(  # type: ignore[no-any-return]
            _by_sparks_order(junction.left(), schema), _by_sparks_order(junction.right(), schema)
        )
    if operator not in ("GT", "GT_EQ", "LT_EQ", "EQ", "IN"):  # other predicates match at least as many rows in Iceberg
        return expression
    predicate = cast("JavaPredicate", expression)
    name = str(predicate.ref().name())
    field = schema.findField(name) or schema.caseInsensitiveFindField(name)  # Spark ignores the case of names
    if str(field.type()) not in ("float", "double"):
        return expression
    literals = predicate.literals() if operator == "IN" else [predicate.literal()]
    disjunction = getattr(expressions, "or")
    widened = expression
    if operator != "GT" and any(float(literal.value()) == 0.0 for literal in literals):
        comparisons = {"GT_EQ": expressions.greaterThanOrEqual, "LT_EQ": expressions.lessThanOrEqual}
        compare = comparisons.get(operator, expressions.equal)
        for zero in (-0.0, 0.0):
            widened = disjunction(widened, compare(name, zero))
    return disjunction(widened, expressions.isNaN(name)) if operator in ("GT", "GT_EQ") else widened


def _conjuncts(expression: JavaSparkExpression) -> Sequence[JavaSparkExpression]:
    if expression.getClass().getSimpleName() != "And":
        return [expression]
    conjunction = cast("JavaBinaryExpression", expression)
    return [*_conjuncts(conjunction.left()), *_conjuncts(conjunction.right())]
