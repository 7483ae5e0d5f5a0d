"""Serving an old version again, and what becomes of it when the file, its readers or its parser change."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ingest_worker.batch import Pace, run_jobs
from ingest_worker.catalogue import exclusion, vector_cache, versions
from ingest_worker.catalogue.asking import Conflict, Unknown
from ingest_worker.catalogue.documents import request_delete
from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.parse.errors import Unreadable
from ingest_worker.pipeline import JobReport, run_job
from ingest_worker.rollback import request_rollback
from shared.documents import Span
from shared.embedding.protocol import Role, Vectors
from shared.errors import TransientError
from tests.asking import WordEmbedder
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.versions import Library, open_library


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def library(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Library]:
    with open_library(database.url, tmp_path / "inbox", cage) as found:
        yield found


def _three(library: Library) -> uuid.UUID:
    for number in (1, 2, 3):
        document = library.take("a.md", f"# Report\n\nCommon ground.\n\n## Part\n\nText of version {number}.\n")
    return document


def _three_forgotten(library: Library) -> uuid.UUID:
    """As `_three`, and the vectors of what is served no more are remembered nowhere: a rollback asks the embedder."""
    document = _three(library)
    vector_cache.set_remembering(library.connection, on=False)
    return document


def _roll_back(library: Library, document: uuid.UUID, number: int | None = None) -> list[str]:
    request_rollback(library.connection, document, number)
    return library.work()


def test_an_old_version_is_served_again_and_both_legs_find_it(library: Library) -> None:
    document = _three(library)
    published = library.one("SELECT published_at FROM docwell.version WHERE number = 1")
    assert _roll_back(library, document, 1) == ["rolled_back"]
    assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")
    assert "Text of version 1." in library.served_text(document)
    assert any("version 1" in text for text in library.searched())
    assert not any("version 3" in text for text in library.searched())
    assert library.one("SELECT published_at FROM docwell.version WHERE number = 1") == published
    assert library.one("SELECT array_agg(number ORDER BY number) FROM docwell.version") == [1, 2, 3]


def test_the_passages_of_a_stored_version_are_those_that_were_published(database: Database) -> None:
    spans = (
        Span(page_start=3, page_end=4, page_label="iii", line_start=10, line_end=12),
        Span(slide=2, attachment="a.eml > b.pptx"),
        Span(sheet="Costs", row_start=2, row_end=9),
    )
    chunks = [
        text_chunk(f"passage {number}", section=("Billing", "A > B"), symbol="Invoice.cancel", language="python", span=span)
        for number, span in enumerate(spans)
    ]
    with open_corpus(database.url) as corpus:
        corpus.add("a.md", [*chunks, text_chunk("bare")])
        stored = versions.load_chunks(corpus.connection, 1)
    assert [chunk.chunk_id for chunk in stored] == [chunk.chunk_id for chunk in [*chunks, text_chunk("bare")]]
    assert [chunk.input_id for chunk in stored[:3]] == [chunk.input_id for chunk in chunks]
    assert [chunk.span for chunk in stored[:3]] == list(spans)
    assert stored[3] == text_chunk("bare")


def test_without_a_number_it_goes_back_step_by_step(library: Library) -> None:
    document = _three(library)
    for number in (2, 1):
        assert request_rollback(library.connection, document).version == number
        library.work()
        assert library.standing(document)[2:4] == (number, 3)
    with pytest.raises(Conflict, match="No older version"):
        request_rollback(library.connection, document)


def test_the_newest_version_can_be_served_again_too(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    assert _roll_back(library, document, 3) == ["rolled_back"]
    assert library.standing(document) == ("indexed", True, 3, 3, None)
    assert library.one("SELECT pinned_version IS NULL FROM docwell.document")


def test_unchanged_bytes_leave_a_rollback_alone_and_changed_ones_are_served(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    os.utime(library.root / "a.md", ns=(1, 1))
    library.ask("a.md")
    assert library.work() == ["unchanged"]
    assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")
    library.ask("a.md", "# Report\n\nText of version 4.\n")
    assert library.work() == ["indexed"]
    assert library.standing(document) == ("indexed", True, 4, 4, None)
    assert "version 4" in library.served_text(document)


def test_another_parser_keeps_its_own_reading_of_the_newest_bytes_and_serves_the_old_version(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    library.connection.execute("UPDATE docwell.version SET fingerprint = 'older'")
    library.connection.execute("UPDATE docwell.document SET reprocess = true")
    library.ask("a.md")
    assert library.work() == ["kept"]
    assert library.standing(document) == ("indexed", True, 1, 4, "rolled_back")
    assert "version 1" in library.served_text(document)
    assert _roll_back(library, document, 4) == ["rolled_back"]
    assert "version 3" in library.served_text(document)


def test_other_readers_get_the_old_version_and_nobody_else_does(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    library.ask("a.md", readers=["group:eng"])
    assert library.work() == ["rolled_back", "kept"]
    assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")
    readers = "SELECT array_agg(DISTINCT a.readers::text) FROM docwell.{} JOIN docwell.audience a USING (audience_id)"
    for table in ("document", "version", "version_chunk", "chunk", "chunk_terms"):
        assert library.one(readers.format(table)) == ["{group:eng}"], table
    assert "version 1" in library.served_text(document)


def test_what_is_served_goes_to_its_new_readers_though_the_new_bytes_cannot_be_read(library: Library) -> None:
    document = library.take("a.md", "# Report\n\nText of version 1.\n")
    library.ask("a.md", b"%PDF-1.7\nbroken", readers=["group:eng"])
    with pytest.raises(Unreadable):
        library.work()
    assert library.standing(document)[1:4] == (True, 1, 2)
    assert library.served_text(document).endswith("Text of version 1.")
    readers = "SELECT array_agg(DISTINCT a.readers::text) FROM docwell.{} JOIN docwell.audience a USING (audience_id)"
    for table in ("document", "chunk", "chunk_terms"):
        assert library.one(readers.format(table)) == ["{group:eng}"], table


def test_what_cannot_be_served_is_refused_with_its_reason(library: Library) -> None:
    document = _three(library)
    library.ask("a.md", b"\n \n")
    library.work()
    assert library.standing(document) == ("skipped", False, None, 4, "empty")
    refusals = {4: ("no_text", "skipped"), 9: ("not_kept", "Kept with text: 3, 2, 1"), 0: ("not_kept", "not kept")}
    for number, (code, words) in refusals.items():
        with pytest.raises(Conflict, match=words) as refused:
            request_rollback(library.connection, document, number)
        assert refused.value.code == code
    assert _roll_back(library, document) == ["rolled_back"], "a version without text can be gone back from"
    assert library.standing(document) == ("indexed", True, 3, 4, "rolled_back")
    with pytest.raises(Conflict, match="served already"):
        request_rollback(library.connection, document, 3)
    exclusion.exclude(library.connection, document)
    with pytest.raises(Conflict, match="docwell documents include"):
        request_rollback(library.connection, document, 3)
    with pytest.raises(Unknown):
        request_rollback(library.connection, uuid.uuid4(), 1)


def test_a_deleted_document_has_no_version_to_go_back_to(library: Library) -> None:
    document = _three(library)
    library.remove("a.md")
    request_delete(library.connection, [document])
    library.work()
    with pytest.raises(Conflict, match="deleted"):
        request_rollback(library.connection, document, 1)


def test_a_rollback_after_a_change_that_waits_keeps_the_change_and_does_not_serve_it(library: Library) -> None:
    document = _three(library)
    library.ask("a.md", "# Report\n\nText of version 4.\n")
    asked = request_rollback(library.connection, document, 1)
    assert library.work() == ["rolled_back", "kept"]
    assert library.standing(document) == ("indexed", True, 1, 4, "rolled_back")
    assert library.one("SELECT count(*) FROM docwell.job WHERE job_id = %s AND state = 'succeeded'", asked.job_id) == 1
    assert library.searched()
    assert not any("version 4" in text for text in library.searched())
    library.ask("a.md")
    assert library.work() == ["unchanged"]
    assert _roll_back(library, document, 4) == ["rolled_back"]
    assert library.standing(document) == ("indexed", True, 4, 4, None)


def test_a_change_after_a_rollback_that_waits_is_served(library: Library) -> None:
    document = _three(library)
    request_rollback(library.connection, document, 1)
    library.ask("a.md", "# Report\n\nText of version 4.\n")
    assert library.work() == ["rolled_back", "indexed"]
    assert library.standing(document) == ("indexed", True, 4, 4, None)


def test_a_touched_file_after_a_rollback_that_waits_does_not_undo_it(library: Library) -> None:
    document = _three(library)
    request_rollback(library.connection, document, 1)
    library.ask("a.md")
    assert library.work() == ["rolled_back", "unchanged"]
    assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")


class _Meanwhile:
    """An embedder that lets something happen while a job is at work."""

    fingerprint = WordEmbedder.fingerprint

    def __init__(self) -> None:
        self.todo: list[object] = []

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        while self.todo:
            self.todo.pop()()  # type: ignore[operator]
        return WordEmbedder().embed(texts, role)


def test_a_rollback_while_a_new_version_is_read_wins_over_it(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    embedder = _Meanwhile()
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder) as library:
        document = _three(library)
        embedder.todo.append(lambda: request_rollback(library.connection, document, 1))
        library.ask("a.md", "# Report\n\nText of version 4.\n")
        assert library.work() == ["kept", "rolled_back"]
        assert library.standing(document) == ("indexed", True, 1, 4, "rolled_back")


def test_a_change_while_a_rollback_is_under_way_is_served_after_it(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    embedder = _Meanwhile()
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder) as library:
        document = _three_forgotten(library)
        embedder.todo.append(lambda: library.ask("a.md", "# Report\n\nText of version 4.\n"))
        assert _roll_back(library, document, 1) == ["rolled_back", "indexed"]
        assert library.standing(document) == ("indexed", True, 4, 4, None)


def test_of_two_rollbacks_the_later_one_counts(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    embedder = _Meanwhile()
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder) as library:
        document = _three_forgotten(library)
        request_rollback(library.connection, document, 1)
        assert _roll_back(library, document, 2) == ["rolled_back"]
        assert library.standing(document)[2] == 2
        embedder.todo.append(lambda: request_rollback(library.connection, document, 3))
        assert _roll_back(library, document, 1) == ["unchanged", "rolled_back"]
        assert library.standing(document) == ("indexed", True, 3, 3, None)


def test_a_change_that_waits_is_not_lost_when_a_person_changes_the_mind_about_the_version(
    database: Database, tmp_path: Path, cage: ParserCage
) -> None:
    embedder = _Meanwhile()
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder) as library:
        document = _three_forgotten(library)
        library.ask("a.md", "# Report\n\nText of version 4.\n")
        embedder.todo.append(lambda: request_rollback(library.connection, document, 2))
        assert _roll_back(library, document, 1) == ["unchanged", "rolled_back", "kept"]
        assert library.standing(document) == ("indexed", True, 2, 4, "rolled_back")


@pytest.mark.parametrize("stop", ["fail", "hand_back"])
def test_a_change_whose_run_stops_while_a_person_rolls_back_is_not_lost(library: Library, stop: str) -> None:
    document = _three(library)
    library.ask("a.md", "# Report\n\nText of version 4.\n")
    job = library.claim()
    assert job is not None
    request_rollback(library.connection, document, 1)
    if stop == "fail":
        jobs.fail(library.connection, job, code="away", error="x", permanent=False, delay_seconds=0)
    else:
        jobs.hand_back(library.connection, "test")
    assert library.work() == ["rolled_back", "kept"]
    assert library.standing(document) == ("indexed", True, 1, 4, "rolled_back")


def test_rollbacks_and_changes_that_are_claimed_together_end_each_for_itself(library: Library) -> None:
    changed = [library.take(name, "Text one.\n") for name in ("a.md", "b.md")]
    for name in ("a.md", "b.md"):
        library.take(name, "Text two.\n")
    for name in ("a.md", "b.md"):
        library.ask(name, f"Text three of {name}.\n")
    for document in changed:
        request_rollback(library.connection, document, 1)
    new = library.ask("c.md", "Another text.\n")
    results = []
    while claimed := jobs.claim(library.connection, worker="test", lease_seconds=60, limit=16):
        ended = list(run_jobs(claimed, library.tools, Pace(), enough=lambda: False))
        results += [one.outcome.result if isinstance(one.outcome, JobReport) else str(one.outcome) for one in ended]
    assert sorted(results) == ["indexed", "kept", "kept", "rolled_back", "rolled_back"]
    for document in changed:
        assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")
    assert library.standing(new) == ("indexed", True, 1, 1, None)


class _Away:
    fingerprint = WordEmbedder.fingerprint

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        raise TransientError("The embedder is away.")


def test_a_rollback_that_fails_leaves_what_is_served_and_can_be_retried(
    database: Database, tmp_path: Path, cage: ParserCage
) -> None:
    with open_library(database.url, tmp_path / "inbox", cage) as library:
        document = _three_forgotten(library)
    with open_library(database.url, tmp_path / "inbox", cage, embedder=_Away) as library:
        request_rollback(library.connection, document, 1)
        job = library.claim()
        assert job is not None
        with pytest.raises(TransientError):
            run_job(job, library.tools)
        jobs.fail(library.connection, job, code="away", error="x", permanent=True, delay_seconds=0)
        assert library.standing(document)[1:4] == (True, 3, 3)
    with open_library(database.url, tmp_path / "inbox", cage) as library:
        assert control.retry(library.connection, [job.job_id]) == 1
        assert library.work() == ["rolled_back"]


def test_a_rollback_whose_job_is_cancelled_is_over(library: Library) -> None:
    document = _three(library)
    asked = request_rollback(library.connection, document, 1)
    control.cancel(library.connection, [asked.job_id])
    assert library.standing(document) == ("indexed", True, 3, 3, None)
    library.ask("a.md")
    assert library.work() == ["unchanged"]
    assert library.standing(document) == ("indexed", True, 3, 3, None)


def test_a_rollback_that_was_served_survives_the_cancelling_of_another(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    asked = request_rollback(library.connection, document, 2)
    control.cancel(library.connection, [asked.job_id])
    assert library.standing(document) == ("indexed", True, 1, 3, "rolled_back")
    library.ask("a.md")
    assert library.work() == ["unchanged"]


def test_a_rollback_wins_over_a_deletion_that_waits_and_loses_to_a_later_one(library: Library) -> None:
    document = _three(library)
    exclusion.request_deletion(library.connection, document)
    assert _roll_back(library, document, 1) == ["rolled_back"]
    request_rollback(library.connection, document, 2)
    exclusion.request_deletion(library.connection, document)
    assert library.work() == ["deleted"]
    assert library.standing(document)[:3] == ("deleted", False, None)


def test_a_rollback_needs_no_source(library: Library) -> None:
    document = _three(library)
    library.root.rename(library.root.parent / "away")
    assert _roll_back(library, document, 1) == ["rolled_back"]


def test_a_file_that_is_gone_takes_a_rolled_back_document_along(library: Library) -> None:
    document = _three(library)
    _roll_back(library, document, 1)
    library.remove("a.md")
    request_delete(library.connection, [document])
    assert library.work() == ["deleted"]
    assert library.one("SELECT count(*) FROM docwell.chunk") == 0


def test_the_last_versions_with_text_are_kept_whatever_failed_between_them(
    database: Database, tmp_path: Path, cage: ParserCage
) -> None:
    with open_library(database.url, tmp_path / "inbox", cage, keep_versions=2) as library:
        for number in range(1, 4):
            document = library.take("a.md", f"Text of version {number}.\n")
            for empty in range(1, 4):
                library.take("a.md", "\n" * (number * 10 + empty))
        library.take("a.md", "Text of the end.\n")
        kept = versions.kept_versions(library.connection, document)
        assert [one.number for one in kept if one.has_text] == [13, 9]
        assert [one.number for one in kept] == [13, 12, 9]
        assert _roll_back(library, document) == ["rolled_back"]
        assert library.served_text(document) == "Text of version 3."
        assert [one.number for one in versions.kept_versions(library.connection, document)] == [13, 12, 9]


def test_the_served_version_is_never_pruned(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    with open_library(database.url, tmp_path / "inbox", cage, keep_versions=2) as library:
        for number in range(1, 4):
            document = library.take("a.md", f"Text of version {number}.\n")
        _roll_back(library, document, 2)
        for _ in range(3):
            library.connection.execute("UPDATE docwell.version SET fingerprint = 'older'")
            library.connection.execute("UPDATE docwell.document SET reprocess = true")
            library.take("a.md")
        assert library.standing(document) == ("indexed", True, 2, 6, "rolled_back")
        assert [one.number for one in versions.kept_versions(library.connection, document)] == [6, 5, 2]
