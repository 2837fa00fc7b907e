"""Limits the lifetime of callbacks, which are Python objects that the JVM calls.

py4j keeps a callback until the JVM's garbage collector has finalized the Java objects that refer to the callback. Until
then, the callback keeps alive in the JVM a table's operations, and with them the table's metadata with all snapshots.
On a large heap this can last for hundreds of batches, so each batch clears its callbacks when the batch ends.
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
    """Clears the callbacks that the block registers, when the block ends. The JVM must not call them afterwards.

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
    """Registers a callback, which is cleared when the open scope ends; does nothing without an open scope."""
    held = _HELD.get()
    if held is not None:
        held.append(callback)
    return callback
