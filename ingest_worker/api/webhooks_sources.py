"""The webhooks of sources that are asked over the network: their events are checked, stored, and looked at later."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Path, Request
from psycopg import Connection
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ingest_worker.api.answers import PROBLEMS, Services, answer, services
from ingest_worker.api.body import read_body
from ingest_worker.api.group_commit import GroupCommit
from ingest_worker.api.problems import Malformed, unavailable
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.events import Arrived, store_all
from ingest_worker.catalogue.sources import ensure_source, get_source
from ingest_worker.hooks import confluence, sharepoint
from shared.config import ConnectionSettings, Settings

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=PROBLEMS)

log = structlog.get_logger(__name__)

MOST_BYTES = 1024 * 1024
_TIMESTAMP = re.compile(rb'"timestamp"\s*:')
_LIMIT = "of events"

_AT_ONCE = 64 * 1024
"""Bytes of a body that is looked at on the event loop: a thread would cost more."""

DATABASE_SECONDS = 2.0
"""How long a sender waits for a free connection: Graph calls an address slow that takes three seconds to answer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Came:
    """A delivery that is genuine: one body for each kind of event."""

    source: ConnectionSettings
    bodies: Mapping[str, bytes]
    delivery_id: str | None


SourceName = Annotated[str, Path(description="The `name` of the source in `[[sources]]`.")]
EventName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,100}$", description="The event's name (`page_updated`).")]

_STORED = {
    "type": "object",
    "required": ["status", "stored"],
    "properties": {
        "status": {"type": "string", "enum": ["accepted", "duplicate", "dropped", "test"]},
        "stored": {"type": "integer", "description": "Events that were stored by this delivery."},
    },
}
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"description": "Stored, or known already.", "content": {"application/json": {"schema": _STORED}}}
}
_TESTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "A test of the connection; nothing is stored.", "content": {"application/json": {"schema": _STORED}}}
}
_HANDSHAKE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The validation token, when there is one in the address.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
_JSON_BODY = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
_CONFLUENCE: dict[str, Any] = {
    "parameters": [
        {
            "name": "token",
            "in": "query",
            "description": "Confluence Cloud signs nothing: one of the source's `webhook_secrets`, in the address.",
            "schema": {"type": "string"},
        },
        {
            "name": "X-Hub-Signature",
            "in": "header",
            "description": "Data Center: `sha256=` and HMAC-SHA256 of the raw body under one of the `webhook_secrets`, in hex.",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": _JSON_BODY,
    "security": [{"confluenceSignature": []}, {"confluenceToken": []}],
}
_SHAREPOINT: dict[str, Any] = {
    "parameters": [
        {
            "name": "validationToken",
            "in": "query",
            "description": "Sent when a subscription is made: it is answered as it is.",
            "schema": {"type": "string", "minLength": 1, "maxLength": sharepoint.LONGEST_TOKEN},
        }
    ],
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["value"],
                    "properties": {
                        "value": {
                            "type": "array",
                            "items": {"type": "object", "properties": {"clientState": {"type": "string"}}},
                        }
                    },
                }
            }
        },
    },
    "security": [],
}


@router.post("/confluence/{source}", status_code=202, responses={**_ACCEPTED, **_TESTED}, openapi_extra=_CONFLUENCE)
async def confluence_event(request: Request, source: SourceName) -> Response:
    """An event of Confluence Data Center or Cloud. What changed is asked of Confluence later: the event is a hint."""
    return await _confluence(request, source, "")


@router.post("/confluence/{source}/{event}", status_code=202, responses={**_ACCEPTED, **_TESTED}, openapi_extra=_CONFLUENCE)
async def confluence_named_event(request: Request, source: SourceName, event: EventName) -> Response:
    """The same with the event's name in the address, since Cloud does not say it in the body."""
    return await _confluence(request, source, event)


async def _confluence(request: Request, name: str, event: str) -> Response:
    held = services(request)
    source = _find(held.settings, "confluence", name)
    secrets = _secrets(source)
    if not secrets:
        return _unconfigured(name, "webhook_secrets")
    body = await read_body(request, max_bytes=MOST_BYTES, limit=_LIMIT)
    signature, token = request.headers.get("x-hub-signature"), request.query_params.get("token")
    if signature is None and token is None and confluence.is_test(body):
        return answer({"status": "test", "stored": 0})
    await _off_the_loop(body, lambda: confluence.verify(body, signature=signature, token=token, secrets=secrets))
    if confluence.is_test(body):
        return answer({"status": "test", "stored": 0})
    delivery_id = await _off_the_loop(body, lambda: _delivery_id(event, body))
    return await _stored(request, _Came(source=source, bodies={event: body}, delivery_id=delivery_id))


def _delivery_id(event: str, body: bytes) -> str | None:
    """What retries and replays of an event have in common: its bytes. An id in a header would prove nothing: it is not signed.

    None where the body does not say when: events of Forge apps look alike when the same happens to a page again. These are
    duplicates only while an equal one waits.
    """
    return hashlib.sha256(event.encode() + b"\n" + body).hexdigest() if _TIMESTAMP.search(body) else None


