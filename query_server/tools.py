"""The four tools. Their arguments are plain: an empty text, an empty list or a zero means that it is not set."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, PrivateAttr, ValidationError

from query_server.access import NOBODY, Principal
from query_server.admission import Turns
from query_server.answers import ListAnswer, ReadAnswer, SearchAnswer, StatusAnswer
from query_server.render import render_list, render_read, render_search, render_status
from query_server.schemas import output_schema
from query_server.service import SearchService
from query_server.usage import Call
from shared.errors import DocwellError, PermanentError, TransientError
from shared.text import visible
from shared.tracing import annotate

log = logging.getLogger(__name__)

READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

LARGEST_ANSWER = 400_000
"""Characters that a client may show of one document's text; beyond its own limit it would show a file name instead."""

Text = Annotated[str, Field(max_length=10_000)]
Short = Annotated[str, Field(max_length=1_000)]
Namespace = Annotated[Short, Field(description="Only this namespace. Empty: all that you may see.")]
Path = Annotated[
    Short, Field(description="Only paths that match this glob: `*.md` in any folder, `docs/*` in one, `docs/**` below it.")
]
Source = Annotated[Short, Field(description="Only this source, such as `inbox`.")]
Tags = Annotated[list[str], Field(max_length=50, description="Only documents with all of these tags.")]
CursorText = Annotated[Short, Field(description="next_cursor of the answer before, to go on; all other arguments unchanged.")]
Tokens = Annotated[int, Field(ge=50, le=100_000, description="The most tokens that the passages may take.")]
Number = Annotated[int, Field(ge=0, le=2_147_483_647)]  # PostgreSQL's integer

SEARCH = (
    "Find passages of the indexed documents that answer a question, each with its citation (file, page or lines). Use it before"
    " answering anything that the user's own documents may cover, and cite what you use. Exact names, error codes and quoted"
    ' "phrases" are found as they stand. When outcome is no_match or index_empty, say so instead of answering from memory.'
)
READ = (
    "Read a document's text in order: all of it, a range of pages or lines, or one passage with its neighbours (chunk_id)."
    " Use it when a passage of search_documents needs its context."
)
LIST = "List the indexed documents with their state, version, chunk count and when they were last indexed."
STATUS = (
    "How complete and fresh the index is: documents by state, what waits, when folders were last looked through. With a path:"
    " whether that document is indexed, and if not, why."
)


Observe = Callable[[str, str, float], None]
"""Told of each call: the tool, `ok` or the code of the error, and the seconds it took."""

Record = Callable[[Call], None]
"""Told of each call with its arguments and its answer. It must neither wait nor raise."""


