"""Erasure: what goes, what stays, what is kept out, and what the receipt says of it."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from ingest_worker.catalogue import erasing, exclusion
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.documents import Observed, request_delete
from ingest_worker.catalogue.moving import move_documents
from ingest_worker.erasure import Receipt, erase, lift
from ingest_worker.intake.manual import intend, request_files
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import LeaseLost
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import run_job
from ingest_worker.rollback import request_rollback
from shared.database import connect
from tests.api import running_api
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.folders import open_folder
from tests.versions import Library, open_library

SECRET = "# Zebrafish\n\nThe zebrafish swims here.\n"


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def library(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Library]:
    with open_library(database.url, tmp_path / "inbox", cage) as found:
        yield found


def _erase(library: Library, document: uuid.UUID) -> Receipt:
    return erase(library.connection, document, max_bytes=10**9)


_COLUMNS = """
    SELECT a.attrelid::regclass::text, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'docwell' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND a.atttypid IN ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype, 'bytea'::regtype)
"""


def _where(connection: psycopg.Connection[Any], word: str) -> list[str]:
    """Every column of every table in which the word stands."""
    found = []
    for table, column in connection.execute(_COLUMNS.encode()).fetchall():
        query = f"SELECT count(*) FROM {table} WHERE {column}::text ILIKE %s OR {column}::text LIKE %s"
        row = connection.execute(query.encode(), (f"%{word}%", f"%{word.encode().hex()}%")).fetchone()
        if row is not None and row[0]:
            found.append(f"{table}.{column}")
    return found


def test_nothing_of_the_document_is_left_in_any_table(library: Library) -> None:
    library.take("zebrafish.md", SECRET)
    document = library.take("zebrafish.md", SECRET + "\nIt is a zebrafish still.\n")
    library.ask("zebrafish.md", SECRET + "\nA third zebrafish.\n")
    job = library.claim()
    assert job is not None
    jobs.fail(library.connection, job, code="damaged", error="zebrafish: broken", permanent=True, delay_seconds=0)
    stood = {"document.path", "document.title", "version.title", "chunk.text", "job.last_error"}
    assert stood <= set(_where(library.connection, "zebrafish"))
    receipt = _erase(library, document)
    assert _where(library.connection, "zebrafish") == []
    for table in ("document", "version", "version_chunk", "chunk", "chunk_terms", "job"):
        assert library.one(f"SELECT count(*) FROM docwell.{table}") == 0, table
    assert library.searched() == set()
    removed = receipt.removed
    assert (removed.versions, removed.jobs, removed.pushed_bytes) == (2, 3, 0)
    assert (removed.chunks, removed.vectors, removed.keyword_rows) == (2, 1, 1)
    assert receipt.file_remains is True
    assert len(receipt.blocked.sha256) == 3, "the file as it lies there now is kept out too"
    assert library.one("SELECT sum(chunk_count) + sum(term_total) FROM docwell.audience") == 0


def test_the_path_and_the_bytes_stay_out_and_the_reason_names_the_cure(library: Library) -> None:
    document = library.take("a.md", SECRET)
    receipt = _erase(library, document)
    library.ask("a.md")
    assert library.work() == ["skipped"]
    same_path = library.one("SELECT document_id FROM docwell.document")
    assert library.standing(same_path) == ("skipped", False, None, None, "erased")
    assert f"docwell erase --lift {receipt.erasure_id}" in library.one("SELECT reason FROM docwell.document")
    assert library.take("a.md", "Other text.\n") == same_path
    assert library.standing(same_path)[4] == "erased"
    copy = library.take("sub/copy.md", SECRET)
    assert library.standing(copy) == ("skipped", False, None, None, "erased")
    assert _where(library.connection, "zebrafish swims") == []


def test_other_documents_with_the_same_bytes_go_too_and_stand_on_the_receipt(library: Library) -> None:
    first = library.take("a.md", SECRET)
    library.take("copy.md", SECRET)
    once = library.take("once.md", SECRET)
    library.take("once.md", "Something else by now.\n")
    back = library.take("back.md", SECRET)
    library.take("back.md", "A newer text.\n")
    request_rollback(library.connection, back, 1)
    library.work()
    untouched = library.take("other.md", "Nothing of that.\n")
    receipt = _erase(library, first)
    assert {other.path: other.what for other in receipt.others} == {
        "copy.md": "withdrawn",
        "once.md": "old_version_removed",
        "back.md": "read_again",
    }
    assert receipt.queued == 1
    assert library.work() == ["indexed"]
    assert library.standing(once) == ("indexed", True, 2, 2, None)
    assert library.standing(back) == ("indexed", True, 3, 3, None)
    assert library.standing(untouched) == ("indexed", True, 1, 1, None)
    assert library.searched() == {"Something else by now.", "A newer text.", "Nothing of that."}
    copy = library.one("SELECT document_id FROM docwell.document WHERE path = 'copy.md'")
    assert library.standing(copy) == ("skipped", False, None, 1, "erased")
    assert _where(library.connection, "zebrafish") == []
    for path in ("copy.md", "once.md", "back.md"):
        library.ask(path)
    assert sorted(library.work()) == ["skipped", "unchanged", "unchanged"]


def test_passages_that_another_document_holds_stay_and_the_receipt_says_so(library: Library) -> None:
    shared = "## Terms\n\n" + "These terms are the same in every contract. " * 60
    first = library.take("a.md", f"# A\n\n{'Only here is the zebrafish. ' * 60}\n\n{shared}\n")
    second = library.take("b.md", f"# A\n\n{'Here is another animal. ' * 60}\n\n{shared}\n")
    before = library.served_text(second)
    receipt = _erase(library, first)
    assert receipt.kept.chunks > 0
    assert [place.path for place in receipt.kept.documents] == ["b.md"]
    assert library.served_text(second) == before
    assert library.standing(second) == ("indexed", True, 1, 1, None)
    assert {text for text in before.split("\n\n") if "same in every contract" in text}
    assert library.one("SELECT count(*) FROM docwell.chunk_terms") == library.one("SELECT count(*) FROM docwell.chunk")


def test_every_embedding_space_loses_the_vectors(database: Database) -> None:
    with open_corpus(database.url) as corpus:
        document = corpus.add("a.md", [text_chunk("zebrafish")])
        row = corpus.connection.execute(
            "SELECT docwell.create_embedding_space('second', 'test', 'second', 8, 'filling')"
        ).fetchone()
        assert row is not None
        corpus.connection.execute(f"INSERT INTO docwell.vector_{row[0]} SELECT * FROM docwell.{corpus.vectors}".encode())
        receipt = erase(corpus.connection, document, max_bytes=10**9)
        assert receipt.removed.vectors == 2
        assert corpus.count(corpus.vectors) == corpus.count(f"vector_{row[0]}") == 0


def test_a_job_under_way_writes_nothing_more(library: Library) -> None:
    document = library.ask("a.md", SECRET)
    job = library.claim()
    assert job is not None
    receipt = _erase(library, document)
    assert receipt.removed.jobs == 1
    with pytest.raises(LeaseLost):
        run_job(job, library.tools)
    assert _where(library.connection, "zebrafish") == []


def test_a_document_with_the_same_bytes_that_is_being_read_meanwhile_is_not_published(library: Library) -> None:
    first = library.take("a.md", SECRET)
    second = library.ask("b.md", SECRET)
    embedder, todo = library.tools.embedder, [lambda: _erase(library, first)]

    def meanwhile() -> Any:
        while todo:
            todo.pop()()
        return embedder()

    job = library.claim()
    assert job is not None
    assert run_job(job, replace(library.tools, embedder=meanwhile)).result == "skipped"
    assert library.standing(second)[0] == "skipped"
    assert library.standing(second)[4] == "erased"
    assert _where(library.connection, "zebrafish") == []


def test_an_erasure_and_publishers_of_the_same_bytes_leave_nothing(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    """Two publishers bring the same bytes in under ever new paths while they are erased: whoever comes late is refused."""
    failures: list[BaseException] = []
    with open_library(database.url, tmp_path / "inbox", cage) as library:
        first = library.take("a.md", SECRET)
        begun = threading.Barrier(3)

        def publish(offset: int) -> None:
            try:
                with open_library(database.url, tmp_path / "inbox", cage) as mine:
                    begun.wait(20)
                    for number in range(10):
                        document = mine.ask(f"{offset}-{number}.md", SECRET)
                        while (job := mine.claim()) is not None:
                            try:
                                run_job(job, mine.tools)
                            except psycopg.errors.DeadlockDetected:
                                jobs.fail(mine.connection, job, code="x", error="x", permanent=False, delay_seconds=0)
                        assert document
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(offset,)) for offset in range(2)]
        for thread in threads:
            thread.start()
        begun.wait(20)
        _erase(library, first)
        for thread in threads:
            thread.join(60)
        library.work()
        assert failures == []
        assert _where(library.connection, "zebrafish") == []
        states = library.connection.execute("SELECT DISTINCT state, reason_code FROM docwell.document").fetchall()
        assert set(states) <= {("skipped", "erased")}


def test_a_push_of_the_path_or_the_bytes_is_refused_with_a_problem(database: Database) -> None:
    with running_api(database.url) as api, connect(database.url, autocommit=True) as connection:
        sent = api.client.put("/v1/documents/team/a.md", content=SECRET.encode())
        other = api.client.put("/v1/documents/team/copy.md", content=SECRET.encode()).json()["document_id"]
        receipt = erase(connection, uuid.UUID(sent.json()["document_id"]), max_bytes=10**9)
        assert receipt.removed.pushed_bytes == len(SECRET)
        assert receipt.file_remains is None
        assert [(one.path, one.what) for one in receipt.others] == [("copy.md", "withdrawn")]
        shown = api.client.get(f"/v1/documents/by-id/{other}").json()
        assert (shown["state"], shown["reason_code"], shown["searchable"]) == ("skipped", "erased", False)
        assert api.client.get(f"/v1/jobs?document_id={other}").json()["jobs"][0]["state"] == "cancelled"
        for path, content in (("a.md", b"other"), ("b.md", SECRET.encode())):
            refused = api.client.put(f"/v1/documents/team/{path}", content=content)
            assert refused.status_code == 409
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["code"] == "erased"
            assert f"docwell erase --lift {receipt.erasure_id}" in refused.json()["detail"]
        assert connection.execute("SELECT count(*) FROM docwell.pushed_content").fetchone() == (0,)
        assert api.client.put("/v1/documents/other/a.md", content=b"other").status_code == 202


def test_a_file_that_is_named_by_hand_is_skipped_and_a_dry_run_says_so(library: Library) -> None:
    document = library.take("a.md", SECRET)
    _erase(library, document)
    elsewhere = library.root.parent / "elsewhere.md"
    elsewhere.write_text(SECRET)
    meant = intend(library.connection, elsewhere, namespace="default", max_bytes=10**9)
    assert (meant.action, "erase --lift" in meant.reason) == ("skipped", True)
    request_files(library.connection, [elsewhere], namespace="default", tags=[], max_attempts=5)
    assert library.work() == ["skipped"]


def test_sweeps_see_an_erased_file_once_and_forget_its_name_when_it_goes(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs") as folder, connect(database.url, autocommit=True) as connection:
        folder.write("zebrafish.md", SECRET)
        folder.sweep()
        folder.work()
        erase(connection, folder.ids()["zebrafish.md"], max_bytes=10**9)
        assert folder.sweep().new == 1
        folder.work()
        assert folder.documents() == {"zebrafish.md": "skipped"}
        for _ in range(2):
            report = folder.sweep()
            assert (report.new, report.changed, report.again, report.gone) == (0, 0, 0, 0)
        assert folder.live_jobs() == {}
        (folder.root / "zebrafish.md").rename(folder.root / "renamed.md")
        folder.sweep()
        folder.work()
        assert folder.documents() == {"renamed.md": "skipped"}
        assert _where(connection, "zebrafish") == []
        folder.write("zebrafish.md", "Another file.")
        folder.sweep()
        folder.work()
        assert folder.documents()["zebrafish.md"] == "skipped"


def test_a_document_that_moves_to_an_erased_path_is_not_served_there(library: Library) -> None:
    document = library.take("a.md", SECRET)
    other = library.take("b.md", "Harmless.\n")
    _erase(library, document)
    source = library.one("SELECT source_id FROM docwell.document")
    assert move_documents(library.connection, source, {other: Observed(name="a.md")}) == set()
    assert library.standing(other)[0] == "indexed"


def test_an_excluded_document_can_be_erased_and_its_file_stays_out_under_any_name(library: Library) -> None:
    document = library.take("a.md", SECRET)
    exclusion.exclude(library.connection, document)
    _erase(library, document)
    assert library.standing(library.take("renamed.md", SECRET))[4] == "erased"


def test_an_empty_file_is_nobodys_secret(library: Library) -> None:
    document = library.take("a.md", SECRET)
    library.take("a.md", "")
    other = library.take("b.md", "")
    receipt = _erase(library, document)
    assert receipt.blocked.sha256 == (hashlib.sha256(SECRET.encode()).digest(),)
    assert receipt.others == ()
    assert library.standing(other)[4] == "empty"


def test_lifting_lets_the_document_in_again(library: Library) -> None:
    document = library.take("a.md", SECRET)
    receipt = _erase(library, document)
    back = library.take("a.md")
    assert library.standing(back)[4] == "erased"
    assert lift(library.connection, receipt.erasure_id) == 1
    assert library.work() == ["indexed"]
    assert library.standing(back) == ("indexed", True, 1, 1, None)
    with pytest.raises(Unknown):
        lift(library.connection, uuid.uuid4())


def test_of_two_erasures_of_the_same_bytes_each_is_lifted_by_itself(library: Library) -> None:
    first = _erase(library, library.take("a.md", SECRET))
    second = _erase(library, library.take("b.md", SECRET))
    lift(library.connection, first.erasure_id)
    copy = library.take("c.md", SECRET)
    assert library.standing(copy)[4] == "erased"
    lift(library.connection, second.erasure_id)
    assert library.work() == ["indexed"]


def test_a_deleted_document_leaves_no_trace_of_an_erasure(library: Library) -> None:
    document = library.take("a.md", SECRET)
    library.remove("a.md")
    request_delete(library.connection, [document])
    library.work()
    receipt = _erase(library, document)
    assert (receipt.file_remains, receipt.blocked.sha256) == (False, ())
    assert library.standing(library.take("a.md", "New text.\n"))[4] == "erased"


def test_dead_rows_are_cleared_out_of_every_table_that_held_the_text(library: Library) -> None:
    document = library.take("a.md", SECRET)
    _erase(library, document)
    erasing.vacuum(library.connection)
    rows = library.connection.execute(
        "SELECT relname, vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'docwell' AND relname = ANY (%s)",
        (["chunk", "chunk_terms", "version", "version_chunk", "document", "job", "pushed_content", "vector_1_fresh"],),
    ).fetchall()
    assert len(rows) == 8
    assert all(count >= 1 for _, count in rows), rows


# --- the command


Run = Callable[..., Result]


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` on this test's database and a broker that is away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    return lambda *arguments, **options: CliRunner().invoke(make_app(), list(map(str, arguments)), **options)


def test_the_command_asks_and_prints_a_receipt(run: Run, library: Library) -> None:
    document = library.take("a.md", SECRET)
    library.take("copy.md", SECRET)
    refused = run("erase", "a.md")
    assert refused.exit_code == 2
    assert "inbox:default:copy.md" in refused.output
    assert library.standing(document)[0] == "indexed"
    done = run("erase", "a.md", "--yes", "--json")
    assert done.exit_code == 0, done.output
    receipt = json.loads(done.stdout)
    assert receipt["document"]["path"] == "a.md"
    assert receipt["removed"]["versions"] == 2
    assert receipt["blocked"]["sha256"] == [hashlib.sha256(SECRET.encode()).hexdigest()]
    assert [(other["path"], other["what"]) for other in receipt["others"]] == [("copy.md", "withdrawn")]
    assert receipt["vacuumed"] is True
    assert {"file", "write_ahead_log", "backups", "logs", "memory"} <= {trace["what"] for trace in receipt["outside"]}
    assert (library.root / "a.md").read_text() == SECRET, "no file is touched"
    listed = json.loads(run("erase", "--list", "--json").stdout)["erasures"]
    assert [(one["erasure_id"], one["places"], one["contents"]) for one in listed] == [(receipt["erasure_id"], 1, 1)]
    assert json.loads(run("erase", "--lift", receipt["erasure_id"], "--json").stdout)["queued"] == 1
    assert isinstance(run("erase", "a.md", "--yes").exception, Unknown)
    assert run("erase").exit_code == 2
    assert run("erase", "a.md", "--list").exit_code == 2


def test_the_receipt_for_people_says_what_was_done(run: Run, library: Library) -> None:
    library.take("a.md", SECRET)
    text = run("erase", "a.md", "--yes").stdout
    for words in (
        "Erased: inbox:default:a.md",
        "versions:",
        "Kept out from now on",
        "bytes with sha256",
        "erase --lift",
        "Delete it there",
    ):
        assert words in text, text
