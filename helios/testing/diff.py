"""Shows the difference between two multisets of rows as text, by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from helios.errors import HeliosError

MAX_LINES = 10
"""The maximum number of rows of each kind (changed, missing, extra) that a difference shows."""

Row = tuple[Any, ...]


class Different(AssertionError):
    """A test's failure: a table or a text is not as expected; the message shows the difference."""


class _Raised(Protocol):
    value: BaseException


def hidden(info: _Raised) -> bool:
    """True if pytest hides the frames of this package, so that a failed test shows its own line.

    The frames are shown for other exceptions, which are bugs of this package.

    Args:
        info: The exception, as pytest passes it to the `__tracebackhide__` of a frame.
    """
    return isinstance(info.value, (Different, HeliosError))


@dataclass(frozen=True)
class Words:
    """The words for the two sides of a difference.

    Attributes:
        changed: The words for a changed value; {0} is the actual value, {1} the expected one.
        missing: The word for rows that only the expected side has.
        extra: The word for rows that only the actual side has.
        counts: The words for a row that the actual side has {0} times, and the expected side {1} times.
    """

    changed: str = "is {0}, expected {1}"
    missing: str = "missing"
    extra: str = "not expected"
    counts: str = "{0} times, expected {1}"


EXPECTED = Words()
WAY_WORDS = Words(
    changed="is {0} in this way, {1} in the first",
    missing="only in the first way",
    extra="only in this way",
    counts="{0} times in this way, {1} in the first",
)
"""The words of `helios.testing.invariant`, which runs a pipeline in several ways."""


def difference(
    expected: Sequence[Row],
    actual: Sequence[Row],
    columns: Sequence[str],
    keys: Sequence[str] = (),
    words: Words = EXPECTED,
) -> list[str]:
    """The lines that show how two multisets of rows differ; empty if they are equal.

    Args:
        expected: Rows as tuples in the order of the columns.
        keys: The key columns; by default the first column with distinct values.

    Examples:
        >>> for line in difference([("ann", 12.5), ("bob", 3)], [("ann", 12.0)], ["customer", "total"]):
        ...     print(line)
        customer='ann': total is 12.0, expected 12.5
        missing: customer='bob', total=3
    """
    expected_counts, actual_counts = Counter(expected), Counter(actual)
    missing, extra = expected_counts - actual_counts, actual_counts - expected_counts
    if not missing and not extra:
        return []
    key_positions = _key_positions(columns, keys, missing, extra)
    changed: list[str] = []
    if key_positions:
        missing_by_key, extra_by_key = _by_key(missing, key_positions), _by_key(extra, key_positions)
        for key in sorted(missing_by_key.keys() & extra_by_key.keys(), key=_sort_key):
            if len(missing_by_key[key]) == len(extra_by_key[key]) == 1:
                old, new = missing_by_key[key][0], extra_by_key[key][0]
                changed.append(_changed(old, new, columns, key_positions, words))
                missing[old] -= 1
                extra[new] -= 1
    # The unary plus drops rows whose count is now zero.
    return [
        *_first_lines(changed),
        *_first_lines(_listed(words.missing, +missing, expected_counts, actual_counts, columns, counts=words.counts)),
        *_first_lines(_listed(words.extra, +extra, expected_counts, actual_counts, columns, counts=words.counts)),
    ]


def _key_positions(
    columns: Sequence[str], keys: Sequence[str], missing: Counter[Row], extra: Counter[Row]
) -> list[int]:
    """The positions of the key columns; without keys, the position of the first column that is unique on both sides."""
    lowered = [name.lower() for name in columns]
    if keys and all(key.lower() in lowered for key in keys):
        return [lowered.index(key.lower()) for key in keys]
    if len(columns) == 1:  # the key would be the whole row
        return []
    for position in range(len(columns)):
        sides = [[row[position] for row in side.elements()] for side in (missing, extra)]
        if all(len(set(map(repr, values))) == len(values) and None not in values for values in sides):
            return [position]
    return []


def _by_key(rows: Counter[Row], key_positions: Sequence[int]) -> dict[Row, list[Row]]:
    grouped: dict[Row, list[Row]] = {}
    for row in rows.elements():
        grouped.setdefault(tuple(row[position] for position in key_positions), []).append(row)
    return grouped


def _changed(old: Row, new: Row, columns: Sequence[str], key_positions: Sequence[int], words: Words) -> str:
    key = ", ".join(f"{columns[position]}={shown(old[position])}" for position in key_positions)
    changes = [
        f"{name} {words.changed.format(shown(actual), shown(expected))}"
        for name, expected, actual in zip(columns, old, new, strict=True)
        if expected != actual
    ]
    return f"{key}: {'; '.join(changes)}"


def _listed(
    label: str,
    rows: Counter[Row],
    expected: Counter[Row],
    actual: Counter[Row],
    columns: Sequence[str],
    *,
    counts: str,
) -> list[str]:
    lines = []
    for row in sorted(rows, key=_sort_key):
        values = ", ".join(f"{name}={shown(value)}" for name, value in zip(columns, row, strict=True))
        times = f" ({rows[row]} times)" if rows[row] > 1 else ""
        if expected[row] and actual[row]:
            times = f" ({counts.format(actual[row], expected[row])})"
        lines.append(f"{label}: {values}{times}")
    return lines


def _first_lines(lines: list[str]) -> list[str]:
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"... and {more} more"] if more > 0 else lines


def _sort_key(row: Row) -> list[tuple[bool, str, Any]]:
    """The sort key of a row whose values may be of several types."""
    return [(value is not None, type(value).__name__, value if _sortable(value) else repr(value)) for value in row]


def _sortable(value: Any) -> bool:
    return isinstance(value, int | float | str)


def shown(value: Any) -> str:
    """The text of a value in a difference: times in ISO format, decimals as numbers."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return repr(value) if isinstance(value, str | bytes | tuple) or value is None else str(value)