@router.post("/sharepoint/{source}", status_code=202, responses={**_ACCEPTED, **_HANDSHAKE}, openapi_extra=_SHAREPOINT)
async def sharepoint_notification(request: Request, source: SourceName) -> Response:
    """Notifications and lifecycle events of Microsoft Graph, for both addresses of a subscription.

    Items count whose `clientState` is one of the source's; the others are dropped without a word.
    """
    held = services(request)
    settings = _find(held.settings, "sharepoint", source)
    token = request.query_params.get("validationToken")
    if token is not None:
        return _validated(token)
    secrets = _secrets(settings)
    if not secrets:
        return _unconfigured(source, "client_state")
    body = await read_body(request, max_bytes=MOST_BYTES, limit=_LIMIT)
    try:
        found = await _off_the_loop(body, lambda: sharepoint.sort_items(body, secrets))
    except sharepoint.NotANotification as error:
        raise Malformed(str(error), code=error.code) from None
    if found.dropped:
        log.warning("notifications_dropped", source=source, items=found.dropped, reason="clientState is not one of the source's")
    if not found.bodies:
        return answer({"status": "dropped", "stored": 0}, status=202)
    return await _stored(request, _Came(source=settings, bodies=found.bodies, delivery_id=None))


def _validated(token: str) -> Response:
    if not 0 < len(token) <= sharepoint.LONGEST_TOKEN:
        raise Malformed(f"A validationToken has 1 to {sharepoint.LONGEST_TOKEN} characters.", code="bad_token")
    return Response(token.encode("utf-8", "replace"), headers={"Content-Type": "text/plain", "X-Content-Type-Options": "nosniff"})


def _find(settings: Settings, kind: str, name: str) -> ConnectionSettings:
    for source in settings.sources:
        if source.name == name and isinstance(source, ConnectionSettings) and source.type == kind:
            return source
    raise _unknown(kind, name)


def _unknown(kind: str, name: str) -> Unknown:
    return Unknown(
        f"There is no source {name!r} of the type {kind}. Its table in `[[sources]]` has to be there when the API starts.",
        code="unknown_connection",
    )


def _secrets(source: ConnectionSettings) -> list[str]:
    return [secret.get_secret_value() for secret in source.event_secrets if secret.get_secret_value()]


def _unconfigured(name: str, key: str) -> Response:
    return unavailable(
        f"The source {name!r} has no secret, so nobody can prove who they are. Set `{key}` in its table in `[[sources]]` and"
        " restart the API.",
        code="webhook_unconfigured",
    )


async def _off_the_loop(body: bytes, look: Callable[[], T]) -> T:
    """What `look` gives; it looks at a body, which takes a thread's time where that is large."""
    return look() if len(body) <= _AT_ONCE else await run_in_threadpool(look)


async def _stored(request: Request, came: _Came) -> Response:
    stored = await _storing(request)(came)
    return answer({"status": "accepted" if stored else "duplicate", "stored": stored}, status=202)


def _storing(request: Request) -> GroupCommit[_Came, int]:
    """Where this application's events are stored together."""
    found = getattr(request.app.state, "events", None)
    if not isinstance(found, GroupCommit):
        held = services(request)
        found = request.app.state.events = GroupCommit[_Came, int](lambda came: _store_all(held, came), _bytes_of)
    return found


def _bytes_of(came: _Came) -> int:
    return 1000 + sum(map(len, came.bodies.values()))


def _store_all(held: Services, came: Sequence[_Came]) -> list[int | Exception]:
    """Store one event for each kind, all in one transaction; gives for each delivery how many were not there already."""
    with held.pool.connection(timeout=DATABASE_SECONDS) as connection, connection.transaction():
        ids = {one.source.name: _source_id(connection, one.source) for one in came}
        rows: list[Arrived] = []
        ends: list[int] = []
        for one in came:
            source_id = ids[one.source.name]
            if isinstance(source_id, int):
                rows += [
                    Arrived(source_id=source_id, kind=kind, delivery_id=one.delivery_id, body=body)
                    for kind, body in sorted(one.bodies.items())
                ]
            ends.append(len(rows))
        stored = store_all(connection, rows)
    results: list[int | Exception] = []
    for one, begin, end in zip(came, [0, *ends], ends, strict=False):
        unknown = ids[one.source.name]
        results.append(unknown if isinstance(unknown, Unknown) else sum(not event.duplicate for event in stored[begin:end]))
    return results


def _source_id(connection: Connection[Any], source: ConnectionSettings) -> int | Unknown:
    """The source's number, or that there is no such source any more.

    It is made when its events come before whoever reads it has started for the first time.
    """
    found = get_source(connection, source.name)
    if found is None:
        found = ensure_source(
            connection,
            source.name,
            kind=source.type,
            namespace=source.namespace,
            tags=source.tags,
            readers=source.readers,
            max_bytes=source.max_bytes,
            enrich=source.enrich,
            embed_anyway=source.embed == "anyway",
        )
    elif found.removed_at is not None or found.type != source.type:
        return _unknown(source.type, source.name)
    return found.source_id
