"""`docwell ask` as a person runs it: a real MCP server over HTTP, and a stand-in where the model would be."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from typer.testing import CliRunner, Result

from infra.cli import make_app as make_command
from query_server.http import make_app
from shared.config import Settings
from shared.documents import Span
from shared.errors import ConfigurationError, DocwellError, PermanentError, ServiceUnavailable
from tests.anthropic_stand_in import KEY, StandIn, anthropic_stand_in
from tests.anthropic_wire import Fault, Received, Reply, calls, cited, says
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database, fresh_database
from tests.corpus import open_corpus, text_chunk
from tests.listening import listening

TOKEN = "a-token-of-the-server"


@pytest.fixture(scope="module")
def mcp(postgres: Any) -> Iterator[str]:
    with fresh_database(postgres) as database:
        with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
            page = Span(page_start=3, page_end=3)
            add(corpus, "billing.pdf", text_chunk("Refunds are paid within five days. \x1b[31m", span=page))
            add(corpus, "terms.md", text_chunk("Refunds of tickets are refused."), namespace="team", source="team")
        with _server(database) as url:
            yield f"{url}/mcp"


def _server(database: Database) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def run() -> Iterator[str]:
        settings = Settings(mcp_tokens=(SecretStr(TOKEN),))
        with serving(database) as service, listening(make_app(service, settings)) as url:
            yield url

    return run()


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    with anthropic_stand_in() as service:
        yield service


@pytest.fixture
def service(running: StandIn) -> StandIn:
    running.clear()
    return running


Ask = Callable[..., Result]


@pytest.fixture
def ask(mcp: str, service: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
    monkeypatch.setenv("DOCWELL_ASK_MCP_URL", mcp)
    monkeypatch.setenv("DOCWELL_ASK_TOKEN", TOKEN)
    return lambda *arguments: CliRunner().invoke(make_command("ask"), ["ask", *arguments])


SEARCH = calls(("search_documents", {"query": "refund"}))


def _cites(text: str, path: str) -> Callable[[Received], Reply]:
    """An answer that cites the passage of this file, by its number among all that the request shows."""

    def answer(received: Received) -> Reply:
        blocks = [
            part
            for message in received.body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
            for part in block["content"]
            if part["type"] == "search_result"
        ]
        number = next(number for number, block in enumerate(blocks) if block["source"] == path)
        return says("Well: ", cited(text + "\n", (number, path)), "Anything else?")

    return answer


def test_the_model_searches_first_and_answers_with_citations_and_files(ask: Ask, service: StandIn) -> None:
    service.answer(SEARCH, _cites("Five days.", "billing.pdf"))
    shown = ask("How long does a refund take?")
    assert shown.exit_code == 0, (shown.output, shown.exception)
    assert shown.stdout == (
        "Well: Five days. [billing.pdf, page 3]\nAnything else?\n\nCited\n  billing.pdf: [billing.pdf, page 3]\n"
    )
    first, second = service.requests
    assert first.body["tool_choice"] == {"type": "tool", "name": "search_documents"}
    assert [tool["name"] for tool in first.body["tools"]] == ["search_documents", "read_document"]
    assert first.body["model"] == "claude-sonnet-5"
    assert second.body["tool_choice"] == {"type": "auto"}
    results = [block for block in second.last_content[0]["content"] if block["type"] == "search_result"]
    assert {(block["source"], block["title"]) for block in results} == {
        ("billing.pdf", "[billing.pdf, page 3]"),
        ("terms.md", "[terms.md, line 1]"),
    }
    assert "2 calls" in shown.stderr
    assert "no price is set" in shown.stderr


def test_the_answer_as_json_names_files_searches_tokens_and_costs(ask: Ask, service: StandIn, tmp_path: Path) -> None:
    (tmp_path / "docwell.toml").write_text('[prices."claude-haiku-4-5"]\ninput = 1\noutput = 5\n', encoding="utf-8")
    use = {"input_tokens": 1000, "output_tokens": 200}
    service.answer(calls(("search_documents", {"query": "refund"}), usage=use), _cites("Five days.", "billing.pdf"))
    found = json.loads(ask("How long?", "--json", "--model", "claude-haiku-4-5", "--namespace", "default").stdout)
    assert (found["outcome"], found["answer"]) == ("answered", "Well: Five days. [billing.pdf, page 3]\nAnything else?")
    assert [(one["path"], one["citations"]) for one in found["files"]] == [("billing.pdf", ["[billing.pdf, page 3]"])]
    assert found["searches"] == [{"query": "refund", "outcome": "ok", "results": 1}], "kept to the namespace"
    assert found["usage"]["calls"] == 2
    assert found["usage"]["input_tokens"] > 1000
    assert found["cost"] == pytest.approx((found["usage"]["input_tokens"] + 5 * found["usage"]["output_tokens"]) / 1e6)


def test_what_stands_around_a_passage_can_be_read_and_cited(ask: Ask, service: StandIn) -> None:
    def read(received: Received) -> Reply:
        notes = received.last_content[0]["content"][-1]["text"]
        (document,) = {line.split()[-3].rstrip(",") for line in notes.splitlines() if line.startswith("[billing.pdf")}
        return calls(("read_document", {"document_id": document}))

    def last(received: Received) -> Reply:
        shown = sum(part["type"] == "search_result" for part in received.last_content[0]["content"])
        assert shown == 1
        return says(cited("Five days.", (2, "billing.pdf")))

    service.answer(SEARCH, read, last)
    assert ask("How long?").stdout.startswith("Five days. [billing.pdf, page 3]\n")


@pytest.mark.parametrize("retries", [0, 2])
def test_without_a_passage_nothing_is_answered_from_memory(ask: Ask, service: StandIn, retries: int) -> None:
    nothing = calls(("search_documents", {"query": "zyzzyva quixotry", "mode": "keyword"}))
    service.answer(*[nothing] * (retries + 1), says("From what I remember, it is 42."))
    shown = ask("What is a zyzzyva?")
    assert shown.exit_code == 0
    assert "42" not in shown.output
    assert "no passage was found" in shown.stdout
    assert len(service.requests) == retries + 2
    told = service.requests[1].last_content[0]["content"]
    assert "do not answer from memory" in told[0]["text"]


def test_an_empty_scope_is_told_without_asking_the_model_again(ask: Ask, service: StandIn) -> None:
    service.answer(SEARCH)
    found = json.loads(ask("How long?", "--json", "--namespace", "nowhere").stdout)
    assert (found["outcome"], found["files"], found["searches"][0]["outcome"]) == ("no_match", [], "index_empty")
    assert len(service.requests) == 1


def test_an_answer_without_a_search_is_not_shown(ask: Ask, service: StandIn) -> None:
    service.answer(says("It is 42."), says("As I said."))
    _fails(ask("What is it?"), PermanentError, "without a search")


def test_a_model_that_cannot_be_made_to_search_is_asked_to(ask: Ask, service: StandIn) -> None:
    refused = Fault(status=400, message="tool_choice: forced tool use is not supported by this model")
    service.answer(refused, says("It is 42."), SEARCH, _cites("Five days.", "billing.pdf"))
    assert ask("How long?").stdout.startswith("Well: Five days. [billing.pdf, page 3]")
    assert [request.body["tool_choice"]["type"] for request in service.requests] == ["tool", "auto", "auto", "auto"]
    assert "search_documents first" in service.requests[2].last_content[0]["text"]


def test_a_citation_that_was_never_shown_is_none_and_the_answer_says_that_it_cites_nothing(ask: Ask, service: StandIn) -> None:
    service.answer(SEARCH, says(cited("Five days.", (99, "invented.pdf"))))
    shown = ask("How long?")
    assert shown.stdout == "Five days.\n"
    assert "cites no passage" in shown.stderr


def test_brackets_that_the_model_wrote_are_citations_only_where_they_name_a_passage_that_was_shown(
    ask: Ask, service: StandIn
) -> None:
    service.answer(SEARCH, says("Five days [billing.pdf, page 3]. Or six [billing.pdf, page 9], seven [2]."))
    shown = ask("How long?")
    assert shown.stdout == (
        "Five days. Or six (not cited: billing.pdf, page 9), seven. [billing.pdf, page 3]\n"
        "\nCited\n  billing.pdf: [billing.pdf, page 3]\n"
    )


def test_a_call_that_fails_is_told_to_the_model_and_it_may_mend_it(ask: Ask, service: StandIn) -> None:
    wrong = calls(("search_documents", {"query": "refund", "limit": 0}), ("delete_documents", {}))
    service.answer(wrong, SEARCH, _cites("Five days.", "billing.pdf"))
    assert "[billing.pdf, page 3]" in ask("How long?").stdout
    failed = service.requests[1].last_content
    assert [block["is_error"] for block in failed] == [True, True]
    assert "limit" in failed[0]["content"][0]["text"]


def test_a_search_that_only_fails_fails_the_command(ask: Ask, service: StandIn) -> None:
    service.answer(calls(("search_documents", {"query": "x", "limit": 0})), says("It is 42."))
    _fails(ask("How long?"), PermanentError, "The search failed")


def test_a_model_that_never_comes_to_an_answer_is_stopped(ask: Ask, service: StandIn) -> None:
    service.answer(*[SEARCH] * 20)
    _fails(ask("How long?"), PermanentError, "no answer within 8")
    assert service.requests[-1].body["tool_choice"] == {"type": "none"}


def test_without_a_key_it_says_what_to_set(ask: Ask, service: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    _fails(ask("How long?"), ConfigurationError, "ANTHROPIC_API_KEY")
    assert service.requests == []


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Fault(status=401, message="invalid x-api-key"), ConfigurationError, "Check ANTHROPIC_API_KEY"),
        (Fault(status=404, message="model: claude-none"), ConfigurationError, "DOCWELL_ASK_MODEL"),
        (Fault(status=400, message="credit balance is too low"), PermanentError, "credit balance"),
        (Fault(status=529, retry_after=0), ServiceUnavailable, "cannot answer now"),
    ],
)
def test_what_the_service_refuses_is_told_with_its_words(
    ask: Ask, service: StandIn, fault: Fault, kind: type[DocwellError], words: str
) -> None:
    service.answer(*[fault] * 3)
    _fails(ask("How long?"), kind, words)


def test_a_moment_of_overload_is_waited_out(ask: Ask, service: StandIn) -> None:
    service.answer(Fault(status=529, retry_after=0), SEARCH, _cites("Five days.", "billing.pdf"))
    assert ask("How long?").exit_code == 0


def test_services_that_are_away_are_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("ANTHROPIC_BASE_URL", nowhere)
        _fails(ask("How long?"), ServiceUnavailable, "ANTHROPIC_BASE_URL")
        _fails(ask("How long?", "--url", f"{nowhere}/mcp"), ServiceUnavailable, "make run")


def test_a_page_in_the_place_of_the_service_is_told(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Route("/{path:path}", lambda _request: PlainTextResponse("hello"), methods=["POST"])
    with listening(Starlette(routes=[page])) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        _fails(ask("How long?"), ConfigurationError, "Check ANTHROPIC_BASE_URL")


def test_a_token_that_the_server_does_not_know_is_told(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCWELL_ASK_TOKEN", "another")
    _fails(ask("How long?"), ConfigurationError, "DOCWELL_ASK_TOKEN")


def _fails(shown: Result, kind: type[DocwellError], words: str) -> None:
    """`main` turns these kinds into exit codes: 2 wrong configuration, 3 a service that is away, 1 the rest."""
    assert isinstance(shown.exception, kind), (shown.output, shown.exception)
    assert words in str(shown.exception)
    assert shown.stdout == ""
