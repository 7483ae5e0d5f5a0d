"""Fetch one document from an address that the settings let in, and from nowhere else, whatever DNS and redirects say.

Each name is resolved once, its addresses are checked, and the connection goes to one of these and not to the name: what DNS says
a moment later does not matter. Each redirect is an address like the first. Proxies of the environment are not used.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import Any

import httpx

from ingest_worker.catalogue.asking import BadQuestion
from ingest_worker.intake.addresses import NotListed, checked_address, host_of, port_of, refusal, shown
from ingest_worker.intake.packing import Body, Taker
from ingest_worker.intake.read import Refused
from shared.config import Settings
from shared.errors import DocwellError, PermanentError, TransientError
from shared.hosts import HostRule, parse_rules

MOST_REDIRECTS = 5
_MOST_ADDRESSES = 4
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 15.0
_PIECE = 64 * 1024
_MOST_WAIT_SECONDS = 3600.0

_HEADERS = {"User-Agent": "Docwell", "Accept": "*/*", "Accept-Encoding": "identity"}
_NO_DOCUMENTS = ("audio/", "video/", "font/", "multipart/")
_NO_WEB_PAGES = (
    *(".pdf", ".docx", ".doc", ".xlsx", ".xls", ".pptx", ".ppt", ".odt", ".ods", ".odp", ".rtf", ".epub", ".msg", ".eml"),
    *(".ipynb", ".csv", ".json", ".zip"),
)

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a name, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The bytes that came, and the media type that the server named."""

    body: Body
    media_type: str


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name by the system's resolver; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """Fetches within these bounds. `private`: hosts that may be at private addresses; `seconds` is for all of it."""

    allowed: tuple[HostRule, ...]
    private: tuple[HostRule, ...] = ()
    max_bytes: int
    seconds: float = 60.0
    resolve: Resolve = resolve
    clock: Callable[[], float] = time.monotonic
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def fetch(self, url: str, *, path: str) -> Fetched:
        """The document at an address; `path` is where it is to stand here, whose ending says what it ought to be.

        Raises:
            Refused: longer than the limit, or of a type that holds no text.
            PermanentError: not allowed, or answered in a way that another try does not change.
            TransientError: not reachable now, busy, or too slow.
        """
        ends = self.clock() + self.seconds
        address = self._checked(url)
        timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
        with httpx.Client(verify=self.tls, trust_env=False, follow_redirects=False, timeout=timeout) as client:
            for _ in range(MOST_REDIRECTS + 1):
                with self._asked(client, address, ends) as response:
                    if not response.has_redirect_location:
                        return self._read(response, address, path, ends)
                    address = self._redirected(address, response.headers["location"])
        raise PermanentError(f"{shown(address)} leads on more than {MOST_REDIRECTS} times.", code="fetch_redirects")

    def _checked(self, url: str) -> httpx.URL:
        try:
            return checked_address(url, allowed=self.allowed)
        except (BadQuestion, NotListed) as error:
            raise PermanentError(str(error), code=error.code) from None

    def _redirected(self, address: httpx.URL, location: str) -> httpx.URL:
        try:
            return checked_address(str(address.join(location)), allowed=self.allowed)
        except (BadQuestion, NotListed, httpx.InvalidURL, ValueError) as error:
            why = str(error) if isinstance(error, PermanentError) else "That is no address."
            code = error.code if isinstance(error, PermanentError) else "bad_url"
            raise PermanentError(f"{shown(address)} leads elsewhere. {why}", code=code) from None

    def _addresses(self, address: httpx.URL) -> list[str]:
        host, port = host_of(address), port_of(address)
        try:
            found = self.resolve(host, port)
        except (OSError, UnicodeError):
            raise TransientError(f"The name {host} cannot be resolved now.", code="fetch_dns") from None
        private = any(rule.admits(address.scheme, host, port) for rule in self.private)
        for one in found:
            reason = refusal(one, private=private)
            if reason is not None:
                cure = "Such addresses are never asked: name another one, or send the bytes."
                if refusal(one, private=True) is None:
                    cure = "If that is meant to be, list the host in DOCWELL_FETCH_PRIVATE_HOSTS."
                raise PermanentError(f"{shown(address)} was not asked: {reason}. {cure}", code="address_not_allowed")
        if not found:
            raise TransientError(f"The name {host} has no address now.", code="fetch_dns")
        return list(found[:_MOST_ADDRESSES])

    @contextlib.contextmanager
    def _asked(self, client: httpx.Client, address: httpx.URL, ends: float) -> Iterator[httpx.Response]:
        """The response, not read yet; whatever stalls is cut off at the end of the time."""
        cord = _Cord()
        timer = threading.Timer(max(0.0, ends - self.clock()), cord.cut)
        timer.daemon = True
        timer.start()
        response: httpx.Response | None = None
        try:
            response = self._connect(client, address, cord)
            yield response
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
            raise self._failed(address, error, late=cord.was_cut) from None
        finally:
            timer.cancel()
            if response is not None:
                with contextlib.suppress(httpx.HTTPError, OSError):
                    response.close()

    def _connect(self, client: httpx.Client, address: httpx.URL, cord: _Cord) -> httpx.Response:
        addresses = self._addresses(address)
        headers = {**_HEADERS, "Host": address.netloc.decode("ascii")}
        for number, one in enumerate(addresses, start=1):
            request = client.build_request("GET", address.copy_with(host=one, fragment=None), headers=headers)
            request.extensions |= {"sni_hostname": host_of(address), "trace": cord.follow}
            try:
                return client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if number == len(addresses) or cord.was_cut or _is_certificate(error):
                    raise
        raise AssertionError("unreachable")

    def _failed(self, address: httpx.URL, error: Exception, *, late: bool) -> DocwellError:
        where = shown(address)
        if _is_certificate(error):
            return PermanentError(f"The certificate of {where} does not hold: it was not asked.", code="fetch_tls")
        if late or isinstance(error, httpx.TimeoutException):
            return TransientError(f"{where} took too long (DOCWELL_FETCH_SECONDS is {self.seconds:g}).", code="fetch_slow")
        return TransientError(f"{where} could not be read: {type(error).__name__}.", code="fetch_failed")

    def _read(self, response: httpx.Response, address: httpx.URL, path: str, ends: float) -> Fetched:
        where, status = shown(address), response.status_code
        if status in {408, 425, 429} or status >= 500:
            raise TransientError(
                f"{where} answered {status}.", code="fetch_status", retry_after=_retry_after(response.headers.get("retry-after"))
            )
        if status != 200:
            cure = " Correct the address, or send a deletion." if status in {404, 410} else ""
            cure = " Docwell sends no credentials; use an address that needs none." if status in {401, 403} else cure
            raise PermanentError(f"{where} answered {status}.{cure}", code="fetch_status")
        if response.headers.get("content-encoding", "identity").lower() not in {"identity", "gzip", "deflate"}:
            raise PermanentError(f"{where} answered in an encoding that nobody asked for.", code="fetch_encoding")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()[:200]
        if kind.startswith(_NO_DOCUMENTS):
            raise Refused(f"{where} answered with {kind}, which holds no text.", code="unsupported")
        if kind == "text/html" and PurePosixPath(path).suffix.lower() in _NO_WEB_PAGES:
            raise PermanentError(
                f"{where} answered with a web page where {path} was expected: it asks for a login, or the address has expired.",
                code="fetch_web_page",
            )
        announced = response.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.max_bytes:
            raise self._too_large(where, int(announced))
        taker, size = Taker(), 0
        for piece in response.iter_bytes(_PIECE):
            size += len(piece)
            if size > self.max_bytes:
                raise self._too_large(where, size)
            if self.clock() > ends:
                raise httpx.ReadTimeout("the time is over")
            taker.take(piece)
        return Fetched(body=taker.body(), media_type=kind)

    def _too_large(self, where: str, size: int) -> Refused:
        return Refused(
            f"{where} has {size:,} bytes or more, the limit is {self.max_bytes:,}. Raise DOCWELL_MAX_BYTES to take it.",
            code="too_large",
        )


