"""Limits the connections of a server: closes idle connections, and connections whose headers do not arrive in time.

uvicorn has no timeout for headers, and no limit of their size. Its `timeout_keep_alive` only limits the time between
two requests. Its `limit_concurrency` answers 503 to everybody while idle connections hold the file handles. The
protocol in this module closes the connections that wait too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
"""Seconds from the start of a connection, or the first byte of a request, until its headers must be complete."""

LARGEST_HEADERS = 64_000
"""The most bytes of headers."""

AT_ONCE = 64
"""The most connections that the server accepts in one turn of the event loop, before it enforces the limit."""

LOG_INTERVAL = 60.0
"""The least number of seconds between two log lines about errors of the event loop."""


@dataclass
class Limits:
    """The limits that the connections of a server share.

    Attributes:
        waiting: The connections without a current request, the longest idle first, as an ordered set.
    """

    max_connections: int
    waiting: dict[Connection, None] = field(default_factory=dict)

    @property
    def at_once(self) -> int:
        """The connections that are accepted at once: few, since the limit is enforced only after they are accepted."""
        return max(2, min(AT_ONCE, self.max_connections // 8))


class Connection(HttpToolsProtocol):
    """A connection whose headers must arrive in time. If there are too many, the one that is idle longest is closed."""

    limits: ClassVar[Limits]
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0

    @classmethod
    def with_limits(cls, limits: Limits) -> type[Connection]:
        """Returns a subclass for the connections of one server, with the server's limits."""
        return type(cls.__name__, (cls,), {"limits": limits})

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.limits.waiting[self] = None
        self._await_headers()
        if len(self.connections) > self.limits.max_connections:
            oldest = next(iter(self.limits.waiting))
            oldest.transport.abort()
            self.limits.waiting.pop(oldest)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self.limits.waiting.pop(self, None)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._await_headers()
        self._header_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._header_bytes > LARGEST_HEADERS:
            self.transport.abort()

    @override
    def on_headers_complete(self) -> None:
        self._stop_deadline()
        self.limits.waiting.pop(self, None)
        super().on_headers_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete and not self.transport.is_closing():
            self.limits.waiting[self] = None

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def quiet_handler(log: Callable[[str], None]) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A handler of an event loop's errors that logs at most one line a minute.

    Without it, asyncio would log a traceback for each error.
    """
    last_logged = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_logged
        if time.monotonic() - last_logged >= LOG_INTERVAL:
            last_logged = time.monotonic()
            error = context.get("exception")
            log(f"the receiver of webhooks: {context['message']}{f': {error}' if error is not None else ''}")

    return handle
