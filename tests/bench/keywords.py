"""Keyword search: agreement with reference BM25 on the retrieval sets and over a large index, and its time, as the reader.

The sets are folders with `corpus.jsonl` and `queries.jsonl` (EVAL_SETS). The reference is bm25s (`pip install bm25s`), over the
same terms. The large index has KEYWORD_CHUNKS chunks of words that follow Zipf's law.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from infra.local.postgres import DATABASE, EmbeddedPostgres
from infra.migrate import migrate
from ingest_worker.catalogue.common_terms import sample_overdue
from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from query_server.access import LOCAL, scope
from query_server.retrieve.bm25 import K1, B
from query_server.retrieve.filters import EVERYTHING
from query_server.retrieve.keyword import FrequencyCache, keyword_leg
from query_server.retrieve.scope import measure
from shared.database import connect
from shared.lexical import LEXICAL_VERSION, MOST_COUNTED, TermKind, sparsevec_text, term_counts
from shared.query_terms import QueryTerm, QueryTerms, query_terms
from shared.tokens import load_token_counter
from tests.asking import NOW
from tests.bench.figures import spread
from tests.bench.instance import ROOT

SETS = Path(os.environ.get("EVAL_SETS", ROOT.parent / "shared" / "eval"))
TOP = 10
LARGE = int(os.environ.get("KEYWORD_CHUNKS", "100000"))
QUESTIONS = 200
_QUESTIONS_OF_A_KIND = 50
_WORDS_OF_A_CHUNK = 130
_VOCABULARY = 100_000

Counts = Mapping[int, int]


def agreement() -> list[dict[str, Any]]:
    """The share of the reference's first ten that the leg has among its best ten, on each set, and on a large index.

    The frequencies of the large index are counted once, and taken from a sample once; `first` is a search that has to ask for
    them, `again` one that knows them.
    """
    if importlib.util.find_spec("bm25s") is None:
        return [{"index": "bm25s is not there (pip install bm25s), left out"}]
    with _postgres() as server:
        rows = [_on_a_set(server, folder) for folder in sorted(SETS.glob("*")) if (folder / "corpus.jsonl").is_file()]
        return rows + _on_a_large_index(server)


class Reference:
    """BM25 by bm25s over chunks that are known by their counts; query terms have weights, which bm25s does not know."""

    def __init__(self, counts: Sequence[Counts]) -> None:
        import bm25s  # type: ignore[import-not-found]  # no part of the installation

        vocabulary: dict[int, int] = {}
        for counted in counts:
            for number in counted:
                vocabulary.setdefault(number, len(vocabulary))
        self._vocabulary = vocabulary
        self.documents = len(counts)
        self._model = bm25s.BM25(method="lucene", k1=K1, b=B)
        repeated = [[vocabulary[number] for number, count in counted.items() for _ in range(count)] for counted in counts]
        self._model.index((repeated, {str(number): place for number, place in vocabulary.items()}), show_progress=False)

    def scores(self, query: QueryTerms) -> npt.NDArray[np.float64]:
        """The score of each chunk."""
        total = np.zeros(self.documents)
        for term in query.terms:
            place = self._vocabulary.get(term.number)
            if place is not None:
                total += term.weight * np.asarray(self._model.get_scores_from_ids([place]), dtype=np.float64)
        return total


def overlap(found: Sequence[int], scores: npt.NDArray[np.float64]) -> float | None:
    """The share of the best ten by `scores` that were found, ties at the border counted as good; None when nothing scores."""
    best = np.sort(scores[scores > 0])[::-1][:TOP]
    if not len(best):
        return None
    good = [place for place in found[:TOP] if float(scores[place]) >= float(best[-1]) * (1 - 1e-5)]
    return len(good) / len(best)


def _on_a_set(server: EmbeddedPostgres, folder: Path) -> dict[str, Any]:
    counter = load_token_counter()
    counts: list[Counts] = []
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        one = json.loads(line)
        name = "a.rs" if "code" in folder.name else "a.md"
        parsed = parse(name, f"# {one['title']}\n\n{one['text']}".encode() if name == "a.md" else one["text"].encode())
        counts += [term_counts(chunk.embedded_text) for chunk in chunk_document(parsed, counter)]
    questions = [json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text().splitlines()]
    rng = random.Random(1)
    asked = [query_terms(one) for one in (rng.sample(questions, QUESTIONS) if len(questions) > QUESTIONS else questions)]
    return {"index": folder.name, **_compare(server, counts, asked)}


_KINDS = {
    "a rare, a middling and two common words": ((2000, 20000), (300, 2000), (20, 100), (3, 20)),
    "four words in 1 to 10 % of chunks each": ((8, 80),) * 4,
    "six words in 3 to 25 % of chunks each": ((3, 30),) * 6,
    "one word in a tenth of the chunks": ((6, 12),),
}
"""What is asked, as ranges of the words' places in the vocabulary, the most frequent first."""


