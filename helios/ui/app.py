"""The HTTP interface of the live page: its files, facts as JSON, and changes as server-sent events."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, is_dataclass
from functools import partial
from importlib import resources
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from helios.errors import HeliosError
from helios.ui.address import Address, is_loopback
from helios.ui.facts import FactSource

COMPARE_SECONDS = 0.25
"""The seconds between two comparisons of the facts, for each open page."""
KEEPALIVE_SECONDS = 15.0
"""The seconds without changes after which a stream sends a comment, to stay open."""
MAX_PAGES = 32
"""The maximum number of open pages."""
MAX_COMMITS = 200
"""The maximum number of commits in one response."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every response."""
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Application:
    """The handlers of the page."""

    def __init__(self, facts: FactSource, address: Address) -> None:
        self._facts, self._address = facts, address
        self._pages = 0
        self.ending = False
        """True once the server stops: open streams send the last facts, and end."""

    def asgi(self) -> ASGIApp:
        """The application for a server."""
        files = {name: _file(name, content) for name, content in static_files().items()}
        routes = [Route("/" if name == "index.html" else f"/{name}", handler) for name, handler in files.items()]
        routes += [
            Route("/events", self._guarded(self._events)),
            Route("/metrics", self._guarded(self._metrics)),
            Route("/api/series", self._guarded(self._json(lambda facts, get: facts.series(get("pipeline"))))),
            Route("/api/commits", self._guarded(self._json(_commits))),
            Route(
                "/api/batch", self._guarded(self._json(lambda facts, get: facts.batch(get("table"), get("snapshot"))))
            ),
            Route("/api/table", self._guarded(self._json(lambda facts, get: facts.table(get("name"))))),
            Route("/api/rejects", self._guarded(self._rejects)),
            Route("/api/stop", self._stop, methods=["POST"]),
        ]
        return _Headers(_HostCheck(Starlette(routes=routes), self._address))

    # access

    def _has_token(self, request: Request) -> bool:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(token.encode(), self._facts.token.encode())

    def _guarded(self, handler: Handler) -> Handler:
        """Wraps a handler: at a guarded address, a request without the token gets status 401."""

        async def guarded(request: Request) -> Response:
            if self._address.guarded and not self._has_token(request):
                raise HTTPException(401)
            return await handler(request)

        return guarded

    # responses

    def _json(self, find: Callable[[FactSource, Callable[[str], str]], Any]) -> Handler:
        async def handler(request: Request) -> Response:
            return await _answer(partial(find, self._facts, partial(_parameter, request)))

        return handler

    async def _metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(self._facts.metrics)
        if text is None:
            raise HTTPException(404)
        return Response(text, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _rejects(self, request: Request) -> Response:
        """Returns the counts of rejected rows, with samples of the rows only for a request with the token."""
        with_samples = self._has_token(request)
        table, snapshot = _parameter(request, "table"), _parameter(request, "snapshot")

        def find() -> Any:
            rejects = self._facts.rejects(table, snapshot, samples=with_samples)
            return {"quarantines": rejects, "samples": with_samples} if rejects is not None else None

        return await _answer(find)

    async def _stop(self, request: Request) -> Response:
        if not self._has_token(request):
            raise HTTPException(401)
        stopped = await run_in_threadpool(self._facts.stop)
        return JSONResponse({"stopping": stopped}, status_code=202 if stopped else 409)

    async def _events(self, request: Request) -> Response:
        if self._pages >= MAX_PAGES:
            raise HTTPException(503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        """Sends all facts, then each change, until the page is closed or the server stops."""
        self._pages += 1
        self._facts.add_open_pages(1)
        sent: dict[str, Any] = {}
        number, silent_seconds = 0, 0.0
        try:
            while True:
                is_last = self.ending
                items = await run_in_threadpool(self._facts.items)
                new_entries = self._facts.timeline(number)
                number = new_entries[-1].number if new_entries else number
                changed = {key: value for key, value in items.items() if key not in sent or sent[key] != value}
                dropped = [key for key in sent if key not in items]
                sent = dict(items)
                silent_seconds = 0.0 if changed or dropped or new_entries else silent_seconds + COMPARE_SECONDS
                if not silent_seconds:
                    yield _event("facts", {"set": changed, "drop": dropped, "new": new_entries})
                elif silent_seconds >= KEEPALIVE_SECONDS:
                    silent_seconds = 0.0
                    yield ": alive\n\n"
                if is_last:
                    yield _event("end", {})
                    return
                await asyncio.sleep(COMPARE_SECONDS)
        finally:
            self._pages -= 1
            self._facts.add_open_pages(-1)


def static_files() -> dict[str, bytes]:
    """The files of the page, by name."""
    folder = resources.files("helios.ui").joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(tuple(CONTENT_TYPES))}


def _file(name: str, content: bytes) -> Handler:
    content_type = next(content_type for extension, content_type in CONTENT_TYPES.items() if name.endswith(extension))

    async def handler(request: Request) -> Response:
        return Response(content, headers={"Content-Type": content_type})

    return handler


def _commits(facts: FactSource, get: Callable[[str], str]) -> Any:
    count = get("count")
    limit = min(int(count), MAX_COMMITS) if count.isdecimal() else MAX_COMMITS
    return facts.commits(get("table"), get("before") or None, limit)


def _parameter(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


async def _answer(find: Callable[[], Any]) -> Response:
    """The response with a value that is read from tables: 404 if `find` returns None, 502 if the read fails."""
    try:
        value = await run_in_threadpool(find)
    except HeliosError as error:
        return JSONResponse(error.as_json(), status_code=502)
    if value is None:
        raise HTTPException(404)
    return Response(dumped(value), headers={"Content-Type": "application/json"})


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {dumped(value)}\n\n"


def dumped(value: Any) -> str:
    """A value as JSON; a dataclass becomes an object.

    Examples:
        >>> from helios.ui.facts import Problem
        >>> dumped({"problem": Problem(what="it broke")})
        '{"problem":{"what":"it broke","where":null,"fix":null,"code":null}}'
    """
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


class _HostCheck:
    """Refuses requests whose Host header is not a name of this machine, unless every request for facts needs the token.

    Without this check, a page of another origin could read the facts through a domain name of that origin that resolves
    to this machine (DNS rebinding).
    """

    def __init__(self, inner: ASGIApp, address: Address) -> None:
        self._inner, self._guarded = inner, address.guarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._guarded and not is_loopback(_host(scope["headers"])):
            await Response("This page is only served under a name of this machine.\n", status_code=403)(
                scope, receive, send
            )
            return
        await self._inner(scope, receive, send)


def _host(headers: list[tuple[bytes, bytes]]) -> str:
    """The host in the Host header, without the port."""
    text = dict(headers).get(b"host", b"").decode("latin-1")
    return text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]


class _Headers:
    """Sets the headers of every response, including errors."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._inner(scope, receive, with_headers)
