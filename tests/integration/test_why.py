"""Why a document is, or is not, found: every stage can stop one, says so with its evidence, and names the cure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from infra.why.examine import Question, examine
from infra.why.stage import Answer, Stage
from ingest_worker.catalogue import exclusion
from query_server.retrieve.filters import Filters
from query_server.retrieve.rerank import OnDemand, Reranking
from query_server.service import SearchService
from shared.config import Settings, load_settings
from shared.documents import DocumentState
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.folders import Folder, open_folder

STAGES = [
    "in scope",
    "seen",
    "settled",
    "job",
    "parsed",
    "embedded",
    "served",
    "visible",
    "filters",
    "ranked",
    "cut",
]


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        yield opened


Ask = Callable[..., Answer]


@pytest.fixture
def ask(corpus: Corpus, service: SearchService, tmp_path: Path) -> Ask:
    """Why about a name, with the settings of nobody."""

    def why(name: str, *, settings: Settings | None = None, **question: Any) -> Answer:
        current = settings or load_settings({}, directory=tmp_path)[0]
        return examine(corpus.connection, service, current, Question(name=name, **question), directory=tmp_path)

    return why


def _stage(answer: Answer, name: str) -> Stage:
    assert [stage.stage for stage in answer.stages] == STAGES
    return next(stage for stage in answer.stages if stage.stage == name)


def _stopped(answer: Answer, name: str) -> str:
    """The evidence of the stage at which it stopped."""
    assert (answer.found, answer.stopped_at) == (False, name)
    found = _stage(answer, name)
    assert found.cure
    return " ".join(found.evidence)


# --- a document that is found


def test_a_document_that_is_found_passes_every_stage(corpus: Corpus, ask: Ask) -> None:
    document = add(corpus, "docs/billing.md", text_chunk("alpha beta"), source="push", kind="push")
    add(corpus, "docs/other.md", text_chunk("alpha gamma delta"), source="push", kind="push")
    answer = ask("billing.md", query="alpha beta")
    assert (answer.found, answer.stopped_at, answer.document_id) == (True, None, document)
    assert (answer.source, answer.namespace, answer.path, answer.state) == ("push", "default", "docs/billing.md", "indexed")
    assert {stage.verdict.value for stage in answer.stages} == {"ok"}
    ranked = " ".join(_stage(answer, "ranked").evidence)
    assert "keyword: rank 1 of 2 (BM25" in ranked
    assert "semantic: rank 1 of 2 (cosine" in ranked
    assert "billing.md, line 1" in ranked
    assert "Place 1 of 2 passages." in _stage(answer, "cut").evidence


def test_without_a_question_only_rank_and_cut_stay_open(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="push", kind="push")
    answer = ask("a.md")
    assert answer.found
    assert [stage.stage for stage in answer.stages if stage.verdict.value == "unknown"] == ["ranked", "cut"]


@pytest.mark.parametrize("name", ["id", "docs/a.md", "a.md", "push:default:docs/a.md", "https://x.example/a"])
def test_a_document_is_named_by_id_path_file_name_or_url(corpus: Corpus, ask: Ask, name: str) -> None:
    document = add(corpus, "docs/a.md", text_chunk("alpha"), source="push", kind="push")
    corpus.connection.execute("UPDATE docwell.document SET url = 'https://x.example/a'")
    assert ask(document if name == "id" else name).document_id == document


# --- before it is a document


def test_a_name_that_nothing_answers_to_says_where_to_put_it(ask: Ask) -> None:
    answer = ask("nothing.md", query="alpha")
    assert "No document" in _stopped(answer, "in scope")
    assert {stage.verdict.value for stage in answer.stages[1:]} == {"unknown"}


def test_a_file_in_no_sources_folder(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "lonely.md").write_text("alpha")
    answer = ask("lonely.md")
    assert "lies in no source's folder" in _stopped(answer, "in scope")
    assert "docwell ingest" in str(answer.cure)


@pytest.mark.parametrize(
    ("name", "rule", "cure"),
    [
        ("drafts/a.md", "drafts/ (.docwellignore)", "Take the line out of"),
        ("notes.tmp", "*.tmp (DOCWELL_IGNORE_NAMES)", "`!notes.tmp`"),
        ("node_modules/x.md", "node_modules/ (DOCWELL_IGNORE_FOLDERS)", "`!node_modules/`"),
        (".env", ".env (built in", "`!.env`"),
    ],
)
@pytest.mark.parametrize("called", ["on disk", "in the source"])
def test_the_rule_that_ignores_a_file_is_named_with_where_it_stands(
    folder: Folder, ask: Ask, name: str, rule: str, cure: str, called: str
) -> None:
    folder.write(".docwellignore", "drafts/\n")
    file = folder.write(name)
    folder.sweep()
    answer = ask(str(file) if called == "on disk" else name)
    said = _stopped(answer, "in scope")
    assert rule in said
    assert "newest sweep left out" in said
    assert cure in str(answer.cure)
    assert answer.source == "docs"


def test_what_only_the_list_of_left_out_entries_knows_is_found_by_its_name(folder: Folder, ask: Ask) -> None:
    file = folder.write("sub/gone.part")
    folder.sweep()
    file.unlink()
    assert "*.part" in _stopped(ask("gone.part"), "in scope")


def test_empty_large_strange_and_linked_files_are_left_out_with_their_reason(folder: Folder, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("x")
    folder.write("empty.md", "")
    folder.write("large.md", "x" * 100)
    folder.write("binary.md").write_bytes(b"\x00\x01\x02" * 50)
    (folder.root / "link.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(folder.root / "pipe")
    small, _ = load_settings({"DOCWELL_MAX_BYTES": "50"}, directory=tmp_path)
    for name, reason, settings in (
        ("empty.md", "0 bytes", None),
        ("large.md", "100 bytes; the limit is 50", small),
        ("binary.md", "binary", None),
        ("link.md", "leaves the source's folder", None),
        ("pipe", "named pipe", None),
    ):
        assert reason in _stopped(ask(str(folder.root / name), settings=settings), "in scope"), name


def test_a_file_that_no_sweep_has_seen(folder: Folder, corpus: Corpus, ask: Ask) -> None:
    file = folder.write("new.md", age=60)
    assert "No watcher" in _stopped(ask(str(file)), "seen")
    corpus.connection.execute("UPDATE docwell.source SET watcher_seen = now()")
    assert ask(str(file)).cure == "`docwell sources sync docs --wait`"
    corpus.connection.execute("UPDATE docwell.source SET paused = true")
    assert ask(str(file)).cure == "`docwell sources resume docs`"


def test_a_folder_that_is_away_leaves_the_question_open(folder: Folder, ask: Ask) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.root.rename(folder.root.with_name("elsewhere"))
    answer = ask("docs:default:a.md")
    assert _stage(answer, "in scope").verdict.value == "unknown"
    assert "cannot be looked at" in _stage(answer, "in scope").evidence[0]


def test_a_file_that_is_gone_and_a_document_that_was_deleted(folder: Folder, ask: Ask) -> None:
    file = folder.write("a.md", age=60)
    folder.sweep()
    folder.work()
    file.unlink()
    assert "is gone" in _stopped(ask("a.md"), "in scope")
    folder.sweep()
    folder.work()
    answer = ask("docs:default:a.md")
    assert answer.state == "deleted"
    assert "was deleted" in " ".join(_stage(answer, "seen").evidence)


@pytest.mark.parametrize(
    ("kind", "there", "cure"),
    [
        ("folder", True, "Its file is in its folder"),
        ("folder", False, "Put the file back; then `docwell sources sync"),
        ("push", False, "Push it again."),
    ],
)
def test_a_deleted_document_comes_back_the_way_it_came(
    corpus: Corpus, ask: Ask, tmp_path: Path, kind: str, there: bool, cure: str
) -> None:
    document = add(corpus, "a.md", text_chunk("alpha"), source="one", kind=kind)
    corpus.connection.execute("UPDATE docwell.source SET root = %s WHERE type = 'folder'", (str(tmp_path),))
    corpus.connection.execute("UPDATE docwell.document SET state = 'deleted', served_version_id = NULL, served_version = NULL")
    if there:
        (tmp_path / "a.md").write_text("alpha")
    assert str(_stage(ask(document), "seen").cure).startswith(cure)


def test_a_file_is_its_document_whichever_way_leads_to_it(folder: Folder, ask: Ask, tmp_path: Path) -> None:
    folder.write("sub/[a]*.md", age=60)
    folder.sweep()
    (tmp_path / "link").symlink_to(folder.root)
    ids = {ask(name).document_id for name in ("sub/[a]*.md", "[a]*.md", "docs/sub/../sub/[a]*.md", "link/sub/[a]*.md")}
    assert len(ids) == 1
    assert None not in ids


def test_a_file_that_is_being_written_has_to_rest(folder: Folder, corpus: Corpus, ask: Ask, tmp_path: Path) -> None:
    file = folder.write("a.md")
    corpus.connection.execute("UPDATE docwell.source SET watcher_seen = now()")
    slow, _ = load_settings({"DOCWELL_WATCH_SETTLE_SECONDS": "600"}, directory=tmp_path)
    found = _stage(ask(str(file), settings=slow), "settled")
    assert (found.verdict.value, "is taken when it has rested for 600 s" in found.evidence[0]) == ("stopped", True)


# --- on the way into the index


def test_an_excluded_document_names_the_command_that_takes_it_back(corpus: Corpus, ask: Ask) -> None:
    document = corpus.add("a.md", [text_chunk("alpha")], source="push", kind="push")
    exclusion.exclude(corpus.connection, document)
    assert "excluded" in _stopped(ask("a.md"), "in scope")
    assert f"docwell documents include {document}" in str(ask("a.md").cure)


def test_a_job_that_waits_and_one_that_died(corpus: Corpus, ask: Ask) -> None:
    corpus.ask("a.md", source="push", kind="push")
    assert "is queued" in _stopped(ask("a.md"), "job")
    job = corpus.claim()
    corpus.connection.execute(
        "UPDATE docwell.job SET state = 'dead', error_code = 'parser_crashed', last_error = 'The parser ended with signal 9.'"
    )
    said = _stopped(ask("a.md"), "job")
    assert "is dead" in said
    assert "The parser ended with signal 9." in said
    assert f"docwell jobs retry {job.job_id}" in str(ask("a.md").cure)


def test_an_older_version_is_served_while_a_new_one_waits(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="push", kind="push")
    corpus.ask("a.md", source="push", kind="push")
    answer = ask("a.md", query="alpha")
    assert answer.found
    assert "An older version is served meanwhile." in _stage(answer, "job").evidence


def test_a_document_without_text_stops_where_it_was_read(corpus: Corpus, ask: Ask) -> None:
    document = corpus.ask("scan.pdf", source="push", kind="push")
    corpus.connection.execute("UPDATE docwell.job SET state = 'succeeded', result = 'needs_ocr', finished_at = now()")
    corpus.connection.execute(
        "UPDATE docwell.document SET state = 'needs_ocr', reason_code = 'no_text', reason = 'No page has text.'"
        " WHERE document_id = %s",
        (document,),
    )
    assert "No page has text." in _stopped(ask("scan.pdf"), "parsed")
    assert "tesseract" in str(ask("scan.pdf").cure)


def test_a_partial_document_is_found_with_what_is_missing(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="push", kind="push", state=DocumentState.PARTIAL)
    answer = ask("a.md", query="alpha")
    assert answer.found
    assert "partial" in _stage(answer, "parsed").evidence[0]


def test_chunks_without_vectors_are_counted(corpus: Corpus, ask: Ask) -> None:
    document = add(corpus, "a.md", text_chunk("alpha"), text_chunk("beta"), source="push", kind="push")
    corpus.connection.execute(f"DELETE FROM docwell.{corpus.vectors}")
    said = _stopped(ask("a.md"), "embedded")
    assert "Of 2 served chunks 0 have a vector" in said
    assert "by meaning" in said
    assert f"docwell documents include {document}" in str(ask("a.md").cure)


# --- asked for


def test_through_the_eyes_of_somebody_who_may_not_see_it(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="secret", kind="push", readers=["group:eng"])
    assert ask("a.md", query="alpha").found
    assert ask("a.md", query="alpha", principal="group:eng").found
    for nobody in ("everyone", "user:bob", "group:ops"):
        said = _stopped(ask("a.md", query="alpha", principal=nobody), "visible")
        assert "for group:eng" in said


@pytest.mark.parametrize(
    ("principal", "cure"),
    [("everyone", "without `groups`"), ("group:ops", "with ops among its `groups`"), ("user:bob", "a group among its `groups`")],
)
def test_a_pushed_document_gets_its_readers_by_being_pushed(corpus: Corpus, ask: Ask, principal: str, cure: str) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="push", kind="push", readers=["group:eng"])
    answer = ask("a.md", query="alpha", principal=principal)
    assert cure in str(answer.cure)
    assert "source push" not in str(answer.cure)


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        (Filters(path="*.pdf"), "path '*.pdf'"),
        (Filters(namespace="other"), "namespace 'other'"),
        (Filters(source="inbox"), "source 'inbox'"),
        (Filters(tags=("x", "y")), "tags ('x', 'y')"),
    ],
)
def test_the_filter_that_leaves_it_out_is_named(corpus: Corpus, ask: Ask, filters: Filters, named: str) -> None:
    add(corpus, "docs/[a].md", text_chunk("alpha"), source="push", kind="push", tags=["x"])
    answer = ask("[a].md", query="alpha", filters=filters)
    assert f"{named} leaves it out." in _stopped(answer, "filters")
    assert [_stage(answer, later).verdict.value for later in ("ranked", "cut")] == ["unknown", "unknown"]
    assert ask("[a].md", query="alpha", filters=Filters(path="docs/*", tags=("x",))).found


def test_a_place_behind_the_page_names_the_limit_that_reaches_it(corpus: Corpus, ask: Ask) -> None:
    for number in range(8):
        add(corpus, f"{number}.md", text_chunk("alpha " * 9 + f"word{number} " + "filler " * number), source="push", kind="push")
    answer = ask("7.md", query="alpha", mode="keyword", limit=3)
    assert "Place 8 of 8 passages." in _stopped(answer, "cut")
    assert answer.cure == "`docwell search alpha --limit 8`"
    assert ask("7.md", query="alpha", mode="keyword", limit=8).found


def test_a_passage_that_does_not_fit_the_budget_says_so(corpus: Corpus, ask: Ask) -> None:
    for number in range(3):
        add(corpus, f"{number}.md", text_chunk("alpha " * 3 + "filler " * (60 + number)), source="push", kind="push")
    answer = ask("2.md", query="alpha", mode="keyword", max_tokens=120)
    assert "did not fit into max_tokens" in _stopped(answer, "cut")
    assert "--max-tokens" in str(answer.cure)


def test_a_passage_that_is_shown_in_part_says_so(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "long.md", text_chunk("alpha " + "filler " * 300), source="push", kind="push")
    answer = ask("long.md", query="alpha", mode="keyword", max_tokens=120)
    assert answer.found
    assert "only a part of it is shown" in " ".join(_stage(answer, "cut").evidence)
    assert "--max-tokens" in str(_stage(answer, "cut").cure)
    assert _stage(ask("long.md", query="alpha", mode="keyword"), "cut").cure is None


def test_a_rank_beyond_what_a_leg_brings_in_is_told_with_the_border(corpus: Corpus, ask: Ask) -> None:
    better = [text_chunk("alpha " * 3 + f"word{number} " + "filler " * number) for number in range(104)]
    add(corpus, "better.md", *better, source="push", kind="push")
    add(corpus, "104.md", text_chunk("alpha " + "filler " * 400), source="push", kind="push")
    answer = ask("104.md", query="alpha", mode="keyword")
    said = _stopped(answer, "ranked")
    assert "keyword: rank 105 of 105 (BM25" in said
    assert "only the first 100 go on" in said


def test_a_question_whose_words_it_does_not_hold(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha"), source="push", kind="push")
    add(corpus, "b.md", text_chunk("beta"), source="push", kind="push")
    assert "holds none of the question's words" in _stopped(ask("a.md", query="beta", mode="keyword"), "ranked")


def test_the_same_text_in_another_document_stands_for_it(corpus: Corpus, ask: Ask) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"), source="push", kind="push")
    add(corpus, "b.md", text_chunk("alpha beta"), source="push", kind="push")
    answer = ask("b.md", query="alpha")
    assert answer.found
    assert "The same text stands in [a.md, line 1]" in " ".join(_stage(answer, "cut").evidence)


def test_the_place_is_that_of_the_reranked_answer(corpus: Corpus, database: Database, tmp_path: Path) -> None:
    class Backwards:
        def scores(self, query: str, texts: list[str]) -> list[float]:
            return [float(place) for place in range(len(texts))]

    for number in range(3):
        add(corpus, f"{number}.md", text_chunk("alpha " * (9 - number) + f"word{number}"), source="push", kind="push")
    reranking = Reranking(Backwards, limit_seconds=30.0)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        shown = [result["path"] for result in service.search("alpha")["results"]]
        settings, _ = load_settings({}, directory=tmp_path)
        answer = examine(corpus.connection, service, settings, Question(name=shown[0], query="alpha"), directory=tmp_path)
    assert "Place 1 of 3 passages." in _stage(answer, "cut").evidence


# --- on the command line


def test_the_command_answers_for_people_and_for_scripts(
    corpus: Corpus, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(corpus, "docs/a.md", text_chunk("alpha"), source="secret", kind="push", readers=["group:eng"])
    add(corpus, "b/a.md", text_chunk("beta"), source="secret", kind="push", readers=["group:eng"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(make_app("why"), ["why", *arguments])

    answer = run("docs/a.md", "--query", "alpha", "--mode", "keyword", "--as", "everyone", "--json")
    assert answer.exit_code == 0, (answer.output, answer.exception)
    found = json.loads(answer.stdout)
    assert (found["found"], found["stopped_at"]) == (False, "visible")
    assert [stage["stage"] for stage in found["stages"]] == STAGES
    assert {"stage", "verdict", "evidence", "cure"} == found["stages"][0].keys()
    plain = run("docs/a.md", "--query", "alpha", "--mode", "keyword")
    assert plain.exit_code == 0, (plain.output, plain.exception)
    assert "ok           cut: Place 1 of 1 passages." in plain.stdout
    assert plain.stdout.rstrip().endswith("Nothing stops it: it is found.")
    assert run("nowhere.md").exit_code == 0
    assert run("docs/a.md", "--as", "bob").exit_code == 2
    several = run("a.md")
    assert several.exit_code == 1
    assert "secret:default:b/a.md" in str(several.exception)
