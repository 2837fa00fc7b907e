"""A schema registry that speaks Confluent's HTTP protocol: subjects, versions, ids that never change, a login."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """A registry on loopback, whose port stays the same when it is away for a while.

    Attributes:
        user: The name of the login.
        password: Its password.
        closed: Whether a login is asked for.
        asked: The paths of all questions.
        answer: The status of every answer, instead of its own; None normally.
    """

    user, password = "reader", "registry-password"

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[str] = []
        self.answer: int | None = None
        self._subjects: dict[str, list[int]] = {}
        self._schemas: list[dict[str, Any]] = []
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                status, body = registry.told(self.path, self.headers.get("Authorization", ""))
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def register(self, subject: str, schema: dict[str, Any], **more: Any) -> int:
        """A new version of a subject; equal schemas have one id, as in a real one."""
        entry = {"schema": json.dumps(schema), **more}
        if entry not in self._schemas:
            self._schemas.append(entry)
        id = self._schemas.index(entry) + 100
        self._subjects.setdefault(subject, []).append(id)
        return id

    def told(self, path: str, login: str) -> tuple[int, Any]:
        """The answer to a question: its status, and its body."""
        if self.answer is not None:
            return self.answer, {"error_code": self.answer, "message": "told to say so"}
        right = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if self.closed and login != f"Basic {right}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts == ["subjects"]:
            return 200, sorted(self._subjects)
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2]) - 100
            if not 0 <= number < len(self._schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self._schemas[number]
        if len(parts) == 4 and (parts[0], parts[2], parts[3]) == ("subjects", "versions", "latest"):
            ids = self._subjects.get(parts[1])
            if not ids:
                return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
            entry = self._schemas[ids[-1] - 100]
            return 200, {"subject": parts[1], "version": len(ids), "id": ids[-1], **entry}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
