"""The OpenAPI description: what the routes answer, the errors that they name, and who may ask."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from ingest_worker.api.answers import PROBLEM_SCHEMA
from ingest_worker.api.envelope import PATH_SCHEMA
from ingest_worker.api.problems import MEDIA_TYPE
from ingest_worker.catalogue.delivery_listing import DeliveryRow
from ingest_worker.catalogue.erasures import Place
from ingest_worker.catalogue.job_listing import JobRow
from ingest_worker.catalogue.listing import ChunkRow, DocumentRow, VersionRow
from ingest_worker.catalogue.overview import Status
from shared.config import NAME_PATTERN
from shared.documents import DocumentState, JobState

_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `docwell tokens create --scope ingest`, or one of DOCWELL_API_TOKENS. On loopback none is"
        " needed while DOCWELL_API_TOKENS is not set.",
    },
    "standardWebhooks": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "`v1,` and base64 of HMAC-SHA256 over `webhook-id.webhook-timestamp.BODY`, under the decoded part of one"
        " of DOCWELL_WEBHOOK_SECRETS behind `whsec_`.",
    },
    "confluenceSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Hub-Signature",
        "description": "Confluence Data Center: `sha256=` and HMAC-SHA256 of the raw body, in hex.",
    },
    "confluenceToken": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "Confluence Cloud: a secret in the address.",
    },
}
_NULL_UUID = {"type": ["string", "null"], "format": "uuid"}
_PUSHED = {
    "type": "object",
    "required": ["document_id", "job_id", "status", "namespace", "path"],
    "properties": {
        "document_id": {"type": "string", "format": "uuid"},
        "job_id": _NULL_UUID,
        "status": {"type": "string", "enum": ["accepted", "unchanged"]},
        "namespace": {"type": "string"},
        "path": {"type": "string"},
        "sha256": {"type": "string", "description": "Of the bytes, in hex."},
        "size": {"type": "integer"},
        "duplicate_of": {
            "anyOf": [{"$ref": "#/components/schemas/Place"}, {"type": "null"}],
            "description": "An older document of the namespace that has the same bytes.",
        },
    },
}
_LOCATION = {"Location": {"description": "The job.", "schema": {"type": "string"}}}


def _page(noun: str, row: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [noun, "next_cursor"],
        "properties": {
            noun: {"type": "array", "items": {"$ref": f"#/components/schemas/{row}"}},
            "next_cursor": {"type": ["string", "null"], "description": "Leads to the next rows; null: there are none."},
        },
    }


def _checked(status: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"const": status}, "checks": {"type": "object", "additionalProperties": {"type": "string"}}},
    }


_DOCUMENT = {"$ref": "#/components/schemas/Document"}
_JOB = {"$ref": "#/components/schemas/Job"}
_PUT = ("put", "/v1/documents/{namespace}/{path}")
_DELETE = ("delete", "/v1/documents/{namespace}/{path}")
_RETRY = ("post", "/v1/jobs/{job_id}/retry")

_ANSWERS: dict[tuple[str, str], dict[int, Any]] = {
    _PUT: {200: _PUSHED, 202: _PUSHED},
    _DELETE: {202: _PUSHED},
    ("get", "/v1/documents"): {200: _page("documents", "Document")},
    ("get", "/v1/documents/by-id/{document_id}"): {200: _DOCUMENT},
    ("get", "/v1/documents/by-id/{document_id}/versions"): {200: _page("versions", "Version")},
    ("get", "/v1/documents/by-id/{document_id}/chunks"): {200: _page("chunks", "Chunk")},
    ("get", "/v1/jobs"): {200: _page("jobs", "Job")},
    ("get", "/v1/jobs/{job_id}"): {200: _JOB},
    _RETRY: {202: _JOB},
    ("post", "/v1/jobs/{job_id}/cancel"): {200: _JOB},
    ("get", "/v1/deliveries"): {200: _page("deliveries", "Delivery")},
    ("get", "/v1/deliveries/{delivery_id}"): {200: {"$ref": "#/components/schemas/Delivery"}},
    ("get", "/v1/status"): {200: {"$ref": "#/components/schemas/Status"}},
    ("get", "/healthz"): {200: _checked("ok")},
    ("get", "/readyz"): {200: _checked("ready")},
}
"""The JSON of each answer that went well, where the route itself does not say it."""

_NAMESPACE = {"type": "string", "pattern": NAME_PATTERN}
_TEXT = {"type": "string", "pattern": r"^[^\x00]*$"}
_QUERY: dict[str, dict[str, Any]] = {
    "since": {
        "anyOf": [
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": "^[0-9]{1,4}[smhdw]$"},
        ]
    },
    "cursor": {"type": "string", "minLength": 1, "description": "The `next_cursor` of the answer before."},
    "namespace": _TEXT,
    "source": _TEXT,
    "path": _TEXT,
    "document_id": {"type": "string", "format": "uuid"},
    "version": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
}
_STATES = {"/v1/documents": DocumentState, "/v1/jobs": JobState}

_ASKED = {
    401: "No token, or one that does not hold.",
    403: "The token or the page may not do this.",
    421: "Not a name of this server.",
}
_AWAY = {503: "The database is away or busy, or nothing is configured; `Retry-After` says when to try again."}
_UNKNOWN = {404: "There is no such thing, or the caller may not know of it."}
_UNFIT = {422: "The request does not fit."}
_STATE = {409: "It exists, but its state does not allow this."}
_BODY = {400: "The request cannot be read.", 413: "The body is too large."}
_SENDER = {401: "Nothing proves who sends this, or the time is not now."}

_PROBLEMS: Mapping[str, Mapping[int, str]] = {
    "put /v1/documents/{namespace}/{path}": {**_ASKED, **_BODY, **_STATE, **_UNFIT, **_AWAY},
    "delete /v1/documents/{namespace}/{path}": {**_ASKED, **_UNKNOWN, **_STATE, **_UNFIT, **_AWAY},
    "get /v1/documents": {**_ASKED, **_UNFIT, **_AWAY},
    "get /v1/documents/by-id/{document_id}": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "get /v1/documents/by-id/{document_id}/versions": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "get /v1/documents/by-id/{document_id}/chunks/{chunk_id}/thumbnail": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "get /v1/documents/by-id/{document_id}/chunks": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "get /v1/jobs": {**_ASKED, **_UNFIT, **_AWAY},
    "get /v1/jobs/{job_id}": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "post /v1/jobs/{job_id}/retry": {**_ASKED, **_UNKNOWN, **_STATE, **_UNFIT, **_AWAY},
    "post /v1/jobs/{job_id}/cancel": {**_ASKED, **_UNKNOWN, **_STATE, **_UNFIT, **_AWAY},
    "get /v1/status": {**_ASKED, **_AWAY},
    "get /v1/deliveries": {**_ASKED, **_UNFIT, **_AWAY},
    "get /v1/deliveries/{delivery_id}": {**_ASKED, **_UNKNOWN, **_UNFIT, **_AWAY},
    "post /v1/webhooks/generic": {
        **_BODY,
        **_SENDER,
        409: "The id of the delivery was used for another body.",
        **_UNFIT,
        **_AWAY,
    },
    "post /v1/webhooks/confluence/{source}": {**_BODY, **_SENDER, **_UNKNOWN, **_AWAY},
    "post /v1/webhooks/confluence/{source}/{event}": {**_BODY, **_SENDER, **_UNKNOWN, **_UNFIT, **_AWAY},
    "post /v1/webhooks/sharepoint/{source}": {**_BODY, **_UNKNOWN, **_AWAY},
    "get /readyz": _AWAY,
    "get /metrics": {**_ASKED, **_AWAY},
}
_OPEN = frozenset({"/healthz", "/readyz"})
_THUMBNAIL = "/v1/documents/by-id/{document_id}/chunks/{chunk_id}/thumbnail"


def install(app: FastAPI) -> None:
    """Let the application describe itself wholly."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's own way to extend the description


