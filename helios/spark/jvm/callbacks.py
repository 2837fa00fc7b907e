"""The lifetime of JVM objects that are held by Python callbacks, the Python objects that the JVM calls.

The JVM keeps such an object until its garbage collector has run the finalizers of the objects that call it. Until then
the object keeps a table's operations, and with them the table's metadata with all snapshots. On a large heap that can
take hundreds of batches, so each batch clears its callbacks when it ends.
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
    """Clears, at its end, the callbacks made in the block: the JVM must not call them any more.

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
    """Registers a callback with the open scope, which clears it at its end; without a scope the callback stays."""
    held = _HELD.get()
    if held is not None:
        held.append(callback)
    return callback
