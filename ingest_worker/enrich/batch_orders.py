"""Which passages of which documents go into the next batch: those that lack a context, are in no batch, and fit the budgets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from psycopg import Connection

from ingest_worker.catalogue import batches, contexts, documents, ledger, orders
from ingest_worker.catalogue.batches import Order, Ordered
from ingest_worker.catalogue.contexts import Subject
from ingest_worker.catalogue.ledger import Spent
from ingest_worker.catalogue.orders import BATCH, ORDERED, ToOrder
from ingest_worker.enrich import again
from ingest_worker.enrich.batch_choice import Asking, in_batch
from ingest_worker.enrich.batch_wish import BUSY_SECONDS, failed_in_batch, soonest
from ingest_worker.enrich.budget import KINDS, NOTHING, Budget, limits, reason_of, seconds_to_midnight, worth
from ingest_worker.enrich.model import messages_of
from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, PROMPT_VERSION, question, split_document
from ingest_worker.publish import NewVersion
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk

if TYPE_CHECKING:
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

MOST_BYTES = 32 * 1024 * 1024
"""Of a batch. The service takes 256 MB; it is held in memory, and each request shows its document anew."""

MOST_REQUESTS = 10_000
"""Of a batch. The service takes ten times as many; an answer that is lost loses less so."""

_DOCUMENTS_AT_ONCE = 50
_GONE = frozenset({"deleted", "excluded", "failed"})
_NAME_BYTES = 100


@dataclass(kw_only=True)
class Pack:
    """What goes into one batch: passages and their requests, and what the turns of their documents came to.

    `turns`: each with the seconds to the next one, None where nothing is left to order.
    """

    most_bytes: int = MOST_BYTES
    most_requests: int = MOST_REQUESTS
    orders: list[Order] = field(default_factory=list)
    requests: list[MessageCreateParamsNonStreaming] = field(default_factory=list)
    turns: list[tuple[ToOrder, float | None]] = field(default_factory=list)
    owners: set[contexts.Owner] = field(default_factory=set)
    worth: Spent = NOTHING
    size: int = 0
    is_full: bool = False

    def add(self, order: Order, request: MessageCreateParamsNonStreaming, *, audience_id: int) -> bool:
        """Put it in; False when the batch is full without it."""
        size = len(orjson.dumps(request)) + _NAME_BYTES
        if self.orders and (self.size + size > self.most_bytes or len(self.orders) >= self.most_requests):
            self.is_full = True
            return False
        self.orders.append(order)
        self.requests.append(request)
        self.owners.add((audience_id, order.chunk_id))
        self.worth += order.worth
        self.size += size
        return True


class Packer:
    """Takes documents whose turn it is, and writes down what became of the turn of those that order nothing."""

    def __init__(self, settings: Settings, pool: Pool, *, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._pool = pool
        self._now = now

    def fill(self, pack: Pack) -> None:
        """Take documents until it is full or no turn is left."""
        seen: set[uuid.UUID] = set()
        with self._pool.connection() as connection:
            while turns := orders.to_order(connection, limit=_DOCUMENTS_AT_ONCE, but=seen):
                for turn in turns:
                    seen.add(turn.document_id)
                    self._take(connection, pack, turn)
                    if pack.is_full:
                        return

    def _take(self, connection: Connection[Any], pack: Pack, turn: ToOrder) -> None:
        subject = contexts.subject(connection, turn.document_id)
        document = documents.for_jobs(connection, [turn.document_id]).get(turn.document_id)
        if subject is None or document is None:
            return
        if not subject.may_leave or document.pinned_version is not None or document.state in _GONE:
            orders.note_order(connection, turn, code=None, reason=None)
            return
        version = again.as_served(connection, document)
        if version is None:
            # A newer version is on its way; when it is published, its passages are what counts.
            orders.note_order(connection, turn, code=BATCH, reason=ORDERED, order_seconds=BUSY_SECONDS)
            return
        lacking = self._lacking(connection, version)
        bought = contexts.bought(connection, turn.document_id, version.audience_id, list(lacking), prompt=PROMPT_VERSION)
        if bought:
            queued = again.ask(connection, [turn.document_id], max_attempts=self._settings.job_attempts)
            orders.note_order(connection, turn, code=BATCH, reason=ORDERED, order_seconds=None if queued else BUSY_SECONDS)
            return
        self._order(connection, pack, turn, subject, version, lacking)

    def _lacking(self, connection: Connection[Any], version: NewVersion) -> dict[uuid.UUID, int]:
        """Passages without a context, by the first place at which they stand."""
        first = {chunk.chunk_id: place for place, chunk in reversed(list(enumerate(version.chunks)))}
        owners = {(version.audience_id, chunk_id) for chunk_id in first}
        have = {chunk_id for _, chunk_id in contexts.contexts_on_rows(connection, owners)}
        return {chunk_id: place for chunk_id, place in first.items() if chunk_id not in have}

    def _order(
        self,
        connection: Connection[Any],
        pack: Pack,
        turn: ToOrder,
        subject: Subject,
        version: NewVersion,
        lacking: dict[uuid.UUID, int],
    ) -> None:
        known = batches.ordered(connection, turn.document_id, version.audience_id, lacking)
        packed = {chunk_id for chunk_id in lacking if (version.audience_id, chunk_id) in pack.owners}
        under_way = Ordered(own=known.own, others=known.others | packed)
        rest = orders.resting(connection, turn.document_id, lacking, prompt=PROMPT_VERSION)
        free = lacking.keys() - under_way.own - under_way.others - rest.keys()
        next_turn = BUSY_SECONDS if under_way.others else None
        if not free:
            self._note_nothing(connection, turn, under_way, rest, next_turn)
            return
        parts = split_document(
            version.chunks,
            path=subject.path,
            title=version.title or subject.title,
            window_tokens=self._settings.context_window_tokens,
        )
        budget = self._budget(connection, pack, turn.document_id)
        ordered = NOTHING
        for asking in in_batch(parts, version.chunks, {lacking[chunk_id] for chunk_id in free}):
            takes = worth(self._settings.prices, self._settings.context_model, asking.use, in_batch=True)
            refusal = budget.refusal(ordered + takes)
            if refusal is not None:
                next_turn = seconds_to_midnight(self._now()) if refusal == "daily_budget" else None
                if ordered == NOTHING:
                    orders.note_order(connection, turn, code=refusal, reason=reason_of(refusal), order_seconds=next_turn)
                break
            chunk = version.chunks[asking.place]
            order = Order(document_id=turn.document_id, chunk_id=chunk.chunk_id, worth=takes)
            if not pack.add(order, self._request(asking, chunk), audience_id=version.audience_id):
                next_turn = 0.0
                break
            ordered += takes
        if ordered != NOTHING:
            pack.turns.append((turn, next_turn))

    def _request(self, asking: Asking, chunk: Chunk) -> MessageCreateParamsNonStreaming:
        return {
            "model": self._settings.context_model,
            "max_tokens": MOST_ANSWER_TOKENS,
            "system": INSTRUCTIONS,
            "messages": messages_of(asking.part.shown, question(chunk), is_cached=asking.is_cached),
        }

    def _budget(self, connection: Connection[Any], pack: Pack, document_id: uuid.UUID) -> Budget:
        daily, document = limits(self._settings)
        return Budget(
            daily=daily,
            document=document,
            spent_today=ledger.spent_today(connection, KINDS) + pack.worth,
            spent_on_document=ledger.spent_on(connection, document_id, KINDS),
        )

    def _note_nothing(
        self,
        connection: Connection[Any],
        turn: ToOrder,
        under_way: Ordered,
        rest: Mapping[uuid.UUID, float | None],
        next_turn: float | None,
    ) -> None:
        """Nothing can be ordered now: passages are in a batch, of another document too, or failed, or all have their context."""
        if under_way.own or under_way.others:
            orders.note_order(connection, turn, code=BATCH, reason=ORDERED, order_seconds=next_turn)
        elif rest:
            stop = failed_in_batch(rest)
            orders.note_order(connection, turn, code=stop.code, reason=stop.reason, due_seconds=soonest(rest))
        else:
            orders.note_order(connection, turn, code=None, reason=None)
