"""The step between chunking and embedding: passages get the contexts that are known, and those that may be bought.

Nothing here fails a document: what goes wrong is written down, and the scheduler asks again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from ingest_worker.catalogue import batches, contexts
from ingest_worker.catalogue.batches import Ordered
from ingest_worker.catalogue.contexts import Progress, Subject
from ingest_worker.enrich.batch_wish import Left, left_to_batches
from ingest_worker.enrich.breaker import Breaker
from ingest_worker.enrich.buying import Orders, Stop
from ingest_worker.enrich.charging import charge
from ingest_worker.enrich.context import buy
from ingest_worker.enrich.messages import Answer
from ingest_worker.enrich.model import ContextModel, open_model
from ingest_worker.enrich.prompt import PROMPT_VERSION, Part, split_document
from ingest_worker.enrich.retry import After, after_round, over_budget
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.publish import NewVersion
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk
from shared.prices import TokenUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A version on its way to be published, and the job that it is for."""

    job: ClaimedJob
    version: NewVersion


class Enricher:
    """Adds contexts to passages, for one worker process. While the service is away, documents do not wait for it."""

    def __init__(
        self,
        *,
        open_model: Callable[[Settings], ContextModel] = open_model,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._service = Breaker("contexts", open_model, clock=clock)
        self._clock = clock
        self._now = now

    def close(self) -> None:
        """Close the connections to the service."""
        self._service.close()

    def enrich(self, wanted: Sequence[Wanted], settings: Settings, pool: Pool) -> list[NewVersion]:
        """These versions with the contexts of their passages.

        A version that is served again keeps the contexts that it had.

        Raises:
            LeaseLost: the job is ours no more; what was paid is kept.
        """
        owners = {
            (one.version.audience_id, chunk.chunk_id) for one in wanted if not one.version.again for chunk in one.version.chunks
        }
        if not owners:
            return [one.version for one in wanted]
        with pool.connection() as connection:
            known = contexts.contexts_on_rows(connection, owners)
        return [one.version if one.version.again else self._enrich(one, known, settings, pool) for one in wanted]

    def _enrich(self, wanted: Wanted, known: Mapping[contexts.Owner, str], settings: Settings, pool: Pool) -> NewVersion:
        version, document_id = wanted.version, wanted.job.document_id
        on_rows = {
            chunk.chunk_id: context
            for chunk in version.chunks
            if (context := known.get((version.audience_id, chunk.chunk_id))) is not None
        }
        if settings.context_prefixes == "off" or not version.chunks:
            return _with_contexts(version, on_rows)
        with pool.connection() as connection:
            subject = contexts.subject(connection, document_id)
            if subject is None or not subject.may_leave:
                return _with_contexts(version, on_rows)
            chunk_ids = [chunk.chunk_id for chunk in version.chunks]
            under_way = batches.ordered(connection, document_id, version.audience_id, chunk_ids)
            unknown = [chunk.chunk_id for chunk in version.chunks if subject.asked or chunk.chunk_id not in on_rows]
            bought = contexts.bought(connection, document_id, version.audience_id, unknown, prompt=PROMPT_VERSION)
        have = bought if subject.asked else on_rows | bought
        purchase = _Purchase(wanted, subject, have, settings, pool, now=self._now)
        left = purchase.leave_to_batches(on_rows, under_way)
        stop = None
        if purchase.missing:
            stop = self._service.buy(settings, partial(purchase.buy, clock=self._clock))
        purchase.note(stop, left)
        return replace(_with_contexts(version, on_rows | purchase.have), contexts=True)


class _Purchase:
    """The contexts of one document: those that it has, and those to be bought."""

    def __init__(
        self,
        wanted: Wanted,
        subject: Subject,
        have: dict[uuid.UUID, str],
        settings: Settings,
        pool: Pool,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._job = wanted.job
        self._version = wanted.version
        self._subject = subject
        self._settings = settings
        self._pool = pool
        self._now = now
        self._model_name = settings.context_model
        self._failed: dict[uuid.UUID, str] = {}
        self.have = have
        # A passage that stands twice in a document is asked about once.
        first = {chunk.chunk_id: place for place, chunk in reversed(list(enumerate(self._version.chunks)))}
        self.missing = sorted(place for chunk_id, place in first.items() if chunk_id not in have)

    @property
    def _chunks(self) -> Sequence[Chunk]:
        return self._version.chunks

    def leave_to_batches(self, on_rows: Mapping[uuid.UUID, str], under_way: Ordered) -> Left:
        """What is missing no more for now, since a batch will bring it."""
        if not self.missing:
            return Left(now=())
        with self._pool.connection() as connection:
            left = left_to_batches(
                connection,
                self._job.document_id,
                under_way,
                self._chunks,
                self._parts(),
                self.missing,
                self._settings,
                at_once=any(self._chunks[place].chunk_id in on_rows for place in self.missing),
            )
        self.missing = list(left.now)
        return left

    def _parts(self) -> list[Part]:
        return split_document(
            self._chunks,
            path=self._subject.path,
            title=self._version.title or self._subject.title,
            window_tokens=self._settings.context_window_tokens,
        )

    def buy(self, model: ContextModel, *, clock: Callable[[], float]) -> Stop | None:
        """Ask for what is missing; returns what ended it early."""
        self._model_name = model.name
        orders = Orders(
            refusal=self._refusal,
            keep=self._keep,
            concurrency=self._settings.enrich_concurrency,
            seconds=self._settings.enrich_seconds,
            clock=clock,
        )
        return buy(model, self._chunks, self._parts(), self.missing, orders)

    def _refusal(self, use: TokenUse) -> Stop | None:
        return over_budget(self._pool, self._settings, self._job.document_id, self._model_name, use)

    def _keep(self, place: int, answer: Answer) -> None:
        """Write what was paid and what it gave, at once and together; then look whether we may go on."""
        chunk_id = self._chunks[place].chunk_id
        with self._pool.connection() as connection:
            with connection.transaction():
                charge(connection, self._settings, self._job.document_id, "context", self._model_name, answer.use)
                contexts.keep(
                    connection,
                    self._job.document_id,
                    chunk_id,
                    prompt=PROMPT_VERSION,
                    model=self._model_name,
                    context=answer.context,
                    code=answer.code,
                    reason=answer.reason,
                )
            if answer.context is None:
                self._failed[chunk_id] = answer.reason or ""
            else:
                self.have[chunk_id] = answer.context
            with connection.transaction():
                jobs.fence(connection, self._job)

    def note(self, stop: Stop | None, left: Left) -> None:
        """Write how far it came, and when the rest is asked for."""
        distinct = {chunk.chunk_id for chunk in self._chunks}
        have = len(distinct & self.have.keys())
        attempts = self._subject.attempts
        after = after_round(
            stop, self._failed.values(), attempts, self._now(), code="passages_failed", what="passages have no context"
        )
        if after.code is None and left.stop is not None:
            after = After(code=left.stop.code, reason=left.stop.reason, due_seconds=left.due_seconds, attempts=attempts)
        progress = Progress(
            state="complete" if have == len(distinct) else "partial" if have else "none",
            chunks=len(distinct),
            with_context=have,
            reason_code=after.code,
            reason=after.reason,
            attempts=after.attempts,
            due_seconds=after.due_seconds,
            order_seconds=left.order_seconds,
        )
        with self._pool.connection() as connection:
            contexts.note_progress(connection, self._job.document_id, progress)


def _with_contexts(version: NewVersion, known: Mapping[uuid.UUID, str]) -> NewVersion:
    if not known and all(chunk.context is None for chunk in version.chunks):
        return version
    return replace(version, chunks=tuple(replace(chunk, context=known.get(chunk.chunk_id)) for chunk in version.chunks))
