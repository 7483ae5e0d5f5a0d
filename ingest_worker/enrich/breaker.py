"""A paid model as a worker uses it: opened once, and left alone while its service is away; documents do not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from ingest_worker.enrich.buying import Stop
from ingest_worker.jobs.table import LeaseLost
from shared.config import Settings
from shared.database import is_away
from shared.errors import ConfigurationError

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 30.0

Model = TypeVar("Model")


class Breaker(Generic[Model]):
    """See the module. `what` is bought, for the log."""

    def __init__(self, what: str, open_model: Callable[[Settings], Model], *, clock: Callable[[], float]) -> None:
        self._what = what
        self._open_model = open_model
        self._clock = clock
        self._model: Model | None = None
        self._paused: Stop | None = None
        self._paused_until = 0.0

    def close(self) -> None:
        """Close the connections to the service."""
        close = getattr(self._model, "close", None)
        if close is not None:
            close()

    def buy(self, settings: Settings, buy: Callable[[Model], Stop | None]) -> Stop | None:
        """What ended the purchase early, the model being away included; an error of ours is a reason too.

        Raises:
            LeaseLost: the job is ours no more.
            psycopg.OperationalError, PoolTimeout: PostgreSQL is away.
        """
        if self._paused is not None and self._clock() < self._paused_until:
            return self._paused
        self._paused = None
        try:
            self._model = self._model or self._open_model(settings)
        except ConfigurationError as error:
            stop: Stop | None = Stop(code=error.code, reason=str(error), is_outage=True)
        else:
            stop = self._bought(self._model, buy)
        if stop is not None:
            log.warning("enrichment_left_out", what=self._what, code=stop.code, reason=stop.reason)
            if stop.is_outage:
                self._paused, self._paused_until = stop, self._clock() + (stop.retry_after or _PAUSE_SECONDS)
        return stop

    def _bought(self, model: Model, buy: Callable[[Model], Stop | None]) -> Stop | None:
        try:
            return buy(model)
        except LeaseLost:
            raise
        except Exception as error:
            if is_away(error):
                raise
            log.exception("enrichment_failed", what=self._what)
            return Stop(code="internal_error", reason=f"{type(error).__name__}: {error}")
