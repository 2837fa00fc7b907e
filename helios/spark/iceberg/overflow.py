"""Finds partitions that are not in the order of their values, because a transform has overflowed.

Iceberg's `truncate` of the smallest ints and longs gives the largest ones. Its `hour` of a time some 245,000 years
after 1970 lies before 1970, and vice versa. For the predicate `id < 100`, Iceberg then skips the partition of the
smallest ids. For `id > 100`, it takes each row of that partition as a match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaExpression, JavaJunction, JavaManifestFile, JavaPredicate
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable, JavaType

MICROS_PER_HOUR = 3_600_000_000
ORDERED = ("LT", "LT_EQ", "GT", "GT_EQ")
"""The predicates that compare by order. An overflow does not affect other predicates, because equal values have equal
partitions."""


class OrderedRange(NamedTuple):
    """The range in which a transform keeps the order of its values.

    Attributes:
        values: The first and the last value whose partition is in order; for times, microseconds since 1970.
        partitions: The first and the last partition in which no overflowed value can lie.
    """

    values: tuple[int, int]
    partitions: tuple[int, int]

    def contains(self, value: object) -> bool:
        """True if a value is in the range, so that its partition is in order. A time may also be text in ISO 8601."""
        if isinstance(value, str):  # in ISO 8601 a year of more than four digits has a sign
            return re.match(r"\d{4}-", value) is not None
        return isinstance(value, int) and self.values[0] <= value <= self.values[1]


NEVER_ORDERED = OrderedRange((1, 0), (1, 0))
"""Two empty ranges: the transform may overflow for any value."""
MAX_CACHED = 10_000
_CACHE: dict[tuple[str, int, int, bool], frozenset[str]] = {}
"""The results of `unordered_columns`, by table, schema, snapshot and `added`. A joined table is read in each batch, and
each of its manifests takes some JVM calls."""
LONGS = (-(1 << 63), (1 << 63) - 1)


class _Field(NamedTuple):
    """A partition field whose transform may overflow."""

    position: int
    column: str
    partition_type: JavaType
    ordered: OrderedRange


def ordered_range(kind: str, transform: str) -> OrderedRange | None:
    """The range in which a transform keeps the order of its values; None if it always does.

    Args:
        kind: The type of the column, as Iceberg writes it.
        transform: The transform, as Iceberg writes it.

    Examples:
        >>> truncated = ordered_range("int", "truncate[10]")
        >>> truncated.values[0], truncated.partitions[1]
        (-2147483640, 2147483645)
        >>> ordered_range("int", "truncate[16]"), ordered_range("timestamp", "day")
        (None, None)
    """
    if kind in ("timestamp", "timestamptz") and transform == "hour":
        hours = 1 << 31  # the hour is stored as an int, which overflows at this number
        # The hour of the largest timestamp, which overflows to an hour before 1970.
        overflowed = LONGS[1] // MICROS_PER_HOUR - 2 * hours
        return OrderedRange((-hours * MICROS_PER_HOUR, hours * MICROS_PER_HOUR - 1), (overflowed + 1, -overflowed - 2))
    width = re.fullmatch(r"truncate\[(\d+)\]", transform)
    if width is None or kind not in ("int", "long"):
        return None
    size, value_count = int(width[1]), 1 << (32 if kind == "int" else 64)
    low = -value_count // 2
    if 2 * size - 1 >= -low:  # Java adds the width to a remainder, and this sum overflows
        return NEVER_ORDERED
    first = -(-low // size) * size  # the smallest multiple of the width
    if first == low:
        return None
    # The last value and the first partition are unlimited: a long column may have partitions from when it was an int.
    return OrderedRange((first, LONGS[1]), (LONGS[0], first - size + value_count - 1))


def unordered_columns(table: JavaTable, snapshots: Iterable[JavaSnapshot], *, added: bool = False) -> frozenset[str]:
    """The columns whose partitions in these snapshots may not be in the order of their values.

    Args:
        added: Whether to look only at the manifests that each snapshot has added.
    """
    fields = {spec: fields for spec, fields in _fields(table) if fields}
    if not fields:
        return frozenset()
    uuid, schema = str(table.uuid()), int(table.schema().schemaId())
    columns: set[str] = set()
    for snapshot in snapshots:
        key = (uuid, schema, int(snapshot.snapshotId()), added)
        if key not in _CACHE:
            if len(_CACHE) >= MAX_CACHED:
                _CACHE.clear()
            _CACHE[key] = frozenset(
                field.column
                for manifest in listed(snapshot.dataManifests(table.io()))
                if not added or manifest.snapshotId() == snapshot.snapshotId()
                for field in fields.get(int(manifest.partitionSpecId()), ())
                if not _is_in_order(manifest, field)
            )
        columns |= _CACHE[key]
    return frozenset(columns)


def ordered_ranges(table: JavaTable) -> Mapping[str, list[OrderedRange]]:
    """The ranges of each column whose transforms may overflow; the partitions of other columns are always in order."""
    ranges: dict[str, list[OrderedRange]] = {}
    for _, fields in _fields(table):
        for field in fields:
            ranges.setdefault(field.column, []).append(field.ordered)
    return ranges


def _fields(table: JavaTable) -> Iterator[tuple[int, Sequence[_Field]]]:
    """Yields the id of each partition spec, and those of its fields that may overflow.

    A field is listed once for each type that its column has had.
    """
    schema = table.schema()
    for spec in table.specs().values():
        fields = []
        for position, field in enumerate(listed(spec.fields())):
            transform, source = str(field.transform().toString()), int(field.sourceId())
            column = schema.findField(source) if transform == "hour" or transform.startswith("truncate") else None
            if column is None:  # the transform keeps the order, or the column was dropped and no predicate names it
                continue
            partition_type = spec.partitionType().fields().get(position).type()
            name = str(schema.findColumnName(source))
            columns = (schema.findField(source) for schema in table.schemas().values())
            kinds = {str(column.type()) for column in columns if column is not None}
            ranges = (ordered_range(kind, transform) for kind in kinds)
            fields += [_Field(position, name, partition_type, ordered) for ordered in ranges if ordered is not None]
        yield int(spec.specId()), fields


def _is_in_order(manifest: JavaManifestFile, field: _Field) -> bool:
    """True if a manifest has no partition in which an overflowed value may lie."""
    summaries = manifest.partitions()
    if summaries is None:  # some writers of format v1 leave the summaries out
        return False
    summary = summaries.get(field.position)
    value_of = classes().org.apache.iceberg.types.Conversions.fromByteBuffer
    bounds = [bound for bound in (summary.lowerBound(), summary.upperBound()) if bound is not None]
    first, last = field.ordered.partitions
    return all(first <= int(value_of(field.partition_type, bound)) <= last for bound in bounds)


def without_order(expression: JavaExpression, columns: frozenset[str]) -> JavaExpression:
    """The expression, but each comparison by order of one of these columns is replaced by true.

    Args:
        expression: An expression without NOT.
    """
    expressions, operator = classes().org.apache.iceberg.expressions.Expressions, str(expression.op())
    if operator in ("AND", "OR"):
        junction = cast("JavaJunction", expression)
        sides = without_order(junction.left(), columns), without_order(junction.right(), columns)
        return getattr(expressions, operator.lower())(*sides)  # type: ignore[no-any-return]
    if operator not in ORDERED:
        return expression
    name = str(cast("JavaPredicate", expression).ref().name()).lower()
    return expressions.alwaysTrue() if name in {column.lower() for column in columns} else expression


def compares_by_order(expression: JavaExpression, columns: Iterable[str]) -> bool:
    """True if an expression without NOT compares one of these columns by order."""
    operator = str(expression.op())
    if operator in ("AND", "OR"):
        junction = cast("JavaJunction", expression)
        return compares_by_order(junction.left(), columns) or compares_by_order(junction.right(), columns)
    if operator not in ORDERED:
        return False
    return str(cast("JavaPredicate", expression).ref().name()).lower() in {column.lower() for column in columns}
