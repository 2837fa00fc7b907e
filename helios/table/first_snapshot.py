"""Tells whether a snapshot without a parent id is the first of its table, or has lost an expired parent.

Iceberg's own expiry keeps the id of an expired parent. PyIceberg's expiry removes it.
"""

from __future__ import annotations

from collections.abc import Callable


def adds_all_rows(summary: Callable[[str], str | None]) -> bool | None:
    """Whether a snapshot adds all rows of its state, and removes none; None if its summary does not tell.

    Args:
        summary: Returns an entry of the snapshot's summary; None if the summary lacks the entry.

    Examples:
        >>> adds_all_rows({"added-records": "2", "total-records": "2"}.get)
        True
        >>> adds_all_rows({"added-records": "2", "total-records": "3"}.get)
        False
        >>> adds_all_rows({}.get)
    """
    total, added = summary("total-records"), summary("added-records")
    if total is None or (added is None and total != "0"):
        return None
    removes = any(summary(key) not in (None, "0") for key in ("deleted-data-files", "deleted-records"))
    return not removes and total == (added or "0")


def has_earlier_rows(sequence: int, summary: Callable[[str], str | None]) -> bool:
    """Whether a snapshot without a parent id may have rows of expired snapshots.

    Without totals in the summary, only sequence number 1 speaks against it. Some engines write no totals.

    Args:
        sequence: The snapshot's sequence number; 0 in format v1.
        summary: As in `adds_all_rows`.
    """
    adds_all = adds_all_rows(summary)
    return sequence != 1 if adds_all is None else not adds_all


def is_first(sequence: int, summary: Callable[[str], str | None]) -> bool:
    """Whether a snapshot without a parent id is surely the first of its table.

    Args:
        sequence: The snapshot's sequence number; 0 in format v1, whose snapshots have none.
        summary: As in `adds_all_rows`. A table that was upgraded from format v1 has earlier snapshots than the one
            with sequence number 1: their rows are part of the total.
    """
    adds_all = adds_all_rows(summary)
    return sequence == 1 if adds_all is None else adds_all and sequence <= 1
