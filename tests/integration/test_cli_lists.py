"""The commands that list, show and tidy up, as people and scripts run them."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from infra.cli.status import disk_line, services_line
from infra.doctor import look_at_disk, look_at_inotify, look_at_python, look_at_services
from infra.doctor_database import look_into_database
from infra.findings import Finding
from infra.local.folders import exclusive
from infra.local.runtime import lock_path, service_states, state_path
from ingest_worker.catalogue.asking import Conflict, Unknown
from ingest_worker.jobs import control, table
from shared.documents import Span
from shared.errors import ServiceUnavailable
from tests.conftest import Database
from tests.corpus import FINGERPRINT, Corpus, open_corpus, text_chunk

Run = Callable[..., Result]


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` in an empty folder, on this test's database and a broker that is away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    return lambda *arguments, **options: CliRunner().invoke(make_app(), list(map(str, arguments)), **options)


def _json(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_documents_list_prints_every_document_as_one_json_document(run: Run, corpus: Corpus) -> None:
    with corpus.connection.transaction():
        for number in range(1005):
            corpus.ask(f"{number:04}.md")
    found = _json(run("documents", "list", "--json"))
    assert (len(found["documents"]), found["next_cursor"]) == (1005, None)
    part = _json(run("documents", "list", "--json", "--limit", 2))
    rest = _json(run("documents", "list", "--json", "--limit", 2, "--cursor", part["next_cursor"]))
    assert [row["path"] for row in [*part["documents"], *rest["documents"]]] == ["0000.md", "0001.md", "0002.md", "0003.md"]


def test_lists_are_lines_with_tabs_where_nobody_looks(run: Run, corpus: Corpus) -> None:
    document = corpus.add("a\tb\n\x1b[31m.md", [text_chunk("x")])
    lines = run("documents", "list").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["ID", str(document)]
    assert lines[1].split("\t")[6] == "a\\tb\\n\\x1b[31m.md"
    assert len({line.count("\t") for line in lines}) == 1


def test_filters_narrow_lists_and_wrong_ones_are_wrong_usage(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("x")])
    corpus.ask("b.md", source="other", namespace="team")
    for options, paths in (
        (["--state", "indexed"], ["a.md"]),
        (["--namespace", "team"], ["b.md"]),
        (["--source", "other"], ["b.md"]),
        (["--since", "1h"], ["a.md", "b.md"]),
        (["--since", "2099-01-01"], []),
        (["--path", "a*"], ["a.md"]),
    ):
        assert [row["path"] for row in _json(run("documents", "list", "--json", *options))["documents"]] == paths
    for options in (["--state", "done"], ["--since", "soon"], ["--limit", "0"], ["--cursor", "x", "--limit", "1"]):
        assert run("documents", "list", *options).exit_code == 2


def test_show_prints_a_document_with_its_chunks_and_their_places(run: Run, corpus: Corpus) -> None:
    span = Span(page_start=3, page_end=4, line_start=10, line_end=12)
    document = corpus.add("docs/a.pdf", [text_chunk("the passage", section=("Billing", "Cancelling"), span=span)])
    found = _json(run("documents", "show", "docs/a.pdf", "--json"))
    assert found["document"]["document_id"] == str(document)
    (chunk,) = found["chunks"]
    assert (chunk["page_start"], chunk["page_end"], chunk["section"], chunk["line_start"]) == (3, 4, "Billing > Cancelling", 10)
    text = run("documents", "show", document).stdout
    assert "[1] text, pages 3-4, lines 10-12, Billing > Cancelling" in text
    assert "    the passage" in text
    assert "the passage" not in run("documents", "show", document, "--no-chunks").stdout


def test_show_names_slides_sheets_rows_and_attachments(run: Run, corpus: Corpus) -> None:
    spans = [
        Span(slide=3),
        Span(attachment="q1.xlsx", sheet="Sales", row_start=2, row_end=40),
        Span(page_start=5, page_end=5, page_label="iii"),
    ]
    corpus.add("mail.eml", [text_chunk(f"passage {n}", span=span) for n, span in enumerate(spans)])
    chunks = _json(run("documents", "show", "mail.eml", "--json"))["chunks"]
    assert [chunk["slide"] for chunk in chunks] == [3, None, None]
    assert (chunks[1]["attachment"], chunks[1]["sheet"], chunks[1]["row_start"], chunks[1]["row_end"]) == (
        "q1.xlsx",
        "Sales",
        2,
        40,
    )
    assert chunks[2]["page_label"] == "iii"
    text = run("documents", "show", "mail.eml").stdout
    assert "[1] text, slide 3\n" in text
    assert "[2] text, attachment q1.xlsx, sheet Sales, rows 2-40\n" in text
    assert "[3] text, page 5, printed iii\n" in text


def test_history_shows_the_kept_versions(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("one")])
    corpus.ask("a.md")
    corpus.serve(corpus.claim(), [text_chunk("two")])
    found = _json(run("documents", "history", "a.md", "--json"))
    assert [(version["number"], version["served"]) for version in found["versions"]] == [(2, True), (1, False)]
    assert found["next_cursor"] is None


def test_rolling_back_asks_for_a_job_and_says_which_version(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("one")])
    corpus.add("a.md", [text_chunk("two")])
    asked = _json(run("documents", "rollback", "a.md", "1", "--no-wait", "--json"))
    assert (asked["version"], asked["before"], asked["served"]) == (1, 2, None)
    document = asked["document"]
    assert (document["state"], document["served_version"], document["latest_version"]) == ("queued", 2, 2)
    assert document["pinned_version"] == 1
    job = _json(run("jobs", "show", asked["job_id"], "--json"))
    assert (job["kind"], job["version"], job["state"]) == ("rollback", 1, "queued")
    for arguments in (["9"], ["--to", "9"], ["--version", "9"]):
        refused = run("documents", "rollback", "a.md", *arguments, "--no-wait")
        assert isinstance(refused.exception, Conflict)
        assert "Kept with text: 2, 1" in str(refused.exception)
    assert run("documents", "rollback", "a.md", "1", "--to", "2").exit_code == 2


def test_a_rollback_that_does_not_come_about_is_a_failure(run: Run, database: Database, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("one")])
    corpus.add("a.md", [text_chunk("two")])
    stopped = threading.Event()

    def give_up() -> None:
        with open_corpus(database.url) as mine:
            while not stopped.is_set():
                live = mine.connection.execute("SELECT job_id FROM docwell.job WHERE state = 'queued'").fetchall()
                control.cancel(mine.connection, [job for (job,) in live])

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(give_up)
        failed = run("documents", "rollback", "a.md", "1")
        stopped.set()
        ended.result(20)
    assert isinstance(failed.exception, Conflict)
    assert failed.exception.code == "not_served"


def test_show_names_the_document_that_a_duplicate_has_the_bytes_of(run: Run, corpus: Corpus) -> None:
    first = corpus.add("a.md", [text_chunk("same")])
    corpus.add("b.md", [text_chunk("same")])
    corpus.add("c.md", [text_chunk("same")], source="other", namespace="elsewhere")
    shown = _json(run("documents", "show", "b.md", "--json"))["document"]["duplicate_of"]
    assert shown == {"document_id": str(first), "source": "inbox", "namespace": "default", "path": "a.md"}
    assert "inbox:default:a.md" in run("documents", "show", "b.md").stdout
    for path in ("a.md", "c.md"):
        assert _json(run("documents", "show", path, "--json"))["document"]["duplicate_of"] is None


def test_an_unknown_document_is_a_failure_with_a_sentence(run: Run, corpus: Corpus) -> None:
    for command in ("show", "history", "include", "exclude"):
        failed = run("documents", command, "nothing.md")
        assert isinstance(failed.exception, Unknown)
        assert "There is no document 'nothing.md'" in str(failed.exception)
    assert isinstance(run("jobs", "show", uuid.uuid4()).exception, Unknown)
    assert isinstance(run("sources", "show", "nothing").exception, Unknown)


def test_deleting_asks_and_without_anybody_there_needs_yes(run: Run, corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    refused = run("documents", "delete", "a.md")
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    assert corpus.connection.execute("SELECT count(*) FROM docwell.job WHERE state = 'queued'").fetchone() == (0,)
    done = _json(run("documents", "delete", "a.md", "--yes", "--json"))
    assert [job["document_id"] for job in done["jobs"]] == [str(document)]
    assert corpus.connection.execute("SELECT kind FROM docwell.job WHERE state = 'queued'").fetchall() == [("delete",)]


def test_nothing_is_done_when_one_of_the_names_is_unknown(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("x")])
    assert isinstance(run("documents", "exclude", "a.md", "nothing.md").exception, Unknown)
    assert _json(run("documents", "list", "--json"))["documents"][0]["state"] == "indexed"


def test_excluding_asks_since_older_versions_go(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("x")])
    refused = run("documents", "exclude", "a.md")
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    assert _json(run("documents", "list", "--json"))["documents"][0]["state"] == "indexed"


def test_jobs_of_documents_that_are_deleted_or_excluded_are_not_tried_again(run: Run, corpus: Corpus) -> None:
    for path, state in (("a.md", "excluded"), ("b.md", "deleted")):
        document = corpus.ask(path)
        job = corpus.claim()
        table.fail(corpus.connection, job, code="x", error="x", permanent=True, delay_seconds=0)
        corpus.connection.execute("UPDATE docwell.document SET state = %s WHERE document_id = %s", (state, document))
        refused = run("jobs", "retry", job.job_id)
        assert isinstance(refused.exception, Conflict)
        assert state in str(refused.exception)
        assert control.retry(corpus.connection, [job.job_id]) == 0, "not even when it is excluded at the last moment"
        assert corpus.connection.execute("SELECT state FROM docwell.job WHERE job_id = %s", (job.job_id,)).fetchone() == (
            "cancelled",
        )


def test_exclude_and_include_take_a_document_out_and_back(run: Run, corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    out = _json(run("documents", "exclude", "a.md", "--yes", "--json"))
    assert (out["documents"][0]["state"], out["documents"][0]["searchable"]) == ("excluded", False)
    back = _json(run("documents", "include", "a.md", "--json"))
    assert back["jobs"][0]["document_id"] == str(document)
    assert isinstance(run("documents", "include", "a.md").exception, Conflict)


def test_jobs_are_listed_shown_retried_cancelled_and_purged(run: Run, corpus: Corpus) -> None:
    corpus.ask("a.md")
    claimed = corpus.claim()
    table.fail(corpus.connection, claimed, code="unreadable", error="No light.", permanent=True, delay_seconds=0)
    (job,) = _json(run("jobs", "list", "--json", "--state", "dead"))["jobs"]
    assert (job["attempts"], job["max_attempts"], job["last_error"], job["path"]) == (1, 5, "No light.", "a.md")
    assert "No light." in run("jobs", "list").stdout
    assert "No light." in run("jobs", "show", job["job_id"]).stdout
    assert _json(run("jobs", "retry", job["job_id"], "--json"))["jobs"][0]["state"] == "queued"
    assert isinstance(run("jobs", "retry", job["job_id"]).exception, Conflict)
    assert _json(run("jobs", "cancel", job["job_id"], "--json"))["jobs"][0]["state"] == "cancelled"
    assert isinstance(run("jobs", "cancel", job["job_id"]).exception, Conflict)
    assert run("jobs", "purge", "--state", "cancelled").exit_code == 2
    assert run("jobs", "purge", "--state", "queued", "--yes").exit_code == 2
    assert _json(run("jobs", "purge", "--state", "cancelled", "--older-than", "1h", "--yes", "--json")) == {"purged": 0}
    assert _json(run("jobs", "purge", "--state", "cancelled", "--yes", "--json")) == {"purged": 1}
    assert _json(run("jobs", "list", "--json")) == {"jobs": [], "next_cursor": None}


def test_all_dead_jobs_are_retried_at_once(run: Run, corpus: Corpus) -> None:
    for path in ("a.md", "b.md", "c.md"):
        corpus.ask(path)
        table.fail(corpus.connection, corpus.claim(), code="x", error="x", permanent=True, delay_seconds=0)
    corpus.ask("c.md")
    assert {job["path"] for job in _json(run("jobs", "retry", "--all-dead", "--json"))["jobs"]} == {"a.md", "b.md"}
    assert run("jobs", "retry").exit_code == 2


def test_sources_and_status_count_what_is_there(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("x")])
    (source,) = _json(run("sources", "list", "--json"))["sources"]
    assert (source["name"], source["documents"], source["by_state"]) == ("inbox", 1, {"indexed": 1})
    assert _json(run("sources", "show", "inbox", "--json"))["namespace"] == "default"
    status = _json(run("status", "--json"))
    assert (status["documents"]["total"], status["chunks"], status["jobs"]["due"]) == (1, 1, 0)
    text = run("status").stdout
    assert "1 (1 searchable): 1 indexed" in text
    assert "inbox" in text


def test_without_a_service_the_command_says_how_to_start_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCWELL_DATABASE_URL", f"postgresql://docwell@/docwell?host={tmp_path}")
    for command in (["status"], ["documents", "list", "--json"], ["jobs", "list"], ["sources", "list"]):
        failed = run(*command)
        assert isinstance(failed.exception, ServiceUnavailable)
        assert "docwell up" in str(failed.exception)
        assert failed.stdout == ""


def _checks(result: Result) -> dict[str, dict[str, Any]]:
    return {check["check"]: check for check in json.loads(result.stdout)["checks"]}


def test_the_doctor_finds_nothing_wrong_with_a_sound_database_and_names_a_broker_that_is_away(run: Run, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("x"), text_chunk("y")])
    result = run("doctor", "--json")
    checks = _checks(result)
    assert result.exit_code == 1
    assert checks["broker"]["status"] == "failed"
    assert "docwell up" in checks["broker"]["cure"]
    for name in ("python", "schema", "pgvector", "reader role", "row-level security", "searchable chunks", "keyword statistics"):
        assert checks[name]["status"] == "ok", checks[name]
    for name in ("stuck documents", "dead letters", "database"):
        assert checks[name]["status"] == "ok", checks[name]
    assert "All 2 served chunks" in checks["searchable chunks"]["finding"]


@pytest.mark.parametrize(
    ("damage", "check", "status"),
    [
        ("DELETE FROM docwell.{vectors}", "searchable chunks", "failed"),
        ("DELETE FROM docwell.chunk_terms", "searchable chunks", "failed"),
        ("UPDATE docwell.audience SET chunk_count = 9", "keyword statistics", "failed"),
        ("UPDATE docwell.document SET state = 'queued'", "stuck documents", "failed"),
        ("UPDATE docwell.job SET state = 'dead'", "dead letters", "warning"),
        ("GRANT INSERT ON docwell.document TO docwell_reader", "reader role", "failed"),
        ("ALTER TABLE docwell.chunk NO FORCE ROW LEVEL SECURITY", "row-level security", "failed"),
        ("GRANT SELECT ON docwell.job TO docwell_reader", "row-level security", "failed"),
        ("DELETE FROM docwell.migration", "schema", "failed"),
        ("UPDATE docwell.embedding_space SET fingerprint = 'other'", "embedding model", "failed"),
    ],
)
def test_the_doctor_finds_what_is_broken_and_has_a_cure(corpus: Corpus, damage: str, check: str, status: str) -> None:
    def findings() -> dict[str, Finding]:
        return {found.check: found for found in look_into_database(corpus.connection, lambda: FINGERPRINT)}

    corpus.add("a.md", [text_chunk("x")])
    assert findings()[check].status == "ok"
    corpus.connection.execute(damage.format(vectors=corpus.vectors).encode())
    found = findings()[check]
    assert found.status == status, found
    assert found.cure


def test_status_and_doctor_say_which_service_keeps_crashing_and_where_its_log_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    services = {
        name: {"state": state, "pid": 1, "restarts": restarts, "last_exit": end}
        for name, state, restarts, end in (("api", "running", 0, None), ("scheduler", "failing", 6, "exit status 1"))
    }
    state_path(tmp_path).write_text(json.dumps({"supervisor_pid": 1, "services": services}))
    assert service_states(tmp_path) == []  # left behind by one that was killed
    with exclusive(lock_path(tmp_path)):
        found = service_states(tmp_path)
    told = look_at_services(found)
    assert (told.status, look_at_services(found[:1]).status, look_at_services([]).status) == ("failed", "ok", "skipped")
    for said in (told.finding, services_line(found) or ""):
        assert "scheduler is failing (exit status 1" in said
    for said in (told.cure or "", services_line(found) or ""):
        assert str(tmp_path / "logs" / "scheduler.log") in said
    assert services_line(found[:1]) == "1 running"


@pytest.mark.parametrize(("mebibytes", "says"), [(0, "0.0 GiB are free at "), (1024, "1.0 GiB are free at "), (9999, None)])
def test_status_says_when_there_is_little_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mebibytes: int, says: str | None
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=mebibytes * 1024**2))
    told = disk_line(tmp_path)
    assert (told or "").startswith(says or "")
    assert (told is None) == (says is None)
    assert told is None or "Free some space" in told


def test_the_doctor_looks_at_this_machine(tmp_path: Path) -> None:
    (old, missing) = look_at_python((3, 9), lambda _package: None)
    assert (old.status, missing.status) == ("failed", "failed")
    assert look_at_disk("disk", tmp_path / "not" / "yet").check == "disk"
    assert look_at_inotify(tmp_path).status == "skipped"
    (tmp_path / "max_user_watches").write_text("8192\n")
    (tmp_path / "max_user_instances").write_text("128\n")
    few = look_at_inotify(tmp_path)
    assert few.status == "warning"
    assert "sysctl" in (few.cure or "")
