"""The swap: what is served, what is kept, what goes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest_worker.indexing import index_some
from ingest_worker.jobs.table import LeaseLost
from ingest_worker.publish import VectorsMissing, unpublish
from shared.documents import DocumentState, Span
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk, unit_vector


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


def _served(corpus: Corpus, path: str) -> tuple[object, ...]:
    row = corpus.connection.execute(
        "SELECT state, searchable, served_version, latest_version, chunk_count FROM docwell.document WHERE path = %s", (path,)
    ).fetchone()
    assert row is not None
    return tuple(row)


def _stamps(corpus: Corpus) -> dict[object, object]:
    """Where each vector row lies and which transaction wrote it: a row that is rewritten changes both."""
    rows = corpus.connection.execute(f"SELECT input_id, (ctid, xmin)::text FROM docwell.{corpus.vectors}").fetchall()
    return dict(rows)


def test_a_published_document_is_searchable_with_its_version(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("alpha"), text_chunk("beta")])
    assert _served(corpus, "a.md") == ("indexed", True, 1, 1, 2)
    assert corpus.count("chunk_terms") == 2
    assert corpus.count(corpus.vectors) == 2


def test_an_edit_keeps_the_rows_of_unchanged_chunks_untouched(corpus: Corpus) -> None:
    first, second, changed = text_chunk("alpha"), text_chunk("beta"), text_chunk("gamma")
    document = corpus.ask("a.md")
    corpus.serve(corpus.claim(), [first, second])
    before = _stamps(corpus)
    corpus.ask("a.md")
    done = corpus.serve(corpus.claim(), [first, changed])
    assert (done.result, done.chunks) == ("indexed", 2)
    after = _stamps(corpus)
    assert after[first.input_id] == before[first.input_id]
    assert set(after) == {first.input_id, changed.input_id}
    assert corpus.count("chunk") == 3, "the old version keeps its text"
    assert document is not None


def test_a_shifted_chunk_rewrites_no_vector(corpus: Corpus) -> None:
    chunk = text_chunk("alpha")
    corpus.ask("a.md")
    corpus.serve(corpus.claim(), [chunk])
    before = _stamps(corpus)
    corpus.ask("a.md")
    moved = replace(chunk, span=Span(line_start=7, line_end=9))
    corpus.serve(corpus.claim(), [moved], content=b"\n\n\nalpha")
    assert _stamps(corpus) == before
    row = corpus.connection.execute(
        "SELECT line_start FROM docwell.version_chunk v JOIN docwell.document d ON d.served_version_id = v.version_id"
    ).fetchone()
    assert row == (7,)


def test_a_passage_of_two_documents_stays_until_the_last_one_goes(corpus: Corpus) -> None:
    shared = text_chunk("the same words")
    corpus.add("a.md", [shared])
    corpus.add("b.md", [shared], vectors={})
    assert corpus.count(corpus.vectors) == 1
    for path, left in (("a.md", 1), ("b.md", 0)):
        corpus.ask(path)
        assert unpublish(corpus.connection, corpus.claim()) is False
        assert (corpus.count(corpus.vectors), corpus.count("chunk_terms"), corpus.count("chunk")) == (left, left, left)
        assert _served(corpus, path)[:2] == ("deleted", False)


def test_statistics_follow_what_is_served(corpus: Corpus) -> None:
    def stats() -> tuple[object, ...] | None:
        return corpus.connection.execute("SELECT chunk_count, term_total, version FROM docwell.audience").fetchone()

    corpus.add("a.md", [text_chunk("alpha beta"), text_chunk("gamma")])
    first = stats()
    assert first is not None
    assert first[0] == 2
    total = corpus.connection.execute("SELECT sum(length) FROM docwell.chunk_terms").fetchone()
    assert total is not None
    assert first[1] == total[0]
    corpus.ask("a.md")
    unpublish(corpus.connection, corpus.claim())
    assert stats() == (0, 0, 2)


def test_vectors_that_went_meanwhile_are_asked_for_and_nothing_is_written(corpus: Corpus) -> None:
    chunk = text_chunk("alpha")
    corpus.ask("a.md")
    with pytest.raises(VectorsMissing) as missing:
        corpus.serve(corpus.claim(), [chunk], vectors={})
    assert missing.value.inputs == {chunk.input_id}
    assert corpus.count("chunk") == 0
    assert _served(corpus, "a.md")[1] is False


def test_a_worker_that_lost_its_lease_writes_nothing(corpus: Corpus) -> None:
    corpus.ask("a.md")
    job = corpus.claim()
    corpus.connection.execute(
        "UPDATE docwell.job SET lease_until = now() - interval '1 s', state = 'retrying', next_run_at = now()"
    )
    corpus.claim()
    with pytest.raises(LeaseLost):
        corpus.serve(job, [text_chunk("alpha")])
    assert corpus.count("chunk") == 0


def test_a_version_without_text_takes_the_old_one_out(corpus: Corpus) -> None:
    corpus.add("a.pdf", [text_chunk("alpha")])
    corpus.ask("a.pdf")
    corpus.serve(corpus.claim(), [], content=b"a picture", state=DocumentState.NEEDS_OCR)
    assert _served(corpus, "a.pdf") == ("needs_ocr", False, None, 2, 0)
    assert corpus.count(corpus.vectors) == 0


def test_only_the_last_versions_are_kept(corpus: Corpus) -> None:
    for number in range(1, 6):
        corpus.add("a.md", [text_chunk("same"), text_chunk(f"text {number}")], keep_versions=2)
    assert _served(corpus, "a.md") == ("indexed", True, 5, 5, 2)
    assert corpus.count("version") == 2
    assert corpus.count("chunk") == 3
    assert corpus.count(corpus.vectors) == 2


def test_a_change_while_a_job_runs_makes_it_run_again(corpus: Corpus) -> None:
    corpus.ask("a.md")
    job = corpus.claim()
    corpus.ask("a.md")
    done = corpus.serve(job, [text_chunk("alpha")])
    assert done.rerun is True
    assert _served(corpus, "a.md")[:2] == ("queued", True)
    again = corpus.claim()
    assert (again.job_id, again.attempts) == (job.job_id, 1)


def test_other_readers_move_the_passages_to_another_audience_without_embedding(corpus: Corpus) -> None:
    chunk = text_chunk("alpha")
    corpus.add("a.md", [chunk])
    corpus.add("a.md", [chunk], readers=["group:eng"], vectors={}, content=b"again")
    rows = corpus.connection.execute("SELECT a.readers, a.chunk_count FROM docwell.audience a ORDER BY a.audience_id").fetchall()
    assert rows == [([], 0), (["group:eng"], 1)]
    assert corpus.count(corpus.vectors) == 1
    assert corpus.count("version") == 1


def test_two_publishers_of_the_same_passages_never_lose_one(database: Database, corpus: Corpus) -> None:
    """One takes passages out while the other brings them in, and a third moves their vectors: what is served is findable."""
    passages = [text_chunk(f"passage {number}") for number in range(6)]
    failures: list[BaseException] = []

    def edit(path: str, offset: int) -> None:
        try:
            with open_corpus(database.url) as mine:
                for turn in range(25):
                    chosen = [passages[(offset + turn + step) % 6] for step in range(3)]
                    mine.ask(path, source=path.removesuffix(".md"))
                    job = mine.claim_path(path)
                    content = f"{path} {turn}".encode()
                    vectors: dict[uuid.UUID, NDArray[np.float32]] = {}
                    while True:
                        try:
                            mine.serve(job, chosen, content=content, vectors=vectors)
                            break
                        except VectorsMissing as missing:
                            vectors |= {key: unit_vector(key) for key in missing.inputs}
        except BaseException as error:
            failures.append(error)

    ended = threading.Event()

    def index() -> None:
        try:
            with open_corpus(database.url) as mine:
                while not ended.is_set():
                    index_some(mine.connection, idle=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=edit, args=(f"{name}.md", offset)) for offset, name in enumerate("abc")]
    indexer = threading.Thread(target=index)
    for thread in (indexer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    indexer.join()
    assert failures == []
    twice = corpus.connection.execute(
        f"SELECT input_id FROM docwell.{corpus.vectors} GROUP BY input_id, audience_id HAVING count(*) > 1"
    ).fetchall()
    assert twice == []
    bare = corpus.connection.execute(
        f"""
        SELECT c.text FROM docwell.document d
        JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
        JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
        WHERE NOT EXISTS (SELECT 1 FROM docwell.{corpus.vectors} v WHERE v.input_id = c.input_id)
           OR NOT EXISTS (SELECT 1 FROM docwell.chunk_terms t WHERE t.chunk_id = c.chunk_id)
        """
    ).fetchall()
    assert bare == []
    extra = corpus.connection.execute(
        "SELECT count(*) FROM docwell.chunk_terms t WHERE NOT EXISTS (SELECT 1 FROM docwell.version_chunk p"
        " JOIN docwell.document d ON d.served_version_id = p.version_id WHERE p.chunk_id = t.chunk_id)"
    ).fetchone()
    assert extra == (0,)
    stats = corpus.connection.execute(
        "SELECT sum(chunk_count), (SELECT count(*) FROM docwell.chunk_terms) FROM docwell.audience"
    ).fetchone()
    assert stats is not None
    assert stats[0] == stats[1]
