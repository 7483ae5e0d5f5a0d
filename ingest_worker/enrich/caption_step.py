"""The step in which pictures become passages: captions that are known, and those that may be bought.

Nothing here fails a document: what goes wrong is written down, and the scheduler asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from ingest_worker.catalogue import captions, ledger
from ingest_worker.catalogue.captions import DECORATION, Known, Progress, Subject
from ingest_worker.enrich.caption_buy import CaptionOrders, buy_captions
from ingest_worker.enrich.caption_model import CaptionModel, open_caption_model
from ingest_worker.enrich.caption_passages import Described, with_captions
from ingest_worker.enrich.caption_prompt import PROMPT_VERSION, question
from ingest_worker.enrich.context import Stop
from ingest_worker.enrich.model import Answer
from ingest_worker.enrich.retry import after_failures, next_try, over_budget
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.pictures import Picture
from ingest_worker.publish import NewVersion
from shared.config import Settings
from shared.database import Pool, is_away
from shared.errors import ConfigurationError, PermanentError
from shared.prices import TokenUse, cost

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A version on its way to be published, the job that it is for, and the pictures of its file."""

    job: ClaimedJob
    version: NewVersion
    pictures: Sequence[Picture]


class Captioner:
    """Adds captions to versions, for one worker process. While the service is away, documents do not wait for it."""

    def __init__(
        self,
        *,
        open_model: Callable[[Settings], CaptionModel] = open_caption_model,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._open_model = open_model
        self._clock = clock
        self._now = now
        self._model: CaptionModel | None = None
        self._paused: Stop | None = None
        self._paused_until = 0.0

    def close(self) -> None:
        """Close the connections to the service."""
        close = getattr(self._model, "close", None)
        if close is not None:
            close()

    def caption(self, shown: Shown, settings: Settings, pool: Pool) -> NewVersion:
        """The version with a passage for each of these pictures whose caption can be had, and no other captions.

        Raises:
            LeaseLost: the job is ours no more; what was paid is kept.
        """
        version, document_id = shown.version, shown.job.document_id
        with pool.connection() as connection, connection.transaction():
            subject = captions.subject(connection, document_id)
            if subject is None:
                return version
            may_buy = settings.vision_captions == "on" and subject.may_leave
            keys = [bytes.fromhex(picture.key) for picture in shown.pictures]
            model = settings.caption_model
            known = captions.known(connection, document_id, version.audience_id, keys, prompt=PROMPT_VERSION, model=model)
        purchase = _Purchase(shown, subject, known, settings, pool)
        stop = self._buy(purchase, settings) if may_buy and purchase.missing else None
        if may_buy and (shown.pictures or subject.noted):
            purchase.note(stop, self._now())
        return with_captions(version, purchase.described())

    def _buy(self, purchase: _Purchase, settings: Settings) -> Stop | None:
        if self._paused is not None and self._clock() < self._paused_until:
            return self._paused
        self._paused = None
        try:
            self._model = self._model or self._open_model(settings)
        except ConfigurationError as error:
            stop: Stop | None = Stop(code=error.code, reason=str(error), is_outage=True)
        else:
            stop = self._bought(purchase, self._model)
        if stop is not None:
            log.warning("captions_left_out", code=stop.code, reason=stop.reason)
            if stop.is_outage:
                self._paused, self._paused_until = stop, self._clock() + (stop.retry_after or _PAUSE_SECONDS)
        return stop

    def _bought(self, purchase: _Purchase, model: CaptionModel) -> Stop | None:
        try:
            return purchase.buy(model, clock=self._clock)
        except jobs.LeaseLost:
            raise
        except Exception as error:
            if is_away(error):
                raise
            log.exception("captions_failed")
            return Stop(code="internal_error", reason=f"{type(error).__name__}: {error}")


class _Purchase:
    """The captions of one document: those that it has, and those to be bought."""

    def __init__(self, shown: Shown, subject: Subject, known: Mapping[bytes, Known], settings: Settings, pool: Pool) -> None:
        self._job = shown.job
        self._version = shown.version
        self._pictures = shown.pictures
        self._subject = subject
        self._settings = settings
        self._pool = pool
        self._failed: dict[str, str] = {}
        self._have = {key.hex(): one for key, one in known.items()}
        # What another model said stays until this one has said something.
        newest = {key for key, one in self._have.items() if one.is_newest}
        self.missing = [picture for picture in shown.pictures if picture.key not in newest]

    def described(self) -> list[Described]:
        """The pictures that have a caption, in their order."""
        return [
            Described(picture=picture, caption=one.caption, model=one.model)
            for picture in self._pictures
            if (one := self._have.get(picture.key)) is not None and one.caption is not None
        ]

    def buy(self, model: CaptionModel, *, clock: Callable[[], float]) -> Stop | None:
        """Ask for what is missing; returns what ended it early."""
        title = self._version.title or self._subject.title
        orders = CaptionOrders(
            question=lambda picture: question(picture, path=self._subject.path, title=title),
            refusal=lambda use: over_budget(self._pool, self._settings, self._job.document_id, model.name, use),
            keep=lambda picture, answer: self._keep(picture, answer, model.name),
            concurrency=self._settings.enrich_concurrency,
            seconds=self._settings.enrich_seconds,
            clock=clock,
        )
        return buy_captions(model, self.missing, orders)

    def _keep(self, picture: Picture, answer: Answer | PermanentError, model: str) -> None:
        """Write what was paid and what it gave, at once and together; then look whether we may go on."""
        if isinstance(answer, Answer):
            caption, code, reason = answer.context, answer.code, answer.reason
        else:
            caption, code, reason = None, answer.code, str(answer)
        with self._pool.connection() as connection:
            with connection.transaction():
                if isinstance(answer, Answer):
                    ledger.record(connection, [self._entry(answer.use, model)])
                captions.keep(
                    connection,
                    self._job.document_id,
                    bytes.fromhex(picture.key),
                    prompt=PROMPT_VERSION,
                    model=model,
                    caption=caption,
                    code=code,
                    reason=reason,
                )
            if caption is not None or code == DECORATION:
                self._have[picture.key] = Known(caption=caption, model=model)
            else:
                self._failed[picture.key] = reason or ""
            with connection.transaction():
                jobs.fence(connection, self._job)

    def _entry(self, use: TokenUse, model: str) -> ledger.Entry:
        return ledger.Entry(
            document_id=self._job.document_id,
            kind="caption",
            model=model,
            use=use,
            money=cost(self._settings.prices, model, use),
        )

    def note(self, stop: Stop | None, now: datetime) -> None:
        """Write how far it came, and when the rest is asked for."""
        total, have = len(self._pictures), sum(one.is_newest for one in self._have.values())
        described = len(self.described())
        code, reason, due, attempts = None, None, None, 0
        if stop is not None:
            code, reason = stop.code, stop.reason
            due, attempts = next_try(stop, self._subject.attempts, now)
        elif self._failed:
            code, reason = "pictures_failed", f"{len(self._failed)} pictures have no caption: {next(iter(self._failed.values()))}"
            due, attempts = after_failures(self._subject.attempts)
        progress = Progress(
            state="complete" if have == total else "partial" if have else "none",
            pictures=total,
            with_caption=described,
            decoration=len(self._have) - described,
            reason_code=code,
            reason=reason,
            attempts=attempts,
            due_seconds=due,
        )
        with self._pool.connection() as connection, connection.transaction():
            keys = [bytes.fromhex(picture.key) for picture in self._pictures]
            captions.note_progress(connection, self._job.document_id, progress, keys)
