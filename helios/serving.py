"""Runs an HTTP server (uvicorn) in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
from typing_extensions import override

from helios.errors import RunError

START_SECONDS = 30.0
"""Seconds that a server may take to start."""


class _Uvicorn(uvicorn.Server):
    """A server without signal handlers, because Helios's commands install their own."""

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class ServerThread:
    """A thread that serves an application until `stop` is called.

    Args:
        app: The ASGI application.
        settings: Further settings of `uvicorn.Config`, for this server only.
    """

    def __init__(
        self, app: Any, listening: socket.socket, loop: asyncio.AbstractEventLoop, *, name: str, **settings: Any
    ) -> None:
        # Only errors are logged: uvicorn warns of each request that is not HTTP, so anybody could fill the log.
        config = uvicorn.Config(
            app, ws="none", lifespan="off", log_config=None, log_level="error", access_log=False, proxy_headers=False,
            **settings,
        )  # fmt: skip
        self._socket, self._loop, self._server = listening, loop, _Uvicorn(config)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self, what: str) -> None:
        """Starts the server, and waits until it accepts connections.

        Args:
            what: The server's name, which begins the error message.

        Raises:
            RunError: The server did not start.
        """
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RunError(f"{what} did not start.")
            time.sleep(0.01)

    @property
    def is_serving(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float | None = None) -> None:
        """Ends the server after it has answered the current requests. Waits for the end, for at most `seconds`."""
        self._server.should_exit = True
        self._thread.join(seconds)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))


def listening_socket(host: str, port: int, what: str, fix: str, backlog: int | None = None) -> socket.socket:
    """A socket that listens on an address.

    Args:
        host: An address of this machine, IPv4 or IPv6.
        port: The port; 0 takes a free one.
        what: The beginning of an error, such as "the page cannot be served".
        backlog: The largest number of connections that the kernel queues.

    Raises:
        RunError: The address is in use, or is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise RunError(f"{what} on {host}:{port}: {error.strerror or error}.", fix=fix) from error