class DocwellTool(Tool):
    """A tool whose failures say their code, a sentence and whether a retry can help."""

    _observe: Observe | None = PrivateAttr(default=None)
    _record: Record | None = PrivateAttr(default=None)
    _principal: Callable[[], Principal] | None = PrivateAttr(default=None)
    _turns: Turns = PrivateAttr(default_factory=Turns)

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Run it; a null argument counts as not given, since some models write out all of them."""
        given = {name: value for name, value in arguments.items() if value is not None}
        began = time.perf_counter()
        outcome = "ok"
        answer: Mapping[str, Any] | None = None
        try:
            _refuse_unknown(given, self.parameters["properties"])
            async with self._turns.take():
                result = await super().run(given, context, convert_result)
        except (ToolError, DocwellError) as error:
            failure = _known(error.__cause__ if isinstance(error, ToolError) else error, self.name)
            outcome = failure.code
            result = _failure(failure)
        else:
            answer = result.structured_content
        finally:
            seconds = time.perf_counter() - began
            if self._observe is not None:
                self._observe(self.name, outcome, seconds)
            annotate({"docwell.outcome": outcome})
        if self._record is not None:
            who = NOBODY if self._principal is None else self._principal()
            self._record(Call(tool=self.name, arguments=given, answer=answer, outcome=outcome, seconds=seconds, principal=who))
        return result


def make_tools(
    service: SearchService,
    principal: Callable[[], Principal],
    observe: Observe | None = None,
    turns: Turns | None = None,
    record: Record | None = None,
) -> Sequence[Tool]:
    """The tools over a service; `principal` says who asks, at the time of a call. They share `turns`; `record` is the usage
    log."""
    turns = turns or Turns()

    def search_documents(
        query: Annotated[Text, Field(description="The question, in the user's words, or the exact thing to find.")],
        limit: Annotated[int, Field(ge=1, le=50, description="The most passages.")] = 5,
        namespace: Namespace = "",
        path: Path = "",
        source: Source = "",
        tags: Tags = [],  # noqa: B006 - never changed; the schema shows it as the default
        modified_after: Annotated[Short, Field(description="Only documents changed at or after this ISO 8601 time.")] = "",
        modified_before: Annotated[Short, Field(description="Only documents changed before this ISO 8601 time.")] = "",
        mode: Annotated[
            Literal["hybrid", "semantic", "keyword"], Field(description="keyword finds words, semantic meaning, hybrid both.")
        ] = "hybrid",
        hypothetical_answer: Annotated[
            Text,
            Field(description="A short passage that would answer the question, as a document would put it; helps hard ones."),
        ] = "",
        max_tokens: Tokens = 4000,
        cursor: CursorText = "",
    ) -> CallToolResult:
        answer = service.search(
            query,
            limit=limit,
            namespace=namespace,
            path=path,
            source=source,
            tags=tags,
            modified_after=modified_after,
            modified_before=modified_before,
            mode=mode,
            hypothetical_answer=hypothetical_answer,
            max_tokens=max_tokens,
            cursor=cursor,
            principal=principal(),
        )
        return _answer(answer, render_search)

    def read_document(
        document_id: Annotated[Short, Field(description="The document's id, from search_documents or list_documents.")],
        page_start: Annotated[Number, Field(description="First page or slide, 1-based; 0 for no limit.")] = 0,
        page_end: Annotated[Number, Field(description="Last page or slide; 0 for no limit.")] = 0,
        line_start: Annotated[Number, Field(description="First line, or row of a table, 1-based; 0 for no limit.")] = 0,
        line_end: Annotated[Number, Field(description="Last line or row; 0 for no limit.")] = 0,
        chunk_id: Annotated[Short, Field(description="Only this passage and its neighbours.")] = "",
        max_tokens: Tokens = 8000,
        cursor: CursorText = "",
    ) -> CallToolResult:
        answer = service.read(
            document_id,
            page_start=page_start,
            page_end=page_end,
            line_start=line_start,
            line_end=line_end,
            chunk_id=chunk_id,
            max_tokens=max_tokens,
            cursor=cursor,
            principal=principal(),
        )
        return _answer(answer, render_read)

    def list_documents(
        namespace: Namespace = "",
        path: Path = "",
        source: Source = "",
        tags: Tags = [],  # noqa: B006 - never changed; the schema shows it as the default
        state: Annotated[
            Short, Field(description="queued, indexing, indexed, partial, needs_ocr, skipped, failed, excluded or deleted.")
        ] = "",
        changed_since: Annotated[Short, Field(description="Only documents whose state changed at or after this time.")] = "",
        limit: Annotated[int, Field(ge=1, le=200, description="The most documents.")] = 50,
        cursor: CursorText = "",
    ) -> CallToolResult:
        answer = service.list(
            namespace=namespace,
            path=path,
            source=source,
            tags=tags,
            state=state,
            changed_since=changed_since,
            limit=limit,
            cursor=cursor,
            principal=principal(),
        )
        return _answer(answer, render_list)

    def index_status(
        path: Annotated[Short, Field(description="A document's path or file name; empty for the whole index.")] = "",
    ) -> CallToolResult:
        return _answer(service.status(path, principal=principal()), render_status)

    tools = [
        _tool(search_documents, SEARCH, "Search documents", SearchAnswer),
        _tool(read_document, READ, "Read a document", ReadAnswer, meta={"anthropic/maxResultSizeChars": LARGEST_ANSWER}),
        _tool(list_documents, LIST, "List documents", ListAnswer),
        _tool(index_status, STATUS, "Index status", StatusAnswer),
    ]
    for tool in tools:
        # The SDK builds its tools from a function and leaves no room for more.
        tool._observe = observe  # noqa: SLF001
        tool._record = record  # noqa: SLF001
        tool._principal = principal  # noqa: SLF001
        tool._turns = turns  # noqa: SLF001
    return tools


def _tool(
    function: Callable[..., CallToolResult], description: str, title: str, answer: type, meta: dict[str, Any] | None = None
) -> DocwellTool:
    tool = DocwellTool.from_function(
        function, title=title, description=description, annotations=READ_ONLY, meta=meta, structured_output=False
    )
    if not isinstance(tool, DocwellTool):
        raise TypeError("from_function of the SDK makes its own class now")
    tool.fn_metadata.output_schema = output_schema(answer)
    return tool


def _answer(answer: dict[str, Any], render: Callable[[dict[str, Any]], str]) -> CallToolResult:
    meta = answer.pop("_meta", None)
    return CallToolResult(content=[TextContent(type="text", text=render(answer))], structured_content=answer, _meta=meta)


def _refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """A misspelt filter that is silently left out would widen the question.

    Raises:
        PermanentError: `bad_argument`, with the names that there are.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise PermanentError(
            f"There is no argument {', '.join(map(repr, unknown))}. The arguments are {', '.join(known)}.", code="bad_argument"
        )


def _known(error: BaseException | None, tool: str) -> DocwellError:
    """The failure as a caller may see it: no statement, path or stack of this side."""
    if isinstance(error, DocwellError):
        return error
    if isinstance(error, ValidationError):
        parts = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors(include_url=False)]
        return PermanentError(f"The arguments do not fit. {'; '.join(parts)}.", code="bad_argument")
    log.error("%s failed", tool, exc_info=error)
    return TransientError("The search failed for a reason that is in the server's log. Try again later.", code="internal")


def _failure(error: DocwellError) -> CallToolResult:
    failure = {"code": error.code, "message": visible(str(error), lines=True), "retryable": isinstance(error, TransientError)}
    return CallToolResult(
        content=[TextContent(type="text", text=json.dumps({"error": failure}, ensure_ascii=False))], is_error=True
    )
