"""The access token of an application, by its id and secret (OAuth 2.0 client credentials).

One form is posted and one JSON object comes back, so this needs no library: `msal` would bring a second HTTP client with other
timeouts, proxies and errors than the one that all other calls go through.
Source: learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import quote, urlsplit

import httpx
import orjson

from ingest_worker.sources.sharepoint.answers import THROTTLED, parse_object, retry_after
from shared.errors import PermanentError, ServiceUnavailable, TransientError
from shared.source_settings import SharePointSettings

_EARLY = timedelta(minutes=5)
"""A token is renewed so long before its end, or at half of a life shorter than twice that: a call may be long on its way."""


class Token:
    """A token, kept until shortly before its end. Whoever comes while one is asked for waits for it."""

    def __init__(self, settings: SharePointSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._value: str | None = None
        self._renew_at: datetime | None = None

    def value(self) -> str:
        """A token that is good for some minutes.

        Raises:
            PermanentError: the tenant, application or secret is wrong.
            TransientError, ServiceUnavailable: the token endpoint is busy or away.
        """
        with self._lock:
            if self._value is None or self._renew_at is None or self._clock() >= self._renew_at:
                self._value, life = self._ask()
                self._renew_at = self._clock() + life - min(_EARLY, life / 2)
            return self._value

    def forget(self) -> None:
        """The token is not taken any more: the next call gets another one."""
        self._value = None

    def _ask(self) -> tuple[str, timedelta]:
        settings = self._settings
        graph = urlsplit(settings.graph_url)
        form = {
            "grant_type": "client_credentials",
            "client_id": settings.client_id,
            "client_secret": settings.client_secret.get_secret_value(),
            "scope": f"{graph.scheme}://{graph.netloc}/.default",
        }
        url = f"{settings.login_url}/{quote(settings.tenant_id, safe='')}/oauth2/v2.0/token"
        try:
            answer = self._client.post(url, data=form, follow_redirects=False)
        except httpx.TransportError as error:
            raise ServiceUnavailable(
                f"No token could be had from {settings.login_url}: {error or type(error).__name__}.", code="login_away"
            ) from error
        if answer.status_code in THROTTLED or answer.status_code >= 500:
            raise TransientError(
                f"{settings.login_url} answered {answer.status_code} when it was asked for a token.",
                code="login_busy",
                retry_after=retry_after(answer.headers, now=self._clock()),
            )
        if answer.status_code != 200:
            raise PermanentError(
                f"{settings.login_url} gives no token for application {settings.client_id} of tenant {settings.tenant_id}: "
                f"{_reason(answer.content)} Check tenant_id, client_id and client_secret; a secret has an end.",
                code="no_token",
            )
        found = parse_object(answer.content, what="the request for a token")
        value, seconds = found.get("access_token"), found.get("expires_in")
        if not isinstance(value, str) or not value or not isinstance(seconds, int | str) or not str(seconds).isdigit():
            raise TransientError(f"What {settings.login_url} answered holds no token. It is tried again.", code="bad_answer")
        return value, timedelta(seconds=int(seconds))


def _reason(body: bytes) -> str:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(found, dict):
        return ""
    # The first line says what is wrong; the others are ids for the other side's support.
    lines = str(found.get("error_description") or "").splitlines()[:1]
    return " ".join(str(part) for part in (found.get("error"), *lines) if part)[:300]
