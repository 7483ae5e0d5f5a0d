"""The routes of documents."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from psycopg import Connection
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ingest_worker.api import envelope
from ingest_worker.api.addresses import NAMESPACE, REST
from ingest_worker.api.answers import PROBLEMS, Limit, Services, answer, services
from ingest_worker.api.body import read_body, take_body
from ingest_worker.api.caller import caller
from ingest_worker.api.problems import Malformed, invalid
from ingest_worker.catalogue import captions, listing
from ingest_worker.catalogue.asking import BadQuestion, Filters, Unknown, known_states, parse_since, storable
from ingest_worker.catalogue.twins import duplicate_of
from ingest_worker.intake.packing import Body, pack
from ingest_worker.intake.push import Accepted, Facts, Pushed, accept, checked_path, withdraw_pushed
from shared.config import NAME_PATTERN
from shared.documents import DocumentState

router = APIRouter(prefix="/v1/documents", tags=["documents"], responses=PROBLEMS)

_PUT_BODY = {
    "requestBody": {
        "required": False,
        "description": "Without one the document is empty.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            envelope.MEDIA_TYPE: {"schema": envelope.Envelope.model_json_schema()},
        },
    },
    "parameters": [
        {"name": "namespace", "in": "path", "required": True, "schema": {"type": "string", "pattern": NAME_PATTERN}},
        {"name": "path", "in": "path", "required": True, "schema": {"type": "string"}},
    ],
}
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Bytes and facts are as before; nothing is done."},
    202: {"description": "Stored; `Location` names the job that takes it in."},
}


_ADDRESS = f"/{{namespace:{NAMESPACE}}}/{{path:{REST}}}"


@router.put(_ADDRESS, status_code=202, responses=_ACCEPTED, openapi_extra=_PUT_BODY)
async def put_document(request: Request) -> Response:
    """Push a document: the file itself, or `application/vnd.docwell+json` with a text and what is known of it.

    Once this answers 200 or 202, bytes and facts are stored for good. What is not spoken of, in a raw body everything but the
    bytes, stays as it was. `path` is relative, with `/`; it and its ending, or `Content-Type`, tell the format.
    """
    held = services(request)
    namespace = _namespace(request.path_params["namespace"])
    caller(request).check(namespace)
    path = checked_path(request.path_params["path"])
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == envelope.MEDIA_TYPE:
        raw = await read_body(request, max_bytes=held.settings.max_bytes)
        try:
            sent = await run_in_threadpool(envelope.Envelope.model_validate_json, raw)
        except ValidationError as error:
            return _does_not_fit(error)
        facts = sent.facts()
        body = await run_in_threadpool(pack, sent.content.encode())
    else:
        facts = _told_by_header(path, kind)
        body = await take_body(request, max_bytes=held.settings.max_bytes)
    return await run_in_threadpool(_store, held, namespace, path, body, facts)


def _does_not_fit(error: ValidationError) -> Response:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(one["type"] == "json_invalid" for one in found):
        raise Malformed(f"The envelope is no JSON: {found[0]['msg']}.", code="bad_json") from error
    return invalid(found)


def _told_by_header(path: str, kind: str) -> Facts:
    """The media type counts only where the path has no ending: many clients send a type that they never thought about."""
    if PurePosixPath(path).suffix or kind in {"", "application/octet-stream", "application/x-www-form-urlencoded"}:
        return Facts()
    return Facts(given=frozenset({"media_type"}), media_type=kind[:200])


def _store(held: Services, namespace: str, path: str, body: Body, facts: Facts) -> Response:
    pushed = Pushed(namespace=namespace, path=path, content=body.content, sha256=body.sha256, size=body.size, facts=facts)
    with held.pool.connection() as connection:
        done = accept(connection, pushed, max_attempts=held.settings.job_attempts)
    if done.changed:
        held.wake(1)
    return _said(done, namespace, path, body)


def _said(done: Accepted, namespace: str, path: str, body: Body) -> Response:
    found = {
        "document_id": done.document_id,
        "job_id": done.job_id,
        "status": "accepted" if done.changed else "unchanged",
        "namespace": namespace,
        "path": path,
        "sha256": body.sha256,
        "size": body.size,
        "duplicate_of": done.duplicate_of,
    }
    location = {"Location": f"/v1/jobs/{done.job_id}"} if done.job_id is not None else {}
    return answer(found, status=202 if done.changed else 200, headers=location)


@router.delete(_ADDRESS, status_code=202)
def delete_document(request: Request, namespace: str, path: str) -> Response:
    """Take a pushed document out of the index; `Location` names the job that does it."""
    held = services(request)
    namespace, path = _namespace(namespace), checked_path(path)
    caller(request).check(namespace)
    with held.pool.connection() as connection:
        document_id, job_id = withdraw_pushed(connection, namespace, path, max_attempts=held.settings.job_attempts)
    held.wake(1)
    return answer(
        {"document_id": document_id, "job_id": job_id, "status": "accepted", "namespace": namespace, "path": path},
        status=202,
        headers={"Location": f"/v1/jobs/{job_id}"},
    )


def _namespace(name: str) -> str:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise BadQuestion(
            f"{name[:100]!r} cannot name a namespace: small letters, digits, `.`, `_` and `-`, at most 63, the first no sign.",
            code="bad_namespace",
        )
    return name


@router.get("")
def list_documents(
    request: Request,
    namespace: str | None = None,
    source: str | None = None,
    state: Annotated[list[str] | None, Query(description="May be repeated, or several with commas.")] = None,
    since: Annotated[str | None, Query(description="Changed since: ISO 8601, or how long ago (`15m`, `2h`, `7d`).")] = None,
    path: Annotated[str | None, Query(description="One path, a folder, or a glob (`docs/**/*.md`).")] = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Response:
    """Documents in order of their paths."""
    caller(request).check_list(namespace)
    filters = Filters(
        namespace=storable(namespace),
        source=storable(source),
        states=known_states(state or (), DocumentState),
        since=None if since is None else parse_since(since, now=datetime.now(UTC)),
        path=storable(path),
    )
    with services(request).pool.connection() as connection:
        page = listing.list_documents(connection, filters, limit=limit, cursor=cursor)
    return answer({"documents": page.rows, "next_cursor": page.next_cursor})


def _seen(request: Request, connection: Connection[Any], document_id: uuid.UUID) -> listing.DocumentRow:
    found = listing.get_document(connection, document_id)
    if not caller(request).sees(found.namespace):
        raise listing.unknown_document(str(document_id))
    return found


@router.get("/by-id/{document_id}")
def get_document(request: Request, document_id: uuid.UUID) -> Response:
    """One document with its facts. `duplicate_of` is an older document of its namespace that has the same bytes."""
    with services(request).pool.connection() as connection:
        found = _seen(request, connection, document_id)
        return answer({**listing.facts(found), "duplicate_of": duplicate_of(connection, document_id)})


@router.get("/by-id/{document_id}/versions")
def list_versions(request: Request, document_id: uuid.UUID) -> Response:
    """The versions that are kept, newest first."""
    with services(request).pool.connection() as connection:
        _seen(request, connection, document_id)
        versions = listing.list_versions(connection, document_id)
    return answer({"document_id": document_id, "versions": versions, "next_cursor": None})


@router.get("/by-id/{document_id}/chunks")
def list_chunks(
    request: Request,
    document_id: uuid.UUID,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Else the served one.")] = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Response:
    """A document's chunks in reading order, each with its page, section and lines."""
    with services(request).pool.connection() as connection:
        _seen(request, connection, document_id)
        page = listing.page_chunks(connection, document_id, limit=limit, version=version, cursor=cursor)
    return answer({"document_id": document_id, "chunks": page.rows, "next_cursor": page.next_cursor})


@router.get("/by-id/{document_id}/chunks/{chunk_id}/thumbnail", response_class=Response)
def get_thumbnail(request: Request, document_id: uuid.UUID, chunk_id: uuid.UUID) -> Response:
    """The picture that a chunk of kind `caption` describes, small, as a JPEG."""
    with services(request).pool.connection() as connection:
        _seen(request, connection, document_id)
        image = captions.thumbnail(connection, document_id, chunk_id)
    if image is None:
        raise Unknown(f"The document has no caption {chunk_id} with a picture.", code="unknown_thumbnail")
    # Made by us out of a stranger's picture: no browser may take it for anything else.
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'"}
    return Response(image, media_type="image/jpeg", headers=headers)
