"""Retries of a failed call: their number, and the pauses between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_OUTAGE_PAUSE = 0.5
"""Seconds before the first restart of a run whose catalog or storage is unreachable; later pauses double."""
LONGEST_OUTAGE_PAUSE = 10.0
LOOKUP_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Pauses in seconds. After a commit of unknown outcome, the table is loaded after each pause to find the commit."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """The retry policy of a sink, for conflicts of commits and for unreachable services.

    Attributes:
        retries: How often a commit is tried again after a conflict.
        backoff: Seconds before the second try; each later pause is twice as long as the one before.
        outage: Seconds for which an unreachable catalog or storage is retried.
    """

    retries: int = 3
    backoff: float = 0.1
    outage: float = 300.0

    def pause(self, number: int) -> float:
        """The seconds before a retry; the first retry has the number 1."""
        return self.backoff * 2.0 ** (number - 1)


NEVER = Retry(retries=0)

COMMIT_TRIES = 1 + Retry.retries
"""Tries of a commit without Spark. Conflicts of such commits are rare, and need no pause."""


class CommitRetries:
    """The retries of a commit. All loops that retry the commit share them.

    Examples:
        >>> retries = CommitRetries(Retry(retries=2, backoff=0.001))
        >>> retries.wait(), retries.wait(), retries.wait()
        (True, True, False)
        >>> retries.used
        2
    """

    def __init__(self, policy: Retry, on_retry: Callable[[], None] = lambda: None) -> None:
        self._policy = policy
        self._on_retry = on_retry
        self.used = 0

    def wait(self, *, pause: bool = True) -> bool:
        """Counts the next retry, and waits before it unless `pause` is False; returns False at once if none is left."""
        if self.used >= self._policy.retries:
            return False
        self.used += 1
        self._on_retry()
        if pause:
            time.sleep(self._policy.pause(self.used))
        return True


def outage_pause(number: int) -> float:
    """The seconds before a restart during an outage; the first restart has the number 1.

    Examples:
        >>> [outage_pause(number) for number in (1, 2, 3, 4, 5, 6, 99)]
        [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    doublings = min(number - 1, 10)  # enough to reach the longest pause; 2.0 ** 1024 would overflow
    return min(FIRST_OUTAGE_PAUSE * 2.0**doublings, LONGEST_OUTAGE_PAUSE)
