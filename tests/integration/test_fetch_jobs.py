"""Documents that a worker fetches from an address, from the event to the index: kept like pushed bytes."""

from __future__ import annotations

import datetime
import hashlib
import http.server
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from ingest_worker.catalogue import erasures, fetches
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.intake.read import Refused
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools, run_job
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from shared.errors import PermanentError
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.delivering import AppliedSender
from tests.fetching import Answer, Site, make_fetcher, serving_site
from tests.hooks import Sender, make_secret


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site() as found:
        yield found


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def api(database: Database, site: Site) -> Iterator[Api]:
    allowed = f"http://docs.example.com:{site.port}"
    with running_api(database.url, webhook_secrets=make_secret(), fetch_allowed_hosts=allowed) as found:
        yield found


@pytest.fixture
def sender(api: Api, corpus: Corpus) -> Sender:
    return AppliedSender(client=api.client, connection=corpus.connection)


def _claim(corpus: Corpus) -> list[jobs.ClaimedJob]:
    return jobs.claim(corpus.connection, worker="test", lease_seconds=60, limit=10)


def _kept(corpus: Corpus, path: str) -> Any:
    row = corpus.connection.execute(
        "SELECT p.content, p.title, p.media_type, p.source_modified FROM docwell.document d"
        " JOIN docwell.pushed_content p USING (document_id) WHERE d.path = %s",
        (path,),
    ).fetchone()
    return None if row is None else (zlib.decompress(row[0]), *row[1:])


def test_an_event_with_an_address_is_stored_and_its_job_fetches(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    site.answers["/a"] = (200, {"Content-Type": "text/markdown"}, b"# Hello")
    answer = sender.send(path="a", url=site.url("/a?sig=s3cret"), title="Greeting", source_modified="2026-11-01T00:00:00Z")
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert site.asked == [], "nothing is fetched while the sender waits"
    claimed = _claim(corpus)
    with open_pool(database.url, name="test") as pool:
        assert fetch_pending(claimed, pool, Settings(), fetcher=make_fetcher(site)) == {}
        assert fetch_pending(claimed, pool, Settings(), fetcher=make_fetcher(site)) == {}
    assert _kept(corpus, "a") == (b"# Hello", "Greeting", "text/markdown", datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC))
    assert (len(site.asked), corpus.count("fetch")) == (1, 0)


def test_an_address_with_a_query_is_shown_to_nobody_and_one_without_is(sender: Sender, corpus: Corpus, site: Site) -> None:
    sender.send(path="a.md", url=site.url("/a?sig=s3cret"))
    sender.send(path="b.md", url=site.url("/b"))
    urls = dict(corpus.connection.execute("SELECT path, url FROM docwell.document").fetchall())
    assert urls == {"a.md": None, "b.md": site.url("/b")}


def test_a_host_that_is_not_listed_is_said_to_the_sender_at_once(sender: Sender, site: Site) -> None:
    for url in ("https://evil.example/a?sig=s3cret", "http://127.0.0.1/a?sig=s3cret"):
        response = sender.send(path="a.md", url=url)
        assert (response.status_code, response.json()["code"]) == (403, "host_not_allowed")
        assert "s3cret" not in response.text


