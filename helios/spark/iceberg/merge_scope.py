"""The rows of a target that a MERGE can change, and the files that may contain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from helios.spark.iceberg import overflow
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.updates import JavaRowDelta


@dataclass(frozen=True, kw_only=True)
class MergeScope:
    """The rows of a target that a command can change: those whose key is in the batch.

    Attributes:
        narrow: Filters a DataFrame of the target to these rows.
        bounds: The range of the batch's keys, by column.
        rows: The number of rows that the command stores.
        keys: Returns the batch's keys, each as a tuple of values for the columns in `bounds`, as Iceberg's expressions
            take them. None if there are too many keys, or if expressions do not take the type of a value.
    """

    narrow: Callable[[DataFrame], DataFrame]
    bounds: Mapping[str, Bound]
    rows: int
    keys: Callable[[], Sequence[tuple[object, ...]] | None]


@dataclass(frozen=True)
class Bound:
    """The smallest and the largest value of a column, as Iceberg's expressions take them, and the column's type."""

    kind: DataType
    low: object | None
    high: object | None


class RowChange(Protocol):
    """Files that replace and add rows."""

    def add_to(self, delta: JavaRowDelta) -> None:
        """Adds the files to an operation."""


@dataclass(frozen=True)
class Reach:
    """The scope of a command as Iceberg applies it to its target.

    Attributes:
        within: Files that cannot match this expression are not read. It does not pass through Spark, which would
            generate code with the values of each batch, and compile that code for each batch.
        columns: The key columns, as the target names them; empty if Iceberg cannot compare all of them.
    """

    within: JavaExpression
    columns: Sequence[str]


def reach_of(table: JavaTable, columns: Mapping[str, DataType], scope: MergeScope) -> Reach:
    """The reach of a scope in a table whose columns have these types."""
    same = _same_columns(table, columns, scope.bounds)
    bounded = [same[column] for column in scope.bounds] if len(same) == len(scope.bounds) else []
    return Reach(_within(table, same, scope.bounds), bounded)


def _same_columns(table: JavaTable, columns: Mapping[str, DataType], bounds: Mapping[str, Bound]) -> dict[str, str]:
    """The columns of the same type in the batch and the target, with their names in the target.

    Columns of type uuid are left out: Iceberg, Spark and the bounds in files order uuids in different ways.
    """
    names = {name.lower(): name for name in columns}
    same = {column: names[column.lower()] for column in bounds}
    comparable = {column: name for column, name in same.items() if columns[name] == bounds[column].kind}
    schema = table.schema()
    return {column: name for column, name in comparable.items() if str(schema.findField(name).type()) != "uuid"}


def _within(table: JavaTable, same: Mapping[str, str], bounds: Mapping[str, Bound]) -> JavaExpression:
    """The bounds as an expression; key columns whose partitions are not in order are left out."""
    orders = overflow.bounded(table)
    make = classes().org.apache.iceberg.expressions.Expressions
    both = getattr(make, "and")
    conjunction: JavaExpression = make.alwaysTrue()
    for column, name in same.items():
        bound = bounds[column]
        in_order = all(order.holds(bound.low) and order.holds(bound.high) for order in orders.get(name, ()))
        if bound.low is not None and in_order:
            ends = make.greaterThanOrEqual(name, bound.low), make.lessThanOrEqual(name, bound.high)
            conjunction = both(conjunction, both(*ends))
    return conjunction
