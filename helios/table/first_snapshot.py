"""Tells whether a snapshot without a parent id is the first of its table, or has lost an expired parent.

Iceberg's own expiry keeps the id of an expired parent. PyIceberg's expiry removes it.
"""

from __future__ import annotations

from collections.abc import Callable


def has_earlier_rows(sequence: int, summary: Callable[[str], str | None]) -> bool:
    """Whether a snapshot without a parent id may have rows of expired snapshots, or has removed such rows.

    Without totals in the summary, only sequence number 1 speaks against it. Some engines write no totals.

    Args:
        sequence: The snapshot's sequence number; 0 in format v1, whose snapshots have none.
        summary: Returns an entry of the snapshot's summary; None if the summary lacks the entry.

    Examples:
        >>> has_earlier_rows(1, {"added-records": "2", "total-records": "2"}.get)
        False
        >>> has_earlier_rows(1, {"added-records": "2", "total-records": "3"}.get)
        True
        >>> has_earlier_rows(1, {}.get), has_earlier_rows(2, {}.get)
        (False, True)
    """
    total, added = summary("total-records"), summary("added-records")
    if total is None or (added is None and total != "0"):
        return sequence != 1
    removes = any(summary(key) not in (None, "0") for key in ("deleted-data-files", "deleted-records"))
    return removes or total != (added or "0")


def is_first(sequence: int, summary: Callable[[str], str | None]) -> bool:
    """Whether a snapshot without a parent id is surely the first of its table; the arguments are as above.

    A table that was upgraded from format v1 has earlier snapshots than the one with sequence number 1: their rows are
    part of the total.
    """
    return sequence <= 1 and not has_earlier_rows(sequence, summary)
