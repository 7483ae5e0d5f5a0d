"""Calls to Confluence's REST API over HTTP: who we are, what its answers mean, pages of results, downloads.

`httpx`, which the engine passes in with the source's rate on it, and no library for Confluence: `atlassian-python-api` brings a
second HTTP stack (requests), tries again on its own behind the engine's back instead of telling it of `Retry-After`, and has no
downloads with a limit. What it would save are the dozen paths in `cloud.py` and `data_center.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import orjson

from ingest_worker.intake.read import Refused
from ingest_worker.sources.pace import retry_after_seconds
from shared.errors import PermanentError, ServiceUnavailable, TransientError
from shared.source_settings import ConfluenceSettings

Json = dict[str, Any]
Parameters = Mapping[str, Any]
"""Query parameters: texts, numbers, lists of texts."""

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of JSON. A page's text is at most 5 MB by Confluence's own default limit; lists are far smaller."""

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_MOST_REDIRECTS = 5
_MOST_RESULT_PAGES = 100_000
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_THROTTLED = frozenset((429, 503))
_TRIES = 3
"""How often something is asked when the way to it breaks. Nobody asked us to wait then."""
_BREAKS = frozenset(("connection_broke", "bad_answer", "server_error"))
_MOST_WAITS = 3
_LONGEST_WAIT = 30.0
"""Seconds that are waited out, so often, before the whole source is left alone."""

_LISTING_WAITS = 20
_LISTING_WAIT = 900.0
"""The same within a listing, which would have to begin from its start otherwise."""

T = TypeVar("T")


class NotThere(TransientError):
    """404: it does not exist, or this account may not know that it does. Where nobody expects that, it went meanwhile."""

    def __init__(self, what: str) -> None:
        super().__init__(f"Confluence has {what} no more, or hides it from us (404).", code="not_there")


