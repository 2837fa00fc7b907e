"""Avoids a delay of 40 ms in each long answer of the JVM.

The JVM sends an answer of more than 8 KB in several writes. Its system sends the last write only after the previous one
was acknowledged (Nagle's algorithm, RFC 896). But by default, the receiver acknowledges 40 ms late (delayed
acknowledgment, RFC 1122, 4.2.3.2). So Python's sockets acknowledge at once.
"""

from __future__ import annotations

import socket
from typing import Any

from py4j import clientserver

QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux's socket option to acknowledge received data at once. Linux resets it, so it is set before each read."""


class _Socket(socket.socket):
    """A socket that acknowledges received data before it waits for more."""

    __slots__ = ()

    def recv_into(self, *args: Any) -> int:
        assert QUICK_ACK is not None
        self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return super().recv_into(*args)


class _Connection(clientserver.ClientServerConnection):  # type: ignore[misc]
    """A connection to the JVM, which Python opens for a thread, or the JVM opens for a callback."""

    def connect_to_java_server(self) -> None:
        super().connect_to_java_server()
        self.socket.__class__ = _Socket

    def init_socket_from_python_server(self, socket: socket.socket, stream: Any) -> None:
        super().init_socket_from_python_server(socket, stream)
        self.socket.__class__ = _Socket


def acknowledge_at_once() -> None:
    """Makes all connections that py4j opens from now on acknowledge data at once, if the system supports it."""
    if QUICK_ACK is not None:
        clientserver.ClientServerConnection = _Connection
