"""Servers of receivers: one for each address, in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from typing_extensions import override

from helios.errors import InputError, RunError
from helios.plan.typing.schema import from_ddl
from helios.sources.webhook.connections import Connection, Limits, quiet_handler
from helios.sources.webhook.declare import WebhookSource
from helios.sources.webhook.receiver import Endpoint, Receiver, app_of
from helios.sources.webhook.segments import Segments, is_taken
from helios.sources.webhook.signatures import key_of

T = TypeVar("T")

READY = 30.0
"""Seconds that a server may take to start."""

KEPT, LAST = 5, 10
"""Seconds for which a connection is kept between two requests, and for which a stopping server answers requests."""

QUEUED = 2048
"""Connections that the kernel queues until the server accepts them."""

MOST = 1000
"""Connections of a server at most."""


def most_connections() -> int:
    """The limit of connections: half of the free file handles, as segments, runs and the catalog need the others."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64  # a guess without /proc
    return MOST if allowed == resource.RLIM_INFINITY else max(4, min(MOST, (allowed - used) // 2))


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to its process."""

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Server:
    """An HTTP server to which endpoints can be added and removed.

    Args:
        host: The address that it listens on.
        port: The port; 0 takes a free one.
        log: Receives lines about errors of the server.

    Raises:
        RunError: The port is taken.
    """

    def __init__(self, host: str, port: int, log: Callable[[str], None]) -> None:
        self._socket = _listening(host, port)
        self.address = f"http://{host}:{self._socket.getsockname()[1]}"
        self.receivers: dict[str, Receiver] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(quiet_handler(log))
        limits = Limits(most_connections())
        # Only errors are logged: uvicorn warns of each request that is not HTTP, so anybody could fill the log.
        config = uvicorn.Config(
            app_of(self.receivers),
            http=Connection.under(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            backlog=limits.at_once,
            timeout_keep_alive=KEPT,
            timeout_graceful_shutdown=LAST,
        )
        self._server = _Uvicorn(config)
        self._thread = threading.Thread(target=self._serve, name="webhooks", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + READY
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RunError(f"the receiver of webhooks on {self.address} did not start.")
            time.sleep(0.01)
        self._socket.listen(QUEUED)  # not uvicorn's `backlog`, which also sets how many are accepted at once

    @contextmanager
    def taking(self, receiver: Receiver) -> Generator[None, None, None]:
        """Receives the deliveries of an endpoint.

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
        """Answers the current requests, and stops."""
        self._server.should_exit = True
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_servers: dict[tuple[str, int], tuple[Server, int]] = {}
_lock = threading.Lock()


@contextmanager
def _server(host: str, port: int, log: Callable[[str], None]) -> Generator[Server, None, None]:
    """The server of an address, shared by all its users; the last one stops it."""
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
        largest=source.largest,
        waiting=source.waiting,
        window=source.window,
        seal=min(source.poll or 1.0, 5.0),
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=QUEUED)
    except OSError as error:
        raise RunError(
            f"no webhooks can be received on {host}:{port}: {error.strerror}.",
            fix="listen on another address, with .listen(...), or stop the program that uses this one.",
        ) from error
