"""Long answers of the JVM, without a wait.

The JVM sends an answer of more than 8 KB in several writes. The system holds back the last of them until the one before
is acknowledged (Nagle's algorithm, RFC 896), and the receiver acknowledges 40 ms later (RFC 1122, 4.2.3.2).
"""

from __future__ import annotations

import socket
from typing import Any

from py4j import clientserver

QUICK = getattr(socket, "TCP_QUICKACK", None)
"""Linux's option by which what has come is acknowledged at once; the system takes it back by itself."""


class _Socket(socket.socket):
    """Acknowledges what has come before it waits for more."""

    __slots__ = ()

    def recv_into(self, *args: Any) -> int:
        assert QUICK is not None
        self.setsockopt(socket.IPPROTO_TCP, QUICK, 1)
        return super().recv_into(*args)


class _Connection(clientserver.ClientServerConnection):  # type: ignore[misc]
    """A connection of a thread, opened by Python or by a call of the JVM's."""

    def connect_to_java_server(self) -> None:
        super().connect_to_java_server()
        self.socket.__class__ = _Socket

    def init_socket_from_python_server(self, socket: socket.socket, stream: Any) -> None:
        super().init_socket_from_python_server(socket, stream)
        self.socket.__class__ = _Socket


def take_at_once() -> None:
    """Makes py4j's later connections acknowledge data at once, if the system supports it."""
    if QUICK is not None:
        clientserver.ClientServerConnection = _Connection
