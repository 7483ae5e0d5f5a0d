"""Looks after batches of contexts: orders them, asks whether they have ended, and keeps what has come.

One process at a time. A batch is written down before it is sent, and the answers are kept document by document, each with its
cost and the end of its order in one transaction: whenever the process dies, none is paid for twice, none lost or counted twice.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from ingest_worker.catalogue import batches, contexts, orders
from ingest_worker.catalogue.batches import Batch
from ingest_worker.catalogue.orders import BATCH, ORDERED
from ingest_worker.enrich.batch_orders import Pack, Packer
from ingest_worker.enrich.batch_service import BatchService, Came, Unsure, name_of, number_of, open_service
from ingest_worker.enrich.charging import charge
from ingest_worker.enrich.prompt import PROMPT_VERSION
from shared.config import Settings
from shared.database import Pool, first_line, open_pool
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable, TransientError
from shared.prices import TokenUse

log = structlog.get_logger(__name__)

TICK_SECONDS = 30.0
GATHER_SECONDS = 300.0
"""What waits for a batch waits so long for others, so that a bulk load is not ordered in a thousand batches."""

_ENOUGH_DOCUMENTS = 200
_LOOKS_AT_ONCE = 10
_ORDERS_AT_ONCE = 4
_SOONEST_LOOK, _LATEST_LOOK = 30.0, 600.0
_ARRIVES_SECONDS = 900.0
"""After so long, an order that the service's list does not show has not arrived, and will not."""

_CLOCKS_DIFFER = timedelta(hours=1)
_UNKNOWN_SECONDS = 48 * 3_600.0
"""A batch that the service does not know for so long is given up: another account's key may have been in use for a while."""

_PAUSE_SECONDS = 300.0
_ANSWERS_AT_ONCE = 200
_KEEP_DAYS = 30
_LOCK = "hashtextextended('docwell.context_batches', 0)"


@contextmanager
def keeping_batches(
    settings: Settings, database_url: str, stop: threading.Event, *, tick_seconds: float = TICK_SECONDS
) -> Iterator[None]:
    """Looks after batches beside the block, in a thread: an order may take minutes to be sent. `stop` ends it."""
    thread = threading.Thread(target=_keep_on, args=(settings, database_url, stop, tick_seconds), name="batches", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)


def _keep_on(settings: Settings, database_url: str, stop: threading.Event, tick_seconds: float) -> None:
    with open_pool(database_url, name="docwell-batches", size=3, autocommit=True) as pool:
        keeper = BatchKeeper(settings, pool)
        while not stop.wait(tick_seconds):
            try:
                keeper.tick()
            except (psycopg.OperationalError, PoolTimeout) as error:
                log.warning("database_unreachable", error=first_line(error))
            except Exception:
                log.exception("batches_failed")
        keeper.close()


