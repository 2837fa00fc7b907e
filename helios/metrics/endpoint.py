"""Serves `/metrics` for Prometheus and `/healthz` for supervisors over HTTP."""

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
    """The methods of a run that the endpoint needs; the handle of `pipeline.run()` has them."""

    def metrics(self) -> Figures: ...

    def status(self) -> dict[str, Any]: ...


class Endpoint:
    """Serves the metrics and the health of runs in threads of its own, until it is stopped.

    `/metrics` returns the metrics of all runs, in the text format or in OpenMetrics, as the client requests. `/healthz`
    returns the status of every run as JSON. Its HTTP status is 503 if a run has ended with an error (its state is
    `failed`), otherwise 200.

    Args:
        runs: The runs to observe. The collection is read for every request, so runs may be added later.
        port: The port to listen on; 0 takes a free port.
        host: The address to listen on. There is no authentication, so use another address than loopback only in a
            network that you trust.

    Raises:
        InputError: The port is not a port number.
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
            host_fix = "" if host == LOOPBACK else ", and an address of this machine as the host"
            raise RunError(
                f"the metrics cannot be served on port {port} of {host}: {error.strerror or error}.",
                fix=f"pass another port, or 0 for a free one{host_fix}.",
            ) from error
        self._server.set_app(self._route)
        # stop() waits for up to one poll interval, so the interval is short.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="helios-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """The endpoint's address, such as `http://127.0.0.1:9464`."""
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
        page = self._pages.get(environ["PATH_INFO"], _app(self._not_found))
        return page(environ, respond)

    def _health(self) -> Answer:
        pipelines = [run.status() for run in self._runs]
        failed = any(pipeline["state"] == "failed" for pipeline in pipelines)
        body = json.dumps({"status": "failed" if failed else "ok", "pipelines": pipelines}, default=str)
        return ("503 Service Unavailable" if failed else "200 OK"), JSON, body

    def _not_found(self) -> Answer:
        return "404 Not Found", TEXT, f"The pages are {' and '.join(self._pages)}.\n"


def _app(answer: Callable[[], Answer]) -> WSGIApplication:
    """A WSGI application that answers GET and HEAD requests."""

    def app(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            respond("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return []
        status, content_type, text = answer()
        body = text.encode()
        respond(status, [("Content-Type", content_type), ("Content-Length", str(len(body)))])
        return [body] if environ["REQUEST_METHOD"] == "GET" else []

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a client that does not read its answer must not delay the end of the process

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that disconnects or times out is not a failure of the run, so the run's output does not show it.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = 10
    """Seconds after which a silent connection is closed."""

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: scrapes would fill the log of the run."""
