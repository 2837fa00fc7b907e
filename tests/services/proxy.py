"""An HTTP proxy on loopback in front of a server, with faults that a test asks for.

    with FaultProxy(catalog.uri) as proxy:
        proxy.fail(answer_after(503), method="POST", path=r"/tables/", times=1)

A request goes to the server as it came, and the answer comes back as it was, compressed or not.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from tests.services.server import Port

# Of one connection, not of the message; the length is set again.
_HOP_BY_HOP = {
    *("connection", "expect", "keep-alive", "proxy-connection", "te", "upgrade"),
    *("content-length", "trailer", "transfer-encoding"),
}
_SERVER_SECONDS = 120.0

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Request:
    """A request as it came: `path` with its query, the body without its transfer encoding."""

    method: str
    path: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


@dataclass(frozen=True)
class Response:
    """An answer; its `headers` are without those of the connection."""

    status: int
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True)
class Fault:
    """What befalls a request.

    Args:
        apply: Whether the server gets it.
        status: What the client is answered; None for the server's answer.
        drop: Whether the connection is closed without an answer.
        delay: Seconds to wait before anything else.
        body: The answer; None for an error in Iceberg's form.
    """

    apply: bool = True
    status: int | None = None
    drop: bool = False
    delay: float = 0.0
    body: bytes | None = None


def answer_after(status: int, body: bytes | None = None) -> Fault:
    """The server applies the request, and the client gets another answer, by default that it failed."""
    return Fault(status=status, body=body)


def drop_after() -> Fault:
    """The server applies the request, and the client hears nothing."""
    return Fault(drop=True)


def answer_before(status: int) -> Fault:
    """The server gets nothing, and the client is told that it failed."""
    return Fault(apply=False, status=status)


def drop_before() -> Fault:
    """The server gets nothing, and the client hears nothing."""
    return Fault(apply=False, drop=True)


def delay(seconds: float) -> Fault:
    """The request waits, then goes on as usual."""
    return Fault(delay=seconds)


@dataclass
class Rule:
    """A fault and the requests that it befalls.

    Attributes:
        hits: How many it befell so far.
        done: Set when it has befallen as many as it may.
    """

    fault: Fault
    matches: Callable[[Request], bool]
    times: int | None
    hits: int = 0
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Exchange:
    """A request that went by, with the status that the server gave (None if it did not get it), and the fault."""

    method: str
    path: str
    status: int | None
    fault: Fault | None


class Proxy:
    """Passes requests on to a server; subclasses decide about each in `handle`.

    Args:
        target: The server's URL.
    """

    def __init__(self, target: str) -> None:
        split = urlsplit(target)
        self._address = (split.hostname or "127.0.0.1", split.port or 80)
        self._port = Port()
        self._listener: _Listener | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port.number}"

    def handle(self, request: Request) -> Response | None:
        """The answer to a request; None closes the connection without one."""
        return self.forward(request)

    def forward(self, request: Request) -> Response:
        """The server's own answer; 502 if it gives none."""
        # A connection of its own: a kept one may be stale, and a request is never to be sent twice.
        connection = http.client.HTTPConnection(*self._address, timeout=_SERVER_SECONDS)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            return Response(answer.status, headers, answer.read())
        except (OSError, http.client.HTTPException) as error:
            return Response(502, [("Content-Type", "text/plain")], f"{type(error).__name__}: {error}".encode())
        finally:
            connection.close()

    def start(self) -> Self:
        """Listens, on the same port each time."""
        if self._listener is None:
            self._listener = _Listener(self._port.number, self.handle)
            threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuses connections and drops those that are open, until `start`."""
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener.drop_connections()
            self._listener = None

    def close(self) -> None:
        self.stop()
        self._port.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()


class FaultProxy(Proxy):
    """A proxy whose faults are set while it runs.

    Attributes:
        exchanges: The requests so far.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self.exchanges: list[Exchange] = []

    def fail(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str = "",
        times: int | None = None,
        when: Callable[[Request], bool] = lambda request: True,
    ) -> Rule:
        """Lets a fault befall requests; of several rules that match, the first that is not used up.

        Args:
            fault: What befalls them.
            method: Their method; any by default.
            path: A regular expression that is searched in their path.
            times: How many; all by default.
            when: What else must hold.
        """
        pattern = re.compile(path)

        def matches(request: Request) -> bool:
            fits = method is None or request.method == method
            return fits and pattern.search(request.path) is not None and when(request)

        rule = Rule(fault, matches, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Takes all faults back."""
        with self._lock:
            self._rules.clear()

    def handle(self, request: Request) -> Response | None:
        fault = self._befall(request)
        if fault and fault.delay:
            time.sleep(fault.delay)
        answer = self.forward(request) if fault is None or fault.apply else None
        with self._lock:
            self.exchanges.append(Exchange(request.method, request.path, answer.status if answer else None, fault))
        if fault and fault.drop:
            return None
        if fault and fault.status is not None:
            error = {"message": "a fault that a test asked for", "type": "InjectedFault", "code": fault.status}
            body = json.dumps({"error": error}).encode() if fault.body is None else fault.body
            return Response(fault.status, [("Content-Type", "application/json")], body)
        return answer

    def _befall(self, request: Request) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if not rule.done.is_set() and rule.matches(request):
                    rule.hits += 1
                    if rule.hits == rule.times:
                        rule.done.set()
                    return rule.fault
        return None


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, port: int, handle: Callable[[Request], Response | None]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.handle = handle
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault of the proxy."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Listener

    def do_any(self) -> None:
        body = self._body()
        headers = [(name, value) for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP]
        answer = self.server.handle(Request(self.command, self.path, headers, body))
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        bodiless = self.command == "HEAD" or answer.status in (204, 304)
        if not bodiless:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not bodiless:
            self.wfile.write(answer.body)
        self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_any

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(chunks)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `FaultProxy.exchanges` has it."""
