"""What the routes share: the services they work with, and how they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from ingest_worker.api.metrics import Metrics
from ingest_worker.api.problems import MEDIA_TYPE
from ingest_worker.catalogue.json_form import as_json
from ingest_worker.jobs.wake import Wake
from shared.config import Settings
from shared.database import Pool

Limit = Annotated[int, Query(ge=1, le=1000, description="The most rows; `next_cursor` leads to the others.")]

PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, to what, and what to do."},
        "code": {"type": "string", "description": "A short name that scripts may match on."},
    },
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem document (RFC 9457).", "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA}}}
}
"""For `responses=` of a router: every error has this form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the routes work with."""

    settings: Settings
    pool: Pool
    wake: Wake
    metrics: Metrics


def services(request: Request) -> Services:
    """The services of the application that answers this request."""
    held = request.app.state.services
    if not isinstance(held, Services):
        raise TypeError("the application was not made by make_api")
    return held


def answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A read model as JSON."""
    plain = as_json(value)
    try:
        raw = orjson.dumps(plain)
    except orjson.JSONEncodeError:  # metadata may hold integers of more than 64 bits, which orjson does not write
        raw = json.dumps(plain, ensure_ascii=False).encode()
    return Response(raw, status_code=status, media_type="application/json", headers=dict(headers or {}))
