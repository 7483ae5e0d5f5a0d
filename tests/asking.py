"""A search service over a test's database, with an embedder that knows words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import numpy as np

from query_server.retrieve.encode import Encoder
from query_server.retrieve.rerank import OnDemand
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.database import open_pool
from shared.documents import Chunk
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Embedder, Role, Vectors
from shared.lexical import term_counts
from tests.conftest import Database
from tests.corpus import Corpus

DIMENSION = 64
MODEL = Fingerprint(provider="test", model="test", dimension=DIMENSION)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


class WordEmbedder:
    """Texts with the same words are near: each term points somewhere, and a text to the sum of its terms."""

    fingerprint = MODEL

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        return np.stack([embed_words(text) for text in texts])


def embed_words(text: str) -> Vectors:
    """The vector of a text, shape (DIMENSION,)."""
    total = np.full(DIMENSION, 1e-3)
    for number, count in term_counts(text).items():
        total += count * np.random.default_rng(number).normal(size=DIMENSION)
    vector: Vectors = (total / np.linalg.norm(total)).astype(np.float32)
    return vector


def vectors_of(chunks: Sequence[Chunk]) -> dict[object, Vectors]:
    """What `Corpus.add(vectors=…)` takes."""
    return {chunk.input_id: embed_words(chunk.embedded_text) for chunk in chunks}


def add(corpus: Corpus, path: str, *chunks: Chunk, **facts: object) -> str:
    """Index a document with vectors of its words; returns its id."""
    return str(corpus.add(path, list(chunks), vectors=vectors_of(chunks), **facts))


@contextmanager
def serving(
    database: Database,
    *,
    embedder: Callable[[], Embedder] = WordEmbedder,
    patient: bool = True,
    reranking: OnDemand | None = None,
) -> Iterator[SearchService]:
    """A service that reads as the reader, at NOW."""
    service = SearchService(
        Snapshots(lambda: open_pool(database.reader_url, name="test", as_reader=True, wait_seconds=15)),
        Encoder(embedder, patient=patient),
        rescan_seconds=lambda: 300.0,
        clock=lambda: NOW,
        reranking=reranking,
    )
    try:
        yield service
    finally:
        service.close()
