"""Receives deliveries over HTTP: checks each delivery, stores it, and answers the sender.

| status | when |
|---|---|
| 200 | the delivery is durable; also for a duplicate |
| 400, 408 | the connection ended within the body, or the body did not arrive in time |
| 401 | a header is missing, the signature does not fit, or the delivery is too old |
| 404, 405 | the path is unknown, or the method is not POST |
| 413 | the body is larger than allowed |
| 415 | the Content-Type is not JSON |
| 422 | the body is not JSON, or does not fit the declared columns; or the id of the delivery is too long |
| 429 | too many bytes wait for runs or for the disk |
| 503 | the disk fails, or the receiver is starting or stopping |

After a disk error, all deliveries are refused until the acknowledged ones are sealed and a test write succeeds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from helios.errors import RunError
from helios.model.values import Secret
from helios.plan.typing.schema import Schema
from helios.sources.webhook.bodies import line_of, verified
from helios.sources.webhook.segments import Segments
from helios.sources.webhook.signatures import FORMS, Refused

T = TypeVar("T")

LONGEST_ID = 256
"""The most characters of a delivery id."""

RETRY_AFTER = "5"
"""Seconds that a sender waits after 429 and 503."""

STARTUP_SECONDS = 10.0
"""Seconds after the start in which an unknown path gets 503 instead of 404, since its endpoint may still be opening."""

BODY_SECONDS, SLOWEST_BYTES_PER_SECOND = 20.0, 100_000
"""The timeout of a body is `BODY_SECONDS`, plus the time that the largest allowed body takes at the slowest speed."""

CHECK_SECONDS, RETRY_SECONDS = 0.2, 1.0
"""Seconds between two checks of the disk: usually, and while the disk fails."""

SILENT_SECONDS = 15.0
"""Seconds without a completed check after which the disk is reported as not answering."""

IN_FLIGHT = 64_000_000
"""The most bytes of bodies that may wait for the disk."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A path that accepts deliveries.

    Attributes:
        path: The path of the URL, such as `/orders`.
        secrets: The secrets; any of them may sign a delivery. Without secrets, unsigned deliveries are accepted.
        form: The form of the signatures: a key of `FORMS`.
        schema: The columns that a body must fit; None accepts any JSON.
        extra: The policy for fields that are not declared: "fail", "ignore" or "add".
        max_body_bytes: The limit of a body.
        fraction: The policy for digits of timestamps beyond microseconds: "refuse" or "truncate".
        max_waiting_bytes: The limit of the segments that no run has committed.
        window: Seconds in which a second delivery with the same id is a duplicate.
        seal: Seconds after which an open segment is sealed.
    """

    path: str
    secrets: tuple[Secret, ...]
    form: str = "standard"
    schema: Schema | None = None
    extra: str = "fail"
    fraction: str = "refuse"
    max_body_bytes: int = 1_000_000
    max_waiting_bytes: int = 10_000_000_000
    window: float = 86_400.0
    seal: float = 1.0


@dataclass
class Counts:
    """The numbers of accepted, duplicate and refused deliveries; refused ones by HTTP status."""

    accepted: int = 0
    duplicates: int = 0
    refused: dict[int, int] = field(default_factory=dict)


class Receiver:
    """Takes the deliveries of one endpoint into its segments.

    `log` receives a line when the disk fails, and a line when deliveries are accepted again.
    """

    def __init__(self, endpoint: Endpoint, segments: Segments, log: Callable[[str], None] = lambda line: None) -> None:
        self.endpoint = endpoint
        self.counts = Counts()
        self._log = log
        self._disk_problem = ""
        self._last_check = time.monotonic()
        self._segments = segments
        self._known: dict[str, float] = {}
        self._queue: list[tuple[str, bytes, asyncio.Future[None]]] = []
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._queued_bytes = 0
        self._full = False
        self._wake = asyncio.Event()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="segments")  # Segments are not thread-safe

    # start and stop

    async def open(self) -> None:
        """Opens the segments; deliveries are accepted from now on.

        Raises:
            RunError: Another receiver writes to the segments, or the disk fails.
        """
        self._known = await self._on_disk(self._segments.open)
        self._last_check = time.monotonic()
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._maintain())]
        for task in self._tasks:
            task.add_done_callback(self._on_task_end)

    async def close(self) -> None:
        """Writes the waiting deliveries, and seals the segments.

        Raises:
            RunError: The disk fails.
        """
        self._stopping = True
        self._wake.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._on_disk(self._segments.close)
        finally:
            self._disk.shutdown(wait=False)

    @property
    def problem(self) -> str:
        """The reason why deliveries cannot be stored or sealed now; empty if they can."""
        silent_seconds = time.monotonic() - self._last_check
        if not self._disk_problem and silent_seconds > SILENT_SECONDS:
            return f"{self.endpoint.path}: the disk has not answered for {silent_seconds:.0f} s"
        return self._disk_problem

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """Refuses all deliveries if an error has ended a task, since nothing would be written or sealed any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop_accepting(f"{type(error).__name__}: {error}. Start the receiver again")
            waiting, self._queue = self._queue, []
            self._settle(waiting, RunError(str(error)))

    def _stop_accepting(self, cause: str) -> None:
        if not self._disk_problem:
            self._log(f"{self.endpoint.path} takes no deliveries: {cause}")
        self._disk_problem = f"{self.endpoint.path}: {cause}"

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def _write(self) -> None:
        """Writes all waiting deliveries with one fsync, then those that have arrived meanwhile, and so on."""
        while self._queue or not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                group, self._queue = self._queue, []
                lines = [(delivery_id, line) for delivery_id, line, _ in group]
                try:
                    await self._on_disk(partial(self._segments.append, lines))
                except OSError as error:
                    self._stop_accepting(_cause_of(error))
                    self._settle(group, error)
                except BaseException as error:
                    self._settle(group, RunError(str(error)))
                    raise
                else:
                    self._settle(group, None)

    def _settle(self, group: list[tuple[str, bytes, asyncio.Future[None]]], error: Exception | None) -> None:
        now = time.time()
        for delivery_id, line, done in group:
            self._queued_bytes -= len(line)
            self._pending.pop(delivery_id, None)
            if error is None:
                if delivery_id:
                    self._known[delivery_id] = now
                done.set_result(None)
            else:
                done.set_exception(error)
                done.exception()  # marks the error as seen, since the request may have been cancelled

    async def _maintain(self) -> None:
        """Seals old segments, checks the disk, and removes ids that are older than the window."""
        forgot_at = time.monotonic()
        while not self._stopping:
            await asyncio.sleep(RETRY_SECONDS if self._disk_problem else min(CHECK_SECONDS, self.endpoint.seal))
            try:
                await self._check()
                if time.monotonic() - forgot_at > min(60.0, self.endpoint.window):
                    forgot_at = time.monotonic()
                    oldest = time.time() - self.endpoint.window
                    self._known = {delivery_id: at for delivery_id, at in self._known.items() if at >= oldest}
                    await self._on_disk(self._segments.forget)
            except OSError as error:
                self._stop_accepting(_cause_of(error))
            self._last_check = time.monotonic()

    async def _check(self) -> None:
        """Seals a segment that is old or large enough. After a disk error, tests whether the disk works again."""
        if any(task.done() for task in self._tasks):
            await self._on_disk(self._segments.seal)
            return  # an unknown error has ended the writer: only a restart helps
        if self._disk_problem:
            await self._on_disk(self._segments.mend)
        if self._segments.due or self._segments.age >= self.endpoint.seal:
            await self._on_disk(self._segments.seal)
        self._full = await self._on_disk(self._segments.waiting) >= self.endpoint.max_waiting_bytes
        if self._disk_problem:
            self._disk_problem = ""
            self._log(f"{self.endpoint.path} takes deliveries again")

    # one delivery

    async def take(self, request: Request) -> Response:
        """Answers the request of one delivery."""
        try:
            status = await self._take(request)
        except Refused as refused:
            self.counts.refused[refused.status] = self.counts.refused.get(refused.status, 0) + 1
            headers = {"Retry-After": RETRY_AFTER} if refused.status in (429, 503) else {}
            headers |= {"Connection": "close"} if refused.status == 408 else {}  # the rest of the body may still come
            return JSONResponse({"error": refused.reason}, refused.status, headers)
        return JSONResponse({"status": status})

    async def _take(self, request: Request) -> str:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json" and not (
            content_type.startswith("application/") and content_type.endswith("+json")
        ):
            raise Refused(415, f"Content-Type is {content_type or 'missing'}; send application/json")
        if self._disk_problem or self._stopping:
            raise Refused(503, "the receiver cannot write" if self._disk_problem else "the receiver is stopping")
        if self._full or self._queued_bytes > IN_FLIGHT:
            raise Refused(429, "too many deliveries wait; send it again later")
        body = await self._body(request)
        delivery_id = self._delivery_id(request, body)
        if len(delivery_id) > LONGEST_ID:
            raise Refused(422, f"the delivery id has more than {LONGEST_ID} characters")
        body = verified(body, self.endpoint.schema, self.endpoint.extra, self.endpoint.fraction)
        return await self._store(delivery_id, body)

    async def _body(self, request: Request) -> bytes:
        largest = self.endpoint.max_body_bytes
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > largest:
            raise Refused(413, f"the body has {int(length):,} bytes; {largest:,} are allowed")
        chunks, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS + largest / SLOWEST_BYTES_PER_SECOND):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > largest:
                        raise Refused(413, f"the body has more than {largest:,} bytes")
                    chunks.append(chunk)
        except TimeoutError:
            raise Refused(408, "the body did not arrive in time") from None
        except ClientDisconnect:
            raise Refused(400, "the connection ended within the body") from None
        return b"".join(chunks)

    def _delivery_id(self, request: Request, body: bytes) -> str:
        """Verifies the signature of a delivery, and returns its id; empty for an unsigned delivery without an id."""
        if not self.endpoint.secrets:
            return request.headers.get("webhook-id") or request.headers.get("x-github-delivery") or ""
        return FORMS[self.endpoint.form](request.headers, body, self.endpoint.secrets, time.time())

    async def _store(self, delivery_id: str, body: bytes) -> str:
        """Stores a delivery, and waits until it is durable. Another request with the same id may already store it."""
        duplicate = self._known.get(delivery_id, -math.inf) > time.time() - self.endpoint.window
        if delivery_id in self._pending:
            await self._wait_until_durable(self._pending[delivery_id])
            duplicate = True
        elif not duplicate:
            if self._disk_problem or self._stopping:  # since the request began
                raise Refused(503, "the receiver cannot write; send it again later")
            done = asyncio.get_running_loop().create_future()
            line = line_of(delivery_id, datetime.now(UTC), body, columns=self.endpoint.schema is not None)
            self._queue.append((delivery_id, line, done))
            self._queued_bytes += len(line)
            if delivery_id:
                self._pending[delivery_id] = done
            self._wake.set()
            await self._wait_until_durable(done)
        if duplicate:
            self.counts.duplicates += 1
            return "duplicate"
        self.counts.accepted += 1
        return "accepted"

    async def _wait_until_durable(self, done: asyncio.Future[None]) -> None:
        try:
            await asyncio.shield(done)
        except (OSError, RunError):
            raise Refused(503, "the receiver cannot write; send it again later") from None


def _cause_of(error: OSError) -> str:
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"


def app_of(receivers: Mapping[str, Receiver]) -> Starlette:
    """The HTTP application of receivers by path, with `/healthz`. It follows later changes of the mapping."""
    started_at = time.monotonic()

    async def deliver(request: Request) -> Response:
        receiver = receivers.get(request.url.path)
        if receiver is None and time.monotonic() - started_at < STARTUP_SECONDS:
            return JSONResponse({"error": "nothing is received here yet"}, 503, {"Retry-After": RETRY_AFTER})
        if receiver is None:
            return JSONResponse({"error": "nothing is received here"}, 404)
        return await receiver.take(request)

    async def health(request: Request) -> Response:
        broken = [receiver.problem for receiver in receivers.values() if receiver.problem]
        broken += [] if receivers else ["nothing is received here yet"]
        return JSONResponse({"status": "broken" if broken else "ok", "problems": broken}, 503 if broken else 200)

    return Starlette(routes=[Route("/healthz", health), Route("/{path:path}", deliver, methods=["POST"])])
