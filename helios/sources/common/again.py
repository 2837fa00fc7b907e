"""Looks up the rows of a key in the data that a batch has read: the result, and the comparison of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

MOST = 3
"""At most so many rows of one source are shown."""


@dataclass(frozen=True, kw_only=True)
class Again:
    """The rows of a key that a batch has read and that the source still has.

    Attributes:
        rows: The rows with the same values in some columns, at most `MOST`.
        count: The number of all such rows.
        by: The columns that were compared.
        places: The place of each row in `rows`, such as its file and line; empty if the source has no such places.
        note: Why no row can be moment, or why rows may be missing; None if none are missing.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    count: int = 0
    by: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    note: str | None = None


def has(payload: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """True if a row of a file or in JSON has the values of a key.

    Examples:
        >>> has({"Id": 7, "n": "7.50"}, {"id": 7, "n": Decimal("7.5")})
        True
        >>> has({"n": 7}, {"id": 7}), has({"id": 8}, {"id": 7})
        (False, False)
    """
    named = {name.lower(): value for name, value in payload.items()}
    return bool(key) and all(name.lower() in named and same(named[name.lower()], value) for name, value in key.items())


def same(written: Any, value: Any) -> bool:
    """True if a value of a file or of JSON, which may be text, equals a value of a table."""
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
