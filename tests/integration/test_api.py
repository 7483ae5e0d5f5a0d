"""The ingest API over HTTP: what it stores, what it answers, what it refuses."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import exclusion
from ingest_worker.intake.read import read_content
from ingest_worker.publish import unpublish
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk

ENVELOPE = "application/vnd.docwell+json"


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture(scope="module")
def any_api(module_database: Database) -> Iterator[Api]:
    """For what is refused, or does not look at what is there."""
    with running_api(module_database.url) as found:
        yield found


@pytest.fixture
def api(database: Database) -> Iterator[Api]:
    with running_api(database.url) as found:
        yield found


def _nested(levels: int) -> dict[str, Any]:
    return {"a": _nested(levels - 1)} if levels else {}


def _put(api: Api, path: str, **envelope: Any) -> httpx.Response:
    return api.client.put(f"/v1/documents/{path}", content=json.dumps(envelope), headers={"Content-Type": ENVELOPE})


def _work(corpus: Corpus, **serving: Any) -> bytes:
    """Run the next job as a worker would, but for the parser; returns the bytes that it read."""
    job = corpus.claim()
    document = catalogue.for_job(corpus.connection, job.document_id)
    assert document is not None
    content = read_content(corpus.connection, document, max_bytes=10**9)
    corpus.serve(job, [text_chunk(content.data.decode())], content=content.data, **serving)
    return content.data


def _document(api: Api, document_id: str) -> dict[str, Any]:
    found = api.client.get(f"/v1/documents/by-id/{document_id}")
    assert found.status_code == 200
    return dict(found.json())


def _is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = dict(response.json())
    assert (body["status"], body["code"]) == (status, code), body
    assert {"type", "title", "detail"} <= body.keys()
    return body


def test_a_raw_body_is_stored_with_its_job_before_the_answer(api: Api, corpus: Corpus) -> None:
    response = api.client.put("/v1/documents/team/docs/a%20b/ä.md", content=b"# Hello\n")
    assert response.status_code == 202
    body = response.json()
    assert response.headers["location"] == f"/v1/jobs/{body['job_id']}"
    assert (body["namespace"], body["path"], body["size"], body["status"]) == ("team", "docs/a b/ä.md", 8, "accepted")
    row = corpus.connection.execute("SELECT content, size FROM docwell.pushed_content").fetchone()
    assert row is not None
    assert (zlib.decompress(row[0]), row[1]) == (b"# Hello\n", 8)
    assert api.wakes == [1]
    job = api.client.get(response.headers["location"]).json()
    assert (job["state"], job["path"], job["source"], job["document_id"]) == (
        "queued",
        "docs/a b/ä.md",
        "push",
        body["document_id"],
    )
    assert _work(corpus) == b"# Hello\n"
    assert _document(api, body["document_id"])["state"] == "indexed"


def test_the_same_bytes_and_facts_again_are_answered_with_200(api: Api, corpus: Corpus) -> None:
    first = _put(api, "ns/a.md", content="text", tags=["b", "a"], title="T", metadata={"n": 1}, groups=["eng"])
    again = _put(api, "ns/a.md", content="text", tags=["a", "b", "a"], title="T", metadata={"n": 1}, groups=["eng"])
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == first.json() | {"status": "unchanged"}
    _work(corpus)
    last = api.client.put("/v1/documents/ns/a.md", content=b"text")
    assert last.status_code == 200, "a raw body says nothing of the facts, so they stay"
    assert api.wakes == [1]
    assert _document(api, first.json()["document_id"])["tags"] == ["a", "b"]


def test_bytes_that_another_document_of_the_namespace_has_are_taken_and_told(api: Api, corpus: Corpus) -> None:
    first = api.client.put("/v1/documents/ns/a.md", content=b"same").json()
    assert first["duplicate_of"] is None
    second = api.client.put("/v1/documents/ns/b.md", content=b"same")
    assert (second.status_code, second.json()["duplicate_of"]["path"]) == (202, "a.md")
    assert second.json()["duplicate_of"]["document_id"] == first["document_id"]
    assert api.client.put("/v1/documents/other/a.md", content=b"same").json()["duplicate_of"] is None
    for _ in range(3):
        _work(corpus)
    assert api.client.put("/v1/documents/ns/a.md", content=b"same").json()["duplicate_of"] is None, "it was there first"
    assert api.client.put("/v1/documents/ns/b.md", content=b"same").json()["duplicate_of"]["path"] == "a.md"
    assert _document(api, second.json()["document_id"])["duplicate_of"]["path"] == "a.md"
    assert api.client.put("/v1/documents/ns/b.md", content=b"other").json()["duplicate_of"] is None


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"title": "Other"}, {"title": "Other"}),
        ({"tags": ["z", "y"]}, {"tags": ["y", "z"]}),
        ({"tags": []}, {"tags": []}),
        ({"metadata": {"deep": {"a": [1, None]}}}, {"metadata": {"deep": {"a": [1, None]}}}),
        ({"groups": ["ops", "eng"]}, {"readers": ["group:eng", "group:ops"]}),
        ({"groups": []}, {"readers": None}),
        ({"url": "https://example.org/x"}, {"url": "https://example.org/x"}),
        ({"source_modified": "2026-11-01T00:00:00+01:00"}, {"source_modified": "2026-10-31T23:00:00Z"}),
    ],
)
def test_changed_facts_apply_though_the_bytes_match(
    api: Api, corpus: Corpus, change: dict[str, Any], shown: dict[str, Any]
) -> None:
    sent = {"content": "text", "title": "T", "tags": ["a"], "metadata": {}, "groups": ["eng"], "url": "https://example.org/"}
    document = _put(api, "ns/a.md", **sent).json()["document_id"]
    _work(corpus)
    versions = corpus.connection.execute("SELECT sum(version) FROM docwell.audience").fetchone()
    assert _put(api, "ns/a.md", **sent).status_code == 200
    assert _put(api, "ns/a.md", **sent | change).status_code == 202
    assert corpus.connection.execute("SELECT sum(version) FROM docwell.audience").fetchone() != versions, "caches must notice"
    # The time is that of bytes: it comes with the job.
    if "source_modified" not in change:
        assert shown.items() <= _document(api, document).items()
    _work(corpus)
    assert _put(api, "ns/a.md", **sent | change).status_code == 200


def test_other_readers_move_the_passages_to_another_audience(api: Api, corpus: Corpus) -> None:
    _put(api, "ns/a.md", content="text")
    _work(corpus)
    _put(api, "ns/a.md", content="text", groups=["eng"])
    _work(corpus)
    rows = corpus.connection.execute(
        "SELECT a.readers, a.restricted, a.chunk_count FROM docwell.chunk c JOIN docwell.audience a USING (audience_id)"
    ).fetchall()
    assert rows == [(["group:eng"], False, 1)]


def test_a_title_that_was_given_survives_the_swap_and_goes_when_it_is_taken_away(api: Api, corpus: Corpus) -> None:
    document = _put(api, "ns/a.md", content="one", title="Given").json()["document_id"]
    _work(corpus, title="Parsed")
    assert _document(api, document)["title"] == "Given"
    _put(api, "ns/a.md", content="two")
    _work(corpus, title="Parsed 2")
    assert _document(api, document)["title"] == "Given", "what is left out stays"
    _put(api, "ns/a.md", content="two", title=None)
    assert _document(api, document)["title"] == "Parsed 2"


def test_new_bytes_during_a_run_are_not_lost(api: Api, corpus: Corpus) -> None:
    document = _put(api, "ns/a.md", content="one").json()["document_id"]
    job = corpus.claim()
    assert _put(api, "ns/a.md", content="two").status_code == 202
    corpus.serve(job, [text_chunk("one")], content=b"one")
    assert _document(api, document)["state"] == "queued"
    assert _work(corpus) == b"two"


def test_bytes_that_come_while_the_document_is_deleted_are_not_lost(api: Api, corpus: Corpus) -> None:
    _put(api, "ns/a.md", content="one")
    _work(corpus)
    assert api.client.delete("/v1/documents/ns/a.md").status_code == 202
    job = corpus.claim()
    _put(api, "ns/a.md", content="two")
    assert unpublish(corpus.connection, job)
    assert _work(corpus) == b"two"


def test_a_document_whose_job_died_is_taken_again_with_the_same_bytes(api: Api, corpus: Corpus) -> None:
    _put(api, "ns/a.md", content="one")
    job = corpus.claim()
    corpus.connection.execute("UPDATE docwell.job SET state = 'dead', lease_token = NULL")
    catalogue.record_failure(corpus.connection, job.document_id, state="failed", code="x", reason="x", permanent=True)
    assert _put(api, "ns/a.md", content="one").status_code == 202


def test_a_deleted_document_comes_back_under_its_id(api: Api, corpus: Corpus) -> None:
    document = _put(api, "ns/a.md", content="one", tags=["a"]).json()["document_id"]
    _work(corpus)
    gone = api.client.delete("/v1/documents/ns/a.md")
    assert gone.status_code == 202
    assert gone.headers["location"] == f"/v1/jobs/{gone.json()['job_id']}"
    unpublish(corpus.connection, corpus.claim())
    assert _document(api, document)["state"] == "deleted"
    _is_problem(api.client.delete("/v1/documents/ns/a.md"), 404, "unknown_document")
    back = _put(api, "ns/a.md", content="one")
    assert (back.status_code, back.json()["document_id"]) == (202, document)
    assert _document(api, document)["tags"] == []


def test_an_excluded_document_is_refused(api: Api, corpus: Corpus) -> None:
    document = _put(api, "ns/a.md", content="one").json()["document_id"]
    exclusion.exclude(corpus.connection, uuid.UUID(document))
    _is_problem(_put(api, "ns/a.md", content="two"), 409, "excluded")
    _is_problem(api.client.delete("/v1/documents/ns/a.md"), 409, "excluded")


def test_deleting_what_is_not_there_is_404(api: Api) -> None:
    _is_problem(api.client.delete("/v1/documents/ns/nothing.md"), 404, "unknown_document")


@pytest.mark.parametrize(
    "path",
    [
        "ns/a/%2E%2E/b.md",
        "ns//b.md",
        "ns/%2Fb.md",
        "ns/a/",
        "ns/",
        "ns/%2E/b",
        "ns/a%00b",
        "ns/a%09b",
        "ns/a%0Ab.md",
        "ns/a.md%0A",
        "ns/%FF.md",
        f"ns/{'x' * 1025}",
        "ns/a%5C%5Cb",
    ],
)
def test_a_path_that_cannot_name_a_document_is_refused(any_api: Api, path: str) -> None:
    response = any_api.client.build_request("PUT", "/", content=b"x")
    response.url = httpx.URL(any_api.url).copy_with(raw_path=f"/v1/documents/{path}".encode())
    _is_problem(any_api.client.send(response), 422, "bad_path")


@pytest.mark.parametrize("namespace", ["Upper", "-x", "x" * 64, "a b", "ä", "a%0A", ""])
def test_a_namespace_is_a_plain_name(any_api: Api, namespace: str) -> None:
    _is_problem(any_api.client.put(f"/v1/documents/{namespace}/a.md", content=b"x"), 422, "bad_namespace")


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"content": 5},
        {"content": "x", "colour": "red"},
        {"content": "x", "url": "javascript:alert(1)"},
        {"content": "x", "tags": ["a,b"]},
        {"content": "x", "groups": [""]},
        {"content": "x", "source_modified": "soon"},
        {"content": "x", "metadata": []},
        {"content": "x", "metadata": _nested(21)},
    ],
)
def test_an_envelope_that_does_not_fit_says_where(any_api: Api, envelope: dict[str, Any]) -> None:
    body = _is_problem(_put(any_api, "ns/a.md", **envelope), 422, "invalid")
    assert body["errors"]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"content": "\\ud800"}'])
def test_an_envelope_that_is_no_json_is_400(any_api: Api, raw: bytes) -> None:
    _is_problem(any_api.client.put("/v1/documents/ns/a.md", content=raw, headers={"Content-Type": ENVELOPE}), 400, "bad_json")


def test_characters_that_the_database_cannot_hold_are_cleaned(api: Api, corpus: Corpus) -> None:
    sent = _put(api, "ns/a.md", content="x\0y", title="a\0b\nc", tags=["t\0"], metadata={"k\0": ["v\0"]})
    assert sent.status_code == 202
    shown = _document(api, sent.json()["document_id"])
    assert (shown["title"], shown["tags"], shown["metadata"]) == ("ab c", ["t"], {"k": ["v"]})


def test_a_number_of_many_digits_in_the_metadata_comes_back_as_it_was(api: Api, corpus: Corpus) -> None:
    document_id = _put(api, "ns/a.md", content="text", metadata={"n": 10**30}).json()["document_id"]
    assert _document(api, document_id)["metadata"] == {"n": 10**30}
    assert api.client.get("/v1/documents").json()["documents"][0]["metadata"] == {"n": 10**30}


def test_a_media_type_is_kept_only_where_the_path_tells_nothing(api: Api, corpus: Corpus) -> None:
    for path in ("README", "a.md"):
        api.client.put(f"/v1/documents/ns/{path}", content=b"x", headers={"Content-Type": "text/markdown; charset=utf-8"})
    rows = corpus.connection.execute(
        "SELECT d.path, p.media_type FROM docwell.pushed_content p JOIN docwell.document d USING (document_id) ORDER BY 1"
    ).fetchall()
    assert rows == [("README", "text/markdown"), ("a.md", None)]


def test_a_body_beyond_the_limit_is_413_and_stores_nothing(database: Database, corpus: Corpus) -> None:
    with running_api(database.url, max_bytes=1000) as api:
        assert api.client.put("/v1/documents/ns/a.md", content=b"x" * 1000).status_code == 202
        _is_problem(api.client.put("/v1/documents/ns/b.md", content=b"x" * 1001), 413, "too_large")
        _is_problem(api.client.put("/v1/documents/ns/b.md", content=(b"x" * 600 for _ in range(2))), 413, "too_large")
        _is_problem(_put(api, "ns/b.md", content="x" * 1000), 413, "too_large")
    assert corpus.count("document") == 1


def test_lists_filter_page_and_default_to_a_hundred(api: Api, corpus: Corpus) -> None:
    with corpus.connection.transaction():
        for number in range(103):
            corpus.ask(f"{number:03}.md")
    first = api.client.get("/v1/documents").json()
    rest = api.client.get("/v1/documents", params={"cursor": first["next_cursor"]}).json()
    assert [len(first["documents"]), len(rest["documents"]), rest["next_cursor"]] == [100, 3, None]
    found = api.client.get(
        "/v1/documents", params={"path": "01*.md", "state": "queued", "limit": 1000, "namespace": "default"}
    ).json()
    assert [row["path"] for row in found["documents"]] == [f"01{number}.md" for number in range(10)]
    assert api.client.get("/v1/documents", params={"since": "1h", "source": "inbox", "limit": 1}).json()["documents"]
    assert api.client.get("/v1/documents", params={"since": "2099-01-01"}).json() == {"documents": [], "next_cursor": None}
    jobs = api.client.get("/v1/jobs", params={"limit": 2}).json()
    more = api.client.get("/v1/jobs", params={"limit": 2, "cursor": jobs["next_cursor"]}).json()
    assert [job["path"] for job in [*jobs["jobs"], *more["jobs"]]] == ["102.md", "101.md", "100.md", "099.md"] or len(
        more["jobs"]
    ) == 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid"),
        ("limit=1001", "invalid"),
        ("limit=x", "invalid"),
        ("state=done", "bad_state"),
        ("since=soon", "bad_time"),
        ("cursor=x", "bad_cursor"),
        ("path=%00", "bad_filter"),
    ],
)
def test_a_question_that_does_not_fit_is_422(any_api: Api, query: str, code: str) -> None:
    _is_problem(any_api.client.get(f"/v1/documents?{query}"), 422, code)


def test_versions_and_chunks_of_a_document(api: Api, corpus: Corpus) -> None:
    document = corpus.add("a.md", [text_chunk("one"), text_chunk("two"), text_chunk("three")])
    versions = api.client.get(f"/v1/documents/by-id/{document}/versions").json()
    assert [(one["number"], one["served"], one["chunk_count"]) for one in versions["versions"]] == [(1, True, 3)]
    first = api.client.get(f"/v1/documents/by-id/{document}/chunks", params={"limit": 2}).json()
    rest = api.client.get(f"/v1/documents/by-id/{document}/chunks", params={"cursor": first["next_cursor"]}).json()
    assert [one["text"] for one in [*first["chunks"], *rest["chunks"]]] == ["one", "two", "three"]
    assert first["chunks"][0].keys() >= {"chunk_id", "page_start", "page_end", "section", "line_start", "line_end", "kind"}
    for tail in ("", "/versions", "/chunks"):
        _is_problem(api.client.get(f"/v1/documents/by-id/{uuid.uuid4()}{tail}"), 404, "unknown_document")
        _is_problem(api.client.get(f"/v1/documents/by-id/none{tail}"), 422, "invalid")


def test_jobs_are_retried_and_cancelled_and_say_when_they_cannot(api: Api, corpus: Corpus) -> None:
    job = _put(api, "ns/a.md", content="x").json()["job_id"]
    _is_problem(api.client.post(f"/v1/jobs/{job}/retry"), 409, "job_state")
    cancelled = api.client.post(f"/v1/jobs/{job}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    _is_problem(api.client.post(f"/v1/jobs/{job}/cancel"), 409, "job_state")
    again = api.client.post(f"/v1/jobs/{job}/retry")
    assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (202, "queued", 0)
    assert api.wakes == [1, 1]
    _work(corpus)
    _is_problem(api.client.post(f"/v1/jobs/{job}/retry"), 409, "job_state")
    for action in ("retry", "cancel"):
        _is_problem(api.client.post(f"/v1/jobs/{uuid.uuid4()}/{action}"), 404, "unknown_job")


def test_status_and_metrics_tell_the_same_numbers(api: Api, corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("one"), text_chunk("two")])
    status = api.client.get("/v1/status").json()
    assert (status["documents"]["by_state"]["indexed"], status["chunks"], status["jobs"]["by_state"]["succeeded"]) == (1, 2, 1)
    metrics = api.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    for line in (
        'docwell_documents{state="indexed"} 1.0',
        'docwell_jobs{state="succeeded"} 1.0',
        'docwell_chunks{namespace="default"} 2.0',
        "docwell_jobs_due 0.0",
        "docwell_jobs_oldest_due_seconds 0.0",
    ):
        assert line in metrics.text.splitlines()


def test_unknown_routes_and_methods_are_problems(any_api: Api) -> None:
    _is_problem(any_api.client.get("/v1/nothing"), 404, "no_such_route")
    refused = any_api.client.patch("/v1/documents/ns/a.md")
    _is_problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"]


def test_the_description_and_its_page_need_no_other_host(any_api: Api) -> None:
    description = any_api.client.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/v1/documents",
        "/v1/documents/{namespace}/{path}",
        "/v1/documents/by-id/{document_id}",
        "/v1/documents/by-id/{document_id}/versions",
        "/v1/documents/by-id/{document_id}/chunks",
        "/v1/documents/by-id/{document_id}/chunks/{chunk_id}/thumbnail",
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/retry",
        "/v1/jobs/{job_id}/cancel",
        "/v1/status",
        "/v1/deliveries",
        "/v1/deliveries/{delivery_id}",
        "/v1/webhooks/generic",
        "/v1/webhooks/confluence/{source}",
        "/v1/webhooks/confluence/{source}/{event}",
        "/v1/webhooks/sharepoint/{source}",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    put = description["paths"]["/v1/documents/{namespace}/{path}"]["put"]
    assert set(put["requestBody"]["content"]) == {"application/octet-stream", ENVELOPE}
    assert "HTTPValidationError" not in json.dumps(description)
    page = any_api.client.get("/docs")
    assert page.status_code == 200
    assert "PUT /v1/documents/{namespace}/{path}" in page.text
    assert "http://" not in page.text.replace("http or https", "")
    assert "https://" not in page.text
