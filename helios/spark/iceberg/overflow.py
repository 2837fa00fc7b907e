"""Partitions that are not in the order of their values, because a transform has overflowed.

Iceberg's `truncate` of the smallest ints and longs gives the largest ones. Its `hour` of a time some 245,000 years
after 1970 lies before 1970, and vice versa. For `id < 100` Iceberg then leaves out the partition of the
smallest ids, and for `id > 100` it takes each row of that partition as a match.
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
"""The predicates that compare by order. An overflow does not harm other predicates: equal values have equal
partitions."""


class Ordered(NamedTuple):
    """The range in which a transform keeps the order of its values.

    Attributes:
        values: The first and the last value whose partition is in order; for times, microseconds since 1970.
        partitions: The first and the last partition in which no overflowed value can lie.
    """

    values: tuple[int, int]
    partitions: tuple[int, int]

    def holds(self, value: object) -> bool:
        """True if the partition of a value is in order. A time may also be ISO 8601 text."""
        if isinstance(value, str):  # in ISO 8601 a year of more than four digits has a sign
            return re.match(r"\d{4}-", value) is not None
        return isinstance(value, int) and self.values[0] <= value <= self.values[1]


NOWHERE = Ordered((1, 0), (1, 0))
"""Two empty ranges: the transform may overflow for any value."""
MOST_CACHED = 10_000
_CACHE: dict[tuple[str, int, int, bool], frozenset[str]] = {}
"""The results of `unordered` by table, schema, snapshot and `added`: a joined table is read in each batch, and each
manifest takes some calls of the JVM."""
LONGS = (-(1 << 63), (1 << 63) - 1)
"""The smallest and the largest long."""


class _Field(NamedTuple):
    """A partition field whose transform may overflow."""

    position: int
    column: str
    kind: JavaType
    order: Ordered


def ordered(kind: str, transform: str) -> Ordered | None:
    """The range in which a transform keeps the order of its values; None if it always does.

    Args:
        kind: The type of the column, as Iceberg writes it.
        transform: The transform, as Iceberg writes it.

    Examples:
        >>> ordered("int", "truncate[10]").values[0], ordered("int", "truncate[10]").partitions[1]
        (-2147483640, 2147483645)
        >>> ordered("int", "truncate[16]"), ordered("timestamp", "day")
        (None, None)
    """
    if kind in ("timestamp", "timestamptz") and transform == "hour":
        most = 1 << 31  # the hours are stored as an int
        # The hour of the largest timestamp: it overflows, to an hour before 1970.
        overflowed = LONGS[1] // MICROS_PER_HOUR - 2 * most
        return Ordered((-most * MICROS_PER_HOUR, most * MICROS_PER_HOUR - 1), (overflowed + 1, -overflowed - 2))
    width = re.fullmatch(r"truncate\[(\d+)\]", transform)
    if width is None or kind not in ("int", "long"):
        return None
    size, values = int(width[1]), 1 << (32 if kind == "int" else 64)
    low = -values // 2
    if 2 * size - 1 >= -low:  # Java adds a remainder and the width, and this sum overflows
        return NOWHERE
    first = -(-low // size) * size  # the smallest multiple of the width
    if first == low:
        return None
    # The last value and the first partition have no bound: a long column may have partitions from when it was an int.
    return Ordered((first, LONGS[1]), (LONGS[0], first - size + values - 1))


def unordered(table: JavaTable, snapshots: Iterable[JavaSnapshot], *, added: bool = False) -> frozenset[str]:
    """The columns whose partitions in these snapshots may not be in the order of their values.

    Args:
        table: The table.
        snapshots: The snapshots.
        added: Whether to look only at the files that each snapshot has added.
    """
    fields = {spec: fields for spec, fields in _fields(table) if fields}
    if not fields:
        return frozenset()
    uuid, schema = str(table.uuid()), int(table.schema().schemaId())
    columns: set[str] = set()
    for snapshot in snapshots:
        key = (uuid, schema, int(snapshot.snapshotId()), added)
        if key not in _CACHE:
            if len(_CACHE) >= MOST_CACHED:
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


def bounded(table: JavaTable) -> Mapping[str, list[Ordered]]:
    """The ranges in which the partitions of a column are in order, by column; other columns are always in order."""
    orders: dict[str, list[Ordered]] = {}
    for _, fields in _fields(table):
        for field in fields:
            orders.setdefault(field.column, []).append(field.order)
    return orders


def _fields(table: JavaTable) -> Iterator[tuple[int, Sequence[_Field]]]:
    """The id of each partition spec, and its fields that may overflow: one for each type that a column has had."""
    schema = table.schema()
    for spec in table.specs().values():
        fields = []
        for position, field in enumerate(listed(spec.fields())):
            transform, source = str(field.transform().toString()), int(field.sourceId())
            column = schema.findField(source) if transform == "hour" or transform.startswith("truncate") else None
            if column is None:  # the transform keeps the order, or the column was dropped and no predicate names it
                continue
            partition = spec.partitionType().fields().get(position).type()
            name = str(schema.findColumnName(source))
            columns = (schema.findField(source) for schema in table.schemas().values())
            kinds = {str(column.type()) for column in columns if column is not None}
            orders = (ordered(kind, transform) for kind in kinds)
            fields += [_Field(position, name, partition, order) for order in orders if order is not None]
        yield int(spec.specId()), fields


def _is_in_order(manifest: JavaManifestFile, field: _Field) -> bool:
    """True if a manifest has no partition in which an overflowed value may lie."""
    summaries = manifest.partitions()
    if summaries is None:  # some writers of format v1 leave the summaries out
        return False
    summary = summaries.get(field.position)
    value_of = classes().org.apache.iceberg.types.Conversions.fromByteBuffer
    ends = [int(value_of(field.kind, end)) for end in (summary.lowerBound(), summary.upperBound()) if end is not None]
    first, last = field.order.partitions
    return all(first <= end <= last for end in ends)


def without_order(expression: JavaExpression, columns: frozenset[str]) -> JavaExpression:
    """An expression with true in place of each comparison by order of one of these columns; it must have no NOT."""
    make, kind = classes().org.apache.iceberg.expressions.Expressions, str(expression.op())
    if kind in ("AND", "OR"):
        both = cast("JavaJunction", expression)
        sides = without_order(both.left(), columns), without_order(both.right(), columns)
        return getattr(make, kind.lower())(*sides)  # type: ignore[no-any-return]
    if kind not in ORDERED:
        return expression
    name = str(cast("JavaPredicate", expression).ref().name()).lower()
    return make.alwaysTrue() if name in {column.lower() for column in columns} else expression


def compares_by_order(expression: JavaExpression, columns: Iterable[str]) -> bool:
    """True if an expression without NOT compares one of these columns by order."""
    kind = str(expression.op())
    if kind in ("AND", "OR"):
        both = cast("JavaJunction", expression)
        return compares_by_order(both.left(), columns) or compares_by_order(both.right(), columns)
    if kind not in ORDERED:
        return False
    return str(cast("JavaPredicate", expression).ref().name()).lower() in {column.lower() for column in columns}
