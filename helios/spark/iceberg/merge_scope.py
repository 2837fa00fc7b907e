"""The rows that a change of rows can reach, and the files of its target that may hold them."""

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
    """The rows of its target that a command can change: those whose key is in the batch.

    Attributes:
        narrow: Keeps only those of a DataFrame of the target's rows.
        bounds: The range of the batch's keys, by column.
        rows: The rows that the command stores.
        keys: Gives the batch's keys, each with the columns of `bounds`, as Iceberg's expressions take them; None where
            they are many, or have columns of other types.
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
        """Adds them to an operation."""


@dataclass(frozen=True)
class Reach:
    """The reach of a scope in its target.

    Attributes:
        within: The expression that a file must be able to meet to be read. Iceberg gets it beside Spark: Spark would
            put the values of each batch into generated code, which the JVM would compile for each batch.
        columns: The key columns, as the target names them; none where Iceberg cannot compare them all.
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

    Not uuid: Iceberg orders it by signed halves, neither as the text in Spark nor as the bounds in files.
    """
    names = {name.lower(): name for name in columns}
    same = {column: names[column.lower()] for column in bounds}
    comparable = {column: name for column, name in same.items() if columns[name] == bounds[column].kind}
    schema = table.schema()
    return {column: name for column, name in comparable.items() if str(schema.findField(name).type()) != "uuid"}


def _within(table: JavaTable, same: Mapping[str, str], bounds: Mapping[str, Bound]) -> JavaExpression:
    """The expression that a file must be able to meet. A key with unordered partitions adds no bound."""
    known = overflow.bounded(table)
    make = classes().org.apache.iceberg.expressions.Expressions
    both = getattr(make, "and")
    conjunction: JavaExpression = make.alwaysTrue()
    for column, name in same.items():
        bound = bounds[column]
        in_order = all(order.holds(bound.low) and order.holds(bound.high) for order in known.get(name, ()))
        if bound.low is not None and in_order:
            ends = make.greaterThanOrEqual(name, bound.low), make.lessThanOrEqual(name, bound.high)
            conjunction = both(conjunction, both(*ends))
    return conjunction
