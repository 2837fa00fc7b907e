"""The lifetime of JVM objects that are held by Python callbacks, the Python objects that the JVM calls.

The JVM keeps such an object until it has collected the garbage that called it, and run the finalizers. Until then the
object keeps a table's operations, and these the table's metadata with all snapshots. On a heap with room that is
hundreds of batches later, so that a batch takes them away itself when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_HELD: ContextVar[list[object] | None] = ContextVar("helios_held_callbacks", default=None)


@contextmanager
def callback_scope() -> Iterator[None]:
    """Empties the callbacks that are made inside, at its end: the JVM must not call them any more.

    Examples:
        >>> class Table:
        ...     def __init__(self):
        ...         self.metadata = "every snapshot"
        >>> with callback_scope():
        ...     table = until_scope_ends(Table())
        ...     table.metadata
        'every snapshot'
        >>> vars(table)
        {}
    """
    held: list[object] = []
    token = _HELD.set(held)
    try:
        yield
    finally:
        _HELD.reset(token)
        for callback in held:
            vars(callback).clear()


def until_scope_ends(callback: T) -> T:
    """Has the scope that is open empty a callback when it ends; without one the callback lives on."""
    held = _HELD.get()
    if held is not None:
        held.append(callback)
    return callback
