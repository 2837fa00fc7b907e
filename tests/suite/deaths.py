"""A driver that dies at a certain call: what a run leaves behind in the midst of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from helios.errors import HeliosError
from helios.spark.sinks.table import TableSink

DIED = "the driver died"


@contextmanager
def dies_at(owner: type, method: str, *, past: int = 0) -> Iterator[None]:
    """The driver dies at a call of a method; the run inside must end with that.

    Args:
        owner: The class of the method.
        method: Its name.
        past: How many calls go through before.
    """
    real, calls = getattr(owner, method), count()

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) >= past:
            raise RuntimeError(DIED)
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, method, called)
        with pytest.raises(HeliosError, match=DIED):
            yield


def dies_before_commit(past: int = 0) -> Any:
    """The driver dies before the commit of its first batch, which is planned by then, or of a later one."""
    return dies_at(TableSink, "_commit", past=past)
