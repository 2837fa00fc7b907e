"""Serves the live page over HTTP, in a thread of this process."""

from __future__ import annotations

import asyncio
import time

from helios.serving import ServerThread, listening_socket
from helios.ui.address import LOOPBACK, Address
from helios.ui.app import COMPARE_SECONDS, Application
from helios.ui.facts import FactSource

LAST_FACTS_SECONDS = 2
"""The seconds that a stopping server has to send the last facts."""


class Server:
    """Serves the page until it is stopped.

    Raises:
        RunError: The address is in use, or is not an address of this machine.
    """

    def __init__(self, facts: FactSource, address: Address) -> None:
        self._app = Application(facts, address)
        fix = f"give another address; {LOOPBACK}:0 takes a free port."
        self._socket = listening_socket(address.host, address.port, "the page cannot be served", fix)
        self._token = facts.token
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.address = f"http://{host}:{self._socket.getsockname()[1]}/"
        self._thread = ServerThread(
            self._app.asgi(),
            self._socket,
            asyncio.new_event_loop(),
            name="helios-ui-server",
            server_header=False,
            timeout_graceful_shutdown=LAST_FACTS_SECONDS,
        )
        self._thread.start(f"the page on {self.address}")

    @property
    def url(self) -> str:
        """The address with the token, for the user who started the server.

        Browsers do not send the fragment, which has the token, to the server.
        """
        return f"{self.address}#token={self._token}"

    def stop(self) -> None:
        """Sends the last facts to open pages, and stops."""
        if not self._thread.is_serving:
            return
        self._app.ending = True
        time.sleep(2 * COMPARE_SECONDS)
        self._thread.stop(LAST_FACTS_SECONDS + 3)
        self._socket.close()
