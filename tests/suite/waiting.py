"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds for what must happen at all: a bound for slow machines, where a start of Spark takes half a minute.
PATIENCE = 180.0


def until(found: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Waits until something is found; fails where it is not in time."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.1)
