"""Every error as a problem document (RFC 9457): what went wrong, its code, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import psycopg
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from ingest_worker.api.caller import Forbidden
from ingest_worker.catalogue.asking import BadQuestion, Conflict, Unknown
from ingest_worker.hooks.authentic import NotAuthentic
from ingest_worker.intake.addresses import NotListed
from shared.database import first_line, is_full
from shared.errors import ConfigurationError, DocwellError, PermanentError, TransientError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5

log = structlog.get_logger(__name__)


class TooLarge(PermanentError):
    """The body is longer than the limit."""


class Malformed(PermanentError):
    """The request cannot be read at all."""


_STATUS: Sequence[tuple[type[DocwellError], int]] = (
    (NotAuthentic, 401),
    (Forbidden, 403),
    (NotListed, 403),
    (Unknown, 404),
    (Conflict, 409),
    (BadQuestion, 422),
    (TooLarge, 413),
    (Malformed, 400),
    (TransientError, 503),
    (ConfigurationError, 503),
)


def problem(
    status: int,
    detail: str,
    *,
    code: str,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem document. Its type is `about:blank` (RFC 9457, section 4.2.1); `code` is what scripts may match on."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        **more,
    }
    return Response(orjson.dumps(body), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def unavailable(detail: str, *, code: str, **more: Any) -> Response:
    """503 with the time after which another try makes sense."""
    return problem(503, detail, code=code, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}, **more)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer every error of this application, which has these routes, with a problem document."""
    app.state.routes = routes
    app.add_exception_handler(DocwellError, _docwell_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(psycopg.OperationalError, _database_error)
    app.add_exception_handler(PoolTimeout, _database_error)
    app.add_exception_handler(Exception, _crash)


async def _docwell_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, DocwellError):
        raise error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 503:
        return unavailable(str(error), code=error.code)
    challenge = {"WWW-Authenticate": 'Webhook realm="docwell"'} if status == 401 else None
    return problem(status, str(error), code=error.code, headers=challenge)


async def _database_error(_request: Request, error: Exception) -> Response:
    log.warning("database_error", error=first_line(error))
    if isinstance(error, psycopg.errors.QueryCanceled):
        return unavailable("The database took too long. Ask for less, or try again later.", code="database_slow")
    if isinstance(error, psycopg.errors.TransactionRollback):
        return unavailable("Others were changing the same document. Try again.", code="busy")
    if is_full(error):
        return unavailable(
            "The database's disk is full. Nothing was stored; free some space, and try again.", code="database_full"
        )
    return unavailable("The database cannot be reached. Nothing was stored; try again later.", code="database_unavailable")


async def _invalid(_request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    return invalid(found)


def invalid(found: Sequence[Mapping[str, Any]]) -> Response:
    """What pydantic found wrong, as one sentence and as a list of `{"where", "detail"}`."""
    errors = [{"where": ".".join(str(part) for part in one["loc"]), "detail": one["msg"]} for one in found]
    detail = "; ".join(f"{one['where'] or 'body'}: {one['detail']}" for one in errors[:5])
    return problem(422, f"The request does not fit: {detail}.", code="invalid", errors=errors)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    sentences = {
        404: ("There is nothing here. The routes stand at /docs.", "no_such_route"),
        405: ("This route does not take this method.", "method_not_allowed"),
    }
    detail, code = sentences.get(error.status_code, (error.detail, HTTPStatus(error.status_code).name.lower()))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return problem(error.status_code, detail, code=code, headers=headers)


def _methods(request: Request) -> set[str]:
    """What this address takes: its methods may be those of several routes."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return found


async def _crash(_request: Request, error: Exception) -> Response:
    log.error("request_crashed", exc_info=error)
    return problem(500, "Something went wrong here; the log of the API says what.", code="internal_error")
