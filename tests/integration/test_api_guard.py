"""Who may use the ingest API, and what it says when something that it needs is away."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from infra.local.redis import EmbeddedRedis
from ingest_worker.api.guard import check_binding
from ingest_worker.api.serve import listen
from ingest_worker.catalogue.credentials import create_token
from shared.config import Settings
from shared.database import connect
from shared.errors import ConfigurationError, PermanentError
from tests.api import Api, running_api
from tests.conftest import Database
from tests.ports import free_port

ROUTES = ["/v1/documents", "/v1/jobs", "/v1/status", "/metrics", "/docs", "/openapi.json", "/nothing"]


@pytest.fixture(scope="module")
def guarded(module_database: Database) -> Iterator[Api]:
    with running_api(module_database.url, tokens=["first-token", "second-token"]) as found:
        yield found


@pytest.fixture(scope="module")
def open_to_this_machine(module_database: Database) -> Iterator[Api]:
    with running_api(module_database.url) as found:
        yield found


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic first-token", "first-token", "Bearer first-token x"])
def test_without_a_token_every_route_but_the_health_checks_is_closed(guarded: Api, route: str, header: str | None) -> None:
    response = guarded.client.get(route, headers={} if header is None else {"Authorization": header})
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("token", ["first-token", "second-token"])
def test_every_token_opens_all_routes_under_any_name(guarded: Api, token: str) -> None:
    headers = {"Authorization": f"bearer {token}", "Host": "docs.example.org"}
    for route in ROUTES[:-1]:
        assert guarded.client.get(route, headers=headers).status_code == 200
    assert guarded.client.get("/healthz").status_code == 200
    assert guarded.client.get("/readyz").status_code in {200, 503}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1234", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "LOCALHOST"]
)
def test_names_of_this_machine_are_answered(open_to_this_machine: Api, host: str) -> None:
    assert open_to_this_machine.client.get("/v1/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost@evil.example", "[::2]", "", "["]
)
def test_other_names_for_this_machine_are_refused(open_to_this_machine: Api, host: str) -> None:
    response = open_to_this_machine.client.get("/v1/status", headers={"Host": host})
    assert response.status_code in {400, 421}


def test_pages_of_other_hosts_are_refused_and_own_ones_are_not(open_to_this_machine: Api) -> None:
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://localhost:3000", 200)):
        assert open_to_this_machine.client.get("/v1/status", headers={"Origin": origin}).status_code == status


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "docs.example.org"])  # noqa: S104
def test_serving_the_network_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"DOCWELL_API_TOKENS"):
        check_binding(Settings(api_host=host), lambda: False)
    check_binding(Settings(api_host=host, api_tokens=(SecretStr("x"),)), lambda: False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.5.5.5"])
def test_the_loopback_needs_none(host: str) -> None:
    check_binding(Settings(api_host=host), lambda: False)


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(PermanentError, match=r"DOCWELL_API_PORT"):
        listen("127.0.0.1", first.getsockname()[1])


def test_a_full_disk_of_the_database_is_said_and_nothing_is_stored(open_to_this_machine: Api, module_database: Database) -> None:
    with connect(module_database.url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION docwell.full() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END$$"
        )
        connection.execute(
            "CREATE TRIGGER is_full BEFORE INSERT ON docwell.pushed_content FOR EACH ROW EXECUTE FUNCTION docwell.full()"
        )
        try:
            response = open_to_this_machine.client.put("/v1/documents/ns/full.md", content=b"# Full")
        finally:
            connection.execute("DROP FUNCTION docwell.full() CASCADE")
    assert (response.status_code, response.json()["code"]) == (503, "database_full")
    assert open_to_this_machine.client.get("/v1/documents").json()["documents"] == []


def test_without_a_database_everything_is_503_and_says_when_to_come_again(tmp_path: Path) -> None:
    nowhere = f"postgresql://docwell@/docwell?host={tmp_path}"
    with running_api(nowhere, redis_url=f"unix://{tmp_path}/none.sock", wait_seconds=0.2) as api:
        for response in (
            api.client.put("/v1/documents/ns/a.md", content=b"x"),
            api.client.get("/v1/documents"),
            api.client.get("/metrics"),
        ):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "5"
            assert response.json()["code"] == "database_unavailable"
        ready = api.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["checks"] == {"database": "not reachable", "migrations": "not known", "broker": "not reachable"}
        assert api.client.get("/healthz").status_code == 200


def test_ready_means_database_migrations_and_broker(database: Database, home: Path) -> None:
    redis = EmbeddedRedis(home)
    redis.start()
    try:
        with running_api(database.url, redis_url=redis.url) as api:
            assert api.client.get("/readyz").json()["status"] == "ready"
            redis.stop()
            assert api.client.get("/readyz").json()["checks"]["broker"] == "not reachable"
            assert api.client.put("/v1/documents/ns/a.md", content=b"x").status_code == 202, "documents are taken all the same"
    finally:
        redis.stop()


def test_a_database_that_is_not_migrated_is_not_ready(empty_database: Database) -> None:
    with running_api(empty_database.url) as api:
        assert api.client.get("/readyz").json()["checks"]["migrations"] == "schema_missing"


_SERVE = """
import sys
from ingest_worker.api.serve import run_api
from shared.config import load_settings
run_api(load_settings()[0])
"""


def test_the_process_serves_until_it_is_told_to_stop_and_ends_well(database: Database, home: Path) -> None:
    port = free_port()
    environment = {
        "DOCWELL_DATABASE_URL": database.url,
        "DOCWELL_REDIS_URL": "unix:///nowhere/redis.sock",
        "DOCWELL_API_PORT": str(port),
        "PATH": "/usr/bin:/bin",
    }
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE], env=environment, cwd=root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                answer = httpx.put(f"http://127.0.0.1:{port}/v1/documents/ns/a.md", content=b"x", trust_env=False, timeout=30)
                break
            except httpx.ConnectError:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert answer.status_code == 202, "a broker that is away delays nothing"
        assert answer.elapsed.total_seconds() < 10
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def limited(module_database: Database, guarded: Api) -> Iterator[dict[str, str]]:
    """The headers of a token for the namespace `mine` alone."""
    with connect(module_database.url, autocommit=True) as connection:
        connection.execute("DELETE FROM docwell.token")
        token = create_token(connection, "mine", scope="ingest", namespaces=["mine"], names=[], expires_at=None)
        yield {"Authorization": f"Bearer {token}"}


def test_a_stored_token_writes_its_namespaces_and_knows_of_no_other(guarded: Api, limited: dict[str, str]) -> None:
    all_of_it = {"Authorization": "Bearer first-token"}
    client = guarded.client
    mine = client.put("/v1/documents/mine/a.md", content=b"# mine", headers=limited)
    other = client.put("/v1/documents/other/a.md", content=b"# other", headers=all_of_it)
    assert (mine.status_code, other.status_code) == (202, 202)
    for refused in (
        client.put("/v1/documents/other/b.md", content=b"x", headers=limited),
        client.delete("/v1/documents/other/a.md", headers=limited),
        client.get("/v1/documents", headers=limited),
        client.get("/v1/documents", params={"namespace": "other"}, headers=limited),
        client.get("/v1/jobs", headers=limited),
        client.get("/v1/status", headers=limited),
        client.get("/metrics", headers=limited),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    document, job = other.json()["document_id"], other.json()["job_id"]
    nowhere = "00000000-0000-0000-0000-000000000000"
    for method, route, number in (
        ("GET", "/v1/documents/by-id/{}", document),
        ("GET", "/v1/documents/by-id/{}/versions", document),
        ("GET", "/v1/documents/by-id/{}/chunks", document),
        ("GET", "/v1/jobs/{}", job),
        ("POST", "/v1/jobs/{}/retry", job),
        ("POST", "/v1/jobs/{}/cancel", job),
    ):
        hidden, unknown = (client.request(method, route.format(one), headers=limited) for one in (number, nowhere))
        assert hidden.status_code == 404
        assert hidden.text.replace(number, nowhere) == unknown.text
    assert client.get(mine.headers["location"], headers=limited).status_code == 200
    assert client.get("/v1/documents", params={"namespace": "mine"}, headers=limited).json()["documents"][0]["path"] == "a.md"


def test_a_token_for_searching_does_not_write(guarded: Api, module_database: Database) -> None:
    with connect(module_database.url, autocommit=True) as connection:
        token = create_token(connection, "reader", scope="search", namespaces=None, names=[], expires_at=None)
    refused = guarded.client.put("/v1/documents/mine/a.md", content=b"x", headers={"Authorization": f"Bearer {token}"})
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
