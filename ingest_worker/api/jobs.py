"""The routes of jobs and of the whole's state."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from psycopg import Connection
from starlette.responses import Response

from ingest_worker.api.answers import PROBLEMS, Limit, answer, services
from ingest_worker.api.caller import caller
from ingest_worker.catalogue import job_listing
from ingest_worker.catalogue.asking import Conflict, Filters, known_states, parse_since, storable
from ingest_worker.catalogue.overview import read_status
from ingest_worker.jobs import control
from shared.documents import JobState

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get("/jobs", tags=["jobs"])
def list_jobs(
    request: Request,
    namespace: str | None = None,
    source: str | None = None,
    state: Annotated[list[str] | None, Query(description="May be repeated, or several with commas.")] = None,
    since: Annotated[str | None, Query(description="Made, begun or ended since: ISO 8601, or how long ago.")] = None,
    document_id: uuid.UUID | None = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Response:
    """Jobs, newest first."""
    caller(request).check_list(namespace)
    filters = Filters(
        namespace=storable(namespace),
        source=storable(source),
        states=known_states(state or (), JobState),
        since=None if since is None else parse_since(since, now=datetime.now(UTC)),
        document_id=document_id,
    )
    with services(request).pool.connection() as connection:
        page = job_listing.list_jobs(connection, filters, limit=limit, cursor=cursor)
    return answer({"jobs": page.rows, "next_cursor": page.next_cursor})


def _seen(request: Request, connection: Connection[Any], job_id: uuid.UUID) -> job_listing.JobRow:
    found = job_listing.get_job(connection, job_id)
    if not caller(request).sees(found.namespace):
        raise job_listing.unknown_job(job_id)
    return found


@router.get("/jobs/{job_id}", tags=["jobs"])
def get_job(request: Request, job_id: uuid.UUID) -> Response:
    """One job with everything that is known of it."""
    with services(request).pool.connection() as connection:
        return answer(_seen(request, connection, job_id))


@router.post("/jobs/{job_id}/retry", tags=["jobs"], status_code=202)
def retry_job(request: Request, job_id: uuid.UUID) -> Response:
    """Give a dead, waiting or cancelled job all its attempts again, now."""
    held = services(request)
    with held.pool.connection() as connection, connection.transaction():
        _seen(request, connection, job_id)
        reason = job_listing.why_not_retry(connection, [job_id]).get(job_id)
        if reason is not None:
            raise Conflict(reason, code="job_state")
        if control.retry(connection, [job_id]) == 0:
            raise Conflict(f"Job {job_id} changed meanwhile. Look at it again.", code="job_state")
        found = job_listing.get_job(connection, job_id)
    held.wake(1)
    return answer(found, status=202, headers={"Location": f"/v1/jobs/{job_id}"})


@router.post("/jobs/{job_id}/cancel", tags=["jobs"])
def cancel_job(request: Request, job_id: uuid.UUID) -> Response:
    """Stop a live job. What is served stays served; a running job writes nothing more."""
    with services(request).pool.connection() as connection, connection.transaction():
        _seen(request, connection, job_id)
        if control.cancel(connection, [job_id]) == 0:
            reason = job_listing.why_not_cancel(connection, [job_id]).get(job_id, "It changed meanwhile.")
            raise Conflict(reason, code="job_state")
        return answer(job_listing.get_job(connection, job_id))


@router.get("/status", tags=["state"])
def get_status(request: Request) -> Response:
    """Documents, jobs, sources and the index in one answer."""
    caller(request).check_whole()
    with services(request).pool.connection() as connection:
        return answer(read_status(connection))
