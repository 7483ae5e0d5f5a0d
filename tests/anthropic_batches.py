"""The Message Batches API of the stand-in for Anthropic's service, after its documentation.

A batch begins at once and ends when a test says so (`finish`, `expire`). Requests are checked when they are worked off, each by
itself; names are checked at once. Answers come as JSON lines in another order than asked for, and only after the end. Requests
of a batch run together, so each that marks a prefix writes it, and none reads what another one wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.anthropic_wire import Fault, check_request, error_body, error_response, fault_response, message_of, refusal

if TYPE_CHECKING:
    from tests.anthropic_stand_in import StandIn

MOST_REQUESTS = 100_000
MOST_BYTES = 256 * 1024 * 1024
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KINDS = ("succeeded", "errored", "canceled", "expired")


@dataclass(kw_only=True)
class Batch:
    """A batch: its requests by name, and what became of each when it ended. `spoilt` lines stand in the place of the first ones;
    in them `NAME` is the name of the request.
    """

    id: str
    requests: dict[str, dict[str, Any]]
    created_at: datetime
    status: str = "in_progress"
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended_at: datetime | None = None
    archived_at: datetime | None = None
    spoilt: tuple[str, ...] = ()

    def shown(self, url: str) -> dict[str, Any]:
        """As the service writes it."""
        kinds = [result["type"] for result in self.results.values()]
        counts = {kind: kinds.count(kind) for kind in _KINDS}
        has_results = self.ended_at is not None and self.archived_at is None
        body = {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self.status,
            "request_counts": {"processing": len(self.requests) - len(kinds), **counts},
            "created_at": self.created_at.isoformat(),
            "expires_at": (self.created_at + timedelta(hours=24)).isoformat(),
            "ended_at": self.ended_at and self.ended_at.isoformat(),
            "archived_at": self.archived_at and self.archived_at.isoformat(),
            "cancel_initiated_at": None,
            "results_url": f"{url}/v1/messages/batches/{self.id}/results" if has_results else None,
        }
        MessageBatch.model_validate(body)
        return body


@dataclass(kw_only=True)
class Batches:
    """The batches of the account, the oldest first.

    `faults` are answered to calls of these endpoints, one after the other; with `arrives` an order is taken all the same. `calls`
    are those that came in, as method and path.
    """

    all: list[Batch] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    arrives: bool = False
    calls: list[str] = field(default_factory=list)

    def order(self, requests: Mapping[str, dict[str, Any]]) -> Batch:
        """Take a batch."""
        batch = Batch(id=f"msgbatch_{len(self.all) + 1:024}", requests=dict(requests), created_at=datetime.now(UTC))
        self.all.append(batch)
        return batch

    def find(self, batch_id: str) -> Batch | None:
        """The batch of this id."""
        return next((batch for batch in self.all if batch.id == batch_id), None)

    def clear(self) -> None:
        """Forget everything."""
        self.all.clear()
        self.faults.clear()
        self.calls.clear()
        self.arrives = False

    def expire(self) -> None:
        """A day is over: what is open ends without answers."""
        for batch in self.all:
            if batch.ended_at is None:
                self._end(batch, {name: {"type": "expired"} for name in batch.requests})

    def cancel(self) -> None:
        """Somebody has canceled what is open, and it ended so."""
        for batch in self.all:
            if batch.ended_at is None:
                self._end(batch, {name: {"type": "canceled"} for name in batch.requests})

    def finish(self, service: StandIn) -> None:
        """Work off what is open: each request is answered as the stand-in is told to."""
        for batch in self.all:
            if batch.ended_at is None:
                self._end(batch, {name: _answered(service, batch, params) for name, params in batch.requests.items()})

    def _end(self, batch: Batch, results: dict[str, dict[str, Any]]) -> None:
        batch.results = dict(reversed(results.items()))
        batch.status, batch.ended_at = "ended", datetime.now(UTC)


def _answered(service: StandIn, batch: Batch, params: dict[str, Any]) -> dict[str, Any]:
    try:
        check_request(params)
    except ValueError as error:
        return {"type": "errored", "error": error_body(400, str(error))}
    step = service.next(params, {}, batch=batch.id)
    if isinstance(step, Fault):
        return {"type": "errored", "error": error_body(step.status, step.message)}
    usage = {**service.use(params, step), "service_tier": "batch"}
    return {"type": "succeeded", "message": message_of(params, step, usage, len(service.requests))}


def routes(service: StandIn, key: str) -> list[Route]:
    """The endpoints."""
    batches = service.batches

    def checked(request: Request) -> Response | None:
        batches.calls.append(f"{request.method} {request.url.path}")
        return refusal(request, key) or (fault_response(batches.faults.pop(0)) if batches.faults else None)

    async def create(request: Request) -> Response:
        refused = refusal(request, key)
        if refused is not None:
            return refused
        raw = await request.body()
        taken = None if batches.faults and not batches.arrives else _requests_of(raw)
        batch = batches.order(taken) if isinstance(taken, dict) else None
        early = checked(request)
        if early is not None:
            return early
        return JSONResponse(batch.shown(service.url)) if batch is not None else _refused(taken)

    async def listing(request: Request) -> Response:
        early = checked(request)
        if early is not None:
            return early
        limit = int(request.query_params.get("limit", "20"))
        newest = list(reversed(batches.all))
        after = request.query_params.get("after_id")
        start = next((place + 1 for place, batch in enumerate(newest) if batch.id == after), 0)
        page = newest[start : start + limit]
        return JSONResponse(
            {
                "data": [batch.shown(service.url) for batch in page],
                "has_more": start + limit < len(newest),
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
            }
        )

    async def retrieve(request: Request) -> Response:
        early = checked(request)
        batch = batches.find(request.path_params["batch_id"])
        if early is not None or batch is None:
            return early or error_response(404, "Message batch not found")
        return JSONResponse(batch.shown(service.url))

    async def results(request: Request) -> Response:
        early = checked(request)
        batch = batches.find(request.path_params["batch_id"])
        if early is not None:
            return early
        if batch is None or batch.ended_at is None or batch.archived_at is not None:
            return error_response(404, "Message batch results are not available")
        lines = [{"custom_id": name, "result": result} for name, result in batch.results.items()]
        for line in lines:
            MessageBatchIndividualResponse.model_validate(line)
        written = [json.dumps(line, ensure_ascii=False) for line in lines]
        for place, (name, line) in enumerate(zip(batch.results, batch.spoilt, strict=False)):
            written[place] = line.replace("NAME", name)
        return Response("".join(line + "\n" for line in written), media_type="application/x-jsonl")

    return [
        Route("/v1/messages/batches", create, methods=["POST"]),
        Route("/v1/messages/batches", listing, methods=["GET"]),
        Route("/v1/messages/batches/{batch_id}", retrieve, methods=["GET"]),
        Route("/v1/messages/batches/{batch_id}/results", results, methods=["GET"]),
    ]


def _requests_of(raw: bytes) -> dict[str, dict[str, Any]] | str:
    """The requests of an order by name, or why it is refused."""
    if len(raw) > MOST_BYTES:
        return "413 Request exceeds the maximum size"
    requests = json.loads(raw).get("requests")
    if not requests or len(requests) > MOST_REQUESTS:
        return "400 requests: between 1 and 100000 are allowed"
    for number, request in enumerate(requests):
        if set(request) != {"custom_id", "params"}:
            return f"400 requests.{number}: custom_id and params are required, and nothing else"
        if not _NAME.fullmatch(request["custom_id"]):
            return f"400 requests.{number}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
    taken = {request["custom_id"]: request["params"] for request in requests}
    return taken if len(taken) == len(requests) else "400 requests: custom_id must be unique"


def _refused(reason: object) -> Response:
    status, _, message = str(reason).partition(" ")
    return error_response(int(status), message)
