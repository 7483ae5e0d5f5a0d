"""Resources: the sources, each document with its text, and pictures that captions describe."""

from __future__ import annotations

import json
from collections.abc import Callable

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from query_server.access import Principal
from query_server.service import SearchService
from shared.errors import DocwellError

DOCUMENT_TOKENS = 20_000
"""Of a document read as a resource; read_document pages through the rest."""


def add_resources(server: MCPServer, service: SearchService, principal: Callable[[], Principal]) -> None:
    """Register `knowledge://sources`, `knowledge://documents/{id}` and `knowledge://thumbnails/{chunk_id}`."""

    @server.resource(
        "knowledge://sources", title="Sources", description="Where the documents come from.", mime_type="application/json"
    )
    def sources() -> str:
        try:
            return json.dumps(service.sources(principal=principal()), ensure_ascii=False)
        except DocwellError as error:
            raise _failure(error) from None

    @server.resource(
        "knowledge://documents/{document_id}",
        title="Document",
        description="A document's facts and its text, cut at the length that read_document pages by.",
        mime_type="application/json",
    )
    def document(document_id: str) -> str:
        try:
            answer = service.read(document_id, max_tokens=DOCUMENT_TOKENS, principal=principal())
        except DocwellError as error:
            raise _failure(error) from None
        return json.dumps(answer, ensure_ascii=False)

    @server.resource(
        "knowledge://thumbnails/{chunk_id}",
        title="Picture",
        description="The picture that a passage of kind caption describes, small.",
        mime_type="image/jpeg",
    )
    def thumbnail(chunk_id: str) -> bytes:
        try:
            return service.thumbnail(chunk_id, principal=principal())
        except DocwellError as error:
            raise _failure(error) from None


def _failure(error: DocwellError) -> ResourceError:
    """What is not there, or is no id of anything, is a wrong address for the protocol; the rest is a failure of ours."""
    known = ResourceNotFoundError if error.code in {"not_found", "bad_argument"} else ResourceError
    return known(f"{error.code}: {error}")