def test_what_could_not_be_fetched_is_told_and_what_was_pushed_before_stays(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    sender.send(path="a.md", content="old")
    sender.send(path="a.md", url=site.url("/gone"))
    sender.send(path="b.md", url=site.url("/b"))
    site.answers["/b"] = (200, {}, b"text")
    claimed = _claim(corpus)
    with open_pool(database.url, name="test") as pool:
        stopped = fetch_pending(claimed, pool, Settings(), fetcher=make_fetcher(site))
    assert [error.code for error in stopped.values()] == ["fetch_status"]
    assert (_kept(corpus, "a.md")[0], _kept(corpus, "b.md")[0]) == (b"old", b"text")
    assert corpus.count("fetch") == 1, "another try fetches again"


def test_bytes_that_are_pushed_while_an_address_is_asked_win(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    def overtaken(handler: http.server.BaseHTTPRequestHandler) -> Answer:
        assert sender.send(path="a.md", content="newer").status_code == 202
        return 200, {}, b"older"

    site.answers["/a"] = overtaken
    sender.send(path="a.md", url=site.url("/a"))
    with open_pool(database.url, name="test") as pool:
        assert fetch_pending(_claim(corpus), pool, Settings(), fetcher=make_fetcher(site)) == {}
    assert _kept(corpus, "a.md")[0] == b"newer"


def test_a_deletion_forgets_the_address(sender: Sender, corpus: Corpus, database: Database, site: Site) -> None:
    sender.send(path="a.md", url=site.url("/a"))
    sender.send(action="delete", path="a.md")
    assert corpus.count("fetch") == 0


def test_erased_bytes_are_not_kept_when_they_are_fetched(sender: Sender, corpus: Corpus, database: Database, site: Site) -> None:
    site.answers["/a"] = (200, {}, b"erased")
    sender.send(path="a.md", url=site.url("/a"))
    with corpus.connection.transaction():
        place = erasures.Place(document_id=corpus.claim().document_id, source="push", namespace="team", path="other.md")
        erasures.block(corpus.connection, place, [hashlib.sha256(b"erased").digest()])
    corpus.connection.execute("UPDATE docwell.job SET state = 'queued', lease_token = NULL, lease_until = NULL")
    with open_pool(database.url, name="test") as pool:
        (error,) = fetch_pending(_claim(corpus), pool, Settings(), fetcher=make_fetcher(site)).values()
    assert isinstance(error, Refused)
    assert (error.code, _kept(corpus, "a.md")) == ("erased", None)


def test_a_fetched_document_goes_all_the_way_and_an_unchanged_one_takes_its_new_title(database: Database, site: Site) -> None:
    embedder = LocalEmbedder(bundled_model_dir())
    site.answers["/a"] = (200, {"Content-Type": "text/markdown"}, b"# Billing\n\nPay on time.\n")
    rule = f"http://127.0.0.1:{site.port}"
    with (
        running_api(database.url, webhook_secrets=make_secret(), fetch_allowed_hosts=rule) as api,
        open_pool(database.url, name="test", autocommit=True) as pool,
        connect(database.url, autocommit=True) as connection,
        ParserCage(CageLimits()) as cage,
    ):
        here = AppliedSender(client=api.client, connection=connection)

        def work(settings: Settings) -> list[JobReport]:
            tools = Tools(settings=settings, pool=pool, cage=cage, embedder=lambda: embedder)
            with pool.connection() as connection:
                claimed = jobs.claim(connection, worker="test", lease_seconds=60)
            return [run_job(job, tools) for job in claimed]

        sent = here.send(path="a", url=site.url("/a", "127.0.0.1"))
        document_url = f"/v1/documents/by-id/{api.client.get(sent.headers['location']).json()['document_id']}"
        with pytest.raises(PermanentError, match="DOCWELL_FETCH_PRIVATE_HOSTS"):
            work(Settings(fetch_allowed_hosts=rule))
        with pool.connection() as connection:
            connection.execute("UPDATE docwell.job SET state = 'queued', lease_token = NULL, lease_until = NULL")
        settings = Settings(fetch_allowed_hosts=rule, fetch_private_hosts=rule)
        assert [report.result for report in work(settings)] == ["indexed"]
        document = api.client.get(document_url).json()
        assert (document["state"], document["title"], document["media_type"]) == ("indexed", "Billing", "text/markdown")

        assert here.send(path="a", url=site.url("/a", "127.0.0.1"), title="How we bill").status_code == 202
        assert [report.result for report in work(settings)] == ["unchanged"]
        document = api.client.get(document_url).json()
        assert (document["state"], document["title"]) == ("indexed", "How we bill")
        with pool.connection() as connection:
            assert fetches.pending(connection, [document["document_id"]]) == []


def test_a_large_document_is_told_as_skipped_with_the_cure(
    sender: Sender, corpus: Corpus, database: Database, site: Site
) -> None:
    site.answers["/a"] = (200, {}, b"x" * 2000)
    sender.send(path="a.md", url=site.url("/a"))
    with open_pool(database.url, name="test") as pool:
        (error,) = fetch_pending(_claim(corpus), pool, Settings(), fetcher=make_fetcher(site, max_bytes=1000)).values()
    assert (error.code, "DOCWELL_MAX_BYTES" in str(error)) == ("too_large", True)
