"""PyIceberg's REST client with timeouts and a pool of connections. Only one thread renews an expired token."""

from __future__ import annotations

import threading
from typing import Any

from pyiceberg.catalog import rest
from pyiceberg.catalog.rest.auth import AuthManager, LegacyOAuth2AuthManager, NoopAuthManager
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

CONNECT_SECONDS = 3.0
READ_SECONDS = 60.0
FIRST_READ_SECONDS = 8.0
CONNECTIONS = 32


class Transport(HTTPAdapter):
    """Keeps connections for many threads, and sets timeouts for servers that do not answer.

    Only the responses 429 and 503 are retried here. After any other failure, the caller tries the next replica.
    """

    def __init__(self) -> None:
        retry = Retry(total=2, connect=0, read=0, other=0, status=2, backoff_factor=0.2, status_forcelist=(429, 503))
        retry.respect_retry_after_header = False
        super().__init__(max_retries=retry, pool_maxsize=CONNECTIONS, pool_block=True)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        # A client's first requests are cheap, so they have a shorter timeout: a working server answers them soon.
        first = str(request.url).partition("?")[0].endswith(("/v1/config", "/tokens"))
        kwargs["timeout"] = kwargs.get("timeout") or (CONNECT_SECONDS, FIRST_READ_SECONDS if first else READ_SECONDS)
        return super().send(request, *args, **kwargs)


class Tokens(LegacyOAuth2AuthManager):
    """Requests tokens for client credentials. If a token expires for several threads, only one of them renews it."""

    def __init__(self, **settings: Any) -> None:
        self._lock = threading.Lock()
        self._sent = threading.local()
        super().__init__(**settings)

    def auth_header(self) -> str:
        self._sent.token = self._token
        return f"Bearer {self._token}"

    def _refresh_token(self) -> None:
        with self._lock:
            if getattr(self._sent, "token", self._token) == self._token:  # otherwise another thread has renewed it
                super()._refresh_token()

    def _fetch_access_token(self, credential: str) -> str:
        # This request uses a session without a token: the signed session would send the expired token with it.
        signed, unsigned = self._session, Session()
        unsigned.headers.update(signed.headers)
        unsigned.adapters = signed.adapters
        self._session = unsigned
        try:
            return super()._fetch_access_token(credential)
        finally:
            self._session = signed


class RestCatalog(rest.RestCatalog):
    """PyIceberg's client of the REST protocol."""

    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this before a new session requests a token.
        super()._config_headers(session)
        for prefix in ("http://", "https://"):
            session.mount(prefix, Transport())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        credential, token = self.properties.get("credential"), self.properties.get("token")
        if credential is None and token is None:
            return NoopAuthManager()  # PyIceberg's own manager would send the token "None"
        return Tokens(
            session=session,
            auth_url=self.auth_url if credential is not None else None,
            credential=credential,
            initial_token=token,
            optional_oauth_params=self._extract_optional_oauth_params(),
        )
