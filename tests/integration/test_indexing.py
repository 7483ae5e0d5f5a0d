"""Fresh vectors and those under the index are one table to whoever searches."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest
from pgvector import HalfVector

from ingest_worker import indexing
from ingest_worker.indexing import fresh_vectors, index_some, refresh_statistics
from ingest_worker.jobs.scheduler import run_scheduler
from shared.config import Settings
from shared.database import open_pool
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk, unit_vector


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


def _nearest(corpus: Corpus, seed: str) -> list[object]:
    rows = corpus.connection.execute(
        f"SELECT input_id FROM docwell.{corpus.vectors} ORDER BY embedding <=> %s::halfvec LIMIT 10",
        (HalfVector(unit_vector(seed)),),
    ).fetchall()
    return [row[0] for row in rows]


def test_a_move_under_the_index_changes_no_answer(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk(f"text {number}") for number in range(100)])
    before = _nearest(corpus, "question")
    assert fresh_vectors(corpus.connection, corpus.space_id, cap=1000) == 100
    assert index_some(corpus.connection, idle=True) == indexing.BATCH
    assert _nearest(corpus, "question") == before
    while index_some(corpus.connection, idle=True):
        pass
    assert fresh_vectors(corpus.connection, corpus.space_id, cap=1000) == 0
    assert corpus.count(corpus.vectors) == 100
    assert _nearest(corpus, "question") == before


def test_half_of_the_table_under_the_index_is_searched_by_it_and_the_rest_one_by_one(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk(f"text {number}") for number in range(100)])
    index_some(corpus.connection, idle=True)
    with corpus.connection.transaction():
        corpus.connection.execute("SET LOCAL enable_seqscan = off")
        plan = corpus.connection.execute(
            f"EXPLAIN SELECT input_id FROM docwell.{corpus.vectors} ORDER BY embedding <=> %s::halfvec LIMIT 10",
            (HalfVector(unit_vector("question")),),
        ).fetchall()
    text = "\n".join(row[0] for row in plan)
    assert f"{corpus.vectors}_indexed_embedding_idx" in text
    assert f"{corpus.vectors}_fresh" in text


def test_a_passage_under_the_index_is_not_stored_again_by_another_document(corpus: Corpus) -> None:
    chunk = text_chunk("shared words")
    corpus.add("a.md", [chunk])
    index_some(corpus.connection, idle=True)
    corpus.add("b.md", [chunk], content=b"other")
    assert corpus.count(corpus.vectors) == 1


def test_while_work_is_due_vectors_move_only_when_there_are_too_many(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.add("a.md", [text_chunk(f"text {number}") for number in range(10)])
    assert index_some(corpus.connection, idle=False) == 0
    monkeypatch.setattr(indexing, "CROWDED", 10)
    assert index_some(corpus.connection, idle=False) == 10
    assert corpus.connection.execute("SELECT crowded FROM docwell.embedding_space").fetchone() == (True,)
    assert index_some(corpus.connection, idle=False) == 0
    assert corpus.connection.execute("SELECT crowded FROM docwell.embedding_space").fetchone() == (False,)


def test_the_scheduler_indexes_when_nothing_is_due(database: Database, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk(f"text {number}") for number in range(200)])
    stop = threading.Event()
    with open_pool(database.url, name="test") as pool:
        arguments = (Settings(scheduler_tick_seconds=0.05), pool, lambda _: None, stop)
        thread = threading.Thread(target=run_scheduler, args=arguments, kwargs={"rng": random.Random(1)})
        thread.start()
        try:
            deadline = time.monotonic() + 30
            while fresh_vectors(corpus.connection, corpus.space_id, cap=1000):
                assert time.monotonic() < deadline
        finally:
            stop.set()
            thread.join()


def test_statistics_follow_when_a_good_part_of_a_table_is_new(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk(f"word{number}") for number in range(600)])
    corpus.connection.execute("SELECT pg_stat_force_next_flush()")
    assert refresh_statistics(corpus.connection) >= 3
    row = corpus.connection.execute("SELECT reltuples FROM pg_class WHERE oid = 'docwell.chunk'::regclass").fetchone()
    assert row == (600,)
    assert refresh_statistics(corpus.connection) == 0
