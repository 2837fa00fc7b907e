"""The keys of a batch as an Iceberg expression, which matches the rows that have one of these keys."""

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
        collect: Returns each key as a tuple of the values of these columns; None if there are too many keys.
        bounds: The range of the keys, as an expression. A file that cannot match it contains no key of the batch.
    """

    def __init__(
        self, columns: Sequence[str], collect: Callable[[], Sequence[Key] | None], bounds: JavaExpression
    ) -> None:
        self.columns = columns
        self.bounds = bounds
        self._collect = collect

    @cached_property
    def expression(self) -> JavaExpression | None:
        """An expression that matches exactly the rows with a key of the batch.

        It is None if there are too many keys or no key, or if Iceberg cannot express one of them.
        """
        keys = self._collect() if self.columns else None
        if not keys or any(isinstance(value, str) and UNREADABLE in value for key in keys for value in key):
            return None
        expressions = classes().org.apache.iceberg.expressions
        has_key: JavaExpression = expressions.ExpressionParser.fromJson(json.dumps(one_of(self.columns, keys)))
        return getattr(expressions.Expressions, "and")(self.bounds, has_key)  # type: ignore[no-any-return]


def one_of(columns: Sequence[str], keys: Iterable[Key]) -> dict[str, object]:
    """An expression in Iceberg's JSON format that matches the rows with one of the keys.

    Examples:
        >>> one_of(["id"], [(7,), (8,)])
        {'type': 'in', 'term': 'id', 'values': [7, 8]}
    """
    distinct = list(dict.fromkeys(keys))
    conditions: list[dict[str, object]] = [
        {"type": "in", "term": name, "values": list(dict.fromkeys(values))}
        for name, values in zip(columns, zip(*distinct, strict=True), strict=True)
    ]
    if len(columns) > 1:  # Iceberg evaluates this long condition only if a row meets the short ones before it
        conditions.append(_joined("or", [_equal(columns, key) for key in distinct]))
    return _joined("and", conditions)


def _equal(columns: Sequence[str], key: Key) -> dict[str, object]:
    pairs = zip(columns, key, strict=True)
    return _joined("and", [{"type": "eq", "term": name, "value": value} for name, value in pairs])


def _joined(operator: str, operands: Sequence[dict[str, object]]) -> dict[str, object]:
    """Joins expressions into a balanced tree. Iceberg walks it by recursion, so the tree must not be deep."""
    if len(operands) == 1:
        return operands[0]
    half = len(operands) // 2
    return {"type": operator, "left": _joined(operator, operands[:half]), "right": _joined(operator, operands[half:])}
