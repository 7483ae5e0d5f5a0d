"""The generic webhook: what is stored before it answers, what it comes to, and who is refused."""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from ingest_worker.intake.applying import apply_due
from ingest_worker.publish import unpublish
from shared.config import load_settings
from shared.errors import ConfigurationError
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.delivering import is_problem, outcome, rows, serve, text
from tests.hooks import Sender, form, headers, make_secret

SECRET = make_secret()
ROUTE = "/v1/webhooks/generic"
EARLIER, LATER = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def api(database: Database) -> Iterator[Api]:
    """Closed to whoever has no token, as on a network."""
    with running_api(database.url, tokens=["t0ken"], webhook_secrets=f"{SECRET},{make_secret(2)}") as found:
        yield found


@pytest.fixture
def sender(api: Api) -> Sender:
    return Sender(client=api.client, secret=SECRET)


@pytest.fixture(scope="module")
def any_api(module_database: Database) -> Iterator[Api]:
    """For what is refused."""
    with running_api(module_database.url, webhook_secrets=SECRET, max_bytes=100_000) as found:
        yield found


# ---- what is taken


def test_an_event_is_stored_with_all_that_it_brings_before_the_answer_and_applied_after_it(
    api: Api, sender: Sender, corpus: Corpus
) -> None:
    response = sender.send(
        delivery_id="a/b?c%",
        path="a/b.md",
        content="# Hello\n",
        title="Greeting",
        tags=["x"],
        groups=["eng"],
        metadata={"k": 1},
        source_modified=EARLIER,
    )
    assert response.status_code == 202, response.text
    assert response.json() == {
        "delivery_id": "a/b?c%",
        "status": "accepted",
        "document_id": None,
        "job_id": None,
        "namespace": "team",
        "path": "a/b.md",
    }
    assert (corpus.count("delivery"), corpus.count("document")) == (1, 0)
    known = {"Authorization": "Bearer t0ken"}
    assert api.client.get(response.headers["location"]).status_code == 401
    assert api.client.get(response.headers["location"], headers=known).json()["status"] == "waiting"

    wakes: list[int] = []
    assert apply_due(corpus.connection, wakes.append) == 1
    told = api.client.get(response.headers["location"], headers=known).json()
    assert (told["status"], told["path"], told["reason"]) == ("accepted", "a/b.md", None)
    assert corpus.connection.execute("SELECT job_id::text FROM docwell.job").fetchall() == [(told["job_id"],)]
    assert wakes == [1]
    ((state, title, tags, readers, content, modified),) = rows(corpus, "a/b.md")
    assert (state, title, tags, readers) == ("queued", "Greeting", ["x"], ["group:eng"])
    assert (zlib.decompress(content), modified) == (b"# Hello\n", datetime.fromisoformat(EARLIER))
    kept = corpus.connection.execute("SELECT facts, content, fetch_url FROM docwell.delivery").fetchall()
    assert kept == [(None, None, None)], "what it brought is in the document now"


def test_deliveries_that_come_at_once_are_stored_together_and_applied_in_their_order(
    api: Api, sender: Sender, corpus: Corpus
) -> None:
    def send(number: int) -> None:
        for content in ("one", "two"):
            assert sender.send(path=f"{number}.md", content=content).status_code == 202

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while apply_due(corpus.connection, lambda _: None):
        """Until none is due."""
    assert {text(corpus, f"{number}.md") for number in range(20)} == {"two"}


def test_a_form_brings_bytes_of_any_kind(sender: Sender, corpus: Corpus) -> None:
    raw = bytes(range(256)) * 9000 + b"\r\n--frontie\r\n-- frontier\r\n"
    assert outcome(corpus, sender.form({"path": "scan", "title": "A scan"}, raw)) == "accepted"
    ((_, title, _, _, content, _),) = rows(corpus, "scan")
    assert (title, zlib.decompress(content)) == ("A scan", raw)
    kind = corpus.connection.execute("SELECT media_type FROM docwell.pushed_content").fetchone()
    assert kind == ("application/pdf",)


def test_while_a_secret_is_changed_both_hold(api: Api, corpus: Corpus) -> None:
    for number, status in ((1, 202), (2, 202), (3, 401)):
        sender = Sender(client=api.client, secret=make_secret(number))
        assert sender.send(path=f"{number}.md", content="text").status_code == status
    assert corpus.count("delivery") == 2


