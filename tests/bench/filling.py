"""A large index written straight into the tables, as the product would leave it: for measurements of queries alone."""

from __future__ import annotations

import functools
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import Connection, sql

from infra.local.provision import OWNER
from ingest_worker.catalogue.common_terms import sample_overdue
from shared.database import connect
from shared.embedding.fingerprint import Fingerprint
from shared.lexical import MOST_COUNTED, TERM_SPACE, term_counts

DIMENSION = 384
MODEL = Fingerprint(provider="test", model="test", dimension=DIMENSION)
CHUNKS_OF_A_DOCUMENT = 12
WORDS_OF_A_CHUNK = 110
VOCABULARY = 40_000
FRESH = 1_000
"""Vectors that are not yet under the HNSW index, as while an ingest goes on."""

NAMESPACES = (("tiny", 0.0001), ("small", 0.0101), ("big", 1.1))
"""Each namespace with the share of the chunks at which it ends; `tiny` has one document at least."""

_BLOCK = 500 * CHUNKS_OF_A_DOCUMENT
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was written: the vectors, shape (chunks, DIMENSION), and the words of the texts, the most frequent first."""

    vectors: npt.NDArray[np.float32]
    words: Sequence[str]


def make_words(seed: int = 5) -> list[str]:
    """A vocabulary of made-up words."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        found["".join(rng.choice("bcdfghklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 4)))] = None
    return list(found)


def draw_vectors(number: int, *, seed: int = 6, real: Path | None = None) -> npt.NDArray[np.float32]:
    """Unit vectors, shape (number, DIMENSION): around those of the `.npy` file `real`, else around made-up topics.

    A vector lies between two that are near to each other and somewhat beside them, so that neighbourhoods are as uneven as those
    of texts.
    """
    rng = np.random.default_rng(seed)
    if real is not None:
        base = np.load(real).astype(np.float32)
    else:
        # Vectors of e5 lie in a narrow cone: cosines of unrelated texts are 0.7 to 0.8.
        topics = rng.normal(size=(200, DIMENSION)) + 2 * rng.normal(size=DIMENSION)
        base = (topics[rng.integers(200, size=4_000)] + 0.8 * rng.normal(size=(4_000, DIMENSION))).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    near = np.argsort(-(base @ base.T), axis=1)[:, 1:11]
    apart = float(np.mean(np.linalg.norm(base - base[near[:, 0]], axis=1)))
    drawn = np.empty((number, DIMENSION), dtype=np.float32)
    for start in range(0, number, 50_000):
        size = min(number - start, 50_000)
        own = rng.integers(len(base), size=size)
        other = near[own, rng.integers(10, size=size)]
        share = rng.random((size, 1), dtype=np.float32)
        beside = rng.standard_normal((size, DIMENSION), dtype=np.float32) * np.float32(0.7 * apart / DIMENSION**0.5)
        block = base[own] * (1 - share) + base[other] * share + beside
        drawn[start : start + size] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return drawn


def fill(superuser: str, chunks: int, *, real: Path | None = None, seed: int = 4) -> Filled:
    """Write an index of so many chunks into a migrated and empty database.

    `superuser` is where and as whom to connect: COPY is not for those who are under row-level security, as the owner is too.
    """
    vectors = draw_vectors(chunks, real=real)
    words = make_words()
    with connect(superuser, name="fill", autocommit=True) as connection:
        register_vector(connection)
        connection.execute(
            "SELECT set_config('statement_timeout', '0', false), set_config('synchronous_commit', 'off', false),"
            " set_config('maintenance_work_mem', '2GB', false), set_config('session_replication_role', 'replica', false)"
        )
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(OWNER)))
        connection.execute("SELECT docwell.create_embedding_space(%s, 'test', 'test', %s, 'active')", (MODEL.key, DIMENSION))
        connection.execute("RESET ROLE")
        places = _catalogue(connection)
        # These two cost a multiple of all the rest when they are kept up to date row by row.
        indexes = connection.execute(_COSTLY).fetchall()
        for name, _ in indexes:
            connection.execute(sql.SQL("DROP INDEX docwell.{}").format(sql.Identifier(name)))
        for start in range(0, chunks, _BLOCK):
            numbers = range(start, min(chunks, start + _BLOCK))
            _write(connection, list(_chunks(numbers, chunks, words, places, seed)), vectors, indexed_from=FRESH)
        for _, definition in indexes:
            connection.execute(definition.encode())
        connection.execute(_COUNT)
        while sample_overdue(connection) is not None:
            pass  # the scheduler weighs the common terms of one audience at a time
        connection.execute("VACUUM ANALYZE")
    return Filled(vectors=vectors, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    namespace: int
    audience: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    number: int
    place: _Place
    text: str
    counts: Counter[int]

    @property
    def document(self) -> int:
        return self.number // CHUNKS_OF_A_DOCUMENT

    @property
    def chunk_id(self) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, f"chunk {self.number}")

    @property
    def kind(self) -> str:
        return "code" if self.number % 10 == 3 else "table" if self.number % 50 == 7 else "text"


