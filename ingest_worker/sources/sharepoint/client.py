"""Calls to Microsoft Graph: tokens, links, batches and downloads. What is asked stands in the neighbouring modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import orjson

from ingest_worker.intake.read import Refused
from ingest_worker.sources.protocol import concerns_one
from ingest_worker.sources.sharepoint.answers import GraphRefused, NotThere, check, parse_object, retry_after
from ingest_worker.sources.sharepoint.token import Token
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError
from shared.source_settings import SharePointSettings

READS = "Files.Read.All or Sites.Read.All"
"""The application permission that reads files; Sites.Selected does for sites that were granted one by one."""

BATCH = 20
"""Requests in one call of `$batch`: learn.microsoft.com/graph/json-batching."""

_TRIES = 3
"""How often a read is tried when the way to Graph breaks. Nobody asked us to wait then, so there is no wait."""

_MOST_STEPS = 5
"""Redirects and broken tries of one download."""

Json = dict[str, Any]

Part = Json | None | PermanentError | TransientError
"""What came of a part of a batch; None: there is nothing (any more)."""

_UNASKED = TransientError("It was not asked for yet.")


class Graph:
    """Microsoft Graph as one application sees it, for any number of threads; the HTTP client belongs to the caller.

    Every call may raise what `answers.check` names, and ServiceUnavailable when Graph cannot be reached.
    """

    def __init__(self, settings: SharePointSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> None:
        self._base = settings.graph_url
        self._origin = _origin(settings.graph_url)
        self._client = client
        self._clock = clock
        self._token = Token(settings, client=client, clock=clock)

    def now(self) -> datetime:
        """The time, as this source is told it."""
        return self._clock()

    def get(self, target: str, *, what: str, needs: str = READS, prefer: Sequence[str] = ()) -> Json:
        """The JSON object at `target`: a path below the endpoint (`/drives/…`), or a link that Graph gave."""
        headers = {"Prefer": ", ".join(prefer)} if prefer else {}
        return parse_object(self._call("GET", target, what=what, needs=needs, headers=headers).content, what=what)

    def get_page(self, target: str, *, what: str, prefer: Sequence[str] = ()) -> tuple[Json, frozenset[str]]:
        """As `get`, and which of the preferences the answer says that it applied."""
        headers = {"Prefer": ", ".join(prefer)} if prefer else {}
        answer = self._call("GET", target, what=what, needs=READS, headers=headers)
        applied = answer.headers.get("Preference-Applied", "")
        return parse_object(answer.content, what=what), frozenset(part.strip().lower() for part in applied.split(","))

    def pages(self, target: str, *, what: str, needs: str = READS) -> Iterator[list[Json]]:
        """The values of a collection, page by page."""
        link: str | None = target
        while link is not None:
            page = self.get(link, what=what, needs=needs)
            yield values_of(page, what=what)
            link = link_of(page, "@odata.nextLink")

    def send(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None,
        *,
        what: str,
        needs: str,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """A call that changes something at Graph; it is tried once, as nobody can tell whether a broken one was heard."""
        answer = self._call(method, target, what=what, needs=needs, headers=headers or {}, body=body, tries=1)
        return parse_object(answer.content, what=what)

    def batch(self, paths: Sequence[str], *, what: str, needs: str = READS) -> list[Part]:
        """The objects at many paths, twenty a call, in their order. A part that is refused, or fails time and again, is its
        error: it costs the others nothing."""
        found: list[Part] = []
        for start in range(0, len(paths), BATCH):
            found += self._batch(paths[start : start + BATCH], what=what, needs=needs)
        return found

    def _batch(self, paths: Sequence[str], *, what: str, needs: str) -> list[Part]:
        found: dict[int, Part] = {}
        for _ in range(_TRIES):
            asked = [number for number in range(len(paths)) if isinstance(found.get(number, _UNASKED), TransientError)]
            if not asked:
                break
            requests = [{"id": str(number), "method": "GET", "url": paths[number]} for number in asked]
            answer = self._call("POST", "/$batch", what=what, needs=needs, headers={}, body={"requests": requests})
            responses = parse_object(answer.content, what=what).get("responses")
            by_id = {str(one.get("id")): one for one in responses if isinstance(one, dict)} if isinstance(responses, list) else {}
            for number in asked:
                part = self._part(by_id.get(str(number)), what=what, needs=needs)
                if isinstance(part, DocwellError) and not concerns_one(part):
                    raise part
                found[number] = part
        return [found[number] for number in range(len(paths))]

    def _part(self, one: Json | None, *, what: str, needs: str) -> Part:
        if one is None or not isinstance(one.get("status"), int):
            return TransientError(f"The answer to {what} leaves out a part. It is tried again.", code="bad_answer")
        headers, body = one.get("headers"), one.get("body")
        try:
            check(
                one["status"],
                headers if isinstance(headers, dict) else {},
                body if isinstance(body, dict) else {},
                what=what,
                needs=needs,
                now=self._clock(),
            )
        except NotThere:
            return None
        except (PermanentError, TransientError) as error:
            return error
        if not isinstance(body, dict):
            return TransientError(f"A part of the answer to {what} is no JSON object. It is tried again.", code="bad_answer")
        return body

    def content(self, target: str, *, what: str, max_bytes: int) -> bytes:
        """The bytes behind a `/content` path.

        Graph answers with a redirect to a host of its own choice, whose address carries its own short-lived proof
        (learn.microsoft.com/graph/api/driveitem-get-content).

        Raises:
            Refused: there are more than `max_bytes`.
        """
        answer = self._call("GET", target, what=what, needs=READS, headers={}, stream_limit=(max_bytes, what))
        if not answer.is_redirect:
            return answer.content
        return self.download(urljoin(str(answer.request.url), answer.headers.get("Location", "")), what=what, max_bytes=max_bytes)

    def download(self, url: str, *, what: str, max_bytes: int) -> bytes:
        """The bytes at an address that Graph gave for them, on whatever host; our token is not sent there.

        Raises:
            Refused: there are more than `max_bytes`.
            TransientError: this download failed; Graph itself may be well.
        """
        for left in reversed(range(_MOST_STEPS)):
            if self._origin[0] == "https" and urlsplit(url).scheme != "https":
                raise PermanentError(f"{what} would be downloaded without encryption; that is not done.", code="not_encrypted")
            try:
                answer = self._read({}, url, "GET", None, stream_limit=(max_bytes, what))
            except ServiceUnavailable as error:
                if left > 0:
                    continue
                raise TransientError(f"The download of {what} broke off. {error}", code="download_failed") from error
            if answer.status_code == 200:
                return answer.content
            if not answer.is_redirect:
                break
            url = urljoin(url, answer.headers.get("Location", ""))
        # The address lives for minutes only and is made anew by the next try: no status of it is final.
        raise TransientError(
            f"{urlsplit(url).hostname} answered {answer.status_code} to {what}; it is tried again with a new address.",
            code="download_failed",
            retry_after=retry_after(answer.headers, now=self._clock()),
        )

    def _call(
        self,
        method: str,
        target: str,
        *,
        what: str,
        needs: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        tries: int = _TRIES,
        stream_limit: tuple[int, str] | None = None,
    ) -> httpx.Response:
        url = self._absolute(target)
        renewed = False
        left = tries
        while True:
            sent = {**headers, "Authorization": f"Bearer {self._token.value()}", "Accept": "application/json"}
            try:
                answer = self._read(sent, url, method, body, stream_limit=stream_limit)
            except ServiceUnavailable:
                left -= 1
                if left > 0:
                    continue
                raise
            if answer.status_code == 401 and not renewed:
                # Revoked, or our clock is wrong: once with a new token.
                self._token.forget()
                renewed = True
                continue
            try:
                check(answer.status_code, answer.headers, answer.content, what=what, needs=needs, now=self._clock())
            except TransientError as error:
                left -= 1
                # When it names a time, or is throttled, nothing more is asked of the whole tenant.
                if left > 0 and error.retry_after is None:
                    continue
                raise
            return answer

    def _read(
        self,
        headers: Mapping[str, str],
        url: str,
        method: str,
        body: Mapping[str, Any] | None,
        *,
        stream_limit: tuple[int, str] | None,
    ) -> httpx.Response:
        sent = dict(headers)
        if body is not None:
            sent["Content-Type"] = "application/json"
        if stream_limit is not None:
            # What a proxy might compress would have no size before it is whole.
            sent["Accept-Encoding"] = "identity"
        try:
            request = self._client.build_request(
                method, url, headers=sent, content=None if body is None else orjson.dumps(dict(body))
            )
            answer = self._client.send(request, auth=None, follow_redirects=False, stream=True)
            try:
                if stream_limit is not None and answer.status_code == 200:
                    return httpx.Response(200, content=_limited(answer, *stream_limit), request=request)
                answer.read()
                return answer
            finally:
                answer.close()
        except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
            raise ServiceUnavailable(
                f"{urlsplit(url).hostname} did not answer: {error or type(error).__name__}.", code="graph_away"
            ) from error

    def _absolute(self, target: str) -> str:
        if target.startswith("/"):
            return self._base + target
        if _origin(target) != self._origin:
            raise PermanentError(
                f"A link leads to {urlsplit(target).hostname}, not to {self._base}: our token is sent nowhere else. "
                f"If graph_url was changed, run `docwell sources sync` to list everything again.",
                code="foreign_link",
            )
        return target


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _limited(answer: httpx.Response, max_bytes: int, what: str) -> bytes:
    told = answer.headers.get("Content-Length", "")
    read = bytearray()
    too_large = told.isdigit() and int(told) > max_bytes
    if not too_large:
        for part in answer.iter_bytes():
            read += part
            if len(read) > max_bytes:
                too_large = True
                break
    if too_large:
        raise Refused(
            f"{what} has more than {max_bytes:,} bytes. Raise max_bytes of the source or DOCWELL_MAX_BYTES to take it.",
            code="too_large",
            size=int(told) if told.isdigit() else None,
        )
    return bytes(read)


def values_of(page: Mapping[str, Any], *, what: str) -> list[Json]:
    """The objects of a page.

    Raises:
        TransientError: it has no list `value`.
    """
    value = page.get("value")
    if not isinstance(value, list):
        raise TransientError(f"The answer to {what} has no list of values. It is tried again.", code="bad_answer")
    return [one for one in value if isinstance(one, dict)]


def link_of(page: Mapping[str, Any], name: str) -> str | None:
    """A link of a page, when it has one."""
    link = page.get(name)
    return link if isinstance(link, str) and link else None


__all__ = ["BATCH", "READS", "Graph", "GraphRefused", "Json", "Part", "link_of", "values_of"]
