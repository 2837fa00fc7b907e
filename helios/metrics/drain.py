"""How long a backlog takes to drain, by how fast it went down."""

from __future__ import annotations

from collections import deque

WINDOW = 300.0
"""Seconds of the past that the speed is measured over."""


class Drain:
    """Measures how fast what waits for a pipeline becomes less, new arrivals included.

    Examples:
        >>> drain = Drain()
        >>> for second, waits in ((0.0, 1000), (10.0, 800), (20.0, 600)):
        ...     drain.seen(waits, second)
        >>> drain.left(20.0), drain.left(25.0)
        (30.0, 25.0)
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def seen(self, waits: int, now: float) -> None:
        """Takes how much waits: records, bytes or snapshots, always the same unit.

        Args:
            waits: The amount.
            now: The time, in seconds of one monotonic clock.
        """
        if not self._seen or self._seen[-1][1] != waits:
            self._seen.append((now, waits))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()

    def left(self, now: float) -> float | None:
        """The seconds until nothing waits; None while nothing waits, or where it does not become less."""
        if len(self._seen) < 2:
            return None
        (began, first), (last, waits) = self._seen[0], self._seen[-1]
        if not waits or waits >= first:
            return None
        speed = (first - waits) / (last - began)
        return max(0.0, waits / speed - (now - last))
