"""What the usage log adds up to, and `docwell usage`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli import make_app as make_command
from ingest_worker.catalogue import usage as catalogue
from ingest_worker.catalogue.usage import Asked
from shared.usage import UsageEvent
from tests.asking import DIMENSION, MODEL
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def _event(*documents: uuid.UUID, kind: Any = "search", at: datetime | None = None, **facts: Any) -> UsageEvent:
    known: dict[str, Any] = {"principal": "ann", "outcome": "ok", "milliseconds": 3.0, **facts}
    at = at or datetime.now(UTC)
    return UsageEvent(kind=kind, at=at, passages=tuple((document, uuid.uuid4()) for document in documents), **known)


def _report(corpus: Corpus, **facts: Any) -> tuple[dict[str, tuple[int, int]], list[str], list[tuple[str | None, int]]]:
    asked = Asked(**{"since": datetime.now(UTC) - timedelta(days=1), **facts})
    return (
        {one.path: (one.returned, one.read) for one in catalogue.used_documents(corpus.connection, asked)},
        [one.path for one in catalogue.unused_documents(corpus.connection, asked)],
        [(one.query, one.searches) for one in catalogue.unanswered(corpus.connection, asked)],
    )


@pytest.fixture(scope="module")
def used(module_database: Database) -> Iterator[Corpus]:
    """Of four documents a new one is younger than the period."""
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        yield _used(corpus)


def _used(corpus: Corpus) -> Corpus:
    ids = {path: corpus.add(path, [text_chunk(path)]) for path in ("often.md", "once.md", "never.md", "new.md")}
    corpus.add("team.md", [text_chunk("team")], namespace="team", source="wiki")
    corpus.connection.execute("UPDATE docwell.document SET created_at = %s WHERE path <> 'new.md'", (LONG_AGO,))
    corpus.connection.execute("UPDATE docwell.version SET published_at = %s", (LONG_AGO,))
    events = [
        _event(ids["often.md"], ids["often.md"], ids["once.md"]),
        _event(ids["often.md"]),
        _event(ids["often.md"], kind="read"),
        _event(ids["never.md"], at=datetime.now(UTC) - timedelta(days=3)),
        _event(outcome="no_match", query="holidays"),
        _event(outcome="no_match", query="holidays", namespace="team"),
        _event(outcome="no_match", query="the end", continued=True),
        _event(outcome="no_match"),
        _event(outcome="busy"),
    ]
    catalogue.add_events(corpus.connection, {f"{number}-0": event for number, event in enumerate(events)})
    return corpus


def test_documents_are_counted_by_searches_and_reads_and_those_never_found_are_named(used: Corpus) -> None:
    returned, never, unanswered = _report(used)
    assert returned == {"often.md": (2, 1), "once.md": (1, 0)}
    assert list(returned) == ["often.md", "once.md"]
    assert never == ["never.md", "team.md"]
    assert unanswered == [("holidays", 2), (None, 1)]


def test_a_report_is_kept_to_a_namespace_a_source_a_time_and_a_number(used: Corpus) -> None:
    assert _report(used, namespace="team") == ({}, ["team.md"], [("holidays", 1)])
    assert _report(used, source="wiki") == ({}, ["team.md"], [])
    assert _report(used, since=datetime.now(UTC) - timedelta(days=30))[1] == ["team.md"]
    assert [len(part) for part in _report(used, limit=1)] == [1, 1, 1]


def test_totals_are_kept_to_the_calls_of_a_namespace_or_a_source(used: Corpus) -> None:
    def totals(**facts: str) -> tuple[int, int, int]:
        found = catalogue.read_totals(used.connection, Asked(since=datetime.now(UTC) - timedelta(days=1), **facts))
        assert found.first_at is not None
        return found.searches, found.without_match, found.reads

    assert totals(namespace="default") == (2, 0, 1)
    assert totals(namespace="team") == (1, 1, 0)
    assert totals(source="inbox") == (2, 0, 1)
    assert totals(source="wiki") == totals(namespace="team", source="wiki") == (0, 0, 0)


def test_a_document_that_became_searchable_within_the_period_is_not_called_unused(used: Corpus) -> None:
    with used.connection.transaction(force_rollback=True):
        used.connection.execute(
            "UPDATE docwell.version SET published_at = now() FROM docwell.document d"
            " WHERE d.document_id = version.document_id AND d.path = 'never.md'"
        )
        assert _report(used)[1] == ["team.md"]


Run = Callable[..., Any]


@pytest.fixture
def run(module_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", module_database.url)
    return lambda *arguments: CliRunner().invoke(make_command("usage"), list(arguments))


def test_the_command_reports_as_json_and_on_lines(used: Corpus, run: Run) -> None:
    found = json.loads(run("usage", "--json", "--since", "1d").stdout)
    assert found["totals"] | {"first_at": None} == {
        "searches": 7,
        "answered": 3,
        "without_match": 3,
        "empty": 0,
        "failed": 1,
        "reads": 1,
        "first_at": None,
    }
    assert [(one["path"], one["returned"], one["read"]) for one in found["documents"]] == [("often.md", 2, 1), ("once.md", 1, 0)]
    assert [one["path"] for one in found["never_found"]] == ["never.md", "team.md"]
    assert [(one["query"], one["searches"]) for one in found["without_match"]] == [("holidays", 2), (None, 1)]
    shown = run("usage", "--since", "1d").stdout
    assert "7 searches (3 answered, 3 without a match" in shown
    assert "holidays" in shown
    assert "in namespace team: 1 searches (0 answered, 1 without" in run("usage", "--since", "1d", "--namespace", "team").stdout


def test_the_command_says_how_to_begin_when_nothing_is_logged(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    shown = run("usage")
    assert shown.exit_code == 0
    assert "DOCWELL_USAGE_LOG=ids" in shown.stdout
    assert json.loads(run("usage", "--json").stdout)["never_found"] == []
    assert run("usage", "--since", "soon").exit_code == 2