def test_a_webhook_needs_no_bearer_token_and_comes_under_any_name(api: Api, module_database: Database) -> None:
    body = json.dumps({"action": "delete", "namespace": "team", "path": "none.md"}).encode()
    for one in (api,):
        signed = headers(SECRET, body)
        given = {**signed, "Host": "docs.example.org", "Origin": "https://elsewhere.example"}
        assert one.client.post(ROUTE, content=body, headers=given).status_code == 202
        assert one.client.get("/v1/documents").status_code == 401
    with running_api(module_database.url, webhook_secrets=SECRET) as local:
        given = {**headers(SECRET, body), "Host": "docs.example.org"}
        assert local.client.post(ROUTE, content=body, headers=given).status_code == 202
        assert local.client.get("/v1/documents", headers={"Host": "docs.example.org"}).status_code == 421


def test_changed_readers_apply_though_the_bytes_match_and_silence_keeps_them(sender: Sender, corpus: Corpus) -> None:
    outcome(corpus, sender.send(path="a.md", content="text", groups=["eng"]))
    serve(corpus)
    assert outcome(corpus, sender.send(path="a.md", content="text", groups=["eng"])) == "unchanged"
    assert outcome(corpus, sender.send(path="a.md", content="text", groups=["hr"])) == "accepted"
    assert outcome(corpus, sender.send(path="a.md", content="text")) == "unchanged"
    assert rows(corpus, "a.md")[0][3] == ["group:hr"]


def test_a_deletion_goes_its_way_and_one_of_nothing_is_no_error(sender: Sender, corpus: Corpus) -> None:
    outcome(corpus, sender.send(path="a.md", content="text"))
    serve(corpus)
    assert outcome(corpus, sender.send(action="delete", path="a.md")) == "accepted"
    unpublish(corpus.connection, corpus.claim())
    for path in ("a.md", "never.md"):
        assert outcome(corpus, sender.send(action="delete", path=path)) == "unchanged"
    assert corpus.count("document") == 1


# ---- what is refused


def test_a_time_far_ahead_is_refused_since_nothing_could_follow_it(sender: Sender) -> None:
    is_problem(sender.send(path="a.md", content="text", source_modified="2999-01-01T00:00:00Z"), 422, "invalid")


def test_without_a_secret_nobody_can_be_believed(module_database: Database) -> None:
    with running_api(module_database.url) as api:
        response = Sender(client=api.client).send(path="a.md", content="text")
        assert "DOCWELL_WEBHOOK_SECRETS" in is_problem(response, 503, "webhook_unconfigured")["detail"]
        assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"webhook-signature": ""}, "signature_missing"),
        ({"webhook-id": "other"}, "signature_invalid"),
        ({"webhook-signature": "v1,AAAA"}, "signature_malformed"),
        ({"webhook-timestamp": "1700000000"}, "timestamp_stale"),
        ({"webhook-timestamp": "now"}, "signature_malformed"),
    ],
)
def test_who_cannot_prove_who_they_are_gets_401(any_api: Api, change: dict[str, str], code: str) -> None:
    body = b'{"action": "delete", "namespace": "team", "path": "a.md"}'
    response = any_api.client.post(ROUTE, content=body, headers=headers(SECRET, body) | change)
    is_problem(response, 401, code)
    assert response.headers["www-authenticate"].startswith("Webhook")
    assert SECRET not in response.text


def test_a_body_that_was_changed_on_the_way_is_401_even_if_it_means_the_same(any_api: Api) -> None:
    signed = headers(SECRET, b'{"action": "delete", "namespace": "team", "path": "a.md"}')
    response = any_api.client.post(ROUTE, content=b'{"action":"delete","namespace":"team","path":"a.md"}', headers=signed)
    is_problem(response, 401, "signature_invalid")


