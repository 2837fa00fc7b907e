"""Avoids a delay of 40 ms in each long answer of the JVM.

The JVM sends an answer of more than 8 KB in several writes. The last write leaves the JVM's machine only after
the previous write was acknowledged (Nagle's algorithm, RFC 896). By default, Python's machine acknowledges 40 ms late
(delayed acknowledgment, RFC 1122, 4.2.3.2). With this module, Python's sockets acknowledge at once.
"""

from __future__ import annotations

import socket
from typing import Any

from py4j import clientserver

QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux's socket option to acknowledge received data at once. Linux resets the option, so each read sets it again."""


class _Socket(socket.socket):
    """A socket that acknowledges received data before it waits for more."""

    __slots__ = ()

    def recv_into(self, *args: Any) -> int:
        assert QUICK_ACK is not None
        self.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return super().recv_into(*args)


class _Connection(clientserver.ClientServerConnection):  # type: ignore[misc]
    """A connection between Python and the JVM, opened by Python for a thread, or by the JVM for a callback."""

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
