"""Notifications: asked for, renewed, and read as hints.

Sources: learn.microsoft.com/graph/api/subscription-post-subscriptions, /graph/change-notifications-lifecycle-events and
/graph/change-notifications-delivery-webhooks. Drives know the change `updated` only, which means anything below the root.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from ingest_worker.sources.protocol import Event, Hint
from ingest_worker.sources.sharepoint.answers import Conflict, GraphRefused, NotThere
from ingest_worker.sources.sharepoint.client import Graph, Json
from ingest_worker.sources.sharepoint.drives import Drive
from shared.errors import PermanentError
from shared.source_settings import SharePointSettings

LIFE = timedelta(days=29)
"""A drive's subscription lives 42,300 minutes at most, a little more than 29 days."""

_LOOK_AGAIN = timedelta(days=1)
"""One that Graph has dropped without a word is noticed after so long. Until then changes are found by asking, as without any."""

_NEEDS = "Files.ReadWrite.All (Graph asks for it to send notifications of a drive, though nothing is written)"


class Subscriptions:
    """The subscriptions of one source: one for each of its drives."""

    def __init__(self, graph: Graph, settings: SharePointSettings) -> None:
        self._graph = graph
        self._settings = settings
        self._renew_all = False

    def renew_soon(self) -> None:
        """Graph wants to hear from us before the time: the next `maintain` renews all of them."""
        self._renew_all = True

    def maintain(self, state: Mapping[str, Any], drives: Sequence[Drive], now: datetime) -> dict[str, Any]:
        """See `protocol.Subscribes.maintain`; `state` has, by drive id, what was asked for."""
        kept = state.get("subscriptions")
        before: dict[str, Json] = dict(kept) if isinstance(kept, Mapping) else {}
        wanted = {} if self._settings.public_url is None else {drive.drive_id: drive for drive in drives}
        for drive_id, one in before.items():
            if drive_id not in wanted or not self._is_ours(one):
                self._end(str(one.get("id")))
        after: dict[str, Json] = {}
        changed = False
        for drive_id, drive in wanted.items():
            old = before.get(drive_id)
            kept_on = self._keep(old, now) if old is not None and self._is_ours(old) else None
            # What happened before it was there, or between the old one and this, was told to nobody.
            changed = changed or kept_on is None
            after[drive_id] = kept_on if kept_on is not None else self._create(drive, now)
        self._renew_all = False
        dues = [_renew_at(one) for one in after.values()]
        next_at = min([*dues, now + _LOOK_AGAIN])
        told: dict[str, Any] = {"subscriptions": after, "changed": changed, "next_at": max(next_at, now).isoformat()}
        ends = [moment for one in after.values() if (moment := _expires(one)) is not None]
        return told | ({"expires": min(ends).isoformat()} if ends else {})

    def _keep(self, one: Json, now: datetime) -> Json | None:
        """Renew it when half of its life is over, else see that it is there; None: it is not."""
        path = f"/subscriptions/{quote(str(one['id']), safe='')}"
        try:
            if self._renew_all or now >= _renew_at(one):
                asked = {"expirationDateTime": _utc(now + LIFE)}
                answer = self._graph.send("PATCH", path, asked, what="the renewal of a subscription", needs=_NEEDS)
                granted = answer.get("expirationDateTime")
                expires = granted if isinstance(granted, str) else _utc(now + LIFE)
                return {**one, "renewed": _utc(now), "expires": expires}
            self._graph.get(path, what="a subscription", needs=_NEEDS)
        except NotThere:
            return None
        return one

    def _create(self, drive: Drive, now: datetime) -> Json:
        try:
            answer = self._ask(drive, now)
        except Conflict:
            self._clear(drive)
            answer = self._ask(drive, now)
        except GraphRefused as error:
            if error.status == 400:
                raise PermanentError(
                    f"Graph makes no subscription for {drive.name}: {error} It must reach {self._url()} from the internet over "
                    "https; see that `public_url` leads to Docwell's API.",
                    code="no_subscription",
                ) from error
            raise
        expires = answer.get("expirationDateTime")
        return {
            "id": str(answer.get("id")),
            "renewed": _utc(now),
            "expires": expires if isinstance(expires, str) else _utc(now + LIFE),
            "url": self._url(),
            "secret": self._secret_print(),
        }

    def _ask(self, drive: Drive, now: datetime) -> Json:
        body = {
            "changeType": "updated",
            "notificationUrl": self._url(),
            "lifecycleNotificationUrl": self._url(),
            "resource": _resource(drive),
            "expirationDateTime": _utc(now + LIFE),
            "clientState": self._settings.client_state[0].get_secret_value(),
        }
        headers = {"Prefer": "includesecuritywebhooks"} if self._settings.permissions else {}
        what = f"a subscription for {drive.name}"
        return self._graph.send("POST", "/subscriptions", body, what=what, needs=_NEEDS, headers=headers)

    def _clear(self, drive: Drive) -> None:
        """There is one for this drive that we know nothing of. Its secret cannot be read, so it is no use: where it leads to us
        it makes way.

        Raises:
            PermanentError: somebody else receives it: another address, be its source named like ours or not.
        """
        for page in self._graph.pages("/subscriptions", what="the subscriptions of the application", needs=_NEEDS):
            for one in page:
                if str(one.get("resource", "")).strip("/").lower() != _resource(drive).strip("/").lower():
                    continue
                url = str(one.get("notificationUrl") or "")
                if not _same_address(url, self._url()):
                    told = urlsplit(url)
                    raise PermanentError(
                        f"The application is subscribed to {drive.name} already, for {told.netloc}{told.path}. Another Docwell "
                        "that uses it needs an app registration of its own. If there is none any more (a new "
                        f"`public_url` and an empty database), end the subscription (DELETE /subscriptions/{one.get('id')} of "
                        f"Graph, as this application), or wait until it ends by itself, {one.get('expirationDateTime')}.",
                        code="subscribed_elsewhere",
                    )
                self._end(str(one.get("id")))

    def _end(self, subscription_id: str) -> None:
        try:
            self._graph.send(
                "DELETE",
                f"/subscriptions/{quote(subscription_id, safe='')}",
                None,
                what="the end of a subscription",
                needs=_NEEDS,
            )
        except NotThere:
            return

    def _is_ours(self, one: Json) -> bool:
        return one.get("url") == self._url() and one.get("secret") == self._secret_print()

    def _url(self) -> str:
        return f"{self._settings.public_url}{_path(self._settings)}"

    def _secret_print(self) -> str:
        """Tells whether a subscription was made with the client state in force; the state itself is stored nowhere."""
        states = self._settings.client_state
        return hashlib.sha256(b"client state\0" + states[0].get_secret_value().encode()).hexdigest()[:16] if states else ""


