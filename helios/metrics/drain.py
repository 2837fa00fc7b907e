"""How long a backlog takes to drain, by the rate at which it shrinks."""

from __future__ import annotations

import threading
from collections import deque

WINDOW_SECONDS = 300.0
"""Seconds from which the end of a backlog is estimated."""


class Drain:
    """What waits for a pipeline at some moments, new arrivals included; added by one thread and read by others.

    Examples:
        >>> drain = Drain()
        >>> for second, waits in ((0.0, 1000), (10.0, 800), (20.0, 600)):
        ...     drain.add(second, waits)
        >>> drain.estimate()
        (30.0, False)
        >>> drain.seconds_left(20.0), drain.seconds_left(25.0)
        (30.0, 25.0)
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, now: float, amount: int) -> None:
        """Takes how much waits at a moment; a moment that is known already is left out.

        Args:
            now: The time, in seconds of one clock.
            amount: Records, files, bytes or snapshots, always the same unit.
        """
        with self._lock:
            if not self._samples or self._samples[-1][0] < now:
                self._samples.append((now, amount))
            while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
                self._samples.popleft()

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
            samples = list(self._samples)
        if not samples or samples[-1][1] == 0:
            return (0.0 if samples else None), False
        # The highest point is where it began to shrink.
        peak = max(range(len(samples)), key=lambda index: (samples[index][1], index))
        peak_time, peak_amount = samples[peak]
        last_time, last_amount = samples[-1]
        if last_time > peak_time and peak_amount > last_amount:
            return last_amount * (last_time - peak_time) / (peak_amount - last_amount), False
        return None, last_amount > samples[0][1]

    def seconds_left(self, now: float) -> float | None:
        """The seconds from now until nothing waits; None while nothing waits, or if that is not known."""
        seconds, _grows = self.estimate()
        return max(0.0, seconds - (now - self._samples[-1][0])) if seconds else None
