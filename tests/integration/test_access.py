"""Who gets in at the MCP server, and that a stranger learns nothing by any way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import httpx
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from infra.local.doors import refuse_open_doors
from ingest_worker.catalogue.credentials import create_token, list_tokens, revoke_token
from query_server.access import Principal
from query_server.authentication import KNOWN_SECONDS, StoredTokens
from query_server.http import make_app, require_tokens
from query_server.rate import RateLimit
from query_server.server import DocwellServer
from query_server.service import SearchService
from shared.config import Settings, load_settings
from shared.credentials import PREFIX, find_credential
from shared.database import connect
from shared.errors import ConfigurationError, PermanentError
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.listening import listening


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        add(found, "open.md", text_chunk("Refunds are paid within five days."))
        add(found, "closed.md", text_chunk("Refunds of the board are secret."), source="board", readers=["group:board"])
        add(found, "other.md", text_chunk("Refunds of another team."), source="team", namespace="team")
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


def _make(corpus: Corpus, name: str, **facts: Any) -> str:
    given: dict[str, Any] = {"scope": "search", "namespaces": None, "names": [], "expires_at": None} | facts
    return create_token(corpus.connection, name, **given)


def _ask(url: str, token: str | None, ask: Callable[[Client], Any]) -> Any:
    async def main() -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with anyio.fail_after(60):
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
            ):
                return await ask(client)

    return anyio.run(main)


def _found(url: str, token: str | None) -> set[str]:
    result = _ask(url, token, lambda client: client.call_tool("search_documents", {"query": "refunds"}))
    return {found["path"] for found in result.structured_content["results"]}


def _status(url: str, token: str) -> int:
    return httpx.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_stored_token_sees_its_namespaces_and_what_its_groups_may_read(corpus: Corpus, service: SearchService) -> None:
    tokens = {
        "plain": _make(corpus, "plain"),
        "board": _make(corpus, "board", names=["group:board"]),
        "team": _make(corpus, "team", namespaces=["team"]),
        "none": _make(corpus, "none", namespaces=["nowhere"]),
        "admin": _make(corpus, "admin", scope="admin", names=None),
    }
    with listening(make_app(service, Settings())) as url:
        assert {name: _found(url, token) for name, token in tokens.items()} == {
            "plain": {"open.md", "other.md"},
            "board": {"open.md", "closed.md", "other.md"},
            "team": {"other.md"},
            "none": set(),
            "admin": {"open.md", "closed.md", "other.md"},
        }


def test_no_secret_is_stored(corpus: Corpus) -> None:
    token = _make(corpus, "plain")
    row = corpus.connection.execute("SELECT t::text FROM docwell.token t").fetchone()
    assert row is not None
    assert token.removeprefix(PREFIX) not in row[0]
    assert [(one.name, one.state) for one in list_tokens(corpus.connection)] == [("plain", "valid")]


def test_tokens_that_do_not_hold_are_refused(corpus: Corpus, service: SearchService, database: Database) -> None:
    revoked, expired = _make(corpus, "revoked"), _make(corpus, "expired")
    ingest = _make(corpus, "ingest", scope="ingest")
    revoke_token(corpus.connection, "revoked")
    corpus.connection.execute("UPDATE docwell.token SET expires_at = now() - interval '1 s' WHERE name = 'expired'")
    with listening(make_app(service, Settings())) as url:
        for token in (revoked, expired, ingest, PREFIX + "made-up", "made-up", "a.b.c"):
            assert _status(url, token) == 401
    assert {one.state for one in list_tokens(corpus.connection)} == {"revoked", "expired", "valid"}
    with pytest.raises(PermanentError, match="There is a token named"):
        _make(corpus, "revoked")
    with pytest.raises(PermanentError, match="no token named"):
        revoke_token(corpus.connection, "nobody")


def test_a_revoked_token_is_forgotten_in_time(corpus: Corpus, database: Database) -> None:
    token = _make(corpus, "plain")
    now = [0.0]
    with connect(database.reader_url, as_reader=True, autocommit=True) as reader:
        find = StoredTokens(lambda given: find_credential(reader, given), clock=lambda: now[0])
        assert find(token) is not None
        revoke_token(corpus.connection, "plain")
        assert find(token) is not None
        now[0] += KNOWN_SECONDS
        assert find(token) is None


def test_the_readers_role_cannot_look_at_the_tokens(corpus: Corpus, database: Database) -> None:
    _make(corpus, "plain")
    with (
        connect(database.reader_url, as_reader=True, autocommit=True) as reader,
        pytest.raises(Exception, match="permission denied"),
    ):
        reader.execute("SELECT * FROM docwell.token")


CALLS: Sequence[tuple[str, dict[str, Any]]] = [
    ("search_documents", {"query": "secret board refunds"}),
    ("search_documents", {"query": "secret board refunds", "mode": "keyword"}),
    ("search_documents", {"query": "secret board refunds", "mode": "semantic"}),
    ("search_documents", {"query": "refunds", "hypothetical_answer": "Refunds of the board are secret."}),
    ("search_documents", {"query": "refunds", "source": "board"}),
    ("search_documents", {"query": "refunds", "path": "closed.md"}),
    ("search_documents", {"query": "refunds", "namespace": "default"}),
    ("list_documents", {}),
    ("list_documents", {"source": "board"}),
    ("index_status", {}),
    ("index_status", {"path": "closed.md"}),
]


def test_a_stranger_walks_through_everything_and_gets_nothing(corpus: Corpus, service: SearchService) -> None:
    """Every tool, resource, cursor and id of somebody who may see it, and what is said is as if there were nothing."""
    board = Principal(name="board", namespaces=None, names=frozenset({"group:board"}))
    seen = service.search("refunds of the board", limit=1, principal=board)
    document = next(one for one in service.list(principal=board)["documents"] if one["path"] == "closed.md")
    ids = {"document_id": document["document_id"]}
    chunk = service.read(**ids, principal=board)["pieces"][0]["chunk_id"]
    stranger = Principal(name="stranger", namespaces=frozenset({"default"}), names=frozenset())
    server = DocwellServer(service, principal=lambda: stranger)
    corpus.connection.execute("UPDATE docwell.source SET sweep_error = 'secret plans.xlsx broke off'")
    assert "secret plans.xlsx" in json.dumps(service.status())

    async def walk() -> None:
        async with Client(server) as client:
            for tool, arguments in CALLS:
                result = await client.call_tool(tool, arguments)
                said = json.dumps(result.structured_content) + result.content[0].text
                told = said.replace(json.dumps(arguments.get("query", "")), "").replace(arguments.get("query", "\0"), "")
                for hidden in (
                    "secret",
                    "closed.md" if arguments.get("path") != "closed.md" else "\0",
                    "team",
                    ids["document_id"],
                ):
                    assert hidden not in told, (tool, arguments)
            for arguments in (ids, {**ids, "chunk_id": chunk}):
                result = await client.call_tool("read_document", arguments)
                assert json.loads(result.content[0].text)["error"]["code"] == "not_found"
            for uri in (f"knowledge://documents/{ids['document_id']}",):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
            sources = await client.read_resource("knowledge://sources")
            assert "board" not in sources.contents[0].text
            again = await client.call_tool(
                "search_documents", {"query": "refunds of the board", "limit": 1, "cursor": seen["next_cursor"]}
            )
            assert "secret" not in json.dumps(again.structured_content or {}) + again.content[0].text
            for tool in (await client.list_tools()).tools:
                assert "team" not in str(tool.description)

    anyio.run(walk)


def test_counts_and_scores_tell_a_stranger_nothing(corpus: Corpus, service: SearchService, database: Database) -> None:
    stranger = Principal(name="stranger", namespaces=frozenset({"default"}), names=frozenset())
    before = service.search("refunds", explain=True, principal=stranger), service.status(principal=stranger)
    for number in range(20):
        add(
            corpus,
            f"closed{number}.md",
            text_chunk(f"Refunds, refunds, secret {number}."),
            source="board",
            readers=["group:board"],
        )
    after = service.search("refunds", explain=True, principal=stranger), service.status(principal=stranger)
    for answer in (*before, *after):
        for name in ("search_id", "_meta"):
            answer.pop(name, None)
        answer.get("explanation", {}).pop("milliseconds", None)
        answer.get("explanation", {}).pop("cache", None)
    assert before == after


# An issuer of our own: its keys over real HTTP on loopback, its tokens signed with them.

ISSUER, AUDIENCE = "https://issuer.example", "https://docs.example.com/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _jwks(_request: Any) -> JSONResponse:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    return JSONResponse({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})


@pytest.fixture
def issuer() -> Iterator[str]:
    with listening(Starlette(routes=[Route("/jwks", _jwks)])) as url:
        yield f"{url}/jwks"


def _claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 60, "scope": "docs.read profile"}
    return {name: value for name, value in (claims | changes).items() if value is not None}


def _signed(key: Any = KEY, kid: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
    return jwt.encode(_claims(**changes), key, algorithm=algorithm, headers={"kid": kid})


def _issued(issuer: str, **more: Any) -> Settings:
    return Settings(mcp_jwks_url=issuer, mcp_issuer=ISSUER, mcp_audience=AUDIENCE, mcp_public_url=AUDIENCE, **more)


def test_an_issuers_token_becomes_its_user_with_its_groups(corpus: Corpus, service: SearchService, issuer: str) -> None:
    with listening(make_app(service, _issued(issuer))) as url:
        assert _found(url, _signed()) == {"open.md", "other.md"}
        assert _found(url, _signed(groups=["board"])) == {"open.md", "closed.md", "other.md"}
    with listening(make_app(service, _issued(issuer, mcp_groups_claim="roles", mcp_namespaces_claim="spaces"))) as url:
        assert _found(url, _signed(roles="board", spaces=["default"])) == {"open.md", "closed.md"}
        assert _found(url, _signed(roles="board")) == set()


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: _signed(iss="https://other.example"), id="another issuer"),
        pytest.param(lambda: _signed(aud="https://other.example"), id="for another server"),
        pytest.param(lambda: _signed(aud=None), id="for no server"),
        pytest.param(lambda: _signed(exp=int(time.time()) - 60), id="expired"),
        pytest.param(lambda: _signed(exp=None), id="without an end"),
        pytest.param(lambda: _signed(sub=None), id="of nobody"),
        pytest.param(lambda: _signed(nbf=int(time.time()) + 600), id="not yet"),
        pytest.param(lambda: _signed(OTHER_KEY), id="another key"),
        pytest.param(lambda: _signed(OTHER_KEY, kid="two"), id="an unknown key"),
        pytest.param(lambda: _signed("a shared secret that is long enough", algorithm="HS256"), id="a shared secret"),
        pytest.param(lambda: jwt.encode(_claims(), None, algorithm="none", headers={"kid": "one"}), id="unsigned"),
        pytest.param(lambda: _signed()[:-4] + "AAAA", id="changed"),
    ],
)
def test_a_token_that_does_not_hold_is_told_where_to_get_one(
    service: SearchService, issuer: str, token: Callable[[], str]
) -> None:
    with listening(make_app(service, _issued(issuer))) as url:
        answer = httpx.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {token()}"})
        assert answer.status_code == 401
        challenge = answer.headers["www-authenticate"]
        assert 'error="invalid_token"' in challenge
        assert 'resource_metadata="https://docs.example.com/.well-known/oauth-protected-resource/mcp"' in challenge


def test_a_token_without_the_scope_is_forbidden_and_told_which(service: SearchService, issuer: str) -> None:
    with listening(make_app(service, _issued(issuer, mcp_required_scopes=("docs.read", "docs.write")))) as url:
        answer = httpx.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {_signed()}"})
        assert answer.status_code == 403
        assert 'error="insufficient_scope", scope="docs.read docs.write"' in answer.headers["www-authenticate"]


def test_the_metadata_stands_on_both_well_known_paths_without_a_token(service: SearchService, issuer: str) -> None:
    """RFC 9728, section 3.1: beside the root, and with the resource's own path."""
    with listening(make_app(service, _issued(issuer, mcp_required_scopes=("docs.read",)))) as url:
        for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
            found = httpx.get(url + path).json()
            assert (found["resource"], found["authorization_servers"]) == (AUDIENCE, [ISSUER])
            assert found["scopes_supported"] == ["docs.read"]
        assert httpx.get(f"{url}/metrics").status_code == 401


