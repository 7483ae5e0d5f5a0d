"""Changes, faults, refusals and events of Confluence, asked over real HTTP."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import httpx
import pytest

from ingest_worker.sources.confluence import open_source
from ingest_worker.sources.pace import Limiter, make_client
from ingest_worker.sources.protocol import CursorExpired, Hint
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError
from tests.confluence_asking import Office, event, listed, opened, readers
from tests.confluence_stand_in import TOKEN, StandIn, confluence
from tests.confluence_wiki import Hands


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
