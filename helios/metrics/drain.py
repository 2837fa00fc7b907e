"""Estimates how long a backlog takes to drain, from the rate at which it shrinks."""

from __future__ import annotations

import threading
from collections import deque

WINDOW_SECONDS = 300.0
"""The age, in seconds, of the oldest samples from which the time is estimated."""


class Drain:
    """Samples of a pipeline's backlog, and an estimate of the time until it is empty.

    New arrivals count too, since the estimate uses the rate at which the whole backlog shrinks. One thread adds
    samples, and other threads read the estimate.

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
        """Adds a sample: the size of the backlog at a moment. A sample that is not newer than the last one is ignored.

        Args:
            now: The time in seconds, always of the same clock.
            amount: The number of records, files, bytes or snapshots that wait, always in the same unit.
        """
        with self._lock:
            if not self._samples or self._samples[-1][0] < now:
                self._samples.append((now, amount))
            while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
                self._samples.popleft()

    def estimate(self) -> tuple[float | None, bool]:
        """The seconds from the last sample until the backlog is empty (None if unknown), and whether the backlog grows.

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
        # The rate is measured from the highest sample, because the backlog shrinks only after that.
        peak = max(range(len(samples)), key=lambda index: (samples[index][1], index))
        peak_time, peak_amount = samples[peak]
        last_time, last_amount = samples[-1]
        if last_time > peak_time and peak_amount > last_amount:
            return last_amount * (last_time - peak_time) / (peak_amount - last_amount), False
        return None, last_amount > samples[0][1]

    def seconds_left(self, now: float) -> float | None:
        """The seconds from now until the backlog is empty; None if it is empty already, or if the time is unknown."""
        seconds, _grows = self.estimate()
        return max(0.0, seconds - (now - self._samples[-1][0])) if seconds else None
