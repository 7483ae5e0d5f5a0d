"""What clients see of the tools is what was recorded, and every revision of the protocol that the SDK speaks is answered.

`python -m tests.integration.test_tool_shapes` records anew; do that when a change of them is meant, and tell it in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
from mcp.server import MCPServer
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from query_server.http import make_app
from query_server.retrieve.encode import Encoder
from query_server.server import DocwellServer
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.config import Settings
from shared.database import open_pool
from tests.asking import DIMENSION, MODEL, WordEmbedder, add, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.listening import listening

RECORDED = Path(__file__).with_name("tool_shapes.json")


def shapes() -> dict[str, Any]:
    """Each tool as a client sees it, without the namespaces, which need a database."""
    nowhere = Snapshots(lambda: open_pool("", name="none", as_reader=True))
    service = SearchService(nowhere, Encoder(WordEmbedder), rescan_seconds=lambda: 300.0)
    tools = anyio.run(MCPServer.list_tools, DocwellServer(service))
    return {tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools}


def test_the_tools_are_those_that_were_recorded() -> None:
    assert shapes() == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_revision_of_the_protocol_is_answered_in_its_own(database: Database) -> None:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        add(corpus, "billing.md", text_chunk("refunds are paid"))
    assert set(KNOWN_PROTOCOL_VERSIONS) == {*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}
    with serving(database) as service, listening(make_app(service, Settings())) as url:

        def ask(version: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
            headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = httpx.post(f"{url}/mcp", json=body, headers=headers, timeout=60).json()
            assert "error" not in answer, (version, answer)
            found: dict[str, Any] = answer["result"]
            return found

        for version in HANDSHAKE_PROTOCOL_VERSIONS:
            hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            assert ask(version, "initialize", hello)["protocolVersion"] == version
            called = ask(version, "tools/call", {"name": "search_documents", "arguments": {"query": "refunds"}})
            assert called["structuredContent"]["results"][0]["path"] == "billing.md", version


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(shapes(), indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