class BatchKeeper:
    """See the module. While the service is away, it is left alone for some minutes."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        *,
        open_service: Callable[[Settings], BatchService] = open_service,
        gather_seconds: float = GATHER_SECONDS,
        arrives_seconds: float = _ARRIVES_SECONDS,
        answers_at_once: int = _ANSWERS_AT_ONCE,
        pack: Callable[[], Pack] = Pack,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._open_service = open_service
        self._gather_seconds = gather_seconds
        self._arrives_seconds = arrives_seconds
        self._answers_at_once = answers_at_once
        self._pack = pack
        self._clock = clock
        self._packer = Packer(settings, pool, now=now)
        self._service: BatchService | None = None
        self._paused_until = 0.0

    def close(self) -> None:
        """Close the connections to the service."""
        if self._service is not None:
            self._service.close()
            self._service = None

    def tick(self) -> None:
        """One round: what has ended is fetched, what waits is ordered."""
        with self._pool.connection() as connection:
            waiting = batches.waiting(connection)
        if not (waiting.batches or waiting.documents) or self._clock() < self._paused_until:
            return
        with _alone(self._pool) as is_ours:
            if not is_ours:
                return
            try:
                self._service = self._service or self._open_service(self._settings)
                self._look_after(self._service)
                self._order(self._service)
            except DocwellError as error:
                self._pause(error)

    def _pause(self, error: DocwellError) -> None:
        wanted = error.retry_after if isinstance(error, TransientError) else None
        self._paused_until = self._clock() + max(wanted or 0.0, _PAUSE_SECONDS)
        log.warning("batches_wait", code=error.code, reason=str(error))
        with self._pool.connection() as connection:
            batches.explain_open(connection, str(error))
            if isinstance(error, ConfigurationError):
                orders.explain_waiting(connection, str(error))

    def _look_after(self, service: BatchService) -> None:
        with self._pool.connection() as connection:
            batches.prune(connection, days=_KEEP_DAYS)
            due = batches.due(connection, limit=_LOOKS_AT_ONCE)
        for batch in due:
            try:
                if batch.service_id is None:
                    self._find(service, batch)
                else:
                    self._look(service, batch, batch.service_id)
            except ServiceUnavailable as error:
                # The others come first then; an answer that cannot be read is no reason to order nothing.
                self._later(batch, str(error))
                if error.code != "bad_response":
                    raise
                log.warning("batch_unreadable", batch=batch.service_id, reason=str(error))

    def _look(self, service: BatchService, batch: Batch, service_id: str) -> None:
        found = service.look(service_id)
        if found is None and batch.age_seconds > _UNKNOWN_SECONDS:
            self._lose(batch.batch_id, f"The service knows no batch {service_id}.")
        elif found is not None and found.is_ended and found.has_answers:
            self._keep_all(service, batch, service_id)
        elif found is not None and found.is_ended:
            self._lose(batch.batch_id, f"The answers of {service_id} were thrown away before they were fetched.")
        else:
            unknown = None
            if found is None:
                unknown = f"The service knows no batch {service_id}. Is ANTHROPIC_API_KEY of the account that ordered it?"
                log.warning("batch_unknown", batch=service_id, reason=unknown)
            self._later(batch, unknown)

    def _later(self, batch: Batch, problem: str | None = None) -> None:
        seconds = min(max(batch.age_seconds / 20, _SOONEST_LOOK), _LATEST_LOOK)
        with self._pool.connection() as connection:
            batches.look_later(connection, batch.batch_id, seconds, problem=problem)

    def _find(self, service: BatchService, batch: Batch) -> None:
        """Whether an order of which nothing was heard has arrived. Only the answers say whose a batch is."""
        with self._pool.connection() as connection:
            known = batches.known_ids(connection)
        is_open = False
        for listed in service.ordered_since(batch.created_at - _CLOCKS_DIFFER):
            if listed.service_id in known or listed.requests != batch.requests:
                continue
            if not listed.look.is_ended:
                is_open = True
            elif listed.look.has_answers and self._is_ours(service, batch, listed.service_id):
                log.info("batch_found", batch=listed.service_id)
                with self._pool.connection() as connection:
                    batches.note_arrived(connection, batch.batch_id, listed.service_id, look_in_seconds=0.0)
                self._keep_all(service, batch, listed.service_id)
                return
        if is_open or batch.age_seconds < self._arrives_seconds:
            self._later(batch)
        else:
            self._lose(batch.batch_id, "The order did not arrive.")

    def _is_ours(self, service: BatchService, batch: Batch, service_id: str) -> bool:
        with closing(service.answers(service_id)) as answers:
            first = next(answers, None)
        return first is not None and number_of(batch.batch_id, first.name) is not None

    def _lose(self, batch_id: uuid.UUID, reason: str, *, seconds: float | None = None) -> None:
        log.warning("batch_lost", batch=str(batch_id), reason=reason)
        with self._pool.connection() as connection, connection.transaction():
            documents = batches.lose(connection, batch_id, reason)
            orders.order_again(connection, documents, seconds=self._at_once if seconds is None else seconds, reason=reason)

    @property
    def _at_once(self) -> float:
        """Seconds until a turn that is not to be gathered with others: it has waited long enough already."""
        return -self._gather_seconds

    def _keep_all(self, service: BatchService, batch: Batch, service_id: str) -> None:
        with closing(service.answers(service_id)) as answers:
            while some := list(islice(answers, self._answers_at_once)):
                self._keep(batch, {number: one for one in some if (number := number_of(batch.batch_id, one.name)) is not None})
        with self._pool.connection() as connection:
            left = batches.whose(connection, batch.batch_id)
        nothing = Came(name="", code="no_answer", reason="Its batch ended without an answer to it.")
        self._keep(batch, dict.fromkeys(left, nothing))
        with self._pool.connection() as connection:
            batches.end(connection, batch.batch_id)
        log.info("batch_done", batch=service_id, requests=batch.requests)

    def _keep(self, batch: Batch, came: Mapping[int, Came]) -> None:
        """Keep answers, with what they cost, document by document."""
        with self._pool.connection() as connection:
            numbers: dict[uuid.UUID, list[int]] = defaultdict(list)
            for number, document_id in batches.whose(connection, batch.batch_id, list(came)).items():
                numbers[document_id].append(number)
            for document_id, own in sorted(numbers.items()):
                with connection.transaction():
                    self._keep_document(connection, batch, document_id, {number: came[number] for number in own})

    def _keep_document(
        self, connection: psycopg.Connection[object], batch: Batch, document_id: uuid.UUID, came: Mapping[int, Came]
    ) -> None:
        taken = batches.take(connection, batch.batch_id, document_id, list(came))
        answers = {number: answer for number in taken if (answer := came[number].answer) is not None}
        use = sum((answer.use for answer in answers.values()), TokenUse())
        charge(connection, self._settings, document_id, "context", batch.model, use, in_batch=True)
        for number, chunk_id in taken.items():
            if chunk_id is not None:
                told = answers.get(number) or came[number]
                contexts.keep(
                    connection,
                    document_id,
                    chunk_id,
                    prompt=batch.prompt,
                    model=batch.model,
                    context=answers[number].context if number in answers else None,
                    code=told.code,
                    reason=told.reason,
                )
        orders.order_again(connection, [document_id], seconds=self._at_once)

    def _order(self, service: BatchService) -> None:
        if self._settings.context_prefixes == "off" or self._settings.context_batches == "off":
            return
        with self._pool.connection() as connection:
            waiting = batches.waiting(connection)
        if waiting.seconds is None or (waiting.seconds < self._gather_seconds and waiting.documents < _ENOUGH_DOCUMENTS):
            return
        for _ in range(_ORDERS_AT_ONCE):
            pack = self._pack()
            self._packer.fill(pack)
            if pack.orders:
                self._send(service, pack)
            if not pack.is_full:
                return

    def _send(self, service: BatchService, pack: Pack) -> None:
        batch_id = uuid.uuid4()
        with self._pool.connection() as connection, connection.transaction():
            batches.open_batch(connection, batch_id, pack.orders, model=self._settings.context_model, prompt=PROMPT_VERSION)
            for turn, seconds in pack.turns:
                orders.note_order(connection, turn, code=BATCH, reason=ORDERED, order_seconds=seconds)
        try:
            service_id = service.order([(name_of(batch_id, number), one) for number, one in enumerate(pack.requests)])
        except Unsure as error:
            log.warning("batch_unsure", reason=str(error))
            raise
        except DocwellError as error:
            self._lose(batch_id, str(error), seconds=0.0 if isinstance(error, ConfigurationError | TransientError) else 3600.0)
            raise
        with self._pool.connection() as connection:
            batches.note_arrived(connection, batch_id, service_id, look_in_seconds=_SOONEST_LOOK)
        log.info("batch_ordered", batch=service_id, requests=len(pack.orders), bytes=pack.size)


@contextmanager
def _alone(pool: Pool) -> Iterator[bool]:
    """Whether no other process looks after batches. The lock ends with its session, however that ends."""
    with pool.connection() as connection:
        row = connection.execute(f"SELECT pg_try_advisory_lock({_LOCK})").fetchone()
        is_ours = bool(row and row[0])
        try:
            yield is_ours
        finally:
            if is_ours and not connection.broken:
                connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
