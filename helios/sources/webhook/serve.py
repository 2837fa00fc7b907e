"""Runs the HTTP servers of receivers: one server for each address, in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from helios.errors import InputError, RunError
from helios.plan.typing.schema import from_ddl
from helios.serving import ServerThread, listening_socket
from helios.sources.webhook.connections import Connection, Limits, quiet_handler
from helios.sources.webhook.declare import WebhookSource
from helios.sources.webhook.receiver import Endpoint, Receiver, app_of
from helios.sources.webhook.segments import Segments, is_taken
from helios.sources.webhook.signatures import key_of

T = TypeVar("T")

KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS = 5, 10
"""Seconds for which an idle connection is kept, and for which a stopping server still answers requests."""

BACKLOG = 2048
"""The most connections that the kernel queues until the server accepts them."""

MAX_CONNECTIONS = 1000
"""The largest result of `connection_limit`."""


def connection_limit() -> int:
    """The connection limit of a server: half of the free file handles. Segments, runs and the catalog need the rest."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64  # a guess without /proc
    return MAX_CONNECTIONS if allowed == resource.RLIM_INFINITY else max(4, min(MAX_CONNECTIONS, (allowed - used) // 2))


class Server:
    """An HTTP server to which endpoints can be added and removed.

    Args:
        port: The port; 0 takes a free one.
        log: Receives lines about errors of the server.

    Raises:
        RunError: The port is taken.
    """

    def __init__(self, host: str, port: int, log: Callable[[str], None]) -> None:
        fix = "listen on another address, with .listen(...), or stop the program that uses this one."
        self._socket = listening_socket(host, port, "no webhooks can be received", fix, backlog=BACKLOG)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}"
        self.receivers: dict[str, Receiver] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(quiet_handler(log))
        limits = Limits(connection_limit())
        self._thread = ServerThread(
            app_of(self.receivers),
            self._socket,
            self._loop,
            name="webhooks",
            http=Connection.with_limits(limits),
            backlog=limits.accepted_at_once,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._thread.start(f"the receiver of webhooks on {self.address}")
        self._socket.listen(BACKLOG)  # uvicorn's `backlog` is smaller: it also limits how many are accepted at once

    @contextmanager
    def taking(self, receiver: Receiver) -> Generator[None, None, None]:
        """Receives the deliveries of an endpoint while the context is open.

        Raises:
            RunError: Another receiver has the same path, or writes to the same segments.
        """
        self._in_loop(receiver.open())
        try:
            path = receiver.endpoint.path
            if self.receivers.setdefault(path, receiver) is not receiver:
                raise RunError(
                    f"{self.address}{path} takes the deliveries of another source already.",
                    fix="give each webhook a path of its own, or an address with .listen().",
                )
            try:
                yield
            finally:
                del self.receivers[path]
        finally:
            self._in_loop(receiver.close())

    def stop(self) -> None:
        """Stops the server after it has answered the current requests."""
        self._thread.stop()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_servers: dict[tuple[str, int], tuple[Server, int]] = {}
_lock = threading.Lock()


@contextmanager
def _server(host: str, port: int, log: Callable[[str], None]) -> Generator[Server, None, None]:
    """The server of an address. Its users share it, and the last user stops it."""
    key = host, port
    with _lock:
        server, users = _servers[key] if key in _servers else (Server(host, port, log), 0)
        _servers[key] = server, users + 1
    try:
        yield server
    finally:
        with _lock:
            server, users = _servers.pop(key)
            if users > 1:
                _servers[key] = server, users - 1
            else:
                server.stop()


@contextmanager
def receiving(
    sources: Sequence[WebhookSource], log: Callable[[str], None], *, alone: bool = False
) -> Generator[list[str], None, None]:
    """See `helios.sources.webhook.receiving.receiving`."""
    with ExitStack() as stack:
        urls = []
        for source in sources:
            if not alone and is_taken(Path(source.folder)):
                continue
            receiver = Receiver(_endpoint(source), Segments(Path(source.folder), window=source.window), log)
            server = stack.enter_context(_server(source.host, source.port, log))
            stack.enter_context(server.taking(receiver))
            urls.append(server.address + source.path)
        yield urls


def _endpoint(source: WebhookSource) -> Endpoint:
    for secret in source.secrets if source.form == "standard" else ():
        try:
            key_of(secret)
        except ValueError as error:
            raise InputError(f"{source.label()}: {error}.", where=source.origin) from None
    declared = source.declared_schema
    return Endpoint(
        path=source.path,
        secrets=source.secrets,
        form=source.form,
        schema=from_ddl(declared, source.origin) if declared is not None else None,
        extra=source.extra,
        fraction=source.fraction,
        max_body_bytes=source.max_body_bytes,
        max_waiting_bytes=source.max_waiting_bytes,
        window=source.window,
        seal=min(source.poll or 1.0, 5.0),
    )
