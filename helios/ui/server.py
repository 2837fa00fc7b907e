"""The HTTP server of the live page, in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from typing_extensions import override

from helios.errors import RunError
from helios.ui.address import LOOPBACK, Address
from helios.ui.app import EVERY, Application
from helios.ui.facts import Facts

READY = 30.0
"""Seconds that the server may take to start."""
LAST = 2
"""Seconds for which a stopping server sends the last facts."""


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to its process."""

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Server:
    """Serves the page until it is stopped.

    Args:
        facts: What it shows.
        address: Where it is served.

    Raises:
        RunError: The address is taken, or none of this machine.
    """

    def __init__(self, facts: Facts, address: Address) -> None:
        self._app = Application(facts, address)
        self._socket = _listening(address)
        self._token = facts.token
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.address = f"http://{host}:{self._socket.getsockname()[1]}/"
        config = uvicorn.Config(
            self._app.asgi(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=LAST,
        )
        self._server = _Uvicorn(config)
        self._thread = threading.Thread(target=self._serve, name="helios-ui-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + READY
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RunError(f"the page on {self.address} did not start.")
            time.sleep(0.01)

    @property
    def url(self) -> str:
        """The address with the token, for the one who has started it; a browser sends no fragment."""
        return f"{self.address}#token={self._token}"

    def stop(self) -> None:
        """Sends open pages the last facts, and ends."""
        if not self._thread.is_alive():
            return
        self._app.over = True
        time.sleep(2 * EVERY)
        self._server.should_exit = True
        self._thread.join(LAST + 3)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise RunError(
            f"the page cannot be served on {address.host}:{address.port}: {error.strerror or error}.",
            fix=f"give another address; {LOOPBACK}:0 takes a free port.",
        ) from error
