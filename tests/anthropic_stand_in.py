"""A stand-in for Anthropic's service on loopback: messages and batches as the real one answers them, with faults on demand.

Requests are checked against the types of the SDK itself: a field that is unknown, missing or of another type is refused with 400,
as the service does. Tokens are counted as four characters each, and prefixes are cached (`anthropic_cache`). Nothing here thinks:
each test says what is answered.

    with anthropic_stand_in() as service:
        service.answer(says("Five days."))
        ...                                   # a client with base_url=service.url and api_key=KEY
        assert service.requests[0].body["model"] == "claude-haiku-4-5"
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.anthropic_batches import Batches, routes
from tests.anthropic_cache import PrefixCache, count_tokens, prompt_of
from tests.anthropic_wire import (
    Fault,
    Received,
    Reply,
    Step,
    check_request,
    error_response,
    fault_response,
    message_of,
    refusal,
)
from tests.listening import listening

KEY = "sk-ant-stand-in"

_ANSWER_SECONDS = 0.002
"""A model takes its time: whoever asks meanwhile finds no cache yet."""


@dataclass(kw_only=True)
class StandIn:
    """What came in, and what is answered next. Steps are taken in their order; when there are none left, `otherwise` is.

    `most_together`: so many requests were being answered at the same time.
    """

    url: str
    otherwise: Step | None = None
    requests: list[Received] = field(default_factory=list)
    usages: list[Mapping[str, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cache: PrefixCache = field(default_factory=PrefixCache)
    batches: Batches = field(default_factory=Batches)
    most_together: int = 0
    together: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, *steps: Step) -> None:
        """Answer so, one after the other."""
        with self._lock:
            self.steps += steps

    def next(self, body: dict[str, Any], headers: Mapping[str, str], *, batch: str | None = None) -> Reply | Fault:
        """What this request is answered."""
        with self._lock:
            received = Received(body=body, headers=headers, number=len(self.requests) + 1, batch=batch)
            self.requests.append(received)
            step = self.steps.pop(0) if self.steps else self.otherwise
        if step is None:
            return Fault(status=400, message="stand-in: nobody said what to answer to this request")
        return step(received) if callable(step) else step

    def use(self, body: Mapping[str, Any], reply: Reply) -> dict[str, int]:
        """What this answer used, by what the cache holds at this moment."""
        counted = self.cache.ask(body["model"], prompt_of(body))
        counted["output_tokens"] = count_tokens("".join(str(block.get("text", block)) for block in reply.content))
        usage = {**counted, **(reply.usage or {})}
        self.usages.append(usage)
        return usage

    def total(self, name: str) -> int:
        """The sum of one field of all usages."""
        return sum(usage[name] for usage in self.usages)

    def clear(self) -> None:
        """Forget what came in, what is still to be answered, and what the cache holds."""
        self.requests.clear()
        self.usages.clear()
        self.steps.clear()
        self.batches.clear()
        self.cache.until.clear()
        self.most_together = 0


def _make_app(service: StandIn, key: str) -> Starlette:
    async def messages(request: Request) -> Response:
        refused = refusal(request, key)
        if refused is not None:
            return refused
        try:
            body = await request.json()
            check_request(body)
        except ValueError as error:
            return error_response(400, str(error))
        service.together += 1
        service.most_together = max(service.most_together, service.together)
        try:
            step = await anyio.to_thread.run_sync(service.next, body, dict(request.headers))
            if isinstance(step, Fault):
                await anyio.sleep(step.seconds)
                return fault_response(step)
            usage = service.use(body, step)
            await anyio.sleep(_ANSWER_SECONDS)
            service.cache.begin_answer(body["model"], prompt_of(body))
        finally:
            service.together -= 1
        return JSONResponse(message_of(body, step, usage, len(service.requests)), headers={"request-id": "req_stand_in"})

    return Starlette(routes=[Route("/v1/messages", messages, methods=["POST"]), *routes(service, key)])


@contextmanager
def anthropic_stand_in(*, key: str = KEY, otherwise: Step | None = None) -> Iterator[StandIn]:
    """The service on a free port of loopback, until the block ends."""
    service = StandIn(url="", otherwise=otherwise)
    with listening(_make_app(service, key)) as url:
        service.url = url
        yield service