class _Cord:
    """The socket in use, so that a timer can cut it; httpcore tells of it by its `trace` extension."""

    def __init__(self) -> None:
        self.was_cut = False
        self._socket: socket.socket | None = None

    def follow(self, event: str, info: dict[str, Any]) -> None:
        """Hear of a connection."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.was_cut:
                self.cut()

    def cut(self) -> None:
        """End whatever reads or writes it."""
        self.was_cut = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def make_fetcher(settings: Settings) -> Fetcher:
    """Within the bounds of the settings."""
    return Fetcher(
        allowed=parse_rules(settings.fetch_allowed_hosts),
        private=parse_rules(settings.fetch_private_hosts),
        max_bytes=settings.max_bytes,
        seconds=settings.fetch_seconds,
    )


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _retry_after(text: str | None) -> float | None:
    """Seconds, of either form of the header (RFC 9110, section 10.2.3), an hour at most."""
    if not text:
        return None
    if text.strip().isdecimal():
        return min(float(text), _MOST_WAIT_SECONDS)
    try:
        wanted = parsedate_to_datetime(text)
    except ValueError:
        return None
    wanted = wanted if wanted.tzinfo is not None else wanted.replace(tzinfo=UTC)
    return min(max(0.0, (wanted - datetime.now(UTC)).total_seconds()), _MOST_WAIT_SECONDS)
