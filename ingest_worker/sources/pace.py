"""How fast a source is asked, and how long it is left alone: one limit for all sources of an account."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address

import httpx

from ingest_worker.intake.addresses import host_of, refusal, shown
from shared.config import ConnectionSettings
from shared.errors import PermanentError

OPENS_AFTER = 5
"""So many failures in a row open the breaker: then people are told, and the pauses are minutes."""

_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 900.0
_SHORTEST_WAIT_SECONDS = 0.001
LONGEST_RETRY_AFTER = 6 * 3600.0
"""Seconds: what asks for more has a fault, or a proxy before it has, and would stop its source for years."""


class Stopped(Exception):
    """The process ends: whoever waits for a turn gives up."""


def pause_seconds(failures: int) -> float:
    """How long a source is left alone after so many failures in a row: from 5 s, doubling, to 15 min."""
    return min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20))


def breaker_state(failures: int, resume_at: datetime | None, now: datetime) -> str:
    """`closed` (it is asked), `open` (it failed too often and is left alone) or `half-open` (the next try decides)."""
    if failures < OPENS_AFTER:
        return "closed"
    return "open" if resume_at is not None and resume_at > now else "half-open"


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or a date (RFC 9110, 10.2.3), six hours at most; None without a
    readable one."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


class Limiter:
    """Lets at most `rate` requests a second through, on the average; a second's worth may come at once."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = self._most
        self._at = clock()
        self._paused_until = 0.0

    def slower(self, rate: float) -> None:
        """Another source of the account has its own rate: the lower one holds."""
        with self._lock:
            self._rate = min(self._rate, rate)
            self._most = max(1.0, self._rate)

    def pause(self, seconds: float) -> None:
        """Let nothing through for so long."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    def take(self, stop: threading.Event) -> None:
        """Wait for a turn.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        while True:
            wait = self._try()
            if wait <= 0:
                return
            if stop.wait(wait):
                raise Stopped

    def _try(self) -> float:
        with self._lock:
            now = self._clock()
            self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
            self._at = now
            if now < self._paused_until:
                return self._paused_until - now
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                return 0.0
            # At least as long as any clock can tell apart, or rounding would make it wait for nothing for ever.
            return max((1.0 - self._tokens) / self._rate, _SHORTEST_WAIT_SECONDS)


class Pace:
    """The limiters of a process, by account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limiters: dict[str, Limiter] = {}

    def limiter(self, settings: ConnectionSettings) -> Limiter:
        """The limiter of a source's account."""
        with self._lock:
            found = self._limiters.setdefault(settings.limiter, Limiter(settings.rate))
        found.slower(settings.rate)
        return found


def make_client(
    limiter: Limiter, stop: threading.Event, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> httpx.Client:
    """An HTTP client whose every request waits for its turn. A `Retry-After` holds back all requests of the account.

    It follows no redirects by itself, so that no secret goes to another host unseen; and it asks no address where a cloud keeps
    its metadata, whatever a redirect or a link of the other side says.
    """

    def before(request: httpx.Request) -> None:
        if stop.is_set():
            raise Stopped
        _refuse_metadata(request.url)
        limiter.take(stop)

    def after(response: httpx.Response) -> None:
        if response.status_code in {429, 503, 509}:
            seconds = retry_after_seconds(response.headers.get("retry-after"), now())
            if seconds:
                limiter.pause(seconds)

    return httpx.Client(
        timeout=httpx.Timeout(30.0, connect=10.0),
        headers=_headers(),
        event_hooks={"request": [before], "response": [after]},
    )


def _refuse_metadata(url: httpx.URL) -> None:
    try:
        ip_address(host_of(url))
    except ValueError:
        return  # a name
    reason = refusal(host_of(url), private=True)
    if reason is not None:
        raise PermanentError(f"{shown(url)} is not asked: {reason}. No source is there.", code="address_refused")


def _headers() -> Mapping[str, str]:
    try:
        own = version("docwell")
    except PackageNotFoundError:
        own = "0"
    return {"User-Agent": f"docwell/{own}"}