def _on_a_large_index(server: EmbeddedPostgres) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    # Zipf's law as Mandelbrot has it; the head is thinner than that of texts, whose function words queries leave out.
    bounds = np.cumsum(1.0 / (np.arange(_VOCABULARY) + 20))
    bounds /= bounds[-1]
    numbers = rng.choice(10**9 - 1, size=_VOCABULARY, replace=False) + 1
    counts: list[Counts] = []
    for _ in range(LARGE):
        words = np.searchsorted(bounds, rng.random(int(rng.integers(40, 2 * _WORDS_OF_A_CHUNK - 40))))
        distinct, times = np.unique(numbers[words], return_counts=True)
        counts.append(dict(zip(distinct.tolist(), times.tolist(), strict=True)))
    asked = {
        kind: [_synthetic([int(numbers[rng.integers(*band)]) for band in bands]) for _ in range(_QUESTIONS_OF_A_KIND)]
        for kind, bands in _KINDS.items()
    }
    rows: list[dict[str, Any]] = []
    reference = Reference(counts)
    with _filled(server, counts):
        for frequencies in ("counted", "sampled"):
            if frequencies == "sampled":
                with connect(server.url_owner, name="bench", autocommit=True) as connection:
                    began = time.perf_counter()
                    sample_overdue(connection, least=1_000)
                    print(f"a sample takes {time.perf_counter() - began:.2f} s", flush=True)
            for kind, queries in asked.items():
                row = {"index": f"{kind}, {frequencies}", **_ask(server.url_reader, reference, queries)}
                rows.append(row)
    return rows


def _synthetic(numbers: Sequence[int]) -> QueryTerms:
    terms = tuple(
        QueryTerm(number=number, surface=str(number), kind=TermKind.STEM, weight=1.0, word=word)
        for word, number in enumerate(dict.fromkeys(numbers))
    )
    return QueryTerms(text="", terms=terms, identifiers=(), phrases=(), phrase_terms=())


def _compare(server: EmbeddedPostgres, counts: Sequence[Counts], asked: Sequence[QueryTerms]) -> dict[str, Any]:
    with _filled(server, counts):
        return _ask(server.url_reader, Reference(counts), asked)


def _ask(url: str, reference: Reference, asked: Sequence[QueryTerms]) -> dict[str, Any]:
    shares: list[float] = []
    first: list[float] = []
    again: list[float] = []
    with connect(url, name="bench", as_reader=True, autocommit=True) as connection:
        for query in asked:
            cache = FrequencyCache()
            for times in (first, again):
                with connection.transaction():
                    scope(connection, LOCAL)
                    measured = measure(connection, EVERYTHING, now=NOW, rescan_seconds=300)
                    began = time.perf_counter()
                    hits = keyword_leg(connection, measured, EVERYTHING, query, limit=100, cache=cache)
                    times.append((time.perf_counter() - began) * 1000)
            # Exact hits come first on purpose; here only the scores are compared.
            best = [hit.key[1].int - 1 for hit in sorted(hits, key=lambda hit: -hit.score)]
            share = overlap(best, reference.scores(query))
            if share is not None:
                shares.append(share)
    figures = {"first": spread(first), "again": spread(again)}
    return {
        "chunks": reference.documents,
        "questions": len(shares),
        f"overlap of {TOP}": float(np.mean(shares)),
        "least": float(np.min(shares)),
        **{f"{name}, {part}, ms": figures[name][part] for name in figures for part in ("p50", "p95")},
    }


@contextmanager
def _postgres() -> Iterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="docwell-bench-") as name:
        Path(name).chmod(0o711)
        server = EmbeddedPostgres(Path(name) / "home")
        server.start()
        try:
            migrate(server.url_owner, server.url_reader)
            yield server
        finally:
            server.stop()


_WRITE = "COPY docwell.chunk_terms (audience_id, chunk_id, terms, frequencies, length, lexical_version) FROM STDIN"
_INDEX = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'docwell' AND indexname = 'chunk_terms_terms'"
_SIZES = "UPDATE docwell.audience SET version = version + 1, chunk_count = %s, term_total = %s WHERE audience_id = %s"
_DOCUMENT = """
    INSERT INTO docwell.document (source_id, namespace_id, audience_id, path, state, served_version_id, chunk_count)
    SELECT 1, namespace_id, audience_id, 'bench', 'indexed', 1, %s FROM docwell.audience
"""


@contextmanager
def _filled(server: EmbeddedPostgres, counts: Sequence[Counts]) -> Iterator[None]:
    """These chunks in one audience, each with its place as its id; taken out afterwards."""
    with psycopg.connect(server.superuser_conninfo, dbname=DATABASE, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("INSERT INTO docwell.namespace (name) VALUES ('bench') ON CONFLICT DO NOTHING")
        connection.execute(
            "INSERT INTO docwell.audience (namespace_id) SELECT namespace_id FROM docwell.namespace ON CONFLICT DO NOTHING"
        )
        audience, definition = connection.execute(f"SELECT audience_id, ({_INDEX}) FROM docwell.audience").fetchone() or (0, "")
        connection.execute("DROP INDEX docwell.chunk_terms_terms")
        with connection.cursor().copy(_WRITE) as copy:
            for place, counted in enumerate(counts):
                kept = {number: min(count, MOST_COUNTED) for number, count in counted.items()}
                copy.write_row(
                    (audience, uuid.UUID(int=place + 1), list(kept), sparsevec_text(kept), sum(counted.values()), LEXICAL_VERSION)
                )
        connection.execute(definition.encode())
        terms = sum(sum(counted.values()) for counted in counts)
        connection.execute(_SIZES, (len(counts), terms, audience))
        connection.execute(_DOCUMENT, (len(counts),))
        connection.execute("VACUUM ANALYZE docwell.chunk_terms")
        try:
            yield
        finally:
            connection.execute("TRUNCATE docwell.chunk_terms, docwell.term_sample, docwell.common_term")
            connection.execute("DELETE FROM docwell.document")
