"""Confluence followed by the engine into a real index: what changes there is seen here, and who may read it.

More seeds of the campaign: `CONFLUENCE_SEEDS=100`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pytest

from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import Tools
from ingest_worker.sources.confluence.storage import to_markdown
from tests.api import running_api
from tests.asking import WordEmbedder
from tests.confluence_following import Followed, Kept, People, follow
from tests.confluence_stand_in import TOKEN, StandIn, confluence
from tests.confluence_wiki import Hands, Thing
from tests.conftest import Database


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, hands: Hands) -> Iterator[StandIn]:
    with confluence(request.param, hands) as listening:
        yield listening


@pytest.fixture
def followed(database: Database, site: StandIn, hands: Hands) -> Iterator[Followed]:
    with follow(database.url, site, hands) as found:
        yield found


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


def key(thing: Thing) -> str:
    return ("att" if thing.kind == "attachment" else "") + str(thing.thing_id)


def kept(followed: Followed, thing: Thing) -> Kept:
    return followed.kept()[key(thing)]


def readers(followed: Followed, thing: Thing) -> set[str]:
    return followed.people(kept(followed, thing).readers)


def test_what_happens_at_the_site_is_seen_in_the_index(followed: Followed, cage: ParserCage) -> None:
    wiki = followed.site.wiki
    tools = Tools(settings=followed.general, pool=followed.pool, cage=cage, embedder=WordEmbedder)
    ann, bob = wiki.person("ann"), wiki.person("bob")
    wiki.group("staff", ann, bob)
    space = wiki.space("ENG")
    home = wiki.page(space, "Home")
    guide = wiki.page(space, "Guide", "<h1>Setup</h1><p>Install the daemon.</p>", parent=home)
    child = wiki.page(space, "Child", "<p>Below the guide.</p>", parent=guide)
    file = wiki.attach(guide, "net.txt", b"The gateway is 10.0.0.1.")
    wiki.events.clear()
    followed.settle()
    assert set(followed.work(tools)) == {"indexed"}

    def passages(word: str) -> list[tuple[str, str, str, list[str]]]:
        return followed.rows(
            """
            SELECT c.text, c.section, d.url, a.readers FROM docwell.document d
            JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            JOIN docwell.audience a ON a.audience_id = c.audience_id WHERE c.text LIKE %s
            """,
            f"%{word}%",
        )

    [(text, section, url, who)] = passages("daemon")
    assert "Install the daemon." in text
    assert section == "Home > Guide > Setup"
    assert url == f"{followed.site.base}/spaces/ENG/pages/{guide.thing_id}/Guide"
    assert who == ["group:staff"]

    wiki.edit(guide, "<h1>Setup</h1><p>Install the service.</p>")
    followed.news()
    followed.work(tools)
    assert passages("daemon") == []
    assert len(passages("service")) == 1

    wiki.attach(guide, "net.txt", b"The gateway is 10.0.0.2.")
    followed.news()
    followed.work(tools)
    assert [row[1] for row in passages("10.0.0.2")] == ["Home > Guide"]

    wiki.restrict(guide, ann.account_id)
    followed.news()
    followed.work(tools)
    for word in ("service", "Below", "10.0.0.2"):
        assert [followed.people(row[3]) for row in passages(word)] == [{ann.account_id}]

    wiki.edit(guide, title="Manual")
    followed.news()
    followed.work(tools)
    assert kept(followed, child).heading == ["Home", "Manual"]
    assert kept(followed, file).path == "ENG/Home/Manual/net.txt"
    assert [row[1] for row in passages("Below")] == ["Home > Manual > Child"]

    wiki.move(guide, None)
    followed.news()
    assert kept(followed, child).path == "ENG/Manual/Child.md"

    wiki.trash(guide)
    followed.news()
    followed.work(tools)
    assert set(followed.kept()) == {key(home), key(child)}
    assert passages("service") == []
    assert readers(followed, child) == {ann.account_id, bob.account_id}

    wiki.restore(guide)
    followed.news()
    followed.changes()
    followed.whole()
    followed.work(tools)
    assert set(followed.kept()) == {key(home), key(child), key(guide), key(file)}
    assert len(passages("service")) == 1
    assert kept(followed, guide).restricted


def test_permissions_that_no_event_told_of_are_found_by_the_whole_look(followed: Followed) -> None:
    wiki = followed.site.wiki
    ann, bob = wiki.person("ann"), wiki.person("bob")
    wiki.group("staff", ann, bob)
    page = wiki.page(wiki.space("ENG"), "Home")
    followed.settle()
    assert readers(followed, page) == {ann.account_id, bob.account_id}
    wiki.restrict(page, bob.account_id)
    wiki.events.clear()
    followed.changes()
    followed.whole()
    assert readers(followed, page) == {bob.account_id}
    wiki.groups["staff"] = {ann.account_id}
    followed.whole()
    assert readers(followed, page) == set()


def test_nothing_is_read_again_when_nothing_has_changed(followed: Followed) -> None:
    wiki = followed.site.wiki
    wiki.group("staff", wiki.person("ann"))
    space = wiki.space("ENG")
    for number in range(5):
        wiki.attach(wiki.page(space, f"Page {number}"), "f.txt", b"1")
    followed.settle()
    followed.site.calls.clear()
    followed.site.media_calls.clear()
    followed.whole()
    assert followed.site.media_calls == []
    assert len(followed.kept()) == 10
    versions = followed.rows("SELECT count(*) FROM docwell.job")
    followed.restart()
    followed.whole()
    assert followed.rows("SELECT count(*) FROM docwell.job") == versions


def test_an_event_that_the_site_sends_goes_through_the_receiver_to_the_index(
    database: Database, site: StandIn, hands: Hands
) -> None:
    wiki = site.wiki
    wiki.group("staff", wiki.person("ann"))
    page = wiki.page(wiki.space("ENG"), "Home", "<p>old</p>")
    account = {"username": "reader@example.com"} if site.deployment == "cloud" else {}
    table = {
        "name": "wiki",
        "type": "confluence",
        "namespace": "wiki",
        "deployment": site.deployment,
        "base_url": site.base,
        "api_token": TOKEN,
        "webhook_secrets": "s3cret",
        **account,
    }
    with (
        follow(database.url, site, hands, webhook_secrets="s3cret") as followed,
        running_api(database.url, sources=[table]) as api,
    ):
        followed.settle()
        wiki.events.clear()
        wiki.edit(page, "<p>new</p>")
        address = "/v1/webhooks/confluence/wiki"
        assert site.send(address, wiki.events[0], secret="wrong", client=api.client).status_code == 401
        assert site.send(address, wiki.events[0], secret="s3cret", client=api.client).status_code == 202
        followed.hands.go(seconds=5)
        followed.settle()
        assert kept(followed, page).sha256 == hashlib.sha256(to_markdown("<p>new</p>", title="Home").encode()).hexdigest()


@pytest.mark.parametrize("seed", range(int(os.environ.get("CONFLUENCE_SEEDS", "2"))))
def test_in_the_end_the_index_is_like_the_site_whatever_failed_and_whatever_was_lost(
    database: Database, site: StandIn, hands: Hands, seed: int
) -> None:
    people = People(site, seed)
    people.work(25)
    with follow(database.url, site, hands) as followed:
        site.routes.most = 5
        for turn in range(3):
            site.fault_rate = 0.08
            followed.hands.go(seconds=100)
            followed.tell(people.shuffled(site.wiki.events)) if turn else None
            site.wiki.events.clear()
            followed.settle()
            people.work(10)
            if turn == 1:
                followed.restart()
            followed.changes()
            people.work(3)
        site.fault_rate = 0.0
        followed.whole()
        followed.approve()
        followed.whole()
        told = followed.kept()
        there = [one for one in site.wiki.things.values() if one.is_there]
        assert set(told) == {key(one) for one in there}
        for thing in there:
            found = told[key(thing)]
            page = thing.parent if thing.kind == "attachment" else thing
            assert page is not None
            assert (found.title, set(found.tags)) == (
                thing.title,
                thing.labels if people.cloud is False or page is thing else set(),
            )
            above = [one.title for one in page.above]
            assert found.heading == (above if page is thing else [*above, page.title])
            assert followed.people(found.readers) == site.wiki.readers_of(thing)
            text = thing.data if thing.kind == "attachment" else to_markdown(thing.body, title=thing.title).encode()
            assert found.sha256 == hashlib.sha256(text).hexdigest()
    assert all("authorization" not in call for call in site.media_calls)