_COSTLY: LiteralString = """
    SELECT indexname, indexdef FROM pg_indexes
    WHERE schemaname = 'docwell' AND (indexdef LIKE '%USING gin%' OR indexdef LIKE '%USING hnsw%')
"""
_DOCUMENTS: LiteralString = """
    COPY docwell.document (document_id, source_id, namespace_id, audience_id, path, state, title, tags, served_version,
        latest_version, chunk_count, source_modified, last_indexed) FROM STDIN
"""
_VERSIONS: LiteralString = """
    COPY docwell.version (version_id, document_id, audience_id, number, state, sha256, size, fingerprint, chunk_count) FROM STDIN
"""
_SERVE: LiteralString = """
    UPDATE docwell.document d SET served_version_id = v.version_id
    FROM docwell.version v WHERE v.document_id = d.document_id AND d.document_id = ANY (%s)
"""
_CHUNKS: LiteralString = """
    COPY docwell.chunk (audience_id, chunk_id, input_id, kind, text, section, tokens) FROM STDIN
"""
_STANDING: LiteralString = """
    COPY docwell.version_chunk (version_id, ordinal, audience_id, chunk_id, line_start, line_end) FROM STDIN
"""
_TERMS: LiteralString = "COPY docwell.chunk_terms (audience_id, chunk_id, terms, frequencies, length) FROM STDIN"
_VECTORS: LiteralString = "COPY docwell.vector_1 (input_id, audience_id, indexed, embedding) FROM STDIN"
_COUNT: LiteralString = """
    UPDATE docwell.audience a SET version = 1, chunk_count = c.chunks, term_total = c.terms
    FROM (SELECT audience_id, count(*) AS chunks, sum(length) AS terms FROM docwell.chunk_terms GROUP BY 1) AS c
    WHERE c.audience_id = a.audience_id
"""


def _catalogue(connection: Connection[Any]) -> dict[str, _Place]:
    places = {}
    for name, _ in NAMESPACES:
        number = _one(connection, "INSERT INTO docwell.namespace (name) VALUES (%s) RETURNING namespace_id", name)
        audience = _one(connection, "INSERT INTO docwell.audience (namespace_id) VALUES (%s) RETURNING audience_id", number)
        places[name] = _Place(namespace=number, audience=audience)
    for name in ("common", "rare"):
        _one(connection, "INSERT INTO docwell.source (name, type) VALUES (%s, 'push') RETURNING source_id", name)
    return places


def _one(connection: Connection[Any], statement: LiteralString, value: object) -> int:
    row = connection.execute(statement, (value,)).fetchone()
    assert row is not None
    return int(row[0])


@functools.cache
def _terms_of(word: str) -> tuple[int, ...]:
    return tuple(term_counts(word))


def _chunks(numbers: range, total: int, words: Sequence[str], places: Mapping[str, _Place], seed: int) -> Iterator[_Chunk]:
    rng = np.random.default_rng((seed, numbers.start))
    # Zipf's law without its head, which queries leave out anyway.
    weights = 1.0 / np.arange(30, 30 + len(words))
    picked = rng.choice(len(words), size=(len(numbers), WORDS_OF_A_CHUNK), p=weights / weights.sum())
    for row, number in enumerate(numbers):
        share = number // CHUNKS_OF_A_DOCUMENT * CHUNKS_OF_A_DOCUMENT / total
        name = next(name for name, end in NAMESPACES if share < end)
        chosen = [words[index] for index in picked[row]]
        identifier = f"ERR-{number:07d}"
        counts = Counter(chain.from_iterable(map(_terms_of, chosen)))
        counts.update(term_counts(identifier))
        yield _Chunk(number=number, place=places[name], text=" ".join([*chosen, identifier]), counts=counts)


def _write(connection: Connection[Any], chunks: Sequence[_Chunk], vectors: npt.NDArray[np.float32], *, indexed_from: int) -> None:
    documents = {chunk.document: chunk.place for chunk in chunks}
    sizes = Counter(chunk.document for chunk in chunks)
    with connection.transaction():
        _copy(connection, _DOCUMENTS, (_document(number, place, sizes[number]) for number, place in documents.items()))
        _copy(
            connection,
            _VERSIONS,
            (
                (number + 1, _document_id(number), place.audience, 1, "indexed", b"", 0, "scaling", sizes[number])
                for number, place in documents.items()
            ),
        )
        connection.execute(_SERVE, ([_document_id(number) for number in documents],))
        _copy(
            connection,
            _CHUNKS,
            (
                (chunk.place.audience, chunk.chunk_id, chunk.chunk_id, chunk.kind, chunk.text, "A > B", WORDS_OF_A_CHUNK)
                for chunk in chunks
            ),
        )
        _copy(connection, _STANDING, map(_standing, chunks))
        _copy(connection, _TERMS, map(_terms, chunks))
        _copy(
            connection,
            _VECTORS,
            (
                (chunk.chunk_id, chunk.place.audience, chunk.number >= indexed_from, HalfVector(vectors[chunk.number]))
                for chunk in chunks
            ),
        )


def _copy(connection: Connection[Any], statement: LiteralString, rows: Iterable[tuple[Any, ...]]) -> None:
    with connection.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _document_id(number: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"document {number}")


def _document(number: int, place: _Place, chunks: int) -> tuple[Any, ...]:
    when = _EPOCH + timedelta(hours=number % 8_000)
    tags = ["all", *(["half"] if number % 2 else []), *(["rare"] if number % 200 == 7 else [])]
    path = f"folder{number % 50:02d}/part{number % 7}/document{number:06d}.md"
    source = 2 if number % 100 == 50 else 1
    return (
        *(_document_id(number), source, place.namespace, place.audience, path, "indexed", f"Document {number}", tags),
        *(1, 1, chunks, when, when),
    )


def _standing(chunk: _Chunk) -> tuple[Any, ...]:
    ordinal = chunk.number % CHUNKS_OF_A_DOCUMENT
    return (chunk.document + 1, ordinal, chunk.place.audience, chunk.chunk_id, 10 * ordinal + 1, 10 * ordinal + 10)


def _terms(chunk: _Chunk) -> tuple[Any, ...]:
    held = sorted(chunk.counts)
    counts = ",".join(f"{number}:{min(MOST_COUNTED, chunk.counts[number])}" for number in held)
    length = sum(chunk.counts.values())
    return (chunk.place.audience, chunk.chunk_id, held, f"{{{counts}}}/{TERM_SPACE}", length)
