"""The HTTP endpoint of a process: `/metrics` for Prometheus and `/healthz` for supervisors."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from helios.errors import InputError, RunError
from helios.metrics.metrics import Figures
from helios.metrics.prometheus import registry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK = "127.0.0.1"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
Answer: TypeAlias = tuple[str, str, str]
"""A status line, a content type and a body."""


class Observed(Protocol):
    """The part of a run that the endpoint needs; the handle of `pipeline.run()` has it."""

    def metrics(self) -> Figures: ...

    def status(self) -> dict[str, Any]: ...


class Endpoint:
    """Serves the metrics and the health of runs until it is stopped, from threads of its own.

    `/metrics` has the metrics of all runs, in the text format or in OpenMetrics, as the client asks. `/healthz` is JSON
    with the status of every run: 200, or 503 when one has used up its restarts, which is the state `failed`.

    Args:
        runs: The runs to observe; read for every request, so that runs may be added later.
        port: The port to listen on; 0 takes a free one.
        host: The address to listen on. There is no authentication: beyond loopback, the network must protect it.

    Raises:
        InputError: There is no such port.
        RunError: The port is in use, or not permitted.

    Examples:
        >>> from urllib.request import urlopen
        >>> with Endpoint([]) as endpoint, urlopen(f"{endpoint.url}/healthz") as answer:
        ...     answer.status, answer.read()
        (200, b'{"status": "ok", "pipelines": []}')
    """

    def __init__(self, runs: Collection[Observed], *, port: int = 0, host: str = LOOPBACK) -> None:
        self._runs = runs
        metrics = make_wsgi_app(registry(lambda: [run.metrics().snapshot() for run in runs]))
        self._pages: dict[str, WSGIApplication] = {"/metrics": metrics, "/healthz": _app(self._health)}
        try:
            self._server = _Server(host, port)
        except OverflowError as error:
            raise InputError(f"{port} is not a port.", fix="pass one from 1 to 65535, or 0 for a free one.") from error
        except OSError as error:
            elsewhere = "" if host == LOOPBACK else ", and an address of this machine as the host"
            raise RunError(
                f"the metrics cannot be served on port {port} of {host}: {error.strerror or error}.",
                fix=f"pass another port, or 0 for a free one{elsewhere}.",
            ) from error
        self._server.set_app(self._route)
        # The interval bounds how long stop() takes.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="helios-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """Where it serves, as `http://127.0.0.1:9464`."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def stop(self) -> None:
        """Frees the port; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _route(self, environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        page = self._pages.get(environ["PATH_INFO"], _app(self._nothing))
        return page(environ, respond)

    def _health(self) -> Answer:
        pipelines = [run.status() for run in self._runs]
        failed = any(pipeline["state"] == "failed" for pipeline in pipelines)
        body = json.dumps({"status": "failed" if failed else "ok", "pipelines": pipelines}, default=str)
        return ("503 Service Unavailable" if failed else "200 OK"), JSON, body

    def _nothing(self) -> Answer:
        return "404 Not Found", TEXT, f"Here are {' and '.join(self._pages)}.\n"


def _app(answer: Callable[[], Answer]) -> WSGIApplication:
    """A read-only page."""

    def app(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            respond("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return []
        status, kind, text = answer()
        body = text.encode()
        respond(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body] if environ["REQUEST_METHOD"] == "GET" else []

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a client that does not read its answer cannot hold up the end of the process

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that disconnects or times out is no failure of the run: keep it out of its output.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = 10
    """Seconds that a silent connection is kept."""

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is not worth a line in the log of a run."""
