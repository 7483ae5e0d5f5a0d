"""The ingest API does what its description says: Schemathesis asks every route, rightly and wrongly, and checks each answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from psycopg_pool import ConnectionPool
from schemathesis import Case
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from ingest_worker.api.app import make_api
from shared.config import Settings
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.hooks import headers, make_secret

TOKEN = "t0ken"
SOURCES = [
    {
        "name": "wiki",
        "type": "confluence",
        "base_url": "https://wiki.example.com",
        "username": "docs@example.com",
        "api_token": "api-token",
        "webhook_secrets": "wiki-secret",
    },
    {
        "name": "drive",
        "type": "sharepoint",
        "tenant_id": "contoso.example",
        "client_id": "client",
        "client_secret": "client-secret",
        "drives": "b!x",
        "client_state": "drive-state",
    },
]


@pytest.fixture(scope="module")
def api(module_database: Database, redis_url: str) -> Iterator[Api]:
    """Everything is configured, and something is there."""
    with (
        open_corpus(module_database.url) as corpus,
        running_api(
            module_database.url,
            tokens=[TOKEN],
            redis_url=redis_url,
            sources=SOURCES,
            webhook_secrets=make_secret(),
            max_bytes=1_000_000,
            fetch_allowed_hosts="docs.example.com",
        ) as found,
    ):
        found.client.headers["Authorization"] = f"Bearer {TOKEN}"
        corpus.add("a.md", [text_chunk("text")])
        assert found.client.put("/v1/documents/team/a.md", content=b"text").status_code == 202
        yield found


# The description is the same for all settings, and asks no database.
_API = make_api(Settings(), ConnectionPool("", min_size=0, max_size=1, open=False), lambda _due: None)
every = schemathesis.openapi.from_dict(_API.openapi())


BEYOND_SCHEMAS = ('"no_content"', '"two_contents"', "lies more than a day ahead", "in every time zone")
"""What JSON Schema cannot say: which parts of a form go together, and what time it is."""


class Sender(requests.auth.AuthBase):
    """Signs what is sent just before it is, where what is signed may pass for right."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {TOKEN}"
        given = {name: request.headers.get(f"webhook-{name}") or "" for name in ("id", "timestamp", "signature")}
        if re.fullmatch("[!-~]{1,256}", given["id"]) and re.fullmatch("[0-9]{1,11}", given["timestamp"]) and given["signature"]:
            body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
            request.headers.update(headers(make_secret(), body))
        return request


@every.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_route_answers_as_it_is_described(case: Case, api: Api) -> None:
    if case.meta is not None and case.meta.generation.mode.is_positive:
        case.query.pop("cursor", None)  # only an answer gives one that is right
    response = case.call(base_url=api.url, auth=Sender(), timeout=20)
    excluded = []
    if response.status_code == 422 and any(rule in response.text for rule in BEYOND_SCHEMAS):
        excluded.append(positive_data_acceptance)
    if case.path.endswith("/generic"):
        excluded.append(ignored_auth)  # it counts as without authentication what our own sender has signed
    case.validate_response(response, excluded_checks=excluded)
