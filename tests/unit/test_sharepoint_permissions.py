"""Who may read an item of SharePoint, from the shapes of learn.microsoft.com/graph/api/resources/permission."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ingest_worker.sources.sharepoint.permissions import readers_of

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SITE = "contoso.sharepoint.com/sites/marketing"
GUID = "1F2E3D4C-0000-1111-2222-333344445555"


def read(*permissions: Any, site: str | None = SITE, organization_links: bool = False) -> tuple[str, ...]:
    return readers_of(permissions, site=site, organization_links=organization_links, now=NOW)


def grant(facets: Any, **more: Any) -> dict[str, Any]:
    return {"id": "1", "roles": ["read"], "grantedToV2": facets, **more}


def link(scope: str | None, *identities: Any, **more: Any) -> dict[str, Any]:
    facet = {"webUrl": "https://contoso.sharepoint.com/:w:/t/x", "type": "view"} | ({} if scope is None else {"scope": scope})
    return {"id": "2", "roles": ["write"], "link": facet, "grantedToIdentitiesV2": list(identities), **more}


PERSON = {
    "user": {"id": GUID, "displayName": "Ann", "email": "Ann@Contoso.com"},
    "siteUser": {"id": "7", "displayName": "Ann", "loginName": "i:0#.f|membership|ann.upn@contoso.com"},
}
PERSON_READERS = (f"user:{GUID.lower()}", "user:ann.upn@contoso.com", "user:ann@contoso.com")


@pytest.mark.parametrize(
    ("facets", "readers"),
    [
        (PERSON, PERSON_READERS),
        ({"user": {"id": GUID, "displayName": "Ann"}}, (f"user:{GUID.lower()}",)),
        ({"group": {"id": GUID, "displayName": "Everyone important"}}, (f"group:{GUID.lower()}",)),
        ({"siteUser": {"loginName": f"c:0t.c|tenant|{GUID}", "displayName": "Sales"}}, (f"group:{GUID.lower()}",)),
        ({"siteUser": {"loginName": f"c:0o.c|federateddirectoryclaimprovider|{GUID}"}}, (f"group:{GUID.lower()}",)),
        ({"siteGroup": {"id": "5", "displayName": "Marketing Members"}}, (f"group:{SITE}:Marketing Members",)),
        ({"sharePointGroup": {"principalId": "5", "title": "Marketing Members"}}, (f"group:{SITE}:Marketing Members",)),
    ],
)
def test_people_and_groups_are_named_by_what_cannot_be_taken_by_others(facets: Any, readers: tuple[str, ...]) -> None:
    assert read(grant(facets)) == readers


@pytest.mark.parametrize(
    "facets",
    [
        None,
        {},
        "ann@contoso.com",
        {"application": {"id": GUID}},
        {"device": {"id": GUID}},
        {"user": {"displayName": "Ann"}},
        {"user": {"id": None, "email": 7}},
        {"group": {"displayName": "Sales"}},
        {"siteUser": {"loginName": "c:0(.s|true", "displayName": "Everyone"}},
        {
            "siteUser": {
                "loginName": "c:0-.f|rolemanager|spo-grid-all-users/84bd",
                "displayName": "Everyone except external users",
            }
        },
        {"siteUser": {"loginName": f"c:0o.c|federateddirectoryclaimprovider|{GUID}_o", "displayName": "Owners"}},
        {"siteUser": {"loginName": f"c:0o.c|federateddirectoryclaimprovider|{GUID}_o"}, "group": {"id": GUID}},
        {"siteUser": {"loginName": "someone", "displayName": "Someone"}},
        {"user": {"id": "a\nb"}},
        {"newKindOfIdentity": {"id": GUID}},
    ],
)
def test_what_is_not_understood_opens_to_nobody(facets: Any) -> None:
    assert read(grant(facets)) == ()


def test_a_group_of_a_site_that_is_not_known_opens_to_nobody() -> None:
    assert read(grant({"siteGroup": {"id": "5", "displayName": "Members"}}), site=None) == ()


@pytest.mark.parametrize("roles", [[], ["sp.limited access"], ["sp.something new"], None, "read", [7]])
def test_roles_that_show_no_contents_open_to_nobody(roles: Any) -> None:
    assert read({**grant(PERSON), "roles": roles}) == ()


@pytest.mark.parametrize("roles", [["read"], ["write"], ["owner"], ["sp.full control"], ["sp.limited access", "read"]])
def test_roles_that_read_open(roles: list[str]) -> None:
    assert read({**grant(PERSON), "roles": roles}) == PERSON_READERS


@pytest.mark.parametrize(
    ("ends", "opens"),
    [
        ("0001-01-01T00:00:00Z", True),
        ("", True),
        ("2026-12-01T00:00:00Z", True),
        ("2026-11-29T00:00:00Z", False),
        ("2026-11-29T00:00:00", False),
        ("soon", False),
        (7, False),
    ],
)
def test_a_permission_opens_until_its_end(ends: Any, opens: bool) -> None:
    assert read(grant(PERSON, expirationDateTime=ends)) == (PERSON_READERS if opens else ())


def test_a_link_for_named_people_opens_to_them() -> None:
    assert read(link("users", PERSON)) == read(link(None, PERSON)) == PERSON_READERS


@pytest.mark.parametrize("scope", ["anonymous", "organization", "existingAccess", "something new", None])
def test_other_links_open_to_nobody(scope: str | None) -> None:
    assert read(link(scope)) == ()
    if scope is not None:
        assert read(link(scope, PERSON)) == ()


def test_a_link_with_a_password_opens_to_nobody() -> None:
    assert read(link("users", PERSON, hasPassword=True)) == ()


def test_links_of_the_organisation_open_where_that_is_wanted() -> None:
    everybody = grant({"siteUser": {"loginName": "c:0-.f|rolemanager|spo-grid-all-users/84bd", "displayName": "x"}})
    guests_too = grant({"siteUser": {"loginName": "c:0(.s|true"}})
    assert read(link("organization"), organization_links=True) == ("group:organization",)
    assert read(everybody, organization_links=True) == ("group:organization",)
    assert read(link("anonymous"), guests_too, organization_links=True) == ()


def test_the_first_version_counts_only_without_the_second() -> None:
    assert read({"roles": ["read"], "grantedTo": {"user": {"id": GUID}}}) == (f"user:{GUID.lower()}",)
    assert read({"roles": ["read"], "grantedTo": {"user": {"id": GUID}}, "grantedToV2": {"application": {"id": "1"}}}) == ()


def test_an_invitation_that_nobody_has_accepted_opens_to_nobody() -> None:
    assert read({"roles": ["read"], "invitation": {"email": "jd@outlook.com"}}) == ()
    assert read({"roles": ["read"], "invitation": {"email": "jd@outlook.com"}, "grantedToV2": PERSON}) == PERSON_READERS


def test_all_that_is_granted_counts_once_in_order() -> None:
    assert read(grant(PERSON), link("users", PERSON), grant({"group": {"id": "g"}})) == tuple(
        sorted(("group:g", *PERSON_READERS))
    )
