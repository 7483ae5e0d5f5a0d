"""The generic webhook: what is stored before it answers, what a replay and a late delivery change, who is refused."""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import structlog

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import exclusion
from ingest_worker.intake.read import read_content
from ingest_worker.publish import unpublish
from shared.config import load_settings
from shared.errors import ConfigurationError
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
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


def _is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = dict(response.json())
    assert (body["status"], body["code"]) == (status, code), body
    return body


def _rows(corpus: Corpus, path: str) -> list[Any]:
    return corpus.connection.execute(
        "SELECT d.state, d.title, d.tags, d.readers, p.content, p.source_modified FROM docwell.document d"
        " LEFT JOIN docwell.pushed_content p USING (document_id) WHERE d.path = %s",
        (path,),
    ).fetchall()


def _text(corpus: Corpus, path: str) -> str:
    ((*_, content, _modified),) = _rows(corpus, path)
    return zlib.decompress(content).decode()


def _serve(corpus: Corpus) -> None:
    """Run the next job as a worker would, but for the parser."""
    job = corpus.claim()
    document = catalogue.for_job(corpus.connection, job.document_id)
    assert document is not None
    content = read_content(corpus.connection, document, max_bytes=10**9)
    corpus.serve(job, [text_chunk(content.data.decode())], content=content.data)


# ---- what is taken


def test_an_event_is_stored_with_its_document_and_job_before_the_answer(api: Api, sender: Sender, corpus: Corpus) -> None:
    response = sender.send(
        path="a/b.md",
        content="# Hello\n",
        title="Greeting",
        tags=["x"],
        groups=["eng"],
        metadata={"k": 1},
        source_modified=EARLIER,
    )
    assert response.status_code == 202, response.text
    answer = response.json()
    assert answer["status"] == "accepted"
    assert response.headers["location"] == f"/v1/jobs/{answer['job_id']}"
    ((state, title, tags, readers, content, modified),) = _rows(corpus, "a/b.md")
    assert (state, title, tags, readers) == ("queued", "Greeting", ["x"], ["group:eng"])
    assert (zlib.decompress(content), modified) == (b"# Hello\n", datetime.fromisoformat(EARLIER))
    assert api.wakes == [1]
    assert corpus.count("delivery") == 1


def test_a_form_brings_bytes_of_any_kind(sender: Sender, corpus: Corpus) -> None:
    raw = bytes(range(256)) * 9000 + b"\r\n--frontie\r\n-- frontier\r\n"
    assert sender.form({"path": "scan", "title": "A scan"}, raw).status_code == 202
    ((_, title, _, _, content, _),) = _rows(corpus, "scan")
    assert (title, zlib.decompress(content)) == ("A scan", raw)
    kind = corpus.connection.execute("SELECT media_type FROM docwell.pushed_content").fetchone()
    assert kind == ("application/pdf",)


def test_while_a_secret_is_changed_both_hold(api: Api, corpus: Corpus) -> None:
    for number, status in ((1, 202), (2, 202), (3, 401)):
        sender = Sender(client=api.client, secret=make_secret(number))
        assert sender.send(path=f"{number}.md", content="text").status_code == status
    assert corpus.count("document") == 2


def test_a_webhook_needs_no_bearer_token_and_comes_under_any_name(api: Api, module_database: Database) -> None:
    body = json.dumps({"action": "delete", "namespace": "team", "path": "none.md"}).encode()
    for one in (api,):
        signed = headers(SECRET, body)
        given = {**signed, "Host": "docs.example.org", "Origin": "https://elsewhere.example"}
        assert one.client.post(ROUTE, content=body, headers=given).status_code == 200
        assert one.client.get("/v1/documents").status_code == 401
    with running_api(module_database.url, webhook_secrets=SECRET) as local:
        given = {**headers(SECRET, body), "Host": "docs.example.org"}
        assert local.client.post(ROUTE, content=body, headers=given).status_code == 200
        assert local.client.get("/v1/documents", headers={"Host": "docs.example.org"}).status_code == 421


def test_changed_readers_apply_though_the_bytes_match_and_silence_keeps_them(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="text", groups=["eng"])
    _serve(corpus)
    assert sender.send(path="a.md", content="text", groups=["eng"]).json()["status"] == "unchanged"
    moved = sender.send(path="a.md", content="text", groups=["hr"])
    assert (moved.status_code, moved.json()["status"]) == (202, "accepted")
    assert sender.send(path="a.md", content="text").json()["status"] == "unchanged"
    assert _rows(corpus, "a.md")[0][3] == ["group:hr"]


