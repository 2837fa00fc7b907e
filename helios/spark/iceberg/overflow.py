"""Partitions out of the order of their values, because a transform has overflowed.

Iceberg's `truncate` of the least ints and longs gives the greatest ones, and its `hour` of times some 245,000 years
from 1970 lies on their other side. By `id < 100` Iceberg then leaves out the partition of the least ids, and by
`id > 100` it takes each of its rows for a match.
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
"""The predicates that compare by order. Equal values have equal partitions, wherever these lie."""


class Ordered(NamedTuple):
    """Where a transform keeps the order of its values.

    Attributes:
        values: The first and the last value whose partition is where it belongs; of times in microseconds since 1970.
        partitions: The first and the last partition that no other value overflows into.
    """

    values: tuple[int, int]
    partitions: tuple[int, int]

    def holds(self, value: object) -> bool:
        """True if the partition of a value is in order. A time may also be ISO 8601 text."""
        if isinstance(value, str):  # ISO 8601 has a sign in front of a year of more than four digits
            return re.match(r"\d{4}-", value) is not None
        return isinstance(value, int) and self.values[0] <= value <= self.values[1]


NOWHERE = Ordered((1, 0), (1, 0))
MOST_LOOKED_AT = 10_000
_LOOKED_AT: dict[tuple[str, int, int, bool], frozenset[str]] = {}
"""A cache of `unordered` by snapshot and schema: a joined table is read in each batch, and a manifest takes
some calls of the JVM."""
LONGS = (-(1 << 63), (1 << 63) - 1)


def ordered(kind: str, transform: str) -> Ordered | None:
    """Where a transform keeps the order of its values; None where it always does.

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
        most = 1 << 31
        last = ((1 << 63) - 1) // MICROS_PER_HOUR - 2 * most  # of the last time there is, on the other side
        return Ordered((-most * MICROS_PER_HOUR, most * MICROS_PER_HOUR - 1), (last + 1, -last - 2))
    width = re.fullmatch(r"truncate\[(\d+)\]", transform)
    if width is None or kind not in ("int", "long"):
        return None
    size, range_of = int(width[1]), 1 << (32 if kind == "int" else 64)
    low = -range_of // 2
    if 2 * size - 1 >= -low:  # Java's own sum of a remainder and the width overflows
        return NOWHERE
    first = -(-low // size) * size
    # An int may be a long by now, whose partitions were made of ints.
    return Ordered((first, LONGS[1]), (LONGS[0], first - size + range_of - 1)) if first != low else None


def unordered(table: JavaTable, snapshots: Iterable[JavaSnapshot], *, added: bool = False) -> frozenset[str]:
    """The columns whose partitions in these snapshots may not be in the order of their values.

    Args:
        table: The table.
        snapshots: The snapshots.
        added: Whether only the files that each of them has added count.
    """
    fields = {spec: fields for spec, fields in _fields(table) if fields}
    if not fields:
        return frozenset()
    uuid, schema = str(table.uuid()), int(table.schema().schemaId())
    columns: set[str] = set()
    for snapshot in snapshots:
        key = (uuid, schema, int(snapshot.snapshotId()), added)
        if key not in _LOOKED_AT:
            if len(_LOOKED_AT) >= MOST_LOOKED_AT:
                _LOOKED_AT.clear()
            _LOOKED_AT[key] = frozenset(
                name
                for manifest in listed(snapshot.dataManifests(table.io()))
                if not added or manifest.snapshotId() == snapshot.snapshotId()
                for place, name, kind, known in fields.get(int(manifest.partitionSpecId()), ())
                if not _within(manifest, place, kind, known.partitions)
            )
        columns |= _LOOKED_AT[key]
    return frozenset(columns)


def bounded(table: JavaTable) -> Mapping[str, list[Ordered]]:
    """The ranges in which the partitions of each column are in order; without columns that always are."""
    orders: dict[str, list[Ordered]] = {}
    for _, fields in _fields(table):
        for _, name, _, known in fields:
            orders.setdefault(name, []).append(known)
    return orders


def _fields(table: JavaTable) -> Iterator[tuple[int, Sequence[tuple[int, str, JavaType, Ordered]]]]:
    """Of each partition spec the fields that may overflow: their place, column, and the type of the partition."""
    schema = table.schema()
    for spec in table.specs().values():
        fields = []
        for place, field in enumerate(listed(spec.fields())):
            transform, source = str(field.transform().toString()), int(field.sourceId())
            column = schema.findField(source) if transform == "hour" or transform.startswith("truncate") else None
            if column is None:  # always in order, or dropped, so that no predicate names it
                continue
            kinds = {
                str(then.type())
                for schema in table.schemas().values()
                if (then := schema.findField(source)) is not None
            }
            partition = spec.partitionType().fields().get(place).type()
            name = str(schema.findColumnName(source))
            fields += [
                (place, name, partition, known) for kind in kinds if (known := ordered(kind, transform)) is not None
            ]
        yield int(spec.specId()), fields


def _within(manifest: JavaManifestFile, place: int, kind: JavaType, partitions: tuple[int, int]) -> bool:
    """True if all partitions of a manifest lie where none has overflowed."""
    summaries = manifest.partitions()
    if summaries is None:  # as some writers of format v1 leave it
        return False
    summary, value_of = summaries.get(place), classes().org.apache.iceberg.types.Conversions.fromByteBuffer
    ends = [int(value_of(kind, end)) for end in (summary.lowerBound(), summary.upperBound()) if end is not None]
    return all(partitions[0] <= end <= partitions[1] for end in ends)


def without_order(expression: JavaExpression, columns: frozenset[str]) -> JavaExpression:
    """An expression without NOT, widened so that it asks for no order of these columns."""
    make, kind = classes().org.apache.iceberg.expressions.Expressions, str(expression.op())
    if kind in ("AND", "OR"):
        both = cast("JavaJunction", expression)
        sides = without_order(both.left(), columns), without_order(both.right(), columns)
        return getattr(make, kind.lower())(*sides)  # type: ignore[no-any-return]
    if kind not in ORDERED:
        return expression
    name = str(cast("JavaPredicate", expression).ref().name()).lower()
    return make.alwaysTrue() if name in {column.lower() for column in columns} else expression


def asks_for_order(expression: JavaExpression, columns: Iterable[str]) -> bool:
    """True if an expression without NOT compares one of these columns by order."""
    kind = str(expression.op())
    if kind in ("AND", "OR"):
        both = cast("JavaJunction", expression)
        return asks_for_order(both.left(), columns) or asks_for_order(both.right(), columns)
    if kind not in ORDERED:
        return False
    return str(cast("JavaPredicate", expression).ref().name()).lower() in {column.lower() for column in columns}
