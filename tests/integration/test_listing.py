"""What people see of the corpus: lists, names, versions, chunks, jobs, sources, one screen of state."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ingest_worker.catalogue import exclusion, job_listing, listing, overview
from ingest_worker.catalogue.asking import BadQuestion, Conflict, Filters, Unknown
from ingest_worker.catalogue.json_form import as_json
from ingest_worker.catalogue.naming import Ambiguous, resolve
from ingest_worker.jobs import table
from ingest_worker.publish import unpublish
from shared.database import open_pool
from shared.documents import DocumentState, Span
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


def _paths(corpus: Corpus, **filters: object) -> list[str]:
    return [row.path for row in listing.list_documents(corpus.connection, Filters(**filters)).rows]  # type: ignore[arg-type]


def test_a_list_without_a_limit_has_every_document_in_byte_order_of_the_paths(corpus: Corpus) -> None:
    for path in ("b.md", "a.md", "Z.md", "ä.md", "a/b.md"):
        corpus.add(path, [text_chunk(path)])
    page = listing.list_documents(corpus.connection, Filters())
    assert [row.path for row in page.rows] == ["Z.md", "a.md", "a/b.md", "b.md", "ä.md"]
    assert page.next_cursor is None


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_together_are_the_whole_list_also_where_paths_are_the_same(corpus: Corpus, limit: int) -> None:
    for source in ("one", "two", "three"):
        for path in ("a.md", "b.md"):
            corpus.ask(path, source=source, namespace=source)
    whole = [row.document_id for row in listing.list_documents(corpus.connection, Filters()).rows]
    paged: list[uuid.UUID] = []
    cursor = None
    while True:
        page = listing.list_documents(corpus.connection, Filters(), limit=limit, cursor=cursor)
        assert len(page.rows) <= limit
        paged += [row.document_id for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert paged == whole
    assert len(whole) == 6


@pytest.mark.parametrize("cursor", ["", "x", "!!", "W10", "WyJhIl0", "WyJhIiwiYiJd", "WyJhXHUwMDAwIiwiYiJd"])
def test_a_foreign_cursor_is_refused_with_a_sentence(corpus: Corpus, cursor: str) -> None:
    with pytest.raises(BadQuestion, match="Begin again"):
        listing.list_documents(corpus.connection, Filters(), limit=1, cursor=cursor)
    with pytest.raises(BadQuestion, match="Begin again"):
        job_listing.list_jobs(corpus.connection, Filters(), limit=1, cursor=cursor)


def test_filters_narrow_by_namespace_source_state_time_and_path(corpus: Corpus) -> None:
    corpus.add("docs/a.md", [text_chunk("a")])
    corpus.ask("docs/deep/b.txt")
    corpus.ask("c.md", source="other", namespace="team")
    assert _paths(corpus, namespace="team") == ["c.md"]
    assert _paths(corpus, source="inbox") == ["docs/a.md", "docs/deep/b.txt"]
    assert _paths(corpus, states=("indexed",)) == ["docs/a.md"]
    assert _paths(corpus, states=("indexed", "queued")) == ["c.md", "docs/a.md", "docs/deep/b.txt"]
    assert _paths(corpus, since=datetime.now(UTC) + timedelta(hours=1)) == []
    assert len(_paths(corpus, since=datetime.now(UTC) - timedelta(hours=1))) == 3
    assert _paths(corpus, namespace="nobody") == []


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("docs", ["docs/a.md", "docs/deep/b.txt"]),
        ("docs/", ["docs/a.md", "docs/deep/b.txt"]),
        ("docs/a.md", ["docs/a.md"]),
        ("*.md", ["c (1).md", "docs/a.md"]),
        ("deep", ["docs/deep/b.txt"]),
        ("[ab].*", ["docs/a.md", "docs/deep/b.txt"]),
        ("[!a]*.md", ["c (1).md"]),
        ("**/*.md", ["c (1).md", "docs/a.md"]),
        ("docs/*", ["docs/a.md"]),
        ("docs/**", ["docs/a.md", "docs/deep/b.txt"]),
        ("c (1).md", ["c (1).md"]),
        ("c (?).md", ["c (1).md"]),
        ("docs\\a.md", ["docs/a.md"]),
        ("doc", []),
        ("docs/a.m.", []),
    ],
)
def test_a_path_filter_is_a_path_a_folder_or_a_glob(corpus: Corpus, glob: str, found: list[str]) -> None:
    for path in ("docs/a.md", "docs/deep/b.txt", "c (1).md"):
        corpus.ask(path)
    assert _paths(corpus, path=glob) == found


def test_a_document_shows_what_is_served_and_why_the_newest_is_not(corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("one"), text_chunk("two")], title="Guide")
    corpus.ask("a.md")
    shown = listing.get_document(corpus.connection, document)
    assert (shown.state, shown.searchable, shown.served_version, shown.latest_version) == ("queued", True, 1, 1)
    assert (shown.title, shown.chunk_count, shown.source, shown.namespace) == ("Guide", 2, "inbox", "default")
    plain = as_json(shown)
    assert json.loads(json.dumps(plain)) == plain
    assert plain["last_indexed"].endswith("Z")
    assert len(plain["sha256"]) == 64
    assert {"state", "reason", "reason_code", "searchable", "served_version", "latest_version"} <= plain.keys()


def test_history_has_every_kept_version_newest_first_and_marks_the_served_one(corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("one")])
    corpus.ask("a.md")
    corpus.serve(corpus.claim(), [text_chunk("two")])
    versions = listing.list_versions(corpus.connection, document)
    assert [(v.number, v.served, v.state) for v in versions] == [(2, True, "indexed"), (1, False, "indexed")]


def test_chunks_come_in_reading_order_with_their_places_whole_or_by_pages(corpus: Corpus) -> None:
    chunks = [text_chunk(f"passage {n}", span=Span(page_start=n, page_end=n, line_start=n, line_end=n + 1)) for n in range(1, 8)]
    document = corpus.add("a.pdf", chunks)
    whole = list(listing.stream_chunks(corpus.connection, document))
    assert [(c.ordinal, c.page_start, c.line_end, c.text) for c in whole][1] == (1, 2, 3, "passage 2")
    first = listing.page_chunks(corpus.connection, document, limit=5)
    rest = listing.page_chunks(corpus.connection, document, limit=5, cursor=first.next_cursor)
    assert [*first.rows, *rest.rows] == whole
    assert rest.next_cursor is None
    assert list(listing.stream_chunks(corpus.connection, document, version=9)) == []


@pytest.mark.parametrize("modified", ["0044-03-15 12:00+00 BC", "12000-01-01 00:00+00", "infinity"])
def test_a_time_of_which_python_knows_nothing_is_unknown_and_stops_no_list(
    corpus: Corpus, database: Database, modified: str
) -> None:
    document = corpus.add("old.md", [text_chunk("old")])
    corpus.connection.execute("UPDATE docwell.document SET source_modified = %s", (modified,))
    corpus.connection.execute("UPDATE docwell.version SET source_modified = %s", (modified,))
    (row,) = listing.list_documents(corpus.connection, Filters()).rows
    assert (row.source_modified, row.last_indexed) == (None, listing.get_document(corpus.connection, document).last_indexed)
    assert [version.source_modified for version in listing.list_versions(corpus.connection, document)] == [None]
    with open_pool(database.reader_url, name="test", as_reader=True) as pool, pool.connection() as reader:
        assert reader.execute("SELECT %s::timestamptz", (modified,)).fetchone() == (None,)
        assert reader.cursor(binary=True).execute("SELECT %s::timestamptz", (modified,)).fetchone() == (None,)


def test_a_document_answers_to_its_id_its_path_its_file_its_url_and_its_full_name(corpus: Corpus) -> None:
    document = corpus.ask("docs/ä.md")
    corpus.connection.execute("UPDATE docwell.source SET root = '/srv/inbox/'")
    corpus.connection.execute("UPDATE docwell.document SET url = 'https://example.org/a'")
    for name in (
        str(document),
        "docs/ä.md",
        "docs/a\u0308.md",
        "https://example.org/a",
        "inbox:default:docs/ä.md",
        "/srv/inbox/docs/ä.md",
    ):
        assert resolve(corpus.connection, name) == document
    assert resolve(corpus.connection, "../inbox/docs/ä.md", directory=Path("/srv/other")) == document


def test_a_name_that_several_answer_to_lists_them(corpus: Corpus) -> None:
    corpus.ask("a.md", source="one", namespace="one")
    second = corpus.ask("a.md", source="two", namespace="two")
    with pytest.raises(Ambiguous, match=r"one:one:a\.md\n  two:two:a\.md"):
        resolve(corpus.connection, "a.md")
    assert resolve(corpus.connection, "two:two:a.md") == second


def test_an_unknown_name_suggests_what_is_alike(corpus: Corpus) -> None:
    corpus.ask("docs/billing.md")
    with pytest.raises(Unknown, match=r"Did you mean:\n  inbox:default:docs/billing\.md"):
        resolve(corpus.connection, "billing.md")
    for name in ("nothing.md", str(uuid.uuid4()), "\0", ""):
        with pytest.raises(Unknown, match="There is no document"):
            resolve(corpus.connection, name)


def test_a_deleted_document_is_meant_only_when_no_other_is(corpus: Corpus) -> None:
    gone = corpus.add("a.md", [text_chunk("a")], source="one", namespace="one")
    exclusion.request_deletion(corpus.connection, gone)
    unpublish(corpus.connection, corpus.claim())
    assert resolve(corpus.connection, "a.md") == gone
    other = corpus.ask("a.md", source="two", namespace="two")
    assert resolve(corpus.connection, "a.md") == other


def test_jobs_are_listed_newest_first_and_in_pages(corpus: Corpus) -> None:
    for number in range(5):
        corpus.ask(f"{number}.md")
    jobs = job_listing.list_jobs(corpus.connection, Filters()).rows
    assert [job.path for job in jobs] == ["4.md", "3.md", "2.md", "1.md", "0.md"]
    first = job_listing.list_jobs(corpus.connection, Filters(), limit=3)
    rest = job_listing.list_jobs(corpus.connection, Filters(), limit=3, cursor=first.next_cursor)
    assert (*first.rows, *rest.rows) == jobs
    assert rest.next_cursor is None


def test_a_job_shows_its_attempts_its_next_run_and_its_last_error(corpus: Corpus) -> None:
    corpus.ask("a.md")
    claimed = corpus.claim()
    table.fail(corpus.connection, claimed, code="unreadable", error="No light.", permanent=False, delay_seconds=60)
    job = job_listing.get_job(corpus.connection, claimed.job_id)
    assert (job.state, job.attempts, job.max_attempts, job.error_code, job.last_error) == (
        "retrying",
        1,
        5,
        "unreadable",
        "No light.",
    )
    assert job.next_run_at is not None
    assert job.next_run_at > datetime.now(UTC)
    assert [row.job_id for row in job_listing.list_jobs(corpus.connection, Filters(states=("retrying",))).rows] == [job.job_id]
    assert job_listing.list_jobs(corpus.connection, Filters(states=("dead",))).rows == ()


def test_a_job_that_ended_has_no_next_run(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("a")])
    (job,) = job_listing.list_jobs(corpus.connection, Filters()).rows
    assert (job.state, job.result, job.next_run_at) == ("succeeded", "indexed", None)
    assert job.job_id in job_listing.why_not_retry(corpus.connection, [job.job_id])
    assert job.job_id in job_listing.why_not_cancel(corpus.connection, [job.job_id])


def test_an_excluded_document_leaves_the_index_at_once_and_stays_out(corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("a"), text_chunk("b")])
    corpus.ask("a.md")
    job = corpus.claim()
    assert exclusion.exclude(corpus.connection, document)
    shown = listing.get_document(corpus.connection, document)
    assert (shown.state, shown.searchable, shown.chunk_count, shown.reason_code) == ("excluded", False, 0, "excluded")
    assert (corpus.count("chunk"), corpus.count("chunk_terms"), corpus.count(corpus.vectors)) == (0, 0, 0)
    assert job_listing.get_job(corpus.connection, job.job_id).state == "cancelled"
    assert "include" in job_listing.why_not_retry(corpus.connection, [job.job_id])[job.job_id]
    with pytest.raises(table.LeaseLost):
        table.fence(corpus.connection, job)
    assert corpus.connection.execute("SELECT count(*) FROM docwell.job WHERE state = 'queued'").fetchone() == (0,)
    assert not exclusion.exclude(corpus.connection, document)
    with pytest.raises(Conflict):
        exclusion.request_deletion(corpus.connection, document)


def test_a_document_that_is_included_again_is_read_again(corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("a")])
    exclusion.exclude(corpus.connection, document)
    exclusion.include(corpus.connection, document)
    corpus.serve(corpus.claim(), [text_chunk("a")])
    shown = listing.get_document(corpus.connection, document)
    assert (shown.state, shown.searchable, shown.served_version) == ("indexed", True, 2)
    with pytest.raises(Conflict, match="not excluded"):
        exclusion.include(corpus.connection, document)


def test_status_counts_documents_jobs_chunks_and_what_is_due(corpus: Corpus) -> None:
    empty = overview.read_status(corpus.connection)
    assert (empty.documents.total, empty.jobs.due, empty.jobs.oldest_due_seconds, empty.chunks) == (0, 0, None, 0)
    corpus.add("a.md", [text_chunk("a"), text_chunk("b")])
    corpus.ask("b.md")
    found = overview.read_status(corpus.connection)
    assert (found.documents.total, found.documents.searchable, found.chunks) == (2, 1, 2)
    assert found.documents.by_state["indexed"] == found.documents.by_state["queued"] == 1
    assert set(found.documents.by_state) == {state.value for state in DocumentState}
    assert (found.jobs.due, found.jobs.by_state["succeeded"]) == (1, 1)
    assert found.jobs.oldest_due_seconds is not None
    assert found.embedding is not None
    assert found.embedding.dimension == corpus.dimension
    (source,) = found.sources
    assert (source.name, source.documents, source.searchable, source.by_state) == ("inbox", 2, 1, {"indexed": 1, "queued": 1})
    (namespace,) = found.namespaces
    assert (namespace.name, namespace.documents, namespace.chunks) == ("default", 2, 2)
    assert found.database_bytes > 0
    json.dumps(as_json(found))
