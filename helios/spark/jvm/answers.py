"""Long answers of the JVM, without a wait.

The JVM sends an answer of more than 8 KB in several writes. The system sends the last write only when the write before
is acknowledged (Nagle's algorithm, RFC 896), and the receiver acknowledges 40 ms later (RFC 1122, 4.2.3.2).
"""

from __future__ import annotations

import socket
from typing import Any

from py4j import clientserver

QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux's option to acknowledge received data at once; the system resets the option by itself."""


class _Socket(socket.socket):
    """A socket that acknowledges received data before it waits for more."""

    __slots__ = ()

    def recv_into(self, *args: Any) -> int:
        assert QUICK_ACK is not None
        self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return super().recv_into(*args)


class _Connection(clientserver.ClientServerConnection):  # type: ignore[misc]
    """A connection of a thread, opened by Python or by a call from the JVM."""

    def connect_to_java_server(self) -> None:
        super().connect_to_java_server()
        self.socket.__class__ = _Socket

    def init_socket_from_python_server(self, socket: socket.socket, stream: Any) -> None:
        super().init_socket_from_python_server(socket, stream)
        self.socket.__class__ = _Socket


def acknowledge_at_once() -> None:
    """Makes py4j's later connections acknowledge data at once, if the system supports it."""
    if QUICK_ACK is not None:
        clientserver.ClientServerConnection = _Connection