def test_an_issuer_that_is_away_is_no_verdict(service: SearchService) -> None:
    with listening(make_app(service, _issued("http://127.0.0.1:9/jwks"))) as url:
        answer = httpx.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {_signed()}"})
        assert (answer.status_code, answer.json()["error"]) == (503, "issuer_unavailable")
        assert int(answer.headers["retry-after"]) > 0


def test_an_issuer_is_configured_whole_or_not_at_all() -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        load_settings({"DOCWELL_MCP_JWKS_URL": "https://issuer.example/jwks"})
    with pytest.raises(ConfigurationError, match="belong together"):
        load_settings({"DOCWELL_MCP_ISSUER": ISSUER, "DOCWELL_MCP_AUDIENCE": AUDIENCE})


def test_an_open_address_is_served_when_somebody_can_get_in(
    database: Database, corpus: Corpus, service: SearchService, issuer: str
) -> None:
    others = Settings(mcp_host="0.0.0.0")  # noqa: S104 - that is the point
    with pytest.raises(ConfigurationError, match="docwell tokens create"):
        require_tokens(others, service.has_tokens)
    with pytest.raises(ConfigurationError, match="docwell tokens create"):
        refuse_open_doors(others, database.url)  # by `docwell up`, before it starts a server
    with pytest.raises(ConfigurationError, match="DOCWELL_API_HOST"):
        refuse_open_doors(Settings(api_host="0.0.0.0"), database.url)  # noqa: S104
    require_tokens(_issued(issuer, mcp_host="0.0.0.0"), service.has_tokens)  # noqa: S104
    _make(corpus, "plain")
    require_tokens(others, service.has_tokens)
    refuse_open_doors(others, database.url)
    with listening(make_app(service, others)) as url:
        assert httpx.post(f"{url}/mcp", json={}).status_code == 401


