"""Who may read what of Confluence, asked over real HTTP: restrictions, spaces, people and groups."""

from __future__ import annotations

import httpx
import pytest

from ingest_worker.sources.confluence import surroundings
from tests.confluence_asking import Office, listed, opened, readers
from tests.confluence_stand_in import StandIn, confluence
from tests.confluence_v1 import DataCenterRoutes
from tests.confluence_wiki import Hands


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


def test_what_stands_deeper_than_is_looked_up_is_open_to_nobody(
    site: StandIn, office: Office, client: httpx.Client, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "_DEEPEST", 1)
    assert readers(opened(site, client, hands), office.guide) != ()
    assert readers(opened(site, client, hands), office.deep) == ()


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
