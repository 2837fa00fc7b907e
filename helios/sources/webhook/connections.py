"""Limits the connections of a server: closes idle connections, and connections whose headers do not arrive in time.

uvicorn has no timeout for headers, and does not limit the size of headers. The setting `timeout_keep_alive` of uvicorn
limits only the time between two requests. The setting `limit_concurrency` does not help: idle connections count too,
and while there are too many of them, uvicorn answers 503 to all clients. The protocol in this module closes connections
that wait too long.
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
"""The seconds in which the headers of a request must arrive.

The time starts when the connection opens; for a later request of the same connection, with the request's first byte.
"""

MAX_HEADER_BYTES = 64_000
"""The maximum size of a request's headers, in bytes."""

MAX_ACCEPTED_AT_ONCE = 64
"""The maximum number of connections that the server accepts in one turn of the event loop.

After the turn, the server enforces the limit of connections.
"""

LOG_INTERVAL = 60.0
"""The minimum number of seconds between two log lines about errors of the event loop."""


@dataclass
class Limits:
    """The limits that the connections of a server share.

    Attributes:
        waiting: The connections without a current request, as an ordered set. The connection that has been idle longest
            comes first.
    """

    max_connections: int
    waiting: dict[Connection, None] = field(default_factory=dict)

    @property
    def accepted_at_once(self) -> int:
        """The number of connections that the server accepts in one turn of the event loop.

        The number is small, because the server enforces `max_connections` only after the turn.
        """
        return max(2, min(MAX_ACCEPTED_AT_ONCE, self.max_connections // 8))


class Connection(HttpToolsProtocol):
    """A connection that is closed if its headers do not arrive in time.

    If the server has too many connections, it closes the connection that has been idle longest.
    """

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
            longest_idle = next(iter(self.limits.waiting))
            longest_idle.transport.abort()
            self.limits.waiting.pop(longest_idle)

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
        if self._deadline is not None and self._header_bytes > MAX_HEADER_BYTES:
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
    """A handler of the errors of an event loop. It logs at most one line a minute.

    The default handler of asyncio would log a traceback for each error.
    """
    last_logged = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_logged
        if time.monotonic() - last_logged >= LOG_INTERVAL:
            last_logged = time.monotonic()
            error = context.get("exception")
            log(f"the receiver of webhooks: {context['message']}{f': {error}' if error is not None else ''}")

    return handle
