"""What goes over the wire to and from Anthropic's service: requests that the types of its SDK allow, answers, errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from anthropic.types import (
    DocumentBlockParam,
    ImageBlockParam,
    Message,
    SearchResultBlockParam,
    TextBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
    UserMessageParam,
)
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

# In a list, since a TypedDict by itself takes no configuration from outside.
_REQUEST: TypeAdapter[Any] = TypeAdapter(list[MessageCreateParamsNonStreaming], config=ConfigDict(extra="forbid"))
_BLOCKS: Mapping[str, Any] = {
    "document": DocumentBlockParam,
    "image": ImageBlockParam,
    "search_result": SearchResultBlockParam,
    "text": TextBlockParam,
    "tool_result": ToolResultBlockParam,
    "tool_use": ToolUseBlockParam,
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that came in, the `number`th of all, whatever became of it. `batch`: it came in this one."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    number: int
    batch: str | None = None

    @property
    def last_content(self) -> list[dict[str, Any]]:
        """The blocks of the last message."""
        content = self.body["messages"][-1]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    @property
    def text(self) -> str:
        """All that the model is shown, as JSON."""
        return json.dumps(self.body, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A message of the model. Without `usage` tokens are counted as four characters each."""

    content: Sequence[Mapping[str, Any]]
    stop_reason: str = "end_turn"
    usage: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An answer that is none: a status with the service's error body; or, with `status` 0, a connection that ends without one.

    `seconds` is how long the service hangs before it.
    """

    status: int = 529
    message: str = "Overloaded"
    retry_after: float | None = None
    seconds: float = 0.0
    body: bytes | None = None


Step: TypeAlias = "Reply | Fault | Callable[[Received], Reply | Fault]"


def says(*texts: str | Mapping[str, Any], stop_reason: str = "end_turn", usage: Mapping[str, int] | None = None) -> Reply:
    """Text; a mapping is a block as it stands, such as `cited(…)`."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in texts]
    return Reply(content=blocks, stop_reason=stop_reason, usage=usage)


def cited(text: str, *search_results: tuple[int, str]) -> Mapping[str, Any]:
    """A text block that cites search results, each by its index among all of the request and its source."""
    citations = [
        {
            "type": "search_result_location",
            "cited_text": text,
            "search_result_index": index,
            "source": source,
            "title": None,
            "start_block_index": 0,
            "end_block_index": 1,
        }
        for index, source in search_results
    ]
    return {"type": "text", "text": text, "citations": citations}


_calls = itertools.count(1)


def calls(*tools: tuple[str, Mapping[str, Any]], before: str = "", usage: Mapping[str, int] | None = None) -> Reply:
    """Calls of tools, by name and arguments."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": before}] if before else []
    blocks += [{"type": "tool_use", "id": f"toolu_{next(_calls):024}", "name": name, "input": given} for name, given in tools]
    return Reply(content=blocks, stop_reason="tool_use", usage=usage)


def check_request(body: Any) -> None:
    """Raise ValueError for what the SDK's types do not allow."""
    try:
        _consume(_REQUEST.validate_python([body]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from error
    for number, message in enumerate(body["messages"]):
        _refuse_unknown(message, UserMessageParam, f"messages.{number}")
    _check_turns(body)


def _refuse_unknown(part: Mapping[str, Any], kind: Any, where: str) -> None:
    """TypedDicts inside of others let unknown fields pass."""
    unknown = sorted(set(part) - set(kind.__annotations__))
    if unknown:
        raise ValueError(f"{where}.{unknown[0]}: Extra inputs are not permitted")
    content = part.get("content")
    for number, block in enumerate(content if isinstance(content, list) else ()):
        _refuse_unknown(block, _BLOCKS[block["type"]], f"{where}.content.{number}")


def _consume(value: Any) -> None:
    """Iterables are checked when they are read."""
    if isinstance(value, Mapping):
        for part in value.values():
            _consume(part)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for part in value:
            _consume(part)


def _check_turns(body: Mapping[str, Any]) -> None:
    """What types cannot say: every call of a tool is answered in the next message, and a tool that is called exists."""
    names = {tool.get("name") for tool in body.get("tools", ())}
    choice = body.get("tool_choice", {})
    if choice.get("type") == "tool" and choice["name"] not in names:
        raise ValueError(f"tool_choice: no tool {choice['name']!r}")
    if body["messages"][0]["role"] != "user":
        raise ValueError("messages.0: the first message is the user's")
    waiting: set[str] = set()
    for number, message in enumerate(body["messages"]):
        blocks = [] if isinstance(message["content"], str) else list(message["content"])
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if answered != waiting:
            raise ValueError(f"messages.{number}: tool_use ids without tool_result, or the other way round: {answered ^ waiting}")
        if any(block["type"] == "text" and not block["text"] for block in blocks):
            raise ValueError(f"messages.{number}: text content blocks must be non-empty")
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if waiting:
        raise ValueError("messages: the last calls of tools are not answered")


def message_of(body: Mapping[str, Any], reply: Reply, usage: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The answer to a request, as the SDK's types want it."""
    message = {
        "id": f"msg_{number:024}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": list(reply.content),
        "stop_reason": reply.stop_reason,
        "stop_sequence": None,
        "usage": dict(usage),
    }
    Message.model_validate(message, strict=False)
    return message


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error as the service writes it, also into the results of a batch."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_stand_in"}


def error_response(status: int, message: str, retry_after: float | None = None) -> Response:
    """The same with its status."""
    headers = {"request-id": "req_stand_in"} | ({} if retry_after is None else {"retry-after": f"{retry_after:g}"})
    return JSONResponse(error_body(status, message), status_code=status, headers=headers)


def refusal(request: Request, key: str) -> Response | None:
    """What a request without the right headers is answered."""
    if key not in (request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")):
        return error_response(401, "invalid x-api-key")
    if "anthropic-version" not in request.headers:
        return error_response(400, "anthropic-version: header is required")
    return None


class Ended(Response):
    """A connection that ends before an answer is whole."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


def fault_response(fault: Fault) -> Response:
    """A fault on the wire."""
    if fault.status == 0:
        return Ended()
    if fault.body is not None:
        return Response(fault.body, status_code=fault.status, media_type="application/json")
    return error_response(fault.status, fault.message, fault.retry_after)