def test_pages_of_listed_origins_may_ask_and_others_not(corpus: Corpus, service: SearchService) -> None:
    app = make_app(service, Settings(mcp_allowed_origins=("https://app.example.com",), mcp_tokens=(SecretStr("t"),)))
    with listening(app) as url:

        def preflight(origin: str) -> httpx.Response:
            asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            return httpx.options(f"{url}/mcp", headers=asked)

        allowed = preflight("https://app.example.com")
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example.com")
        assert "access-control-allow-origin" not in preflight("https://evil.example").headers
        for origin, status in (("https://app.example.com", 401), ("https://evil.example", 403), ("null", 403)):
            answer = httpx.post(f"{url}/mcp", json={}, headers={"Origin": origin})
            assert answer.status_code == status
        assert "DOCWELL_MCP_ALLOWED_ORIGINS" in answer.text


def test_a_request_that_is_too_large_is_told_the_limit(service: SearchService) -> None:
    with listening(make_app(service, Settings())) as url:
        large = b"x" * 20_000_000
        for body in (large, iter([large[:300_000]])):  # announced, and not
            refused = httpx.post(f"{url}/mcp", content=body, headers={"Content-Type": "application/json"})
            assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (413, "request_too_large")

        async def ask(client: Client) -> None:
            with pytest.raises(MCPError, match="longer than 262,144 bytes"):
                await client.call_tool("search_documents", {"query": "x" * 300_000})

        _ask(url, None, ask)


def test_who_asks_too_often_waits_and_others_do_not(corpus: Corpus, service: SearchService) -> None:
    one, other = _make(corpus, "one"), _make(corpus, "other")
    with listening(make_app(service, Settings(mcp_calls_per_minute=12))) as url:
        answers = [httpx.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {one}"}) for _ in range(4)]
        assert [answer.status_code for answer in answers][2:] == [429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 5
        assert _status(url, other) != 429


def test_the_rate_fills_again() -> None:
    now = [0.0]
    limit = RateLimit(60, clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(10)] == [0.0] * 10
    assert limit.wait("a") == pytest.approx(1.0)
    now[0] += 1
    assert limit.wait("a") == 0.0
    assert limit.wait("a") > 0
    assert RateLimit(0).wait("a") == 0.0
