"""Vectors of passages, and what they cost where a service is paid for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection

from ingest_worker.catalogue import ledger
from ingest_worker.work import EMBEDDING_REQUESTS, EMBEDDING_TEXTS, EMBEDDING_TOKENS, Work
from shared.documents import Chunk
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Embedder, Metered, Role, TextsRefused
from shared.errors import Outage, PermanentError, TransientError
from shared.prices import Price, TokenUse, cost

Vectors = dict[uuid.UUID, NDArray[np.float32]]
Pay = Callable[[TokenUse, Mapping[uuid.UUID, Chunk]], None]
"""Is told what was used for which passages, by `Chunk.input_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Vectors, and the errors of passages that the model takes in no way, by `Chunk.input_id`."""

    vectors: Vectors = field(default_factory=dict)
    refused: Mapping[uuid.UUID, PermanentError] = field(default_factory=dict)


def identify(embedder: Embedder) -> Fingerprint:
    """Which model it is.

    Raises:
        Outage: it is away.
    """
    try:
        return embedder.fingerprint
    except TransientError as error:
        raise Outage(str(error), code=error.code, retry_after=error.retry_after) from error


def embed(embedder: Embedder, chunks: Mapping[uuid.UUID, Chunk], *, work: Work, pay: Pay) -> Embedded:
    """The vectors of these passages, as far as the model takes them. What it cost is told also when it fails.

    Raises:
        PermanentError, TransientError: as `Embedder.embed`.
        Outage: the embedder takes no other text either, so these are not at fault.
    """
    work.count(EMBEDDING_REQUESTS)
    try:
        rows = _embed(embedder, [chunk.embedded_text for chunk in chunks.values()])
    finally:
        if isinstance(embedder, Metered):
            use = embedder.take_use()
            if use != TokenUse():
                pay(use, chunks)
    found = dict(zip(chunks, rows, strict=True))
    made = Embedded(
        vectors={input_id: row for input_id, row in found.items() if not isinstance(row, PermanentError)},
        refused={input_id: row for input_id, row in found.items() if isinstance(row, PermanentError)},
    )
    work.count(EMBEDDING_TEXTS, by=len(made.vectors))
    work.count(EMBEDDING_TOKENS, by=sum(chunks[input_id].tokens for input_id in made.vectors))
    return made


def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[NDArray[np.float32] | PermanentError]:
    try:
        return list(embedder.embed(texts, Role.PASSAGE))
    except TextsRefused as some:
        return some.rows
    except TransientError as error:
        try:
            embedder.embed(["."], Role.QUERY)
        except TransientError:
            raise Outage(str(error), code=error.code, retry_after=error.retry_after) from error
        raise


def shares_of(
    use: TokenUse, documents: Mapping[uuid.UUID, Sequence[Chunk]], embedded: Mapping[uuid.UUID, Chunk]
) -> dict[uuid.UUID, TokenUse]:
    """What each document has to bear of calls that they share: its part of the tokens; the calls stand with the largest.

    A passage that two of them hold is the first one's.
    """
    left = dict(embedded)
    weights: dict[uuid.UUID, int] = {}
    for document_id, chunks in documents.items():
        own = [found for chunk in chunks if (found := left.pop(chunk.input_id, None)) is not None]
        if own:
            weights[document_id] = sum(chunk.tokens + 1 for chunk in own)
    total = sum(weights.values())
    shares: dict[uuid.UUID, TokenUse] = {}
    given = before = 0
    for document_id, weight in weights.items():
        before += weight
        upto = use.input_tokens * before // total
        shares[document_id] = TokenUse(input_tokens=upto - given)
        given = upto
    if weights:
        largest = max(weights, key=lambda document_id: weights[document_id])
        shares[largest] += TokenUse(calls=use.calls)
    return shares


def record_embedding(
    connection: Connection[Any], shares: Mapping[uuid.UUID, TokenUse], model: str, prices: Mapping[str, Price]
) -> None:
    """Write the shares into the ledger."""
    ledger.record(
        connection,
        [
            ledger.Entry(document_id=document_id, kind="embedding", model=model, use=use, money=cost(prices, model, use))
            for document_id, use in shares.items()
        ],
    )
