"""PyIceberg's REST client with timeouts, a pool of connections, and tokens that threads renew once."""

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
FIRST_SECONDS = 8.0
CONNECTIONS = 32


class Transport(HTTPAdapter):
    """Keeps connections for many threads, and gives up on a server that does not answer.

    Only what the server refused for the moment is tried again: another replica may be waiting.
    """

    def __init__(self) -> None:
        again = Retry(total=2, connect=0, read=0, other=0, status=2, backoff_factor=0.2, status_forcelist=(429, 503))
        again.respect_retry_after_header = False
        super().__init__(max_retries=again, pool_maxsize=CONNECTIONS, pool_block=True)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        # The first requests of a client are light ones: a server that does not answer them hangs.
        first = str(request.url).partition("?")[0].endswith(("/v1/config", "/tokens"))
        kwargs["timeout"] = kwargs.get("timeout") or (CONNECT_SECONDS, FIRST_SECONDS if first else READ_SECONDS)
        return super().send(request, *args, **kwargs)


class Tokens(LegacyOAuth2AuthManager):
    """Tokens for client credentials, renewed when the server refuses one: once, however many threads it refuses."""

    def __init__(self, **settings: Any) -> None:
        self._lock = threading.Lock()
        self._sent = threading.local()
        super().__init__(**settings)

    def auth_header(self) -> str:
        self._sent.token = self._token
        return f"Bearer {self._token}"

    def _refresh_token(self) -> None:
        with self._lock:
            if getattr(self._sent, "token", self._token) == self._token:  # else another thread was faster
                super()._refresh_token()

    def _fetch_access_token(self, credential: str) -> str:
        # A request for a token must not be signed with the expired one, which the session would do.
        session = Session()
        session.headers.update(self._session.headers)
        session.adapters = self._session.adapters
        kept, self._session = self._session, session
        try:
            return super()._fetch_access_token(credential)
        finally:
            self._session = kept


class RestCatalog(rest.RestCatalog):
    """PyIceberg's client of the REST protocol."""

    def _config_headers(self, session: Session) -> None:
        # The first thing that is done with a new session, before it asks for a token.
        super()._config_headers(session)
        for prefix in ("http://", "https://"):
            session.mount(prefix, Transport())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        credential, token = self.properties.get("credential"), self.properties.get("token")
        if credential is None and token is None:
            return NoopAuthManager()  # PyIceberg's own would send the token "None"
        return Tokens(
            session=session,
            auth_url=self.auth_url if credential is not None else None,
            credential=credential,
            initial_token=token,
            optional_oauth_params=self._extract_optional_oauth_params(),
        )
