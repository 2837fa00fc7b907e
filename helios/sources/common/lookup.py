"""The result of looking up rows by key in the data that a batch has read, and the comparison of key values.

Each kind of source has its own look-up, such as `helios.sources.files.lookup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_ROWS = 10
"""The maximum number of rows of one source that are shown."""


@dataclass(frozen=True, kw_only=True)
class SourceLookup:
    """The rows with a given key that a batch has read and that the source still has.

    Attributes:
        rows: The first `MAX_ROWS` rows that have the values of the key in the columns `by`.
        count: The number of all such rows.
        by: The columns that were compared with the key.
        places: The location of each row in `rows`, such as its file and line; empty if the source has no locations.
        note: The reason why the rows cannot be looked up, or why some may be missing; None if the result is complete.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    count: int = 0
    by: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    note: str | None = None


def row_has_key(payload: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Returns True if a row, as read from a file or JSON, has the values of a key; names match without regard to case.

    Examples:
        >>> row_has_key({"Id": 7, "n": "7.50"}, {"id": 7, "n": Decimal("7.5")})
        True
        >>> row_has_key({"n": 7}, {"id": 7}), row_has_key({"id": 8}, {"id": 7})
        (False, False)
    """
    values_by_name = {name.lower(): value for name, value in payload.items()}
    wanted = {name.lower(): value for name, value in key.items()}
    return bool(key) and all(
        name in values_by_name and same_value(values_by_name[name], wanted[name]) for name in wanted
    )


def same_value(written: Any, value: Any) -> bool:
    """Returns True if a value from a file or from JSON, which may be text, equals a value from a table."""
    if written is None or value is None:
        return written is value is None
    if isinstance(written, bool) or isinstance(value, bool):
        return str(written).lower() == str(value).lower()
    if isinstance(value, (int, float, Decimal)) or isinstance(written, (int, float)):
        return _number(written) == _number(value)
    if isinstance(value, datetime):
        return _moment(written) == _moment(value)
    return str(written) == str(value)


def _number(value: Any) -> Decimal | str:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return str(value)


def _moment(value: Any) -> datetime | None:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
