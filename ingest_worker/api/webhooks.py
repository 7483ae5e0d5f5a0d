"""The generic webhook: signed events of documents that changed elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ingest_worker.api import hook_body
from ingest_worker.api.answers import PROBLEMS, Services, answer, services
from ingest_worker.api.body import too_large
from ingest_worker.api.group_commit import GroupCommit
from ingest_worker.api.hook_body import Parts
from ingest_worker.api.hook_event import HookEvent
from ingest_worker.api.problems import Malformed, unavailable
from ingest_worker.catalogue.asking import BadQuestion, Conflict
from ingest_worker.hooks import standard
from ingest_worker.intake.addresses import checked_address
from ingest_worker.intake.deliveries import Deletion, Delivery, Stored, store
from ingest_worker.intake.packing import Body, pack
from ingest_worker.intake.push import Facts, Pushed, checked_path
from shared.hosts import parse_rules
from shared.whsec import decode_secret

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=PROBLEMS)

DATABASE_SECONDS = 4.0
"""How long a sender waits for a free connection before it is told to come again."""

_AT_ONCE = 64 * 1024
"""Bytes of a body that is read on the event loop: a thread would cost more than the reading."""

_EVENT_SCHEMA = {
    **HookEvent.model_json_schema(),
    "anyOf": [
        {"properties": {"action": {"const": "delete"}}},
        {"required": ["content"], "properties": {"action": {"const": "upsert"}, "content": {"type": "string"}}},
        {"required": ["url"], "properties": {"action": {"const": "upsert"}, "url": {"type": "string", "minLength": 1}}},
    ],
}
_HEADERS = [
    {
        "name": standard.ID,
        "in": "header",
        "required": True,
        "description": "The delivery's id, the same for each attempt.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
    },
    {
        "name": standard.TIMESTAMP,
        "in": "header",
        "required": True,
        "description": "When this attempt was made: Unix time in whole seconds, within 300 of ours.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,11}$"},
    },
    {
        "name": standard.SIGNATURE,
        "in": "header",
        "required": True,
        "description": "One or several `v1,` and base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`, with blanks between them.",
        "schema": {"type": "string"},
    },
]
_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": _EVENT_SCHEMA},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["event"],
                "additionalProperties": False,
                "properties": {"event": HookEvent.model_json_schema(), "file": {"type": "string", "format": "binary"}},
            },
            "encoding": {"event": {"contentType": "application/json"}},
        },
    },
}
_ANSWER = {
    "type": "object",
    "required": ["delivery_id", "status", "document_id", "job_id", "namespace", "path"],
    "properties": {
        "delivery_id": {"type": "string"},
        "status": {
            "type": "string",
            "enum": ["accepted", "duplicate"],
            "description": "`accepted`: it is stored and will be applied; `duplicate`: it came before.",
        },
        "document_id": {"type": ["string", "null"], "format": "uuid", "description": "Of a duplicate that has been applied."},
        "job_id": {"type": ["string", "null"], "format": "uuid"},
        "namespace": {"type": "string"},
        "path": {"type": "string"},
    },
}
_LOCATION = {"Location": {"schema": {"type": "string"}, "description": "Where to see what the delivery came to."}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The delivery came before: nothing is done again.",
        "content": {"application/json": {"schema": _ANSWER}},
        "headers": _LOCATION,
    },
    202: {"description": "Stored.", "content": {"application/json": {"schema": _ANSWER}}, "headers": _LOCATION},
}


@router.post(
    "/generic",
    status_code=202,
    responses=_ANSWERS,
    openapi_extra={"parameters": _HEADERS, "requestBody": _BODY, "security": [{"standardWebhooks": []}]},
)
async def generic(request: Request) -> Response:
    """A document that changed elsewhere, signed as Standard Webhooks are.

    The body is an event as JSON, or a form with the event as its part `event` and the document as its part `file`. Once this
    answers 200 or 202 it is stored for good, and is applied in a moment. What is not spoken of stays as it was, as with PUT.
    """
    held = services(request)
    secrets = [decode_secret(secret.get_secret_value()) for secret in held.settings.webhook_secrets]
    if not secrets:
        return unavailable(
            "No secret is configured, so nobody can prove who they are. Set DOCWELL_WEBHOOK_SECRETS and restart the API.",
            code="webhook_unconfigured",
        )
    signed = standard.read_headers(request.headers, now=time.time())
    verifier = standard.Verifier(signed, secrets)
    digest = hashlib.sha256()

    size = 0

    def take(piece: bytes) -> None:
        nonlocal size
        verifier.take(piece)
        digest.update(piece)
        size += len(piece)

    most = held.settings.max_bytes + hook_body.ROOM
    with await hook_body.receive(request, take, max_bytes=most, large=_large(request)) as file:
        verifier.verify()
        kind = request.headers.get("content-type", "")
        if size <= _AT_ONCE:
            change = _read(held, file, kind)
        else:
            change = await run_in_threadpool(_read, held, file, kind)
    delivery = Delivery(delivery_id=signed.delivery_id, body_sha256=digest.digest(), change=change)
    return _said(delivery, await _storing(request)(delivery))


def _storing(request: Request) -> GroupCommit[Delivery, Stored]:
    """Where this application's deliveries are stored together."""
    found = getattr(request.app.state, "deliveries", None)
    if not isinstance(found, GroupCommit):
        held = services(request)

        def store_all(came: Sequence[Delivery]) -> list[Stored | Conflict]:
            with held.pool.connection(timeout=DATABASE_SECONDS) as connection:
                return store(connection, came)

        found = request.app.state.deliveries = GroupCommit[Delivery, Stored](store_all, _bytes_of)
    return found


