"""Confluence as a source, asked over real HTTP: Cloud and Data Center give the same items."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.protocol import Listens, Source, Trees
from shared.errors import PermanentError
from tests.confluence_asking import Office, event, listed, opened
from tests.confluence_stand_in import StandIn
from tests.confluence_wiki import START, Hands


def test_it_is_a_source_that_listens_and_knows_what_is_below(site: StandIn, client: httpx.Client, hands: Hands) -> None:
    source = opened(site, client, hands)
    assert isinstance(source, Source)
    assert isinstance(source, Listens)
    assert isinstance(source, Trees)


def test_a_page_is_told_with_its_place_its_address_and_its_readers(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.wiki.label(office.guide, "howto", "ops")
    item = listed(opened(site, client, hands).everything())[str(office.guide.thing_id)]
    assert (item.title, item.path, item.heading) == ("Guide", "ENG/Home/Guide.md", ("Home",))
    assert item.url == f"{site.base}/spaces/ENG/pages/{office.guide.thing_id}/Guide"
    assert (item.tags, item.readers, item.media_type) == (("howto", "ops"), ("group:staff",), "text/markdown")
    assert item.source_modified == START
    assert dict(item.metadata) == {
        "id": item.key,
        "type": "page",
        "space": "ENG",
        "space_name": "Eng",
        "version": 1,
    }


def test_a_single_look_says_the_same_as_the_whole_listing(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.wiki.attach(office.deep, "plan.txt", b"plan")
    site.wiki.restrict(office.guide, office.ann.account_id)
    site.wiki.page(office.space, "News", kind="blogpost")
    source = opened(site, client, hands)
    everything = listed(source.everything())
    assert len(everything) == 5
    assert {key: source.find(key) for key in everything} == everything
    hands.go(minutes=1)
    assert listed(source.changes((hands.now - timedelta(minutes=1)).isoformat())) == everything


def test_the_cursor_was_taken_before_the_listing_began(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    site.before = lambda _: hands.go(seconds=30)
    *_, last = opened(site, client, hands).everything()
    assert last.cursor == START.isoformat()


def test_many_pages_come_page_by_page_and_each_once(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    site.routes.most = 7
    made = {str(site.wiki.page(office.space, f"Page {number}").thing_id) for number in range(40)}
    batches = list(opened(site, client, hands).everything())
    assert max(len(batch.items) for batch in batches) <= 7
    keys = [item.key for batch in batches for item in batch.items]
    assert made < set(keys)
    assert len(keys) == 43


def test_pages_that_go_while_they_are_listed_hide_no_other(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    """Pages by number of first result move up when one before them goes."""
    site.routes.most = 20
    pages = [site.wiki.page(office.space, f"Page {number}") for number in range(60)]
    calls = 0

    def trash(path: str) -> None:
        nonlocal calls
        calls += path.endswith(("/rest/api/content", "/pages"))
        if calls == 3:
            for page in pages[:15]:
                page.status = "trashed"

    if site.deployment == "data_center":
        site.before = trash
    found = listed(opened(site, client, hands).everything())
    assert {str(page.thing_id) for page in pages[15:]} <= set(found)


def test_results_that_come_twice_and_cursors_that_lead_in_circles_do_no_harm(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.routes.most = 5
    for number in range(12):
        site.wiki.page(office.space, f"Page {number}")
    site.repeat = True
    assert len(listed(opened(site, client, hands).everything())) == 15


def test_blog_posts_have_their_day_and_can_be_left_out(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    post = site.wiki.page(office.space, "News", "<p>Hi</p>", kind="blogpost")
    source = opened(site, client, hands)
    item = listed(source.everything())[str(post.thing_id)]
    assert item.path == "ENG/blog/2026-11-02/News.md"
    assert source.read(item, max_bytes=1000) == b"# News\n\nHi\n"
    without = opened(site, client, hands, blogs=False)
    assert item.key not in listed(without.everything())
    assert without.find(item.key) is None


def test_an_attachment_is_a_document_below_its_page_for_its_readers(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    file = site.wiki.attach(office.guide, "net plan.txt", b"10.0.0.1", "text/plain")
    site.wiki.restrict(office.guide, "group:staff", office.ann.account_id)
    source = opened(site, client, hands)
    item = listed(source.everything())[f"att{file.thing_id}"]
    assert (item.path, item.heading, item.size, item.media_type) == (
        "ENG/Home/Guide/net plan.txt",
        ("Home", "Guide"),
        8,
        "text/plain",
    )
    page = source.find(str(office.guide.thing_id))
    assert page is not None
    assert item.readers == page.readers
    assert item.url is not None
    assert item.url.startswith(site.base + "/pages/viewpageattachments.action")
    before = item.content
    site.wiki.attach(office.guide, "net plan.txt", b"10.0.0.2")
    again = source.find(item.key)
    assert again is not None
    assert again.content != before
    assert source.read(again, max_bytes=100) == b"10.0.0.2"
    site.wiki.trash(office.guide)
    assert source.find(item.key) is None
    with pytest.raises(Gone):
        source.read(item, max_bytes=100)


def test_credentials_do_not_go_to_the_host_of_the_media(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    file = site.wiki.attach(office.guide, "a.txt", b"data")
    source = opened(site, client, hands)
    item = source.find(f"att{file.thing_id}")
    assert item is not None
    assert source.read(item, max_bytes=100) == b"data"
    assert [("authorization" in call, "cookie" in call) for call in site.media_calls] == [(False, False)]


def test_what_is_larger_than_the_limit_is_refused(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    file = site.wiki.attach(office.guide, "big.txt", b"x" * 5000)
    source = opened(site, client, hands)
    item = source.find(f"att{file.thing_id}")
    assert item is not None
    with pytest.raises(Refused, match="max_bytes"):
        source.read(item, max_bytes=4999)
    file.data = b"x" * 6000  # larger than it was told to be
    with pytest.raises(Refused):
        source.read(item, max_bytes=5500)
    page = source.find(str(office.guide.thing_id))
    assert page is not None
    with pytest.raises(Refused):
        source.read(page, max_bytes=10)


def test_a_page_is_markdown_with_the_names_of_those_it_mentions(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    person = f'ri:account-id="{office.ann.account_id}"' if office.cloud else f'ri:userkey="{office.ann.key}"'
    unknown = 'ri:account-id="712020:nobody"' if office.cloud else 'ri:userkey="nobody"'
    body = f"<p>Ask <ac:link><ri:user {person}/></ac:link> or <ac:link><ri:user {unknown}/></ac:link></p>"
    site.wiki.edit(office.guide, body)
    source = opened(site, client, hands)
    item = source.find(str(office.guide.thing_id))
    assert item is not None
    assert source.read(item, max_bytes=1000).decode() == "# Guide\n\nAsk @Ann or @(name not shown)\n"
    site.fault("error", "/user", times=9, status=403)
    fresh = opened(site, client, hands)
    assert b"@(name not shown)" in fresh.read(item, max_bytes=1000)


def test_what_is_trashed_or_archived_is_gone_and_comes_back_when_restored(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    source = opened(site, client, hands)
    key = str(office.deep.thing_id)
    for leave in (site.wiki.trash, site.wiki.archive) if office.cloud else (site.wiki.trash,):
        leave(office.deep)
        assert source.find(key) is None
        assert key not in listed(source.everything())
        site.wiki.restore(office.deep)
        assert source.find(key) is not None
    site.wiki.trash(office.deep)
    site.wiki.purge(office.deep)
    assert source.find(key) is None


def test_a_move_changes_the_place_and_not_the_content(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    source = opened(site, client, hands)
    before = source.find(str(office.deep.thing_id))
    site.wiki.move(office.guide, None)
    source.interpret(event(site))
    after = source.find(str(office.deep.thing_id))
    assert before is not None
    assert after is not None
    assert (after.path, after.heading) == ("ENG/Guide/Deep ∕ down.md", ("Guide",))
    assert after.content == before.content
    assert after.facts != before.facts


def test_only_the_spaces_of_the_settings_are_taken(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    other = site.wiki.page(site.wiki.space("OPS"), "Other")
    mine = site.wiki.page(site.wiki.space("~ann", kind="personal"), "Mine")
    old = site.wiki.space("OLD")
    gone = site.wiki.page(old, "Old")
    site.wiki.archive_space(old)

    def keys(**more: Any) -> set[str]:
        source = opened(site, client, hands, **more)
        found = set(listed(source.everything()))
        for one in (other, mine, gone):
            assert (source.find(str(one.thing_id)) is not None) == (str(one.thing_id) in found)
        return found & {str(one.thing_id) for one in (other, mine, gone)}

    assert keys() == {str(other.thing_id)}
    assert keys(personal_spaces=True) == {str(other.thing_id), str(mine.thing_id)}
    assert keys(spaces=["ENG"]) == set()
    assert keys(spaces=["ENG", "~ann"]) == {str(mine.thing_id)}


def test_spaces_of_the_settings_that_are_not_there_are_an_error_when_it_is_all_of_them(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    assert listed(opened(site, client, hands, spaces=["ENG", "NONE"]).everything())
    with pytest.raises(PermanentError, match="NONE"):
        listed(opened(site, client, hands, spaces=["NONE"]).everything())
