"""Connections that send nothing, or never end their headers: they are closed, and take the place of no other.

uvicorn has no timeout of headers (its `timeout_keep_alive` runs between two requests only, and ends with the first byte
of the next), no bound of their size, and with `limit_concurrency` it answers 503 to everybody while idle connections
hold the file handles. So its protocol is told here to close those that wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS = 10.0
"""Seconds from the first byte of a request, or from the connection on, to the end of its headers."""

LARGEST_HEADERS = 64_000
"""Bytes of headers at the most."""

AT_ONCE = 64
"""Connections at the most that are accepted before one is closed."""

LINES = 60.0
"""Seconds between two lines about connections that cannot be accepted."""


@dataclass
class Limits:
    """The limits that the connections of a server share.

    Attributes:
        most: Connections at the most.
        waiting: Those that have no request, the oldest first.
    """

    most: int
    waiting: dict[Connection, None] = field(default_factory=dict)

    @property
    def at_once(self) -> int:
        """Connections that are accepted at once, before the first of them takes the place of another: a few."""
        return max(2, min(AT_ONCE, self.most // 8))


class Connection(HttpToolsProtocol):
    """A connection whose headers must come in time, and which goes when others need its place and it does nothing."""

    limits: ClassVar[Limits]
    _deadline: asyncio.TimerHandle | None = None
    _size = 0

    @classmethod
    def under(cls, limits: Limits) -> type[Connection]:
        """The protocol of a server's connections, with their limits."""
        return type(cls.__name__, (cls,), {"limits": limits})

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limits.waiting[self] = None
        self._await_headers()
        if len(self.connections) > self.limits.most:
            oldest = next(iter(self.limits.waiting))
            oldest.transport.abort()
            self.limits.waiting.pop(oldest)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self.limits.waiting.pop(self, None)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._await_headers()
        self._size += len(data)
        super().data_received(data)
        if self._deadline is not None and self._size > LARGEST_HEADERS:
            self.transport.abort()

    @override
    def on_headers_complete(self) -> None:
        self._headers_came()
        self.limits.waiting.pop(self, None)
        super().on_headers_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete and not self.transport.is_closing():
            self.limits.waiting[self] = None

    def _await_headers(self) -> None:
        self._size = 0
        self._deadline = self.loop.call_later(HEADERS, self.transport.abort)

    def _headers_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def quiet(told: Callable[[str], None]) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A handler of errors in an event loop that tells one line a minute, where asyncio writes a page for each.

    Args:
        told: What takes the line.
    """
    last = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last >= LINES:
            last = time.monotonic()
            error = context.get("exception")
            told(f"the receiver of webhooks: {context['message']}{f': {error}' if error is not None else ''}")

    return handle
