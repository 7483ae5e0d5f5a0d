"""The two ways to ask: the search service in this process, as the reader's role, and MCP over HTTP as a client does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
from mcp import Client

from query_server.retrieve.request import Mode
from query_server.service import SearchService
from shared.errors import ServiceUnavailable
from tests.faults.reader import LIMIT, MOST_TOKENS

_PATIENCE_SECONDS = 15.0


class ThroughCode:
    """The very code that the MCP tools run."""

    def __init__(self, service: SearchService) -> None:
        self._service = service

    def search(self, query: str, mode: str) -> Mapping[str, Any]:
        return self._service.search(query, mode=cast("Mode", mode), limit=LIMIT, max_tokens=MOST_TOKENS)

    def read(self, document_id: str) -> Mapping[str, Any]:
        return self._service.read(document_id, max_tokens=MOST_TOKENS)


class ThroughMCP:
    """A new client for each question: the server may have been another one a moment ago."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url

    def search(self, query: str, mode: str) -> Mapping[str, Any]:
        return self._call("search_documents", {"query": query, "mode": mode, "limit": LIMIT, "max_tokens": MOST_TOKENS})

    def read(self, document_id: str) -> Mapping[str, Any]:
        return self._call("read_document", {"document_id": document_id, "max_tokens": MOST_TOKENS})

    def _call(self, tool: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        async def ask() -> Any:
            with anyio.fail_after(_PATIENCE_SECONDS):
                async with Client(self._url()) as client:
                    return await client.call_tool(tool, arguments)

        try:
            answer = anyio.run(ask)
        except Exception as error:  # a server that is killed in the middle ends in many ways, all of them no answer
            raise ServiceUnavailable(f"No answer: {error!r}") from error
        if answer.is_error or answer.structured_content is None:
            raise ServiceUnavailable(str(answer.content))
        return cast("Mapping[str, Any]", answer.structured_content)
