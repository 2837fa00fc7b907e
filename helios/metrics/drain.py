"""How long a backlog takes to drain, by the rate at which it shrinks."""

from __future__ import annotations

import threading
from collections import deque

LOOKED_BACK = 300.0
"""Seconds from which the end of a backlog is estimated."""


class Drain:
    """What waits for a pipeline at some moments, new arrivals included; added by one thread and read by others.

    Examples:
        >>> drain = Drain()
        >>> for second, waits in ((0.0, 1000), (10.0, 800), (20.0, 600)):
        ...     drain.add(second, waits)
        >>> drain.estimate()
        (30.0, False)
        >>> drain.left(20.0), drain.left(25.0)
        (30.0, 25.0)
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, now: float, amount: int) -> None:
        """Takes how much waits at a moment; a moment that is known already is left out.

        Args:
            now: The time, in seconds of one clock.
            amount: Records, files, bytes or snapshots, always the same unit.
        """
        with self._lock:
            if not self._waiting or self._waiting[-1][0] < now:
                self._waiting.append((now, amount))
            while len(self._waiting) > 2 and self._waiting[1][0] <= now - LOOKED_BACK:
                self._waiting.popleft()

    def estimate(self) -> tuple[float | None, bool]:
        """Seconds from the last moment until nothing waits, None if that is not known; and whether the backlog grows.

        Examples:
            >>> drain = Drain()
            >>> drain.estimate()
            (None, False)
            >>> drain.add(0.0, 5)
            >>> drain.add(10.0, 9)
            >>> drain.estimate()
            (None, True)
            >>> drain.add(20.0, 0)
            >>> drain.estimate()
            (0.0, False)
        """
        with self._lock:
            waiting = list(self._waiting)
        if not waiting or waiting[-1][1] == 0:
            return (0.0 if waiting else None), False
        # The highest point is where it began to shrink.
        most = max(range(len(waiting)), key=lambda index: (waiting[index][1], index))
        since, amount = waiting[most]
        last, left = waiting[-1]
        if last > since and amount > left:
            return left * (last - since) / (amount - left), False
        return None, left > waiting[0][1]

    def left(self, now: float) -> float | None:
        """The seconds from now until nothing waits; None while nothing waits, or if that is not known."""
        seconds, _grows = self.estimate()
        return max(0.0, seconds - (now - self._waiting[-1][0])) if seconds else None