def _bytes_of(delivery: Delivery) -> int:
    change = delivery.change
    return 1000 + (0 if isinstance(change, Deletion) else len(change.content or b""))


def _large(request: Request) -> asyncio.Semaphore:
    found = getattr(request.app.state, "large_bodies", None)
    if not isinstance(found, asyncio.Semaphore):
        found = request.app.state.large_bodies = asyncio.Semaphore(hook_body.LARGE_AT_ONCE)
    return found


def _read(held: Services, file: IO[bytes], content_type: str) -> Pushed | Deletion:
    boundary = hook_body.boundary_of(content_type)
    parts = Parts(event=file.read()) if boundary is None else hook_body.cut(file, boundary, max_bytes=held.settings.max_bytes)
    try:
        event = HookEvent.model_validate_json(parts.event)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        if any(one["type"] == "json_invalid" for one in found):
            raise Malformed(f"The event is no JSON: {found[0]['msg']}.", code="bad_json") from error
        raise RequestValidationError(found) from error
    return _change(held, event, parts)


def _change(held: Services, event: HookEvent, parts: Parts) -> Pushed | Deletion:
    path = checked_path(event.path)
    if event.action == "delete":
        return Deletion(namespace=event.namespace, path=path, source_modified=event.source_modified)
    if event.content is not None and parts.file is not None:
        raise BadQuestion("The event has `content`, and a part `file` came too: send one of them.", code="two_contents")
    if parts.file is not None:
        return _pushed(event, path, parts.file, _with_media_type(event.hook_facts(fetched=False), path, parts.media_type))
    if event.content is not None:
        raw = event.content.encode()
        if len(raw) > held.settings.max_bytes:
            raise too_large(held.settings.max_bytes, "DOCWELL_MAX_BYTES")
        return _pushed(event, path, pack(raw), event.hook_facts(fetched=False))
    if event.url is None:
        raise BadQuestion(
            "An upsert needs the document: `content`, a `url` to fetch it from, or a form with a part `file`.", code="no_content"
        )
    checked_address(event.url, allowed=parse_rules(held.settings.fetch_allowed_hosts))
    return Pushed(namespace=event.namespace, path=path, facts=event.hook_facts(fetched=True), fetch=event.url)


def _pushed(event: HookEvent, path: str, body: Body, facts: Facts) -> Pushed:
    return Pushed(namespace=event.namespace, path=path, content=body.content, sha256=body.sha256, size=body.size, facts=facts)


def _with_media_type(facts: Facts, path: str, kind: str) -> Facts:
    """As with PUT: the type counts where the path has no ending."""
    if PurePosixPath(path).suffix or kind in {"", "application/octet-stream"}:
        return facts
    return replace(facts, given=facts.given | {"media_type"}, media_type=kind[:200])


def _said(delivery: Delivery, done: Stored) -> Response:
    found = {
        "delivery_id": delivery.delivery_id,
        "status": done.status,
        "document_id": done.document_id,
        "job_id": done.job_id,
        "namespace": delivery.change.namespace,
        "path": delivery.change.path,
    }
    location = {"Location": f"/v1/deliveries/{quote(delivery.delivery_id, safe='')}"}
    return answer(found, status=202 if done.status == "accepted" else 200, headers=location)
