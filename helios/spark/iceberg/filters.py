"""Spark SQL predicates as Iceberg expressions, by which a scan leaves out files that cannot hold a matching row.

Spark has NaN for the largest number, and -0.0 for the same as 0.0. Iceberg's bounds of files and row groups leave NaN
out, and have -0.0 below 0.0, so a predicate over such numbers asks Iceberg for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""The alias for a table's name: otherwise, in a table `s` with a struct `s`, `s.x` would be its column `x`."""


def expression(spark: SparkSession, table: JavaTable, name: str, predicates: Iterable[str]) -> JavaExpression | None:
    """The Iceberg expression of predicates; None when Iceberg can use none of them.

    Spark resolves and simplifies them, and translates each of their conjuncts as it does for its own reads; a conjunct
    that Iceberg does not know is left out, since Spark evaluates the predicates on the rows anyway.

    Args:
        spark: The session.
        table: The table.
        name: Its name as Spark parses it.
        predicates: Spark SQL, over the table's columns.
    """
    jvm = classes()
    sources = jvm.org.apache.spark.sql.execution.datasources
    translate = getattr(getattr(sources.v2, "DataSourceV2Strategy$"), "MODULE$").translateFilterV2
    both = getattr(jvm.org.apache.iceberg.expressions.Expressions, "and")
    relation = _relation(spark, name)
    conjunction: JavaExpression | None = None
    for predicate in predicates:
        try:
            resolved = _resolved(spark, relation, predicate)
        except (AnalysisException, Py4JJavaError):
            continue  # it is refused where the rows are filtered, in the user's own words
        for conjunct in _conjuncts(resolved) if resolved is not None else ():
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
            meant = _by_sparks_order(
                jvm.org.apache.iceberg.expressions.Expressions.rewriteNot(converted), table.schema()
            )
            conjunction = meant if conjunction is None else both(conjunction, meant)
    return conjunction


def _relation(spark: SparkSession, name: str) -> JavaLogicalPlan:
    """A relation of a table's columns, as Iceberg resolves predicates by, but for the table's name before them."""
    datasources = classes().org.apache.spark.sql.execution.datasources
    output = spark._jsparkSession.table(name).alias(ALIAS).queryExecution().analyzed().output()
    relation: JavaLogicalPlan = getattr(datasources, "SparkExpressionConverter$DummyRelation")(output)
    return relation


def _resolved(spark: SparkSession, relation: JavaLogicalPlan, predicate: str) -> JavaSparkExpression | None:
    """A predicate as Spark's optimizer leaves it; None where that is always true."""
    jvm, state = classes(), spark._jsparkSession.sessionState()
    plan = jvm.org.apache.spark.sql.catalyst.plans.logical.Filter(
        state.sqlParser().parseExpression(predicate), relation
    )
    left = state.executePlan(plan, jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()).optimizedPlan()
    kind = str(left.getClass().getSimpleName())
    if kind == "Filter":
        met: JavaSparkExpression = left.condition()
        return met
    if kind == "LocalRelation":
        never: JavaSparkExpression = jvm.org.apache.spark.sql.catalyst.expressions.Literal.FalseLiteral()
        return never
    return None


def without_pushed(df: DataFrame, unordered: frozenset[str] = frozenset()) -> DataFrame:
    """The rows of a table, whose scan gets no predicates that Iceberg would evaluate differently from Spark.

    Spark hands predicates to Iceberg as they are. `nanvl(x, x)` and `greatest(x, x)` are x, and Iceberg has no form of
    them.

    Args:
        df: The rows.
        unordered: Columns whose partitions or bounds are not in the order of their values; those of numbers with NaN
            are known.
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
    """A copy of a column that Spark does not push down to Iceberg; None if the column can be pushed down."""
    if isinstance(kind, FLOATING):
        return F.nanvl(column, column)
    if name in unordered and not isinstance(kind, NESTED):
        return F.greatest(column, column)
    if not isinstance(kind, StructType):
        return None
    if not all(field.nullable for field in kind):  # which `withField` makes nullable
        return None
    if len({field.name.lower() for field in kind}) < len(kind.fields):  # no name says which is meant
        return None
    fields = {
        field.name: _opaque(column.getField(field.name), field.dataType, f"{name}.{field.name}", unordered)
        for field in kind
    }
    changed = {of: made for of, made in fields.items() if made is not None}
    for of, made in changed.items():
        column = column.withField(quoted(of), made)
    return column if changed else None


def _by_sparks_order(expression: JavaExpression, schema: JavaSchema) -> JavaExpression:
    """An expression without NOT, widened to the rows that meet it in Spark's order of floating-point numbers."""
    make, kind = classes().org.apache.iceberg.expressions.Expressions, str(expression.op())
    if kind in ("AND", "OR"):
        both = cast("JavaJunction", expression)
        return getattr(make, kind.lower())(  # type: ignore[no-any-return]
            _by_sparks_order(both.left(), schema), _by_sparks_order(both.right(), schema)
        )
    if kind not in ("GT", "GT_EQ", "LT_EQ", "EQ", "IN"):  # of the others Iceberg's order keeps no less
        return expression
    predicate = cast("JavaPredicate", expression)
    name = str(predicate.ref().name())
    field = schema.findField(name) or schema.caseInsensitiveFindField(name)  # Spark takes names in any case
    if str(field.type()) not in ("float", "double"):
        return expression
    values = [float(literal.value()) for literal in (predicate.literals() if kind == "IN" else [predicate.literal()])]
    widened = expression
    if kind != "GT" and 0.0 in values:
        again = {"GT_EQ": make.greaterThanOrEqual, "LT_EQ": make.lessThanOrEqual}.get(kind, make.equal)
        for zero in (-0.0, 0.0):
            widened = getattr(make, "or")(widened, again(name, zero))
    return getattr(make, "or")(widened, make.isNaN(name)) if kind in ("GT", "GT_EQ") else widened


def _conjuncts(expression: JavaSparkExpression) -> Sequence[JavaSparkExpression]:
    if expression.getClass().getSimpleName() != "And":
        return [expression]
    both = cast("JavaBinaryExpression", expression)
    return [*_conjuncts(both.left()), *_conjuncts(both.right())]
