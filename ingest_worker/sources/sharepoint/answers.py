"""What Microsoft Graph answers, as a value or as one of the two kinds of failure.

Sources: learn.microsoft.com/graph/errors and /graph/throttling, and the guidance for scanning SharePoint (a 429 or 503 stops all
calls of the tenant for as long as `Retry-After` says).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from ingest_worker.sources.pace import retry_after_seconds
from shared.errors import PermanentError, TransientError

THROTTLED = frozenset({429, 503, 509})
"""509: the bandwidth limit that SharePoint's own front answers with."""

_WITHOUT_A_WORD_SECONDS = 30.0
"""How long a throttled tenant is left alone when the answer does not say."""

_LONGEST_MESSAGE = 300


class GraphRefused(PermanentError):
    """Graph took the call and said no. `status` is HTTP's; `code` is ours and `graph_code` Graph's own word for it."""

    def __init__(self, message: str, *, code: str, status: int, graph_code: str = "") -> None:
        super().__init__(message, code=code)
        self.status = status
        self.graph_code = graph_code


class NotThere(GraphRefused):
    """404: it does not exist, or is out of the application's sight."""


class Conflict(GraphRefused):
    """409: there is one like it already."""


class ResyncRequired(GraphRefused):
    """410: the token of a delta link is not known any more; only a listing from the start tells what there is."""


def check(
    status: int, headers: Mapping[str, str], body: bytes | Mapping[str, Any], *, what: str, needs: str, now: datetime
) -> None:
    """Nothing, when the answer is a success.

    `what` says in words what was asked (`the permissions of …`), `needs` names the application permission that allows it.

    Raises:
        TransientError: throttled, or a fault of the other side; `retry_after` in seconds when it said so.
        GraphRefused: anything else that is no success.
    """
    if status < 400:
        return
    graph_code, message = _explained(body)
    said = f" Graph says: {graph_code}: {message}" if graph_code or message else ""
    if status in THROTTLED:
        wait = retry_after(headers, now=now)
        raise TransientError(
            f"Microsoft Graph answered {status} to {what}: it asks for fewer calls, or is away.{said}",
            code="throttled",
            retry_after=_WITHOUT_A_WORD_SECONDS if wait is None else wait,
        )
    if status >= 500 or status in {408, 423, 425}:
        raise TransientError(
            f"Microsoft Graph failed with {status} at {what}; it is tried again.{said}",
            code="graph_failed",
            retry_after=retry_after(headers, now=now),
        )
    refused = {404: NotThere, 409: Conflict, 410: ResyncRequired}.get(status, GraphRefused)
    raise refused(
        _sentence(status, what=what, needs=needs) + said, code=_CODES.get(status, "refused"), status=status, graph_code=graph_code
    )


_CODES = {401: "not_authorised", 403: "forbidden", 404: "not_found", 409: "conflict", 410: "resync_required"}


def _sentence(status: int, *, what: str, needs: str) -> str:
    if status == 401:
        return (
            f"Microsoft Graph does not take our token for {what}. Check tenant_id, client_id and client_secret, and that "
            f"graph_url and login_url belong to the same cloud."
        )
    if status == 403:
        return (
            f"The application may not read {what}. Give it the application permission {needs} in the Entra admin centre "
            f"(App registrations > API permissions) and grant admin consent."
        )
    if status == 404:
        return f"Microsoft Graph does not know {what}, or the application cannot see it."
    if status == 409:
        return f"Microsoft Graph has {what} already."
    if status == 410:
        return f"Microsoft Graph has forgotten where we were in {what}: everything has to be listed again."
    return f"Microsoft Graph refused {what} with {status}."


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for, given as seconds or as a date (RFC 9110, 10.2.3); None: it asks for nothing."""
    # Parts of a `$batch` have their headers in whatever case.
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    return retry_after_seconds(value, now)


def parse_object(body: bytes, *, what: str) -> dict[str, Any]:
    """The JSON object of an answer; an empty answer is an empty one.

    Raises:
        TransientError: it is none. Half an answer is a fault of the way, not of the request.
    """
    if not body:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TransientError(f"The answer to {what} is no JSON: {error}. It is tried again.", code="bad_answer") from error
    if not isinstance(found, dict):
        raise TransientError(f"The answer to {what} is no JSON object. It is tried again.", code="bad_answer")
    return found


def _explained(body: bytes | Mapping[str, Any]) -> tuple[str, str]:
    found: Any = body
    if isinstance(body, bytes):
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            return "", ""
    error = found.get("error") if isinstance(found, Mapping) else None
    if not isinstance(error, Mapping):
        return "", ""
    code, message = error.get("code"), error.get("message")
    return str(code or "")[:100], " ".join(str(message or "").split())[:_LONGEST_MESSAGE]