def interpret(event: Event, settings: SharePointSettings) -> tuple[Hint, bool]:
    """The hint of an event, and whether subscriptions should be renewed before their time.

    A notification is a bell only: what it names of a drive is its root. The receiver has dropped what had a wrong client state
    and takes the right one out; one that is still there is compared again.
    """
    try:
        found: Any = orjson.loads(event.body)
    except orjson.JSONDecodeError:
        return Hint(), False
    items = found.get("value") if isinstance(found, dict) else None
    changed = subscribe = renew = False
    for one in items if isinstance(items, list) else ():
        if not isinstance(one, dict) or not _is_authentic(one, settings):
            continue
        lifecycle = one.get("lifecycleEvent")
        if lifecycle is not None:
            # After each of them changes may have gone untold.
            changed = subscribe = True
            renew = renew or lifecycle == "reauthorizationRequired"
        elif _names_ours(one.get("resource"), settings):
            changed = True
    return Hint(changed=changed, subscribe=subscribe), renew


def _is_authentic(one: Mapping[str, Any], settings: SharePointSettings) -> bool:
    if "clientState" not in one:
        return True
    given = one["clientState"]
    if not isinstance(given, str):
        return False
    fits = False
    for state in settings.client_state:
        fits |= hmac.compare_digest(given.encode("utf-8", "surrogatepass"), state.get_secret_value().encode())
    return fits


def _names_ours(resource: object, settings: SharePointSettings) -> bool:
    """Drives of a site are not known without asking, so any resource may be one of them."""
    if not settings.drives:
        return True
    return isinstance(resource, str) and any(
        f"drives/{drive}/".lower() in f"{resource.strip('/')}/".lower() for drive in settings.drives
    )


def _same_address(one: str, other: str) -> bool:
    """Scheme and host mean the same in capitals; a path does not."""
    parts = [(urlsplit(url).scheme.lower(), urlsplit(url).netloc.lower(), urlsplit(url).path) for url in (one, other)]
    return parts[0] == parts[1]


def _path(settings: SharePointSettings) -> str:
    return f"/v1/webhooks/sharepoint/{settings.name}"


def _resource(drive: Drive) -> str:
    return f"/drives/{drive.drive_id}/root"


def _renew_at(one: Json) -> datetime:
    try:
        renewed, expires = (datetime.fromisoformat(str(one[name])) for name in ("renewed", "expires"))
    except (KeyError, ValueError):
        return datetime.min.replace(tzinfo=UTC)
    return renewed + (expires - renewed) / 2


def _expires(one: Json) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(one.get("expires")))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
