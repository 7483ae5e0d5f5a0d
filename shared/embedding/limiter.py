"""How fast a paid or shared service may be asked: one budget for all processes in Redis, or one for each when Redis is away.

The generic cell rate algorithm (ITU-T I.371): of each budget one number is kept, the time at which it is used up. A call moves it
by what it costs, and waits as long as it lies too far ahead.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shared.errors import Outage

if TYPE_CHECKING:
    import redis

BURST_SECONDS = 10.0
"""So much of a budget may be used at once; a single call may be larger, and the next ones wait for it."""

LONGEST_WAIT_SECONDS = 60.0
"""Beyond that the job is put back, and its worker does something else."""

LONGEST_PAUSE_SECONDS = 5.0
"""The same for a pause that the service itself has asked for: whoever works meanwhile would only wait."""

LONGEST_HOLD_SECONDS = 900.0
"""So long a pause is kept by all at most, whatever the service asks for; then one of them asks again."""

_REDIS_SECONDS = 1.0
_AWAY_SECONDS = 5.0
_MINUTE = 60.0
_FOR_EVER = 1e9


class Limiter(Protocol):
    """Asked before each call. Safe for threads and after a fork."""

    def take(self, tokens: int, *, patient: bool) -> None:
        """Wait until a call of so many tokens fits; whoever is not `patient` does not wait, and the others wait for him.

        Raises:
            Outage: it would take longer than LONGEST_WAIT_SECONDS, or the service rests for longer than LONGEST_PAUSE_SECONDS.
        """
        ...

    def hold(self, seconds: float) -> None:
        """The service asked for a pause: everybody who is patient keeps it."""
        ...


class Unlimited:
    """No budget: only the pauses that the service asks for, of which each process knows its own."""

    def take(self, tokens: int, *, patient: bool) -> None:
        """Never waits."""

    def hold(self, seconds: float) -> None:
        """The caller waits by itself."""


class _Local:
    """The budgets of this process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._used_up = [0.0, 0.0]
        self._held_until = 0.0

    def reserve(self, costs: Sequence[float], patience: float, pause_patience: float) -> tuple[float, float]:
        with self._lock:
            now = self._clock()
            used = [max(one, now) for one in self._used_up]
            pause = max(0.0, self._held_until - now)
            wait = max(pause, *(one - now - BURST_SECONDS for one in used))
            if wait <= patience and pause <= pause_patience:
                self._used_up = [one + cost for one, cost in zip(used, costs, strict=True)]
            return wait, pause

    def hold(self, seconds: float) -> None:
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)


# The server's clock counts, in milliseconds. Keys: requests, tokens, pause. Arguments: the two costs, the burst, the patience for
# all and for a pause. It answers how long to wait in all, and how long the pause lasts.
_RESERVE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local burst, patience, pause_patience = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local pause = math.max(0, tonumber(redis.call('GET', KEYS[3]) or '0') - now)
local wait = pause
local used = {}
for i = 1, 2 do
    used[i] = math.max(tonumber(redis.call('GET', KEYS[i]) or '0'), now)
    wait = math.max(wait, used[i] - now - burst)
end
if wait <= patience and pause <= pause_patience then
    for i = 1, 2 do
        local till = used[i] + tonumber(ARGV[i])
        redis.call('SET', KEYS[i], string.format('%.3f', till), 'PX', math.ceil(till - now) + 1000)
    end
end
return {math.ceil(wait), math.ceil(pause)}
"""
_HOLD = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local till = now + tonumber(ARGV[1])
if till > tonumber(redis.call('GET', KEYS[1]) or '0') then
    redis.call('SET', KEYS[1], string.format('%.3f', till), 'PX', math.ceil(tonumber(ARGV[1])) + 1000)
end
return 0
"""


class SharedLimiter:
    """Budgets in requests and tokens a minute (None: no limit) for all who ask `name`, a service and its model.

    `redis_url` None, or Redis away: each process keeps to the whole budget by itself, and looks for Redis again soon.
    """

    def __init__(
        self,
        name: str,
        *,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        redis_url: str | None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        key = hashlib.sha256(name.encode()).hexdigest()[:16]
        self._keys = [f"docwell:limit:{key}:{what}" for what in ("requests", "tokens", "pause")]
        self._request_seconds = _MINUTE / requests_per_minute if requests_per_minute else 0.0
        self._token_seconds = _MINUTE / tokens_per_minute if tokens_per_minute else 0.0
        self._name = name
        self._url = redis_url
        self._sleep = sleep
        self._clock = clock
        self._local = _Local(clock)
        self._client: redis.Redis | None = None
        self._away_until = 0.0

    def take(self, tokens: int, *, patient: bool) -> None:
        """See `Limiter.take`."""
        costs = (self._request_seconds, self._token_seconds * tokens)
        if not patient:
            self._reserve(costs, _FOR_EVER, _FOR_EVER)
            return
        wait, pause = self._reserve(costs, LONGEST_WAIT_SECONDS, LONGEST_PAUSE_SECONDS)
        if pause > LONGEST_PAUSE_SECONDS:
            raise Outage(
                f"{self._name} has asked for a pause, of which {pause:.0f} s are left.",
                code="embedding_rate_limit",
                retry_after=pause,
            )
        if wait > LONGEST_WAIT_SECONDS:
            raise Outage(
                f"The budget for {self._name} is used up for {wait:.0f} s: DOCWELL_EMBEDDING_REQUESTS_PER_MINUTE and"
                " DOCWELL_EMBEDDING_TOKENS_PER_MINUTE say how large it is.",
                code="embedding_budget",
                retry_after=wait - LONGEST_WAIT_SECONDS,
            )
        if wait > 0:
            self._sleep(wait)

    def hold(self, seconds: float) -> None:
        """See `Limiter.hold`."""
        self._local.hold(seconds)
        self._ask(_HOLD, [self._keys[2]], [seconds * 1000])

    def _reserve(self, costs: Sequence[float], patience: float, pause_patience: float) -> tuple[float, float]:
        numbers = [1000 * one for one in (*costs, BURST_SECONDS, patience, pause_patience)]
        answer = self._ask(_RESERVE, self._keys, numbers)
        if answer is None:
            return self._local.reserve(costs, patience, pause_patience)
        wait, pause = answer
        return float(wait) / 1000, float(pause) / 1000

    def _ask(self, script: str, keys: Sequence[str], numbers: Sequence[float]) -> Any:
        """What Redis says; None when it is away, or none is set."""
        if self._url is None or self._clock() < self._away_until:
            return None
        try:
            import redis
        except ImportError:  # an installation without a broker's client
            self._url = None
            return None
        try:
            if self._client is None:
                self._client = redis.Redis.from_url(
                    self._url, socket_connect_timeout=_REDIS_SECONDS, socket_timeout=_REDIS_SECONDS
                )
            return self._client.eval(script, len(keys), *keys, *(f"{number:.3f}" for number in numbers))
        except (redis.RedisError, OSError):
            self._away_until = self._clock() + _AWAY_SECONDS
            return None
