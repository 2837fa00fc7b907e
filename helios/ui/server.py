"""The HTTP server of the live page, in a thread of this process."""

from __future__ import annotations

import asyncio
import time

from helios.serving import ServerThread, listening
from helios.ui.address import LOOPBACK, Address
from helios.ui.app import EVERY, Application
from helios.ui.facts import Facts

LAST = 2
"""Seconds for which a stopping server sends the last facts."""


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
        fix = f"give another address; {LOOPBACK}:0 takes a free port."
        self._socket = listening(address.host, address.port, "the page cannot be served", fix)
        self._token = facts.token
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.address = f"http://{host}:{self._socket.getsockname()[1]}/"
        self._thread = ServerThread(
            self._app.asgi(),
            self._socket,
            asyncio.new_event_loop(),
            name="helios-ui-server",
            server_header=False,
            timeout_graceful_shutdown=LAST,
        )
        self._thread.start(f"the page on {self.address}")

    @property
    def url(self) -> str:
        """The address with the token, for the one who has started it; a browser sends no fragment."""
        return f"{self.address}#token={self._token}"

    def stop(self) -> None:
        """Sends open pages the last facts, and ends."""
        if not self._thread.serves:
            return
        self._app.over = True
        time.sleep(2 * EVERY)
        self._thread.stop(LAST + 3)
        self._socket.close()