class Rest:
    """One site, with the account's credentials, which go to that site alone. For any number of threads, but for `waiting_out`."""

    def __init__(self, settings: ConfluenceSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> None:
        self.base = settings.base_url
        self._name = settings.name
        self._client = client
        self._clock = clock
        self._origin = _origin(self.base)
        self._lists = False
        # A client that holds requests back after `Retry-After` (`pace.make_client`); with another one nothing is waited out.
        self._paced = bool(client.event_hooks.get("response"))
        token = settings.api_token.get_secret_value()
        if settings.username is None:
            self._authorization = f"Bearer {token}"
        else:
            pair = f"{settings.username}:{token}".encode()
            self._authorization = "Basic " + base64.b64encode(pair).decode("ascii")

    @contextmanager
    def waiting_out(self) -> Iterator[None]:
        """Within the block the site may ask for more and longer waits before what goes on in it is given up."""
        before, self._lists = self._lists, True
        try:
            yield
        finally:
            self._lists = before

    def _tried(self, ask: Callable[[], T]) -> T:
        broken = waited = 0
        while True:
            try:
                return ask()
            except TransientError as error:
                if error.code in _BREAKS and broken + 1 < _TRIES:
                    broken += 1
                elif self._paced and self._may_wait(error.retry_after, waited):
                    waited += 1
                else:
                    raise

    def _may_wait(self, seconds: float | None, waited: int) -> bool:
        longest, most = (_LISTING_WAIT, _LISTING_WAITS) if self._lists else (_LONGEST_WAIT, _MOST_WAITS)
        return seconds is not None and seconds <= longest and waited < most

    def get(self, path: str, parameters: Parameters | None = None, *, what: str) -> Json:
        """The JSON object at a path below the base address; `what` names it in messages.

        Raises:
            NotThere: 404.
            PermanentError: the account or its permissions are wrong, or this is no Confluence.
            TransientError: throttled (with `retry_after`), a fault of the server, or a broken answer.
            ServiceUnavailable: it cannot be reached.
        """
        found = self.get_any(path, parameters, what=what)
        if not isinstance(found, dict):
            raise TransientError(f"Confluence's answer for {what} is no JSON object.", code="bad_answer")
        return found

    def get_any(self, path: str, parameters: Parameters | None = None, *, what: str) -> Any:
        """As `get`, where an array may come."""
        return self._tried(lambda: self._get(path, parameters, what=what))

    def _get(self, path: str, parameters: Parameters | None, *, what: str) -> Any:
        data = self._fetch(self.base + path, parameters or {}, what=what, accept="application/json", max_bytes=LARGEST_ANSWER)
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            start = data[:200].lstrip().lower()
            if start.startswith((b"<!doctype", b"<html")):
                raise PermanentError(
                    f"{self.base} answers for {what} with a web page, not with JSON: a sign-on page stands before it, or base_url"
                    f" of source {self._name} is wrong. On Cloud it ends with /wiki.",
                    code="not_confluence",
                ) from error
            raise TransientError(
                f"Confluence's answer for {what} broke off or is no JSON: {error}.", code="bad_answer"
            ) from error

    def by_cursor(self, path: str, parameters: Parameters, *, what: str) -> Iterator[Json]:
        """Pages of results where each names the cursor of the next in `_links.next`.

        Only the cursor is taken from that link; the address stays ours, wherever the link may point.
        """
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            more: Parameters = parameters if cursor is None else {**parameters, "cursor": cursor}
            page = self.get(path, more, what=what)
            yield page
            link = links(page).get("next")
            if not link:
                return
            cursor = next(iter(parse_qs(urlsplit(str(link)).query).get("cursor", [])), None)
            if cursor is None or cursor in seen:
                raise TransientError(f"The pages of {what} do not come to an end: {link!r} leads nowhere new.", code="bad_paging")
            seen.add(cursor)

    def by_start(self, path: str, parameters: Parameters, *, limit: int, what: str) -> Iterator[Json]:
        """Pages of results where the next is asked for by its number of first result."""
        start = 0
        for _ in range(_MOST_RESULT_PAGES):
            page = self.get(path, {**parameters, "start": start, "limit": limit}, what=what)
            yield page
            count = len(results(page))
            if not is_more(page, limit=limit):
                return
            start += count
        raise TransientError(f"The pages of {what} do not come to an end.", code="bad_paging")

    def download(self, link: str, *, what: str, max_bytes: int) -> bytes:
        """The bytes behind a link of an attachment, which is redirected to a host for media.

        Raises:
            Refused: more than `max_bytes`.
            NotThere, PermanentError, TransientError, ServiceUnavailable: as `get`.
        """
        url = self.base + link if link.startswith("/") else urljoin(self.base + "/", link)
        return self._tried(lambda: self._fetch(url, {}, what=what, accept="*/*", max_bytes=max_bytes, may_leave=True))

    def _fetch(
        self, url: str, parameters: Parameters, *, what: str, accept: str, max_bytes: int, may_leave: bool = False
    ) -> bytes:
        parameters = {key: value for key, value in parameters.items() if value != ""}
        for _ in range(_MOST_REDIRECTS):
            headers = {"Accept": accept}
            ours = _origin(url) == self._origin
            if ours:
                headers["Authorization"] = self._authorization
            elif not may_leave or (self._origin[0] == "https" and urlsplit(url).scheme != "https"):
                raise PermanentError(
                    f"Confluence sends us to {_shown(url)} for {what}; credentials go to {self.base} alone."
                    f" If the site has moved, change base_url of source {self._name}.",
                    code="other_host",
                )
            try:
                request = self._client.build_request("GET", url, params=parameters or None, headers=headers, timeout=_TIMEOUT)
                if not ours:
                    request.headers.pop("Authorization", None)
                    request.headers.pop("Cookie", None)
                answer = self._client.send(request, stream=True, auth=None, follow_redirects=False)
            except httpx.HTTPError as error:
                raise _unreachable(error, _shown(url), what) from error
            try:
                if answer.status_code in _REDIRECTS and "location" in answer.headers:
                    url, parameters = urljoin(str(answer.url), answer.headers["location"]), {}
                    if urlsplit(url).path.endswith(("/login.action", "/login.jsp")):
                        raise PermanentError(
                            f"Confluence wants us to log in for {what}. Look at api_token of source {self._name}.",
                            code="unauthorized",
                        )
                    continue
                self._check(answer, what=what, ours=ours)
                return _read(answer, what=what, max_bytes=max_bytes)
            except httpx.HTTPError as error:
                raise _unreachable(error, _shown(url), what) from error
            finally:
                answer.close()
        raise PermanentError(
            f"Confluence redirects for {what} without end. Look at base_url of source {self._name}.", code="redirects"
        )

    def _check(self, answer: httpx.Response, *, what: str, ours: bool) -> None:
        status = answer.status_code
        if status == 200:
            return
        if status == 404:
            raise NotThere(what)
        if status in _THROTTLED:
            wait = retry_after_seconds(answer.headers.get("retry-after"), self._clock())
            raise TransientError(f"Confluence asks us to wait ({status} for {what}).", code="throttled", retry_after=wait)
        if status >= 500 or status == 408:
            raise TransientError(f"Confluence answers {status} for {what}.", code="server_error")
        if not ours:
            # A link to the media host that has run out; the next try gets a new one.
            raise TransientError(f"The host of Confluence's media answers {status} for {what}.", code="media_refused")
        if status == 401:
            raise PermanentError(
                f"Confluence does not know the account of source {self._name} (401 for {what}). Make a new API token"
                " (Cloud, with username) or personal access token (Data Center) and set api_token.",
                code="unauthorized",
            )
        if status == 403:
            raise PermanentError(
                f"The account of source {self._name} may not do this (403 for {what}). Give it the permission to use Confluence"
                " and to view the spaces; a scoped token needs the scopes in docs/confluence.md.",
                code="forbidden",
            )
        raise PermanentError(f"Confluence refuses {what} with {status}: {_excerpt(answer)}", code="refused")


def _read(answer: httpx.Response, *, what: str, max_bytes: int) -> bytes:
    told = answer.headers.get("content-length", "")
    parts: list[bytes] = []
    size = 0
    if not (told.isdigit() and int(told) > max_bytes and "content-encoding" not in answer.headers):
        for part in answer.iter_bytes():
            size += len(part)
            if size > max_bytes:
                break
            parts.append(part)
        else:
            return b"".join(parts)
    raise Refused(
        f"{what} has more than {max_bytes:,} bytes. Raise max_bytes of its source, or DOCWELL_MAX_BYTES, to take it.",
        code="too_large",
        size=int(told) if told.isdigit() else None,
    )


def links(thing: Any) -> Json:
    """Its `_links`."""
    found = thing.get("_links") if isinstance(thing, dict) else None
    return found if isinstance(found, dict) else {}


def results(page: Any) -> list[Json]:
    """The objects of a page of results."""
    found = page.get("results") if isinstance(page, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def is_more(page: Any, *, limit: int) -> bool:
    """Whether results come after these. Without a `next` link a page that is full says yes."""
    count = len(results(page))
    if count == 0:
        return False
    if links(page).get("next"):
        return True
    told = page.get("limit") if isinstance(page, dict) else None
    return "_links" not in page and count >= (told if isinstance(told, int) and told > 0 else limit)


def text_of(thing: Any, *path: str) -> str:
    """The text (or number, as text) at this path; empty where there is none."""
    for key in path:
        thing = thing.get(key) if isinstance(thing, dict) else None
    return thing if isinstance(thing, str) else str(thing) if isinstance(thing, int) and not isinstance(thing, bool) else ""


def number_of(thing: Any, *path: str) -> int | None:
    """The whole number at this path."""
    text = text_of(thing, *path)
    return int(text) if text.isascii() and text.isdigit() else None


def time_of(thing: Any, *path: str) -> datetime | None:
    """The time at this path (ISO 8601)."""
    text = text_of(thing, *path)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)


def _shown(url: str) -> str:
    """Without the query: links to media are signed there."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _unreachable(error: httpx.HTTPError, url: str, what: str) -> TransientError:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ServiceUnavailable(
            f"{url} cannot be reached for {what}: {error}. Check base_url and the network.", code="unreachable"
        )
    return TransientError(f"The connection to {url} broke for {what}: {type(error).__name__} {error}", code="connection_broke")


def _excerpt(answer: httpx.Response) -> str:
    for part in answer.iter_bytes():
        return part[:300].decode("utf-8", "replace")
    return ""
