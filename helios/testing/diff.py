"""Two multisets of rows, and how they differ, by key and for a reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHOWN = 10
"""How many rows of each kind a difference shows."""

Row = tuple[Any, ...]


class Different(AssertionError):
    """A table that is not as a test expects it; the text names the rows."""


@dataclass(frozen=True)
class Words:
    """How the two sides are called.

    Attributes:
        changed: What is said of a value: "is {0}, expected {1}", of the actual and the expected one.
        missing: What rows are that only the expected side has.
        extra: What rows are that only the actual side has.
    """

    changed: str = "is {0}, expected {1}"
    missing: str = "missing"
    extra: str = "not expected"


EXPECTED = Words()
WAYS = Words("is {0} in this way, {1} in the first", "only in the first way", "only in this way")


def difference(
    expected: Sequence[Row],
    actual: Sequence[Row],
    columns: Sequence[str],
    keys: Sequence[str] = (),
    words: Words = EXPECTED,
) -> list[str]:
    """The lines that tell how two multisets of rows differ; none where they are the same.

    Args:
        expected: Rows, as tuples in the order of the columns.
        actual: The same.
        columns: The columns.
        keys: Those by which rows are told apart; by default the first one whose values do.
        words: How the two sides are called.

    Examples:
        >>> for line in difference([("ann", 12.5), ("bob", 3)], [("ann", 12.0)], ["customer", "total"]):
        ...     print(line)
        customer='ann': total is 12.0, expected 12.5
        missing: customer='bob', total=3
    """
    wanted, found = Counter(expected), Counter(actual)
    lacking, extra = wanted - found, found - wanted
    if not lacking and not extra:
        return []
    by = _key_of(columns, keys, lacking, extra)
    changed: list[str] = []
    left, right = _by_key(lacking, by), _by_key(extra, by)
    for key in sorted(left.keys() & right.keys(), key=_order) if by else ():
        if len(left[key]) == len(right[key]) == 1:
            row, other = left[key][0], right[key][0]
            changed.append(_changed(row, other, columns, by, words))
            lacking[row] -= 1
            extra[other] -= 1
    return [
        *_some(changed),
        *_some(_named(words.missing, +lacking, wanted, found, columns)),
        *_some(_named(words.extra, +extra, wanted, found, columns)),
    ]


def _key_of(columns: Sequence[str], keys: Sequence[str], lacking: Counter[Row], extra: Counter[Row]) -> list[int]:
    """The places of the key columns; none where nothing tells rows apart."""
    lowered = [name.lower() for name in columns]
    if keys and all(key.lower() in lowered for key in keys):
        return [lowered.index(key.lower()) for key in keys]
    for place in range(len(columns) if len(columns) > 1 else 0):
        sides = [[row[place] for row in side.elements()] for side in (lacking, extra)]
        if all(len(set(map(repr, values))) == len(values) and None not in values for values in sides):
            return [place]
    return []


def _by_key(rows: Counter[Row], by: Sequence[int]) -> dict[Row, list[Row]]:
    found: dict[Row, list[Row]] = {}
    for row in rows.elements():
        found.setdefault(tuple(row[place] for place in by), []).append(row)
    return found


def _changed(row: Row, other: Row, columns: Sequence[str], by: Sequence[int], words: Words) -> str:
    key = ", ".join(f"{columns[place]}={shown(row[place])}" for place in by)
    told = [
        f"{name} {words.changed.format(shown(actual), shown(expected))}"
        for name, expected, actual in zip(columns, row, other, strict=True)
        if expected != actual
    ]
    return f"{key}: {'; '.join(told)}"


def _named(
    what: str, rows: Counter[Row], wanted: Counter[Row], found: Counter[Row], columns: Sequence[str]
) -> list[str]:
    lines = []
    for row in sorted(rows, key=_order):
        values = ", ".join(f"{name}={shown(value)}" for name, value in zip(columns, row, strict=True))
        times = f" ({rows[row]} times)" if rows[row] > 1 else ""
        if wanted[row] and found[row]:
            times = f" ({found[row]} of it, and not {wanted[row]})"
        lines.append(f"{what}: {values}{times}")
    return lines


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"... and {more} more"] if more > 0 else [])]


def _order(row: Row) -> list[tuple[bool, str, Any]]:
    """An order of rows whose values may be of several types."""
    return [(value is not None, type(value).__name__, value if _sortable(value) else repr(value)) for value in row]


def _sortable(value: Any) -> bool:
    return isinstance(value, int | float | str)


def shown(value: Any) -> str:
    """A value as a difference shows it: times as ISO text, decimals as numbers."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return repr(value) if isinstance(value, str | bytes | tuple) or value is None else str(value)