def test_a_deletion_goes_its_way_and_one_of_nothing_is_no_error(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="text")
    _serve(corpus)
    gone = sender.send(action="delete", path="a.md")
    assert (gone.status_code, gone.json()["status"]) == (202, "accepted")
    unpublish(corpus.connection, corpus.claim())
    for path in ("a.md", "never.md"):
        again = sender.send(action="delete", path=path)
        assert (again.status_code, again.json()["status"]) == (200, "unchanged")
    assert corpus.count("document") == 1


# ---- replays and order


def test_the_same_delivery_again_changes_nothing_not_even_after_others(api: Api, sender: Sender, corpus: Corpus) -> None:
    first = sender.send(delivery_id="d1", path="a.md", content="one").json()
    sender.send(delivery_id="d2", path="a.md", content="two")
    again = sender.send(delivery_id="d1", path="a.md", content="one")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    assert (again.json()["document_id"], again.json()["job_id"]) == (first["document_id"], first["job_id"])
    assert _text(corpus, "a.md") == "two"
    assert api.wakes == [1, 1]


def test_an_id_that_comes_with_another_body_is_refused(sender: Sender, corpus: Corpus) -> None:
    sender.send(delivery_id="d1", path="a.md", content="one")
    body = _is_problem(sender.send(delivery_id="d1", path="a.md", content="two"), 409, "delivery_id_reused")
    assert "another body" in body["detail"]
    assert _text(corpus, "a.md") == "one"


def test_of_many_equal_deliveries_at_once_one_counts(sender: Sender, corpus: Corpus) -> None:
    statuses: list[str] = []

    def send() -> None:
        statuses.append(sender.send(delivery_id="d1", path="a.md", content="one").json()["status"])

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == ["accepted", *["duplicate"] * 11]
    assert (corpus.count("job"), corpus.count("delivery")) == (1, 1)


def test_what_is_older_than_what_is_stored_changes_nothing(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="new", source_modified=LATER)
    late = sender.send(path="a.md", content="old", source_modified=EARLIER)
    assert (late.status_code, late.json()["status"]) == (200, "superseded")
    late = sender.send(action="delete", path="a.md", source_modified=EARLIER)
    assert (late.status_code, late.json()["status"]) == (200, "superseded")
    assert _text(corpus, "a.md") == "new"
    assert corpus.connection.execute("SELECT kind FROM docwell.job").fetchall() == [("ingest",)]


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_compared_as_what_it_is(sender: Sender) -> None:
    sender.send(path="a.md", content="1", source_modified="2026-11-01T12:00:00")
    assert sender.send(path="a.md", content="2", source_modified="2026-11-01T12:59:00+01:00").json()["status"] == "superseded"
    assert sender.send(path="a.md", content="3", source_modified="2026-11-01T11:30:00-01:00").json()["status"] == "accepted"


@pytest.mark.parametrize("known", [True, False])
def test_what_was_deleted_does_not_come_back_by_a_late_delivery(sender: Sender, corpus: Corpus, known: bool) -> None:
    if known:
        sender.send(path="a.md", content="text", source_modified=EARLIER)
        _serve(corpus)
    sender.send(action="delete", path="a.md", source_modified=LATER)
    if known:
        unpublish(corpus.connection, corpus.claim())
    late = sender.send(path="a.md", content="text", source_modified="2026-11-01T12:00:00Z")
    assert (late.status_code, late.json()["status"]) == (200, "superseded")
    assert _rows(corpus, "a.md")[0][0] == "deleted"
    assert sender.send(path="a.md", content="text", source_modified="2026-11-03T00:00:00Z").json()["status"] == "accepted"
    assert _rows(corpus, "a.md")[0][0] == "queued"


