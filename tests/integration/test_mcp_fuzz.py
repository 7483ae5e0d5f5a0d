"""Whatever arguments a client sends, the tools answer with a result or with an error that a caller can act on."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from query_server.http import make_app
from shared.config import Settings
from shared.documents import Span
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.fuzz.calling import Call, Known, calls, edges, forged
from tests.listening import listening

SECONDS = float(os.environ.get("MCP_FUZZ_SECONDS", "0"))
"""Of the long mode, which draws anew each time; 0 for the same calls in every run."""

EXAMPLES, LEAST = 250, 50
MOST_SECONDS = 10.0
"""A slow machine tries fewer."""

IDLE_SECONDS = 2.0
"""The server closes what was idle for five; drawing a call can take that long on a slow machine."""

CODES = {"bad_argument", "bad_cursor", "cursor_expired", "not_found"}
PROTOCOL_CODES = {-32700, -32600, -32602}
"""JSON-RPC 2.0, section 5.1: not parsed, no request, wrong parameters. -32603 would be ours."""

NEVER_TOLD = ("Traceback", 'File "', ".py", "psycopg", "postgresql:", "SELECT ", "FROM docwell", "site-packages", "docwell_query")


class Server:
    """A connection to the server, as plain as a client can have it."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._used_at = time.monotonic()

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """What comes back, which is JSON whatever was sent."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if time.monotonic() - self._used_at > IDLE_SECONDS:
            self._connection.close()  # the next request opens it again
        self._connection.request("POST", "/mcp", body, headers | {"MCP-Protocol-Version": "2025-11-25"})
        answer = self._connection.getresponse()
        raw = answer.read()
        self._used_at = time.monotonic()
        assert answer.status in {200, 400}, (answer.status, raw[:500])
        found: dict[str, Any] = json.loads(raw)
        return found

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's answer, which must be a result."""
        result: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert not result.get("isError"), result
        found: dict[str, Any] = result["structuredContent"]
        return found

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _filled(database: Database) -> Iterator[Server]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        for name in ("billing.pdf", "docs/refunds.md", "docs/deep/terms.md"):
            pages = [
                text_chunk(f"Refunds on page {page} of {name} are paid.", span=Span(page_start=page, page_end=page))
                for page in range(1, 4)
            ]
            add(corpus, name, *pages, tags=["money"])
    with serving(database) as service, listening(make_app(service, Settings())) as url, closing(Server(url)) as server:
        yield server


def _seen(server: Server) -> Known:
    asked: list[Call] = [
        ("search_documents", {"query": "refunds paid", "limit": 1}),
        ("search_documents", {"query": "refunds", "limit": 2, "mode": "keyword"}),
        ("list_documents", {"limit": 1}),
    ]
    document = server.call("list_documents", {})["documents"][0]["document_id"]
    asked.append(("read_document", {"document_id": document, "max_tokens": 50}))
    pages = [(call, str(answer["next_cursor"])) for call in asked if (answer := server.call(*call)).get("next_cursor")]
    assert {call[0] for call, _ in pages} >= {"search_documents", "list_documents"}
    chunk = server.call("search_documents", {"query": "refunds"})["results"][0]["chunk_id"]
    return Known(ids=(document, chunk), pages=pages)


def _tools(server: Server) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in server.ask("tools/list", {})["result"]["tools"]}


def _check(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    if "error" in answer:
        assert answer["error"]["code"] in PROTOCOL_CODES, answer
        _check_silence(answer["error"]["message"])
        return
    result = answer["result"]
    if not result.get("isError"):
        jsonschema.validate(result["structuredContent"], schema)
        return
    error = json.loads(result["content"][0]["text"])["error"]
    assert error["code"] in CODES, error
    assert error["retryable"] is False
    assert error["message"]
    _check_silence(error["message"])


def _check_silence(message: str) -> None:
    assert not [told for told in NEVER_TOLD if told in message], message


def test_numbers_at_their_edges_and_forged_cursors_are_no_failure_of_the_server(database: Database) -> None:
    with _filled(database) as server:
        tools = _tools(server)
        known = _seen(server)
        schemas = {name: tool["inputSchema"] for name, tool in tools.items()}
        tried = [*edges(schemas, known), *forged(known)]
        for name, arguments in tried:
            _check(server.ask("tools/call", {"name": name, "arguments": arguments}), tools[name]["outputSchema"])
    assert len(tried) > 200


# What the arguments of a long run look like is asked for only when one of them fails.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_every_call_ends_in_a_result_or_in_an_error_with_a_known_code(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with _filled(database) as server:
        tools = _tools(server)
        drawn = calls({name: tool["inputSchema"] for name, tool in tools.items()}, _seen(server))
        until = time.monotonic() + (SECONDS or MOST_SECONDS)
        tried = 0

        # What is left of a draw when the time is over is drawn all the same: hence many small ones of a long time.
        @settings(
            max_examples=EXAMPLES,
            derandomize=not SECONDS,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(drawn)
        def try_some(call: Call) -> None:
            nonlocal tried
            if time.monotonic() > until and (SECONDS or tried >= LEAST):
                return
            name, arguments = call
            _check(server.ask("tools/call", {"name": name, "arguments": arguments}), tools[name]["outputSchema"])
            tried += 1

        try_some()
        while SECONDS and time.monotonic() < until:
            try_some()
        # It has not lost its mind over it.
        assert server.call("search_documents", {"query": "refunds"})["results"]
    print(f"{tried} calls")
    assert tried >= LEAST
    assert [record.getMessage() for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []
