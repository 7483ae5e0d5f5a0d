"""What a document says of itself, `state`, `searchable`, `served_version` and `latest_version`, is true in every phase."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import exclusion, twins, versions
from ingest_worker.catalogue.documents import request_delete
from ingest_worker.erasure import erase
from ingest_worker.intake.manual import ended_jobs, intend, request_files
from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import run_job
from ingest_worker.rollback import request_rollback
from query_server.service import SearchService
from shared.embedding.protocol import Embedder
from tests.asking import serving
from tests.conftest import Database
from tests.versions import Library, open_library

ONE, TWO, THREE = (f"# Report\n\nThe {word} edition.\n" for word in ("heron", "egret", "stork"))
EMPTY = " \n"


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def library(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Library]:
    with open_library(database.url, tmp_path / "inbox", cage) as found:
        yield found


class _Stopped(Exception):
    pass


def _begin(library: Library) -> ClaimedJob:
    """A job that has read its file and is about to publish it."""

    def stop() -> Embedder:
        raise _Stopped

    job = library.claim()
    assert job is not None
    with pytest.raises(_Stopped):
        run_job(job, replace(library.tools, embedder=stop))
    return job


def _fail(library: Library, job: ClaimedJob, *, permanent: bool) -> None:
    """As the worker records a failure."""
    state = jobs.fail(library.connection, job, code="damaged", error="It is broken.", permanent=permanent, delay_seconds=600)
    catalogue.record_failure(
        library.connection,
        job.document_id,
        state="failed" if state.value == "dead" else "queued",
        code="damaged",
        reason="It is broken.",
        permanent=permanent,
    )


def test_a_first_version_from_its_request_to_its_end(library: Library) -> None:
    document = library.ask("a.md", ONE)
    assert library.standing(document) == ("queued", False, None, None, None)
    job = _begin(library)
    assert library.standing(document) == ("indexing", False, None, 1, None)
    _fail(library, job, permanent=False)
    assert library.standing(document) == ("queued", False, None, 1, "damaged")
    library.ask("a.md")
    library.work()
    assert library.standing(document) == ("indexed", True, 1, 1, None)


def test_a_first_version_that_fails_or_is_cancelled(library: Library) -> None:
    failed = library.ask("a.md", ONE)
    _fail(library, _begin(library), permanent=True)
    assert library.standing(failed) == ("failed", False, None, 1, "damaged")
    waiting = library.ask("b.md", ONE)
    job = library.claim()
    assert job is not None
    control.cancel(library.connection, [job.job_id])
    assert library.standing(waiting) == ("skipped", False, None, None, "cancelled")
    begun = library.ask("c.md", TWO)
    control.cancel(library.connection, [_begin(library).job_id])
    assert library.standing(begun) == ("skipped", False, None, 1, "cancelled")
    assert [one.state for one in versions.kept_versions(library.connection, begun)] == ["cancelled"]
    assert control.retry(library.connection, [job.job_id]) == 1
    library.work()
    assert library.standing(waiting) == ("indexed", True, 1, 1, None)


def test_the_old_version_is_served_while_a_new_one_waits_is_read_and_fails(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.ask("a.md", TWO)
    assert library.standing(document) == ("queued", True, 1, 1, None)
    job = _begin(library)
    assert library.standing(document) == ("indexing", True, 1, 2, None)
    _fail(library, job, permanent=False)
    assert library.standing(document) == ("queued", True, 1, 2, "damaged")
    library.connection.execute("UPDATE docwell.job SET next_run_at = now()")
    _fail(library, _begin(library), permanent=True)
    assert library.standing(document) == ("failed", True, 1, 2, "damaged")
    assert "heron" in library.served_text(document)
    assert [(one.number, one.state) for one in versions.kept_versions(library.connection, document)] == [
        (2, "failed"),
        (1, "indexed"),
    ]
    library.take("a.md", THREE)
    assert library.standing(document) == ("indexed", True, 3, 3, None)


def test_a_cancelled_change_leaves_the_old_version_and_says_so(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.ask("a.md", TWO)
    job = library.claim()
    assert job is not None
    control.cancel(library.connection, [job.job_id])
    assert library.standing(document) == ("indexed", True, 1, 1, None), "nobody has read the change, so nothing is known of it"
    library.ask("a.md")
    job = _begin(library)
    control.cancel(library.connection, [job.job_id])
    assert library.standing(document) == ("indexed", True, 1, 2, "cancelled")
    assert control.retry(library.connection, [job.job_id]) == 1
    assert library.standing(document) == ("queued", True, 1, 2, "cancelled")
    library.work()
    assert library.standing(document) == ("indexed", True, 2, 2, None)


def test_a_cancelled_job_of_a_failed_document_leaves_it_failed(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.ask("a.md", TWO)
    _fail(library, _begin(library), permanent=True)
    library.ask("a.md", THREE)
    job = library.claim()
    assert job is not None
    control.cancel(library.connection, [job.job_id])
    assert library.standing(document) == ("failed", True, 1, 2, "damaged")


def test_a_version_that_other_bytes_overtook_is_not_indexing_for_ever(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.ask("a.md", TWO)
    _fail(library, _begin(library), permanent=False)
    library.take("a.md", THREE)
    assert [(one.number, one.state) for one in versions.kept_versions(library.connection, document)] == [
        (3, "indexed"),
        (2, "superseded"),
        (1, "indexed"),
    ]


def test_a_new_version_without_text_takes_the_old_one_out(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.take("a.md", EMPTY)
    assert library.standing(document) == ("skipped", False, None, 2, "empty")
    assert library.searched() == set()


def test_a_rollback_from_its_request_to_its_end(library: Library) -> None:
    document = library.take("a.md", ONE)
    library.take("a.md", TWO)
    request_rollback(library.connection, document, 1)
    assert library.standing(document) == ("queued", True, 2, 2, None)
    library.work()
    assert library.standing(document) == ("indexed", True, 1, 2, "rolled_back")
    library.ask("a.md", THREE)
    assert library.standing(document) == ("queued", True, 1, 2, "rolled_back")
    _fail(library, _begin(library), permanent=True)
    assert library.standing(document) == ("failed", True, 1, 3, "damaged")


def test_deleted_and_excluded_documents_serve_nothing(library: Library) -> None:
    document = library.take("a.md", ONE)
    (library.root / "a.md").unlink()
    request_delete(library.connection, [document])
    assert library.standing(document)[1:4] == (True, 1, 1)
    library.work()
    assert library.standing(document) == ("deleted", False, None, 1, None)
    library.take("a.md", TWO)
    assert library.standing(document) == ("indexed", True, 2, 2, None)
    exclusion.exclude(library.connection, document)
    assert library.standing(document) == ("excluded", False, None, 2, "excluded")
    library.connection.execute("UPDATE docwell.document SET state = state")
    with pytest.raises(KeyError):
        library.ask("a.md", THREE)
    assert library.work() == []
    exclusion.include(library.connection, document)
    assert library.standing(document) == ("queued", False, None, 2, None)
    library.work()
    assert library.standing(document) == ("indexed", True, 3, 3, None)


def test_other_chunks_are_made_when_their_settings_change_and_a_person_asks_for_it(
    database: Database, tmp_path: Path, cage: ParserCage
) -> None:
    text = "# Report\n\n" + "\n\n".join(f"Paragraph {number} tells of herons. " * 12 for number in range(12))
    with open_library(database.url, tmp_path / "inbox", cage) as library:
        document = library.take("a.md", text)
        before = library.one("SELECT chunk_count FROM docwell.document")
    with open_library(database.url, tmp_path / "inbox", cage, chunk_tokens=100, chunk_overlap=0) as library:
        library.ask("a.md")
        assert library.work() == ["unchanged"], "not by itself"
        library.connection.execute("UPDATE docwell.document SET reprocess = true")
        library.ask("a.md")
        assert library.work() == ["indexed"]
        assert library.one("SELECT chunk_count FROM docwell.document") > before
        assert library.standing(document) == ("indexed", True, 2, 2, None)


# --- what those who bring files in are told


def test_a_file_with_the_bytes_of_an_older_document_is_named_in_the_summary(library: Library) -> None:
    files = [library.root / name for name in ("a.md", "b.md", "c.md")]
    for file, text in zip(files, (ONE, ONE, TWO), strict=True):
        file.write_text(text)
    asked: dict[str, uuid.UUID] = {}
    for file in files:
        asked |= request_files(library.connection, [file], namespace="default", tags=[], max_attempts=5)
    request_files(library.connection, files[:1], namespace="elsewhere", tags=[], max_attempts=5)
    library.work()
    first, second, _ = map(str, files)
    assert twins.originals(library.connection, list(asked.values())) == {asked[second]: first}


def test_a_job_that_was_erased_meanwhile_keeps_nobody_waiting(library: Library) -> None:
    file = library.root / "a.md"
    file.write_text(ONE)
    (job,) = request_files(library.connection, [file], namespace="default", tags=[], max_attempts=5).values()
    assert ended_jobs(library.connection, [job]) == []
    erase(library.connection, library.one("SELECT document_id FROM docwell.document"), max_bytes=10**9)
    (ended,) = ended_jobs(library.connection, [job])
    assert (ended.state, "erased" in (ended.reason or "")) == ("cancelled", True)


def test_a_dry_run_tells_what_each_namespace_would_do_with_a_file(library: Library) -> None:
    file = library.root / "a.md"
    file.write_text(ONE)

    def action(namespace: str) -> str:
        return intend(library.connection, file, namespace=namespace, max_bytes=10**9).action

    assert action("default") == "new"
    request_files(library.connection, [file], namespace="default", tags=[], max_attempts=5)
    library.work()
    assert (action("default"), action("elsewhere")) == ("unchanged", "new")
    file.write_text(TWO)
    assert action("default") == "changed"
    exclusion.exclude(library.connection, library.one("SELECT document_id FROM docwell.document"))
    assert (action("default"), action("elsewhere")) == ("skipped", "new")


# --- what searches find of it


def _found(service: SearchService, query: str) -> list[tuple[str, int]]:
    return [(result["path"], result["version"]) for result in service.search(query, mode="keyword")["results"]]


def test_searches_follow_every_step_of_a_document(database: Database, library: Library) -> None:
    document = library.take("a.md", ONE)
    library.take("sub/a.md", "# Other\n\nThe heron again, in a file of the same name.\n")
    with serving(database) as service:
        assert sorted(_found(service, "heron")) == [("a.md", 1), ("sub/a.md", 1)], "the whole path is the identity"
        library.take("a.md", TWO)
        assert _found(service, "heron") == [("sub/a.md", 1)]
        assert _found(service, "egret") == [("a.md", 2)]
        request_rollback(library.connection, document, 1)
        library.work()
        assert sorted(_found(service, "heron")) == [("a.md", 1), ("sub/a.md", 1)]
        assert _found(service, "egret") == []
        exclusion.exclude(library.connection, document)
        assert _found(service, "heron") == [("sub/a.md", 1)]
        (library.root / "sub/a.md").unlink()
        request_delete(library.connection, [library.one("SELECT document_id FROM docwell.document WHERE path = 'sub/a.md'")])
        library.work()
        assert _found(service, "heron") == []
        third = library.take("third.md", "# Third\n\nA heron that must go.\n")
        assert _found(service, "heron") == [("third.md", 1)]
        assert service.list(path="third.md")["documents"][0]["searchable"] is True
        erase(library.connection, third, max_bytes=10**9)
        assert _found(service, "heron") == []
        assert service.list(path="third.md")["documents"] == []
