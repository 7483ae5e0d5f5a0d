"""How the size of chunks changes what is found: sets of EVAL_SETS cut anew for each size, asked by meaning and keyword in memory.

Everything but PostgreSQL is the product's: parser, chunker, terms, BM25, local model, fusion. The vectors of a set cost most of
the time, about 0.8 ms of processor time a token.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from query_server.evaluate.corpus_set import read_corpus_set
from query_server.evaluate.metrics import measure
from query_server.evaluate.sets import CorpusDocument, Question, QuestionSet
from query_server.retrieve import bm25
from query_server.retrieve.fusion import RankedList, fuse
from query_server.retrieve.legs import DEPTH
from shared.documents import Chunk
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from shared.embedding.protocol import Role
from shared.lexical import term_counts
from shared.query_terms import query_terms
from shared.tokens import load_token_counter
from tests.bench.retrieving import SETS

SIZES = ((240, 40), (480, 0), (480, 80), (800, 120))
"""Tokens of a chunk at most, and of its overlap."""

NAMES = tuple(os.environ.get("CHUNK_SETS", "claude-docs,cookbook-code-files").split(","))


@dataclass(frozen=True, kw_only=True)
class Index:
    """The chunks of a corpus: their documents, vectors, and which of them hold a term how often."""

    documents: Sequence[str]
    vectors: npt.NDArray[np.float32]
    lengths: npt.NDArray[np.float64]
    postings: Mapping[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


class Remembering:
    """An embedder that does not embed the same text twice: short documents are the same chunks at every size."""

    def __init__(self, model: LocalEmbedder) -> None:
        self._model = model
        self._known: dict[tuple[str, Role], npt.NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str], role: Role) -> npt.NDArray[np.float32]:
        """Vectors, shape (texts, dimension)."""
        missing = [text for text in dict.fromkeys(texts) if (text, role) not in self._known]
        for text, vector in zip(missing, self._model.embed(missing, role), strict=True):
            self._known[text, role] = vector
        return np.stack([self._known[text, role] for text in texts])


def sizes() -> list[dict[str, Any]]:
    """nDCG@10 and hit@5 by document of both legs and the fusion, for each size."""
    rows = []
    model = Remembering(LocalEmbedder(bundled_model_dir(), threads=os.cpu_count() or 1))
    for name in NAMES:
        if not (SETS / name).is_dir():
            rows.append({"set": f"{name} is not there (EVAL_SETS), left out"})
            continue
        found = read_corpus_set(SETS / name)
        queries = model.embed([question.text for question in found.questions], Role.QUERY)
        for size, overlap in SIZES:
            index = _index(found, model, size, overlap, suffix=".rs" if "code" in name else ".md")
            rows.append(
                {"set": name, "tokens": size, "overlap": overlap, "chunks": len(index.documents)}
                | _figures(index, found, queries)
            )
    return rows


def _index(found: QuestionSet, model: Remembering, size: int, overlap: int, *, suffix: str) -> Index:
    chunks = list(_chunks(found.documents or (), size, overlap, suffix))
    counts = [term_counts(chunk.embedded_text) for _, chunk in chunks]
    postings: dict[int, list[tuple[int, int]]] = {}
    for place, counted in enumerate(counts):
        for number, count in counted.items():
            postings.setdefault(number, []).append((place, count))
    return Index(
        documents=[document for document, _ in chunks],
        vectors=model.embed([chunk.embedded_text for _, chunk in chunks], Role.PASSAGE),
        lengths=np.array([sum(counted.values()) for counted in counts], dtype=np.float64),
        postings={
            number: (np.array([p for p, _ in pairs]), np.array([c for _, c in pairs])) for number, pairs in postings.items()
        },
    )


def _chunks(documents: Sequence[CorpusDocument], size: int, overlap: int, suffix: str) -> Iterator[tuple[str, Chunk]]:
    counter = load_token_counter()
    for document in documents:
        text = document.text if suffix != ".md" or not document.title else f"# {document.title}\n\n{document.text}"
        for chunk in chunk_document(parse(f"a{suffix}", text.encode()), counter, size, overlap):
            yield document.id, chunk


def _figures(index: Index, found: QuestionSet, queries: npt.NDArray[np.float32]) -> dict[str, float]:
    totals: dict[str, Counter[str]] = {leg: Counter() for leg in ("keyword", "semantic", "hybrid")}
    for question, vector in zip(found.questions, queries, strict=True):
        ranked = {
            "keyword": _by_terms(index, question.text),
            "semantic": np.argsort(-(index.vectors @ vector), kind="stable")[:DEPTH].tolist(),
        }
        fused = fuse([RankedList(leg=leg, keys=keys) for leg, keys in ranked.items()])
        ranked["hybrid"] = [hit.key for hit in fused]
        for leg, places in ranked.items():
            measured = measure(*_gains(index, places, question))
            totals[leg].update({name: measured[name] for name in ("ndcg@10", "hit@5")})
    return {f"{leg} {name}": totals[leg][name] / len(found.questions) for leg in totals for name in ("ndcg@10", "hit@5")}


def _by_terms(index: Index, query: str) -> list[int]:
    scores = np.zeros(len(index.documents))
    average = float(index.lengths.mean())
    for term in query_terms(query).terms:
        places, counts = index.postings.get(term.number, (np.array([], dtype=np.int64), np.array([], dtype=np.int64)))
        if len(places):
            weight = np.array([term.weight * bm25.idf(len(places), len(index.documents))])
            scores[places] += bm25.scores(counts[:, None], index.lengths[places], weight, average)
    best = np.argsort(-scores, kind="stable")[:DEPTH]
    return [int(place) for place in best if scores[place] > 0]


def _gains(index: Index, places: Sequence[int], question: Question) -> tuple[list[float], list[float]]:
    """The grades of the documents in the order of their best chunk, and all grades that there are."""
    grades = {expected.path: expected.grade for expected in question.expected}
    documents = dict.fromkeys(index.documents[place] for place in places)
    return [grades.get(document, 0.0) for document in documents], [grade for grade in grades.values() if not math.isnan(grade)]
