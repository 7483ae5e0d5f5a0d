"""The webhooks of Confluence and SharePoint: every payload that these send is stored, and nobody else's is."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from shared.database import connect
from tests.api import Api, running_api
from tests.conftest import Database
from tests.folders import eventually
from tests.ports import free_port

ROOT = Path(__file__).parents[2]

WIKI = {
    "name": "wiki",
    "type": "confluence",
    "base_url": "https://wiki.example.com",
    "username": "docs@example.com",
    "api_token": "api-token",
    "webhook_secrets": "old-secret,new-secret",
}
DRIVE = {
    "name": "drive",
    "type": "sharepoint",
    "tenant_id": "contoso.example",
    "client_id": "client",
    "client_secret": "client-secret",
    "drives": "b!x",
    "client_state": "old-state,new-state",
}
SOURCES = [
    WIKI,
    DRIVE,
    {**WIKI, "name": "mute-wiki", "webhook_secrets": ""},
    {**DRIVE, "name": "mute-drive", "client_state": ""},
]


@pytest.fixture(scope="module")
def any_api(module_database: Database) -> Iterator[Api]:
    with running_api(module_database.url, tokens=["t0ken"], sources=SOURCES) as found:
        yield found


@pytest.fixture
def api(database: Database) -> Iterator[Api]:
    with running_api(database.url, tokens=["t0ken"], sources=SOURCES) as found:
        yield found


def _stored(database: Database) -> list[tuple[str, str, Any]]:
    """Source, kind and body of the events, in their order."""
    with connect(database.url) as connection:
        rows = connection.execute(
            "SELECT s.name, e.kind, e.body FROM docwell.event e JOIN docwell.source s USING (source_id) ORDER BY e.event_id"
        ).fetchall()
    return [(name, kind, json.loads(body)) for name, kind, body in rows]


def _is_problem(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"


# ---- Confluence


def _page(**more: Any) -> dict[str, Any]:
    return {"id": "41", "idAsString": "41", "title": "Runbook", "contentType": "page", "version": 2, "spaceKey": "ENG", **more}


def _cloud(**more: Any) -> dict[str, Any]:
    return {"userAccountId": "712020:b", "accountType": "customer", "timestamp": 1788716539192, **more}


CLOUD = {
    "page_created": _cloud(page=_page(version=1)),
    "page_updated": _cloud(updateTrigger="edit_page", suppressNotifications=False, page=_page()),
    "page_trashed": _cloud(page=_page()),
    "page_removed": _cloud(page=_page(timestamp=1)),
    "page_restored": _cloud(page=_page(timestamp=2)),
    "comment_created": _cloud(comment={"id": "7", "contentType": "comment", "parent": _page()}),
    "attachment_created": _cloud(
        attachment={"id": "5", "title": "spec.pdf", "mediaType": "application/pdf", "parent": {"id": "41"}}
    ),
}
NUMERIC = _cloud(updateTrigger="edit_page", page={"id": 41, "title": "Runbook", "contentType": "page", "version": 2})
FORGE = {"eventType": "avi:confluence:updated:page", "atlassianId": "712020:b", "content": {"id": "41", "type": "page"}}
DATA_CENTER = [
    {"timestamp": 1788716539192, "event": "page_created", "userKey": "ff80", "page": {"id": 41}},
    {"timestamp": 1788716539193, "event": "page_removed", "userKey": "ff80", "page": {"id": 41}},
    {"timestamp": 1788716539194, "event": "space_removed", "userKey": "ff80", "space": {"id": 28, "spaceKey": "ENG"}},
]


NEW_SECRET = "new-secret"


def _signed(body: bytes, secret: str = NEW_SECRET) -> dict[str, str]:
    return {"X-Hub-Signature": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def test_each_event_of_cloud_is_stored_with_the_name_in_its_address(api: Api, database: Database) -> None:
    for number, (event, payload) in enumerate(CLOUD.items()):
        token = ("old-secret", "new-secret")[number % 2]
        response = api.client.post(f"/v1/webhooks/confluence/wiki/{event}?token={token}", json=payload)
        assert (response.status_code, response.json()) == (202, {"status": "accepted", "stored": 1})
    for name, other in (("avi:confluence:updated:page", FORGE), ("page_updated", NUMERIC)):
        assert api.client.post(f"/v1/webhooks/confluence/wiki/{name}?token=new-secret", json=other).status_code == 202
    kept = [("wiki", event, payload) for event, payload in CLOUD.items()]
    assert _stored(database) == [*kept, ("wiki", "avi:confluence:updated:page", FORGE), ("wiki", "page_updated", NUMERIC)]


def test_events_of_data_center_are_signed_and_name_themselves(api: Api, database: Database) -> None:
    for payload, secret in zip(DATA_CENTER, ("old-secret", "new-secret", "old-secret"), strict=True):
        body = json.dumps(payload).encode()
        assert api.client.post("/v1/webhooks/confluence/wiki", content=body, headers=_signed(body, secret)).status_code == 202
    assert _stored(database) == [("wiki", "", payload) for payload in DATA_CENTER]


def test_an_event_that_comes_again_is_one_even_after_it_was_looked_at(api: Api, database: Database) -> None:
    body = json.dumps(DATA_CENTER[0]).encode()
    for expected in ("accepted", "duplicate", "duplicate"):
        response = api.client.post("/v1/webhooks/confluence/wiki", content=body, headers=_signed(body))
        assert (response.status_code, response.json()["status"]) == (202, expected)
        with connect(database.url, autocommit=True) as connection:
            connection.execute("UPDATE docwell.event SET state = 'handled'")
    assert len(_stored(database)) == 1


def test_an_event_that_does_not_say_when_is_news_once_its_like_was_looked_at(api: Api, database: Database) -> None:
    for expected in ("accepted", "duplicate", "accepted"):
        response = api.client.post("/v1/webhooks/confluence/wiki?token=new-secret", json=FORGE)
        assert (response.status_code, response.json()["status"]) == (202, expected)
        if expected == "duplicate":
            with connect(database.url, autocommit=True) as connection:
                connection.execute("UPDATE docwell.event SET state = 'handled'")


def test_a_test_of_the_connection_is_answered_and_not_stored(api: Api, database: Database) -> None:
    body = b'{"test": true}'
    for headers in ({}, _signed(body)):
        response = api.client.post("/v1/webhooks/confluence/wiki", content=body, headers=headers)
        assert (response.status_code, response.json()) == (200, {"status": "test", "stored": 0})
    _is_problem(
        api.client.post("/v1/webhooks/confluence/wiki", content=body, headers=_signed(body, "wrong")), 401, "signature_invalid"
    )
    assert _stored(database) == []


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("", {}, "signature_missing"),
        ("?token=", {}, "token_invalid"),
        ("?token=old-secre", {}, "token_invalid"),
        ("?token=old-secret%00", {}, "token_invalid"),
        ("?token=new-secret", {"X-Hub-Signature": "sha256=00"}, "signature_invalid"),
        ("", {"X-Hub-Signature": "sha1=00"}, "signature_invalid"),
    ],
)
def test_who_cannot_prove_to_be_confluence_gets_401(any_api: Api, query: str, headers: dict[str, str], code: str) -> None:
    _is_problem(any_api.client.post(f"/v1/webhooks/confluence/wiki{query}", json=FORGE, headers=headers), 401, code)


# ---- SharePoint


def _item(state: str = "new-state", **more: Any) -> dict[str, Any]:
    return {
        "subscriptionId": "s1",
        "clientState": state,
        "changeType": "updated",
        "resource": "drives/b!x/root",
        "tenantId": "t",
        "subscriptionExpirationDateTime": "2026-12-28T11:00:00Z",
        "resourceData": {"@odata.type": "#Microsoft.Graph.DriveItem"},
        **more,
    }


def _without_state(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "clientState"}


@pytest.mark.parametrize(
    "token", ["abc", "Validation: Testing client application reachability. Id: 5+6&<script>alert(1)</script>"]
)
def test_the_handshake_answers_the_decoded_token_and_nothing_else(any_api: Api, token: str) -> None:
    for name in ("drive", "mute-drive"):
        response = any_api.client.post(
            f"/v1/webhooks/sharepoint/{name}?validationToken={quote(token)}",
            content=b"{no json",
            headers={"Content-Type": "text/plain"},
        )
        assert (response.status_code, response.text) == (200, token)
        assert response.headers["content-type"] == "text/plain"
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("token", ["", "x" * 8193])
def test_a_token_of_no_sensible_length_is_refused(any_api: Api, token: str) -> None:
    _is_problem(any_api.client.post(f"/v1/webhooks/sharepoint/drive?validationToken={token}"), 400, "bad_token")


def test_items_whose_state_fits_are_stored_without_it_and_the_others_dropped(api: Api, database: Database) -> None:
    good, bad = _item(), _item("WRONG", subscriptionId="s2", resource="sites/x/lists/y")
    response = api.client.post("/v1/webhooks/sharepoint/drive", json={"value": [good, bad]})
    assert (response.status_code, response.json()) == (202, {"status": "accepted", "stored": 1})
    response = api.client.post("/v1/webhooks/sharepoint/drive", json={"value": [bad]})
    assert (response.status_code, response.json()) == (202, {"status": "dropped", "stored": 0})
    assert _stored(database) == [("drive", "updated", {"value": [_without_state(good)]})]


def test_lifecycle_events_are_stored_with_their_kind(api: Api, database: Database) -> None:
    for kind in ("missed", "reauthorizationRequired", "subscriptionRemoved"):
        item = {"subscriptionId": "s1", "tenantId": "t", "clientState": "old-state", "lifecycleEvent": kind}
        assert api.client.post("/v1/webhooks/sharepoint/drive", json={"value": [item]}).status_code == 202
    assert [kind for _, kind, _ in _stored(database)] == ["missed", "reauthorizationRequired", "subscriptionRemoved"]


def test_an_equal_notification_is_one_while_it_waits_and_news_afterwards(api: Api, database: Database) -> None:
    """Graph sends equal bodies for different changes."""
    for expected in ("accepted", "duplicate"):
        assert api.client.post("/v1/webhooks/sharepoint/drive", json={"value": [_item()]}).json()["status"] == expected
    with connect(database.url, autocommit=True) as connection:
        connection.execute("UPDATE docwell.event SET state = 'taken'")
    assert api.client.post("/v1/webhooks/sharepoint/drive", json={"value": [_item()]}).json()["status"] == "accepted"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"value": 1}', b"\xff"])
def test_what_is_no_notification_is_400(any_api: Api, body: bytes) -> None:
    assert any_api.client.post("/v1/webhooks/sharepoint/drive", content=body).status_code == 400


# ---- both


@pytest.mark.parametrize(
    "route",
    ["confluence/none", "confluence/drive", "confluence/none/page_created", "sharepoint/wiki", "sharepoint/NO?validationToken=x"],
)
def test_a_source_that_is_not_configured_is_unknown(any_api: Api, route: str) -> None:
    _is_problem(any_api.client.post(f"/v1/webhooks/{route}", json={}), 404, "unknown_connection")


@pytest.mark.parametrize("route", ["confluence/mute-wiki?token=x", "confluence/mute-wiki?token=", "sharepoint/mute-drive"])
def test_a_source_without_a_secret_believes_nobody(any_api: Api, route: str) -> None:
    response = any_api.client.post(f"/v1/webhooks/{route}", json={"value": []})
    _is_problem(response, 503, "webhook_unconfigured")
    assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("route", ["confluence/wiki?token=new-secret", "sharepoint/drive"])
def test_an_event_of_more_than_a_mebibyte_is_413(any_api: Api, route: str) -> None:
    _is_problem(any_api.client.post(f"/v1/webhooks/{route}", content=b" " * (1024 * 1024 + 1)), 413, "too_large")


def test_a_source_that_a_person_took_out_takes_no_events(api: Api, database: Database) -> None:
    assert api.client.post("/v1/webhooks/confluence/wiki?token=new-secret", json=FORGE).status_code == 202
    with connect(database.url, autocommit=True) as connection:
        connection.execute("UPDATE docwell.source SET removed_at = now()")
    _is_problem(api.client.post("/v1/webhooks/confluence/wiki?token=new-secret", json=NUMERIC), 404, "unknown_connection")


def test_a_token_in_an_address_reaches_no_log_of_the_api(database: Database, redis_url: str, tmp_path: Path) -> None:
    """The real process, at its most talkative."""
    config = tmp_path / "docwell.toml"
    table = "\n".join(f"{name} = {json.dumps(value)}" for name, value in WIKI.items())
    config.write_text(f"[[sources]]\n{table}\n")
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    environment = kept | {
        "PYTHONPATH": str(ROOT),
        "DOCWELL_CONFIG": str(config),
        "DOCWELL_HOME": str(tmp_path),
        "DOCWELL_DATABASE_URL": database.url,
        "DOCWELL_REDIS_URL": redis_url,
        "DOCWELL_API_PORT": str(port),
        "DOCWELL_LOG_LEVEL": "debug",
    }
    log = tmp_path / "api.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "infra.cli", "api"], env=environment, cwd=ROOT, stdout=output, stderr=output
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            eventually(lambda: "api_listening" in log.read_text(), within=60)
            for token, status in (("new-secret", 202), ("wrong-secret", 401)):
                url = f"/v1/webhooks/confluence/wiki/page_updated?token={token}"
                assert client.post(url, json=CLOUD["page_updated"]).status_code == status
            client.post("/v1/webhooks/sharepoint/none?validationToken=a-secret", content=b"")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    assert "secret" not in log.read_text()
