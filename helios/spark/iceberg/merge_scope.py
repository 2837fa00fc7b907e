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
        bounds: The range of the batch's keys in each key column.
        rows: The number of rows that the command stores.
        keys: Returns the batch's keys, each as a tuple of values for the columns in `bounds`. The values have the form
            that Iceberg's expressions take. None if there are too many keys, or if expressions do not support a type.
    """

    narrow: Callable[[DataFrame], DataFrame]
    bounds: Mapping[str, Bound]
    rows: int
    keys: Callable[[], Sequence[tuple[object, ...]] | None]


@dataclass(frozen=True)
class Bound:
    """The type of a key column, and its smallest and largest value in the form that Iceberg's expressions take."""

    kind: DataType
    low: object | None
    high: object | None


class RowChange(Protocol):
    """Files that replace and add rows."""

    def add_to(self, delta: JavaRowDelta) -> None:
        """Adds the files to an operation."""


@dataclass(frozen=True)
class IcebergScope:
    """The scope of a command in Iceberg's terms: an expression that limits scans, and the key columns.

    Attributes:
        key_range: Files that cannot match this expression are not read. The expression is given to Iceberg directly:
            Spark would generate code that contains the values, and compile that code for each batch.
        columns: The key columns, as the target names them; empty if Iceberg cannot compare all of them.
    """

    key_range: JavaExpression
    columns: Sequence[str]


def iceberg_scope_of(table: JavaTable, columns: Mapping[str, DataType], scope: MergeScope) -> IcebergScope:
    """Converts a scope for a table whose columns have these types."""
    same = _same_columns(table, columns, scope.bounds)
    keys = [same[column] for column in scope.bounds] if len(same) == len(scope.bounds) else []
    return IcebergScope(_key_range(table, same, scope.bounds), keys)


def _same_columns(table: JavaTable, columns: Mapping[str, DataType], bounds: Mapping[str, Bound]) -> dict[str, str]:
    """The key columns that have the same type in the batch and the target, with their names in the target.

    Columns of type uuid are left out, because Iceberg, Spark and the bounds in files order uuids differently.
    """
    names = {name.lower(): name for name in columns}
    same = {column: names[column.lower()] for column in bounds}
    comparable = {column: name for column, name in same.items() if columns[name] == bounds[column].kind}
    schema = table.schema()
    return {column: name for column, name in comparable.items() if str(schema.findField(name).type()) != "uuid"}


def _key_range(table: JavaTable, same: Mapping[str, str], bounds: Mapping[str, Bound]) -> JavaExpression:
    """The bounds as an expression. Key columns whose partitions are not in the order of their values are left out."""
    ordered_ranges = overflow.ordered_ranges(table)
    expressions = classes().org.apache.iceberg.expressions.Expressions
    both = getattr(expressions, "and")
    conjunction: JavaExpression = expressions.alwaysTrue()
    for column, name in same.items():
        bound = bounds[column]
        ranges = ordered_ranges.get(name, ())
        in_order = all(ordered.contains(bound.low) and ordered.contains(bound.high) for ordered in ranges)
        if bound.low is not None and in_order:
            at_least = expressions.greaterThanOrEqual(name, bound.low)
            at_most = expressions.lessThanOrEqual(name, bound.high)
            conjunction = both(conjunction, both(at_least, at_most))
    return conjunction