def test_a_stale_delivery_is_refused_though_its_signature_fits(any_api: Api) -> None:
    sender = Sender(client=any_api.client, secret=SECRET)
    is_problem(sender.send(at=1_700_000_000, path="a.md", content="text"), 401, "timestamp_stale")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"path": "a.md"}, "no_content"),
        ({"path": "a.md", "content": None}, "no_content"),
        ({"path": "../a.md", "content": "x"}, "bad_path"),
        ({"path": "/a.md", "content": "x"}, "bad_path"),
        ({"path": "", "content": "x"}, "invalid"),
        ({"content": "x"}, "invalid"),
        ({"path": "a.md", "content": "x", "namespace": "No Good"}, "invalid"),
        ({"path": "a.md", "content": "x", "action": "replace"}, "invalid"),
        ({"path": "a.md", "content": "x", "surprise": 1}, "invalid"),
        ({"path": "a.md", "content": 7}, "invalid"),
        ({"path": "a.md", "content": "x", "source_modified": "yesterday"}, "invalid"),
        ({"path": "a.md", "url": "ftp://example.com/a"}, "invalid"),
    ],
)
def test_an_event_that_does_not_fit_says_what_is_wrong(any_api: Api, event: dict[str, Any], code: str) -> None:
    is_problem(Sender(client=any_api.client, secret=SECRET).send(**event), 422, code)


def test_an_address_cannot_be_sent_while_no_host_is_listed(any_api: Api) -> None:
    response = Sender(client=any_api.client, secret=SECRET).send(path="a.md", url="https://example.com/a?sig=s3cret")
    assert "DOCWELL_FETCH_ALLOWED_HOSTS" in is_problem(response, 403, "fetch_off")["detail"]
    assert "s3cret" not in response.text


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"action": "upsert"', b"nan"])
def test_what_is_no_json_is_400(any_api: Api, body: bytes) -> None:
    is_problem(Sender(client=any_api.client, secret=SECRET).post(body), 400, "bad_json")


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (form({"path": "a.pdf"}, b"x"), "multipart/form-data", 400, "bad_form"),
        (form({"path": "a.pdf"}, b"x"), "multipart/form-data; boundary=other", 400, "bad_form"),
        (form({"path": "a.pdf"}, b"x")[:-6], "multipart/form-data; boundary=frontier", 400, "bad_form"),
        (form(None, b"x"), "multipart/form-data; boundary=frontier", 422, "no_event"),
        (form({"path": "a.pdf"}, None), "multipart/form-data; boundary=frontier", 422, "no_content"),
        (form({"path": "a.md", "content": "x"}, b"x"), "multipart/form-data; boundary=frontier", 422, "two_contents"),
        (form({"path": "a"}, b"x").replace(b'"event"', b'"other"'), "multipart/form-data; boundary=frontier", 422, "bad_form"),
        (form({"path": "a.pdf"}, b"x" * 100_001), "multipart/form-data; boundary=frontier", 413, "too_large"),
        (b"", "multipart/form-data; boundary=frontier", 400, "bad_form"),
    ],
)
def test_a_form_that_does_not_fit_says_what_is_wrong(any_api: Api, body: bytes, kind: str, status: int, code: str) -> None:
    is_problem(Sender(client=any_api.client, secret=SECRET).post(body, kind=kind), status, code)


def test_too_much_is_413_whether_it_was_announced_or_not(any_api: Api) -> None:
    sender = Sender(client=any_api.client, secret=SECRET)
    is_problem(sender.send(path="a.md", content="x" * 100_001), 413, "too_large")
    body = b"x" * 1_200_000
    is_problem(sender.post(body), 413, "too_large")

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    is_problem(any_api.client.post(ROUTE, content=pieces(), headers=headers(SECRET, body)), 413, "too_large")


def test_a_secret_that_cannot_be_one_stops_the_start_and_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="webhook secret") as error:
        load_settings({"DOCWELL_WEBHOOK_SECRETS": "whsec_hunter2!"})
    assert "hunter2" not in str(error.value)


def test_neither_secrets_nor_signatures_nor_texts_reach_the_log(
    any_api: Api, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with caplog.at_level(logging.DEBUG):
        sender = Sender(client=any_api.client, secret=SECRET)
        sender.send(path="a.md", content="s3cret text", title="s3cret title")
        body = b'{"s3cret": 1}'
        any_api.client.post(f"{ROUTE}?token=s3cret", content=body, headers=headers(make_secret(5), body))
    # The test's own client, and the access log, which is off but that pytest listens to it.
    others = ("httpx", "httpcore", "uvicorn.access")
    said = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith(others))
    said += "".join(capsys.readouterr())
    for word in ("s3cret", SECRET, SECRET.removeprefix("whsec_"), "v1,"):
        assert word not in said
