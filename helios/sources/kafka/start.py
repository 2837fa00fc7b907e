"""The declared start of a Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from helios.errors import DeclarationError, near_miss
from helios.model.values import caller

Offsets: TypeAlias = "Mapping[int, int] | Mapping[str, Mapping[int, int]]"
Start: TypeAlias = 'Literal["earliest", "latest"] | str | datetime | Offsets'
OffsetsByTopic: TypeAlias = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""Pairs of a topic and its offsets; the offsets are pairs of a partition and an offset.

The topic is "" if the user gives offsets without a topic, for the only topic.
"""


def checked_start(at: Start) -> str | datetime | OffsetsByTopic:
    """Returns a declared start, if it is valid. A time is converted to UTC.

    Raises:
        DeclarationError: The value is not a start.
    """
    if isinstance(at, Mapping):
        return _offsets(at)
    if at in ("earliest", "latest"):
        return at
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
        if not isinstance(moment, datetime):
            raise TypeError
    except (ValueError, TypeError):
        hint = near_miss(at, ("earliest", "latest")) if isinstance(at, str) else ""
        raise DeclarationError(
            f"start({at!r}) is not a starting point. {hint}".rstrip(),
            where=caller(),
            fix='give "earliest", "latest", a time ("2026-01-01T00:00:00Z") or offsets ({0: 15, 1: 20}).',
        ) from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _offsets(given: Mapping[Any, Any]) -> OffsetsByTopic:
    """Returns declared offsets by topic, if they are valid."""
    of_one_topic = all(isinstance(key, int) for key in given)
    topics = {"": given} if of_one_topic else given
    by_topic: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    for topic, offsets in sorted(topics.items(), key=lambda item: str(item[0])):
        pairs = list(offsets.items()) if isinstance(offsets, Mapping) else []
        numbers = [number for pair in pairs for number in pair]
        valid = all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
        if not pairs or not valid or not isinstance(topic, str):
            raise DeclarationError(
                f"start({given!r}): each partition needs an offset, a whole number from 0 on.",
                where=caller(),
                fix='write {0: 15, 1: 20}, or for several topics {"orders": {0: 15}, "payments": {0: 7}}.',
            )
        by_topic.append((topic, tuple(sorted(pairs))))
    return tuple(by_topic)