def _described(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = found.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM_SCHEMA
    kinds = {
        "Document": DocumentRow,
        "Version": VersionRow,
        "Chunk": ChunkRow,
        "Job": JobRow,
        "Delivery": DeliveryRow,
        "Status": Status,
        "Place": Place,
    }
    for name, kind in kinds.items():
        _add(schemas, name, kind)
    found["security"] = [{"bearer": []}, {}]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _complete(operation, method, path)
    return found


def _add(schemas: dict[str, Any], name: str, kind: type) -> None:
    made = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas.update(made.pop("$defs", {}))
    schemas[name] = made


def _narrow(parameter: dict[str, Any], path: str) -> None:
    """What a parameter may be: FastAPI's `null` is nothing that an address could say."""
    name = parameter["name"]
    if parameter["in"] == "path" and name == "namespace":
        parameter["schema"] = _NAMESPACE
    elif parameter["in"] == "path" and name == "path":
        parameter["schema"] = PATH_SCHEMA
    elif parameter["in"] == "query" and name in _QUERY:
        parameter["schema"] = _QUERY[name]
    elif name == "state" and path in _STATES:
        one = "|".join(_STATES[path])
        parameter["schema"] = {"type": "array", "items": {"type": "string", "pattern": f"^({one})(,({one}))*$"}}


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    responses = operation["responses"]
    for parameter in operation.get("parameters", []):
        _narrow(parameter, path)
    for status, schema in _ANSWERS.get((method, path), {}).items():
        one = responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
        one["content"] = {"application/json": {"schema": schema}}
        if (method, path) in {_PUT, _DELETE, _RETRY} and status == 202:
            one["headers"] = _LOCATION
    if path == _THUMBNAIL:
        picture = {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}
        responses["200"] = {"description": "The picture, small.", "content": picture}
    if path == "/metrics":
        responses["200"] = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    for status, description in _PROBLEMS.get(f"{method} {path}", {}).items():
        responses[str(status)] = {
            "description": description,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        if status == 503:
            responses["503"]["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    if path in _OPEN:
        operation["security"] = []
    responses["default"] = {
        "description": "Any other error.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    operation["responses"] = dict(sorted(responses.items()))