def test_deliveries_of_one_new_document_that_meet_leave_the_newest(sender: Sender, corpus: Corpus) -> None:
    times = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=second) for second in range(16)]

    def send(time: datetime) -> None:
        event = {"path": "a.md", "content": time.isoformat(), "source_modified": time.isoformat()}
        while (status := sender.send(**event).status_code) == 503:
            """The pool of the tests is small: this one comes again, as it is told."""
        assert status in {200, 202}

    threads = [threading.Thread(target=send, args=(time,)) for time in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _text(corpus, "a.md") == times[-1].isoformat()


def test_a_time_far_ahead_is_refused_since_nothing_could_follow_it(sender: Sender) -> None:
    _is_problem(sender.send(path="a.md", content="text", source_modified="2999-01-01T00:00:00Z"), 422, "invalid")


def test_an_excluded_or_erased_document_is_refused_and_the_delivery_may_come_again(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="text")
    _serve(corpus)
    (document_id,) = corpus.connection.execute("SELECT document_id FROM docwell.document").fetchone() or ()
    with corpus.connection.transaction():
        exclusion.exclude(corpus.connection, document_id)
    _is_problem(sender.send(delivery_id="d9", path="a.md", content="new"), 409, "excluded")
    assert sender.send(action="delete", path="a.md").json()["status"] == "unchanged"
    with corpus.connection.transaction():
        exclusion.include(corpus.connection, document_id)
    assert sender.send(delivery_id="d9", path="a.md", content="new").json()["status"] == "accepted"


def test_deliveries_are_forgotten_after_thirty_days(sender: Sender, corpus: Corpus) -> None:
    for name in ("old", "older", "recent"):
        sender.send(delivery_id=name, path="a.md", content="text")
    corpus.connection.execute(
        "UPDATE docwell.delivery SET received_at = now() - interval '31 days' WHERE delivery_id LIKE 'old%'"
    )
    sender.send(delivery_id="new", path="a.md", content="text")
    kept = corpus.connection.execute("SELECT delivery_id FROM docwell.delivery ORDER BY delivery_id").fetchall()
    assert kept == [("new",), ("recent",)]


# ---- what is refused


def test_without_a_secret_nobody_can_be_believed(module_database: Database) -> None:
    with running_api(module_database.url) as api:
        response = Sender(client=api.client).send(path="a.md", content="text")
        assert "DOCWELL_WEBHOOK_SECRETS" in _is_problem(response, 503, "webhook_unconfigured")["detail"]
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
    _is_problem(response, 401, code)
    assert response.headers["www-authenticate"].startswith("Webhook")
    assert SECRET not in response.text


def test_a_body_that_was_changed_on_the_way_is_401_even_if_it_means_the_same(any_api: Api) -> None:
    signed = headers(SECRET, b'{"action": "delete", "namespace": "team", "path": "a.md"}')
    response = any_api.client.post(ROUTE, content=b'{"action":"delete","namespace":"team","path":"a.md"}', headers=signed)
    _is_problem(response, 401, "signature_invalid")


def test_a_stale_delivery_is_refused_though_its_signature_fits(any_api: Api) -> None:
    sender = Sender(client=any_api.client, secret=SECRET)
    _is_problem(sender.send(at=1_700_000_000, path="a.md", content="text"), 401, "timestamp_stale")


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
    _is_problem(Sender(client=any_api.client, secret=SECRET).send(**event), 422, code)


def test_an_address_cannot_be_sent_while_no_host_is_listed(any_api: Api) -> None:
    response = Sender(client=any_api.client, secret=SECRET).send(path="a.md", url="https://example.com/a?sig=s3cret")
    assert "DOCWELL_FETCH_ALLOWED_HOSTS" in _is_problem(response, 403, "fetch_off")["detail"]
    assert "s3cret" not in response.text


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"action": "upsert"', b"nan"])
def test_what_is_no_json_is_400(any_api: Api, body: bytes) -> None:
    _is_problem(Sender(client=any_api.client, secret=SECRET).post(body), 400, "bad_json")


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
    _is_problem(Sender(client=any_api.client, secret=SECRET).post(body, kind=kind), status, code)


def test_too_much_is_413_whether_it_was_announced_or_not(any_api: Api) -> None:
    sender = Sender(client=any_api.client, secret=SECRET)
    _is_problem(sender.send(path="a.md", content="x" * 100_001), 413, "too_large")
    body = b"x" * 1_200_000
    _is_problem(sender.post(body), 413, "too_large")

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    _is_problem(any_api.client.post(ROUTE, content=pieces(), headers=headers(SECRET, body)), 413, "too_large")


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
