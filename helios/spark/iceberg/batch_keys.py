"""The keys of a batch as an Iceberg expression, which is true for a row with one of these keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression

Key = tuple[object, ...]
UNREADABLE = "\ufffd"
"""The replacement character for bytes that are not UTF-8. A key that contains it has lost its original bytes."""


class BatchKeys:
    """The keys of a batch, collected on first use.

    Args:
        columns: The key columns, as the target names them; empty if Iceberg cannot compare all of them.
        collect: Returns the keys as tuples of these columns' values; None if there are too many.
        within: The range of the keys: a file that cannot match it contains no key of the batch.
    """

    def __init__(
        self, columns: Sequence[str], collect: Callable[[], Sequence[Key] | None], within: JavaExpression
    ) -> None:
        self.columns = columns
        self.within = within
        self._collect = collect

    @cached_property
    def expression(self) -> JavaExpression | None:
        """The expression that matches exactly the rows with a key of the batch; None if Iceberg cannot express it."""
        keys = self._collect() if self.columns else None
        if not keys or any(isinstance(value, str) and UNREADABLE in value for key in keys for value in key):
            return None
        make = classes().org.apache.iceberg.expressions
        has_key: JavaExpression = make.ExpressionParser.fromJson(json.dumps(one_of(self.columns, keys)))
        return getattr(make.Expressions, "and")(self.within, has_key)  # type: ignore[no-any-return]


def one_of(columns: Sequence[str], keys: Iterable[Key]) -> dict[str, object]:
    """An expression in Iceberg's JSON that is true for rows with one of the keys.

    Args:
        columns: The key columns.
        keys: The keys, each with a value for every column.

    Examples:
        >>> one_of(["id"], [(7,), (8,)])
        {'type': 'in', 'term': 'id', 'values': [7, 8]}
    """
    distinct = list(dict.fromkeys(keys))
    conditions: list[dict[str, object]] = [
        {"type": "in", "term": name, "values": list(dict.fromkeys(values))}
        for name, values in zip(columns, zip(*distinct, strict=True), strict=True)
    ]
    if len(columns) > 1:  # Iceberg evaluates this long condition only for rows that meet the ones before it
        conditions.append(_joined("or", [_equal(columns, key) for key in distinct]))
    return _joined("and", conditions)


def _equal(columns: Sequence[str], key: Key) -> dict[str, object]:
    pairs = zip(columns, key, strict=True)
    return _joined("and", [{"type": "eq", "term": name, "value": value} for name, value in pairs])


def _joined(kind: str, parts: Sequence[dict[str, object]]) -> dict[str, object]:
    """Parts joined as a balanced tree: Iceberg walks an expression by recursion, so it must not be deep."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return {"type": kind, "left": _joined(kind, parts[:half]), "right": _joined(kind, parts[half:])}
