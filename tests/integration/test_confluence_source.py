"""Confluence as a source, asked over real HTTP: Cloud and Data Center give the same items."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.confluence import ConfluenceSource, open_source
from ingest_worker.sources.pace import Limiter, make_client
from ingest_worker.sources.protocol import Batch, CursorExpired, Event, Hint, Item, Listens, Source, Trees
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError
from tests.confluence_stand_in import TOKEN, StandIn, confluence
from tests.confluence_v1 import DataCenterRoutes
from tests.confluence_wiki import START, Hands, Person, StandInSpace, Thing


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, hands: Hands) -> Iterator[StandIn]:
    with confluence(request.param, hands) as listening:
        yield listening


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client() as opened:
        yield opened


class Office:
    """A site with people, a space, and some pages."""

    def __init__(self, site: StandIn) -> None:
        wiki = site.wiki
        self.ann, self.bob, self.eve = (wiki.person(name) for name in ("ann", "bob", "eve"))
        wiki.group("staff", self.ann, self.bob)
        wiki.group("hr", self.ann, self.eve)
        self.space: StandInSpace = wiki.space("ENG")
        self.home: Thing = wiki.page(self.space, "Home")
        self.guide: Thing = wiki.page(self.space, "Guide", "<h1>Setup</h1><p>Install it.</p>", parent=self.home)
        self.deep: Thing = wiki.page(self.space, "Deep / down", parent=self.guide)
        self.cloud = site.deployment == "cloud"

    def user(self, person: Person) -> str:
        return f"user:{person.account_id if self.cloud else person.name}"


@pytest.fixture
def office(site: StandIn) -> Office:
    return Office(site)


def opened(site: StandIn, client: httpx.Client, hands: Hands, **more: Any) -> ConfluenceSource:
    return open_source(site.settings(**more), client=client, clock=hands)


def listed(stream: Iterator[Batch]) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for batch in stream:
        found |= {item.key: item for item in batch.items}
    return found


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


# --- which spaces


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


# --- who may read


def readers(source: ConfluenceSource, thing: Thing) -> tuple[str, ...] | None:
    found = source.find(str(thing.thing_id))
    assert found is not None
    return found.readers


def test_restrictions_of_ancestors_hold_below_them_and_never_widen(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    """Ann is in both groups, Eve may not read the space, Bob is not in `hr`."""
    site.wiki.restrict(office.guide, "group:hr")
    assert readers(opened(site, client, hands), office.deep) == (office.user(office.ann),)
    site.wiki.restrict(office.deep, office.bob.account_id)
    assert readers(opened(site, client, hands), office.deep) == ()
    site.wiki.restrict(office.deep, office.bob.account_id, office.ann.account_id)
    assert readers(opened(site, client, hands), office.deep) == (office.user(office.ann),)
    site.wiki.restrict(office.guide)
    assert readers(opened(site, client, hands), office.deep) == (office.user(office.ann), office.user(office.bob))


def test_a_restriction_to_somebody_who_has_no_account_any_more_lets_nobody_through(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    office.guide.gone_reader = True
    source = opened(site, client, hands)
    found = listed(source.everything())
    assert found[str(office.guide.thing_id)].readers == ()
    assert found[str(office.deep.thing_id)].readers == ()


def test_a_restriction_with_more_names_than_one_answer_holds_is_read_whole(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    crowd = [site.wiki.person(f"p{number:03}") for number in range(230)]
    site.wiki.group("staff", *crowd)
    site.wiki.restrict(office.guide, *(one.account_id for one in crowd))
    assert readers(opened(site, client, hands), office.guide) == tuple(sorted(office.user(one) for one in crowd))


def test_a_restriction_to_people_holds_in_a_space_of_a_group_with_thousands(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.wiki.group("staff", office.ann, *(site.wiki.person(f"p{number:04}") for number in range(1200)))
    site.wiki.restrict(office.guide, office.ann.account_id, office.eve.account_id)
    assert readers(opened(site, client, hands), office.guide) == (office.user(office.ann),)


def test_what_the_search_does_not_know_yet_is_restricted_all_the_same(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.wiki.restrict(office.guide, office.ann.account_id)
    site.wiki.label(office.guide, "new")
    site.wiki.unsearchable = {one.thing_id for one in (office.home, office.guide, office.deep)}
    found = listed(opened(site, client, hands).everything())
    assert found[str(office.guide.thing_id)].readers == (office.user(office.ann),)
    assert found[str(office.guide.thing_id)].tags == ("new",)
    assert found[str(office.deep.thing_id)].readers == (office.user(office.ann),)


def test_a_parent_that_is_hidden_from_us_lets_nobody_through(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    office.guide.status = "draft"
    assert readers(opened(site, client, hands), office.deep) == ()


def test_a_space_that_does_not_tell_who_reads_it_is_read_by_the_readers_of_the_settings(office_dc: Office, dc: StandIn) -> None:
    assert isinstance(dc.routes, DataCenterRoutes)
    dc.routes.tells_space_permissions = False
    with httpx.Client() as client:
        assert readers(opened(dc, client, Hands()), office_dc.guide) == ()
        assert readers(opened(dc, client, Hands(), readers=["group:all"]), office_dc.guide) == ("group:all",)


def test_an_anonymous_space_is_open_to_the_readers_of_the_settings(office_dc: Office, dc: StandIn) -> None:
    office_dc.space.anonymous = True
    with httpx.Client() as client:
        assert readers(opened(dc, client, Hands(), readers=["group:all"]), office_dc.guide) == ("group:all", "group:staff")
        dc.wiki.restrict(office_dc.guide, office_dc.eve.account_id)
        assert readers(opened(dc, client, Hands()), office_dc.guide) == ("user:eve",)


@pytest.fixture
def dc() -> Iterator[StandIn]:
    with confluence("data_center", Hands()) as listening:
        yield listening


@pytest.fixture
def office_dc(dc: StandIn) -> Office:
    return Office(dc)


def test_without_permissions_nothing_is_asked_or_said_of_them(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.wiki.restrict(office.guide, office.ann.account_id)
    found = listed(opened(site, client, hands, permissions=False).everything())
    assert {item.readers for item in found.values()} == {None}
    assert not [call for call in site.calls if "permission" in call or "restriction" in call]


def test_an_address_that_somebody_shows_is_another_name_of_theirs() -> None:
    hands = Hands()
    with confluence("cloud", hands) as site, httpx.Client() as client:
        office = Office(site)
        office.ann.email = "Ann@Example.com"
        site.wiki.restrict(office.guide, office.ann.account_id)
        assert readers(opened(site, client, hands), office.guide) == ("user:712020:ann", "user:ann@example.com")


def test_folders_of_cloud_are_places_and_restrict() -> None:
    hands = Hands()
    with confluence("cloud", hands) as site, httpx.Client() as client:
        office = Office(site)
        folder = site.wiki.page(office.space, "Drawer", kind="folder")
        page = site.wiki.page(office.space, "Paper", parent=folder)
        site.wiki.restrict(folder, office.bob.account_id)
        item = listed(opened(site, client, hands).everything())[str(page.thing_id)]
        assert (item.path, item.readers) == ("ENG/Drawer/Paper.md", ("user:712020:bob",))


# --- changes


def test_changes_since_the_cursor_come_with_an_overlap_and_in_no_time_zone(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    source = opened(site, client, hands)
    *_, last = source.everything()
    assert last.cursor is not None
    hands.go(hours=5)
    assert listed(source.changes(hands.now.isoformat())) == {}
    site.wiki.edit(office.guide, "<p>new</p>")
    file = site.wiki.attach(office.home, "f.txt", b"1")
    hands.go(minutes=10)
    *batches, end = source.changes((hands.now - timedelta(minutes=1)).isoformat())
    assert {item.key for batch in batches for item in batch.items} == {str(office.guide.thing_id), f"att{file.thing_id}"}
    assert end.cursor == hands.now.isoformat()


@pytest.mark.parametrize("cursor", ["2020-01-01T00:00:00+00:00", "nonsense", "2026-11-02T09:00:00", "2027-01-01T00:00:00+00:00"])
def test_a_cursor_that_says_nothing_any_more_is_expired(site: StandIn, client: httpx.Client, hands: Hands, cursor: str) -> None:
    with pytest.raises(CursorExpired):
        list(opened(site, client, hands).changes(cursor))


def test_changes_of_other_spaces_are_left_out(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    site.wiki.page(site.wiki.space('O"PS'), "Other")
    source = opened(site, client, hands, spaces=["ENG"])
    assert {item.metadata["space"] for item in listed(source.changes(hands.now.isoformat())).values()} == {"ENG"}


def test_what_is_below_a_page_is_told_with_its_files(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    chain = office.deep
    for number in range(8):
        chain = site.wiki.page(office.space, f"Level {number}", parent=chain)
    file = site.wiki.attach(chain, "f.txt", b"1")
    own = site.wiki.attach(office.guide, "g.txt", b"1")
    source = opened(site, client, hands)
    found = listed(source.below(str(office.guide.thing_id)))
    assert len(found) == 11
    assert {f"att{file.thing_id}", f"att{own.thing_id}", str(chain.thing_id)} < set(found)
    assert listed(source.below(f"att{file.thing_id}")) == {}
    assert listed(source.below("999999")) == {}


# --- what goes wrong


def test_waiting_is_asked_for_by_the_site(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    source = opened(site, client, hands)
    for status in (429, 503):
        site.fault("throttle", status=status, retry_after="7")
        with pytest.raises(TransientError) as caught:
            source.find(str(office.guide.thing_id))
        assert caught.value.retry_after == 7
    site.fault("throttle", retry_after=(hands.now + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT"))
    with pytest.raises(TransientError) as caught:
        source.find(str(office.guide.thing_id))
    assert caught.value.retry_after == 90
    site.fault("throttle", retry_after=None)
    with pytest.raises(TransientError) as caught:
        source.find(str(office.guide.thing_id))
    assert caught.value.retry_after is None


@pytest.mark.parametrize("kind", ["error", "drop", "half"])
def test_a_fault_breaks_the_listing_off_and_is_passing(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands, kind: str
) -> None:
    source = opened(site, client, hands)
    site.fault(kind, "/pages$|/rest/api/content$", times=3, status=500)
    with pytest.raises(TransientError):
        list(source.everything())
    site.fault(kind, "/pages$|/rest/api/content$", times=2, status=500)
    assert len(listed(source.everything())) == 3


def test_a_listing_waits_out_what_the_site_asks_for_with_a_client_that_keeps_to_it(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    site.fault("throttle", "/pages$|/rest/api/content$", times=2, retry_after="1")
    with pytest.raises(TransientError):
        list(opened(site, client, hands).everything())
    site.faults.clear()
    site.fault("throttle", "/pages$|/rest/api/content$", retry_after="0.2")
    began = time.monotonic()
    with make_client(Limiter(1000.0), threading.Event()) as paced:
        assert len(listed(opened(site, paced, hands).everything())) == 3
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("status", "cure"), [(401, "token"), (403, "permission")])
def test_wrong_accounts_are_told_how_to_be_cured(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands, status: int, cure: str
) -> None:
    site.fault("error", times=99, status=status)
    with pytest.raises(PermanentError, match=cure) as caught:
        list(opened(site, client, hands).everything())
    assert TOKEN not in str(caught.value)


def test_a_wrong_token_is_refused(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    with pytest.raises(PermanentError, match="401"):
        list(opened(site, client, hands, api_token="wrong").everything())


def test_a_visitor_sees_nothing_gone(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    """Some sites take credentials that have run out for those of a visitor, who sees less."""
    source = opened(site, client, hands)
    site.anonymous = True
    with pytest.raises(PermanentError, match="anonymous"):
        list(source.everything())
    with pytest.raises(PermanentError, match="anonymous"):
        source.find("999999")


def test_a_sign_on_page_is_no_answer(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    site.fault("html")
    with pytest.raises(PermanentError, match="base_url"):
        list(opened(site, client, hands).everything())


def test_nobody_there_is_unavailable(client: httpx.Client, hands: Hands) -> None:
    with confluence("cloud", hands) as site:
        settings = site.settings()
    with pytest.raises(ServiceUnavailable):
        list(open_source(settings, client=client, clock=hands).everything())


def test_a_redirect_of_the_api_to_another_host_is_not_followed(hands: Hands) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(302, headers={"Location": "https://evil.example/wiki/rest/api/user/current"})

    with (
        confluence("cloud", hands) as site,
        httpx.Client(transport=httpx.MockTransport(answer)) as client,
        pytest.raises(PermanentError, match="evil"),
    ):
        list(opened(site, client, hands).everything())
    assert [request.url.host for request in asked] == ["127.0.0.1"]


def test_a_page_for_logging_in_is_not_taken_for_an_attachment(hands: Hands) -> None:
    with confluence("data_center", hands) as site:
        office = Office(site)
        file = site.wiki.attach(office.guide, "a.bin", b"data")

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("login.action"):
                return httpx.Response(200, text="<html>Log in</html>")
            if "/download/" in request.url.path:
                return httpx.Response(302, headers={"Location": site.base + "/login.action?os_destination=x"})
            with httpx.Client() as direct:
                return direct.get(request.url, headers={"Authorization": request.headers["Authorization"]})

        with httpx.Client(transport=httpx.MockTransport(answer)) as client:
            source = opened(site, client, hands)
            item = source.find(f"att{file.thing_id}")
            assert item is not None
            with pytest.raises(PermanentError, match="log in"):
                source.read(item, max_bytes=100)


def test_a_next_link_to_another_host_is_not_followed(hands: Hands) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path.endswith("/current"):
            return httpx.Response(200, json={"type": "known"})
        more = {} if "cursor" in request.url.params else {"next": "https://evil.example/wiki/api/v2/spaces?cursor=abc"}
        return httpx.Response(200, json={"results": [], "_links": more})

    with confluence("cloud", hands) as site, httpx.Client(transport=httpx.MockTransport(answer)) as client:
        list(opened(site, client, hands).everything())
    assert {request.url.host for request in asked} == {"127.0.0.1"}
    assert asked[-1].url.params["cursor"] == "abc"


# --- events


def event(site: StandIn, kind: str | None = None) -> Event:
    """The newest event, as it is stored: Cloud's address tells its name."""
    name, body = site.wiki.events[-1]
    told = kind if kind is not None else name if site.deployment == "cloud" else ""
    return Event(event_id=1, kind=told, body=json.dumps(body).encode(), received_at=datetime.now(UTC))


