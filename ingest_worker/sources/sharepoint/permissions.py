"""Who may read an item, from the permissions that Graph lists for it. Pure; what is not understood opens nothing to anybody.

Sources: learn.microsoft.com/graph/api/resources/permission, .../sharepointidentityset, .../sharinglink.

A person is `user:` with the object id and with the address; a group of Entra is `group:` with its object id and its address.
Names that are shown are no identity: two groups may have the same. A SharePoint group exists within one site only, so it is
`group:HOST/sites/NAME:TITLE`; who is in it Graph does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

ORGANIZATION = "group:organization"
"""Everybody in the organisation: only with `organization_links`."""

_READING_ROLES = frozenset({"read", "write", "owner", "sp.full control", "sp.owner"})
"""Any other role may be one that shows no contents, such as `sp.limited access`."""

_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[^\s@|,]+@[^\s@|,]+")
_LONGEST_NAME = 400


def readers_of(
    permissions: Iterable[Mapping[str, Any]], *, site: str | None, organization_links: bool, now: datetime
) -> tuple[str, ...]:
    """The readers, sorted: `user:…` and `group:…`; empty: nobody whom we can name.

    `site` is the address of the site without scheme; without it its SharePoint groups name nobody.
    """
    found: set[str] = set()
    for permission in permissions:
        if _opens(permission, now=now):
            found |= _granted(permission, site=site, organization_links=organization_links)
    return tuple(sorted(found))


def _opens(permission: Mapping[str, Any], *, now: datetime) -> bool:
    roles = permission.get("roles")
    if not isinstance(roles, Sequence) or isinstance(roles, str):
        return False
    if not any(isinstance(role, str) and role.lower() in _READING_ROLES for role in roles):
        return False
    ends = permission.get("expirationDateTime")
    return ends is None or _is_ahead(ends, now=now)


def _is_ahead(ends: object, *, now: datetime) -> bool:
    if not isinstance(ends, str):
        return False
    if not ends or ends.startswith("0001-01-01"):
        # DateTime.MinValue: it has no end.
        return True
    try:
        moment = datetime.fromisoformat(ends)
    except ValueError:
        return False
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) > now


def _granted(permission: Mapping[str, Any], *, site: str | None, organization_links: bool) -> set[str]:
    link = permission.get("link")
    if link is None:
        return _identity(_newer(permission, "grantedTo"), site=site, organization_links=organization_links)
    if not isinstance(link, Mapping) or permission.get("hasPassword") is True:
        return set()
    scope = link.get("scope")
    if scope == "organization":
        return {ORGANIZATION} if organization_links else set()
    if scope not in {None, "users"}:
        # Anonymous links open to who has the address, and existingAccess to nobody anew.
        return set()
    identities = _newer(permission, "grantedToIdentities")
    found: set[str] = set()
    for identity in identities if isinstance(identities, Sequence) and not isinstance(identities, str) else ():
        found |= _identity(identity, site=site, organization_links=organization_links)
    return found


def _newer(permission: Mapping[str, Any], name: str) -> Any:
    """The property's second version, which tells more; the first one is deprecated and is looked at only without it."""
    found = permission.get(f"{name}V2")
    return permission.get(name) if found is None else found


def _identity(identity: object, *, site: str | None, organization_links: bool) -> set[str]:
    """The readers of an identity set: its facets are the same one as different directories know it."""
    if not isinstance(identity, Mapping):
        return set()
    found: set[str] = set()
    login = _text(identity.get("siteUser"), "loginName") if isinstance(identity.get("siteUser"), Mapping) else ""
    if login and _is_special(login):
        # Claims that stand for many: everybody, all users of the tenant, only a group's owners.
        return {ORGANIZATION} if organization_links and _is_organization(login) else set()
    found |= _named("user", identity.get("user"))
    found |= _named("group", identity.get("group"))
    found |= _site_user(login)
    if not found:
        found |= _site_group(identity, site=site)
    return found


def _named(kind: str, facet: object) -> set[str]:
    if not isinstance(facet, Mapping):
        return set()
    names = {_text(facet, "id").lower(), _text(facet, "email").lower(), _text(facet, "userPrincipalName").lower()}
    return {f"{kind}:{name}" for name in names if name and _is_clean(name)}


def _site_user(login: str) -> set[str]:
    """What a claim such as `i:0#.f|membership|ann@contoso.com` or `c:0t.c|tenant|<object id>` names."""
    parts = login.split("|")
    if len(parts) < 3:
        return set()
    name = parts[-1].lower()
    if login.startswith("i:0#.f|membership|") and _ADDRESS.fullmatch(name):
        return {f"user:{name}"}
    if (login.startswith(("c:0t.c|tenant|", "c:0o.c|federateddirectoryclaimprovider|"))) and _GUID.fullmatch(name):
        return {f"group:{name}"}
    return set()


def _is_special(login: str) -> bool:
    lowered = login.lower()
    return lowered.startswith(("c:0(.s|true", "c:0!.s|", "c:0-.f|rolemanager|")) or (
        lowered.startswith("c:") and lowered.endswith("_o")
    )


def _is_organization(login: str) -> bool:
    return login.lower().startswith("c:0-.f|rolemanager|spo-grid-all-users/")


def _site_group(identity: Mapping[str, Any], *, site: str | None) -> set[str]:
    if site is None:
        return set()
    for facet_name, property_name in (("sharePointGroup", "title"), ("siteGroup", "displayName"), ("siteGroup", "loginName")):
        facet = identity.get(facet_name)
        title = _text(facet, property_name) if isinstance(facet, Mapping) else ""
        if title and _is_clean(title):
            return {f"group:{site}:{title}"}
    return set()


def _text(facet: Any, name: str) -> str:
    value = facet.get(name)
    return value.strip() if isinstance(value, str) else ""


def _is_clean(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and name.isprintable()
