"""Keeps the newest entries of the timeline. Entries are numbered, so that the page can ask for the new ones only."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from helios.ui.facts import TimelineEntry

MAX_ENTRIES = 1000
"""The maximum number of entries of all pipelines together."""


class Feed:
    """The newest timeline entries, oldest first.

    Examples:
        >>> feed = Feed()
        >>> feed.add([TimelineEntry(pipeline="p", table="a.t", kind="batch", at=0.0)])
        >>> [entry.number for entry in feed.after(0)], feed.after(1)
        ([1], [])
    """

    def __init__(self) -> None:
        self._entries: deque[TimelineEntry] = deque(maxlen=MAX_ENTRIES)
        self._lock = threading.Lock()
        self._last = 0

    def add(self, entries: Iterable[TimelineEntry]) -> None:
        with self._lock:
            for entry in entries:
                self._last += 1
                self._entries.append(replace(entry, number=self._last))

    def after(self, number: int) -> Sequence[TimelineEntry]:
        """The entries with a higher number, oldest first."""
        with self._lock:
            new = min(len(self._entries), self._last - number)
            return list(islice(self._entries, len(self._entries) - new, None)) if new > 0 else []