def test_events_say_what_to_look_at(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    source, wiki = opened(site, client, hands), site.wiki
    guide = str(office.guide.thing_id)
    post = wiki.page(office.space, "News", kind="blogpost")
    assert source.interpret(event(site)) == Hint(keys=(str(post.thing_id),))
    wiki.edit(office.guide)
    assert source.interpret(event(site)) == Hint(keys=(guide,))
    wiki.label(office.guide, "x")
    assert source.interpret(event(site)) == Hint(keys=(guide,))
    below = Hint(keys=(guide,), trees=(guide,))
    wiki.move(office.guide, None)
    assert source.interpret(event(site)) == below
    wiki.restrict(office.guide, "group:hr")
    assert source.interpret(event(site)) == below
    wiki.trash(office.guide)
    assert source.interpret(event(site)) == below
    wiki.restore(office.guide)
    assert source.interpret(event(site)) == below
    file = wiki.attach(office.guide, "f.txt", b"1")
    assert source.interpret(event(site)) == Hint(keys=(f"att{file.thing_id}",))
    assert opened(site, client, hands, attachments=False).interpret(event(site)) == Hint()
    wiki.archive_space(office.space)
    assert source.interpret(event(site)) == Hint(everything=True)
    assert site.calls == []


def test_an_event_makes_what_was_heard_of_permissions_old(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands
) -> None:
    source = opened(site, client, hands)
    assert readers(source, office.deep) == ("group:staff",)
    site.wiki.restrict(office.guide, office.ann.account_id)
    source.interpret(event(site))
    assert readers(source, office.deep) == (office.user(office.ann),)


def test_errors_name_no_secret(site: StandIn, office: Office, client: httpx.Client, hands: Hands) -> None:
    for kind in ("throttle", "error", "drop", "half", "html"):
        site.fault(kind, times=3, status=500)
        with pytest.raises(DocwellError) as caught:
            list(opened(site, client, hands).everything())
        assert TOKEN not in str(caught.value)
