"""The step in which pictures become passages: captions that are known, and those that may be bought.

Nothing here fails a document: what goes wrong is written down, and the scheduler asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from ingest_worker.catalogue import captions
from ingest_worker.catalogue.captions import DECORATION, Known, Progress, Subject
from ingest_worker.enrich.breaker import Breaker
from ingest_worker.enrich.buying import Orders, Round, Stop, buy
from ingest_worker.enrich.caption_model import CaptionModel, open_caption_model
from ingest_worker.enrich.caption_passages import Described, with_captions
from ingest_worker.enrich.caption_prompt import PROMPT_VERSION, estimate, question
from ingest_worker.enrich.charging import charge
from ingest_worker.enrich.messages import Answer
from ingest_worker.enrich.retry import after_round, over_budget
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.pictures import Picture
from ingest_worker.publish import NewVersion
from shared.config import Settings
from shared.database import Pool


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
        self._service = Breaker("captions", open_model, clock=clock)
        self._clock = clock
        self._now = now

    def close(self) -> None:
        """Close the connections to the service."""
        self._service.close()

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
        stop = None
        if may_buy and purchase.missing:
            stop = self._service.buy(settings, partial(purchase.buy, clock=self._clock))
        if may_buy and (shown.pictures or subject.noted):
            purchase.note(stop, self._now())
        return with_captions(version, purchase.described())


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

        def ask(picture: Picture) -> Answer:
            return model.describe(picture.data, question(picture, path=self._subject.path, title=title))

        orders = Orders(
            refusal=lambda use: over_budget(self._pool, self._settings, self._job.document_id, model.name, use),
            keep=partial(self._keep, model.name),
            concurrency=self._settings.enrich_concurrency,
            seconds=self._settings.enrich_seconds,
            clock=clock,
        )
        pictures = Round(items=self.missing, ask=ask, estimate=lambda picture, _is_first: estimate(picture))
        return buy([pictures], orders, name="caption")

    def _keep(self, model: str, picture: Picture, answer: Answer) -> None:
        """Write what was paid and what it gave, at once and together; then look whether we may go on."""
        with self._pool.connection() as connection:
            with connection.transaction():
                charge(connection, self._settings, self._job.document_id, "caption", model, answer.use)
                captions.keep(
                    connection,
                    self._job.document_id,
                    bytes.fromhex(picture.key),
                    prompt=PROMPT_VERSION,
                    model=model,
                    caption=answer.context,
                    code=answer.code,
                    reason=answer.reason,
                )
            if answer.context is not None or answer.code == DECORATION:
                self._have[picture.key] = Known(caption=answer.context, model=model)
            else:
                self._failed[picture.key] = answer.reason or ""
            with connection.transaction():
                jobs.fence(connection, self._job)

    def note(self, stop: Stop | None, now: datetime) -> None:
        """Write how far it came, and when the rest is asked for."""
        total, have = len(self._pictures), sum(one.is_newest for one in self._have.values())
        described = len(self.described())
        after = after_round(
            stop, self._failed.values(), self._subject.attempts, now, code="pictures_failed", what="pictures have no caption"
        )
        progress = Progress(
            state="complete" if have == total else "partial" if have else "none",
            pictures=total,
            with_caption=described,
            decoration=len(self._have) - described,
            reason_code=after.code,
            reason=after.reason,
            attempts=after.attempts,
            due_seconds=after.due_seconds,
        )
        with self._pool.connection() as connection, connection.transaction():
            keys = [bytes.fromhex(picture.key) for picture in self._pictures]
            captions.note_progress(connection, self._job.document_id, progress, keys)
