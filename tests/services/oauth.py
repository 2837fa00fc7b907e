"""A proxy that asks for a bearer token, which it issues itself: Iceberg's own test catalog lets everybody in."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

from tests.services.proxy import Proxy, Request, Response

TOKEN_PATHS = ("/v1/oauth/tokens", "/oauth2/token")
"""The path of Iceberg's REST protocol, and one such as an identity server of its own has (for `oauth2-server-uri`)."""
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class OAuthProxy(Proxy):
    """A REST catalog behind OAuth2 with client credentials (RFC 6749, 4.4) and token exchange (RFC 8693).

    Args:
        target: The catalog's URL.
        client_id: The only client.
        client_secret: Its secret.
        scope: The scope that a client must ask for.
        expires_in: Seconds that a token is good for.

    Attributes:
        issued: How many tokens were issued.
        refused: How many requests were answered 401.
    """

    def __init__(
        self,
        target: str,
        client_id: str = "helios",
        client_secret: str = "helios-client-secret",
        scope: str = "catalog",
        expires_in: float = 3600.0,
    ) -> None:
        super().__init__(target)
        self.client_id, self.client_secret, self.scope, self.expires_in = client_id, client_secret, scope, expires_in
        self.issued = 0
        self.refused = 0
        self._good_until: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def credential(self) -> str:
        return f"{self.client_id}:{self.client_secret}"

    @property
    def oauth2_server_uri(self) -> str:
        return self.uri + TOKEN_PATHS[1]

    def token(self) -> str:
        """Issues a token, as for a user who brings one."""
        token = f"tok-{secrets.token_hex(16)}"
        with self._lock:
            self._good_until[token] = time.monotonic() + self.expires_in
            self.issued += 1
        return token

    def revoke(self) -> None:
        """No token that was issued is good any more."""
        with self._lock:
            self._good_until.clear()

    def handle(self, request: Request) -> Response | None:
        if urlsplit(request.path).path in TOKEN_PATHS:
            return self._issue(request)
        kind, _, token = request.header("Authorization").partition(" ")
        if kind.lower() == "bearer" and self._good(token):
            return self.forward(request)
        with self._lock:
            self.refused += 1
        message = "the token has expired or is unknown" if token else "no token was given"
        error = {"message": message, "type": "NotAuthorizedException", "code": 401}
        return _json(401, {"error": error}, ("WWW-Authenticate", 'Bearer error="invalid_token"'))

    def _good(self, token: str) -> bool:
        with self._lock:
            return self._good_until.get(token, 0.0) > time.monotonic()

    def _issue(self, request: Request) -> Response:
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        grant = form.get("grant_type")
        if grant not in ("client_credentials", _EXCHANGE):
            return _oauth_error(400, "unsupported_grant_type", f"not {grant!r}")
        client = (form.get("client_id", ""), form.get("client_secret", ""))
        known = self._basic(request) == (self.client_id, self.client_secret) or client == (
            self.client_id,
            self.client_secret,
        )
        if grant == _EXCHANGE:
            bearer = request.header("Authorization").removeprefix("Bearer ")
            if not known and not self._good(bearer):
                return _oauth_error(401, "invalid_client", "the client is unknown")
            if not self._good(form.get("subject_token", "")):
                return _oauth_error(400, "invalid_grant", "the subject token has expired or is unknown")
        elif not known:
            return _oauth_error(401, "invalid_client", "the client is unknown, or its secret is wrong")
        if form.get("scope", self.scope) != self.scope:
            return _oauth_error(400, "invalid_scope", f"{form['scope']!r} is not {self.scope!r}")
        answer = {"access_token": self.token(), "token_type": "Bearer", "expires_in": int(self.expires_in)}
        kind = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"} if grant == _EXCHANGE else {}
        return _json(200, {**answer, **kind, "scope": self.scope})

    @staticmethod
    def _basic(request: Request) -> tuple[str, str] | None:
        kind, _, value = request.header("Authorization").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, secret = base64.b64decode(value).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return unquote(name), unquote(secret)


def _json(status: int, body: object, *headers: tuple[str, str]) -> Response:
    return Response(status, [("Content-Type", "application/json"), *headers], json.dumps(body).encode())


def _oauth_error(status: int, error: str, description: str) -> Response:
    return _json(status, {"error": error, "error_description": description})
