"""Subscriptions and notifications of the stand-in of Microsoft Graph.

Sources: learn.microsoft.com/graph/api/resources/subscription and /graph/change-notifications-delivery-webhooks.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import ssl
import uuid
from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any

import httpx

from tests.graph_drives import Json, StandInDrive
from tests.graph_wire import Answer, Refusal, json_answer

TENANT = "84bd8158-6d4d-4958-8b9f-9d6445542f95"
LONGEST_LIFE = timedelta(minutes=42_300)


class GraphSubscriptions(ABC):
    """Those of a tenant. `notices` are what Graph has to send."""

    def __init__(self, seed: int, now: datetime) -> None:
        self.now = now
        self.subscriptions: dict[str, Json] = {}
        self.notices: list[Json] = []
        self.grants: timedelta | None = None  # no subscription lives longer than that, whatever is asked for
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        # Loading the system's certificates takes longer than a test.
        self._sender = httpx.Client(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    @abstractmethod
    def _needs(self, *permissions: str) -> None: ...

    @abstractmethod
    def _drive(self, drive_id: str) -> StandInDrive: ...

    def close(self) -> None:
        """Nothing is sent any more."""
        self._sender.close()

    def _end_old_ones(self) -> None:
        for one in [key for key, sub in self.subscriptions.items() if _moment(sub["expirationDateTime"]) <= self.now]:
            del self.subscriptions[one]

    def notify(self, drive: StandInDrive, *, lifecycle: str | None = None) -> None:
        """What Graph would send because of a change; `deliver` sends it."""
        for subscription_id, one in self.subscriptions.items():
            if one["resource"].strip("/") == f"drives/{drive.drive_id}/root":
                common = {
                    "subscriptionId": subscription_id,
                    "subscriptionExpirationDateTime": one["expirationDateTime"],
                    "clientState": one["clientState"],
                    "tenantId": TENANT,
                }
                what: Json = (
                    {"lifecycleEvent": lifecycle}
                    if lifecycle
                    else {
                        "changeType": "updated",
                        "resource": one["resource"].strip("/"),
                        "resourceData": {"@odata.type": "#Microsoft.Graph.DriveItem"},
                    }
                )
                self.notices.append({"to": one["lifecycleNotificationUrl" if lifecycle else "notificationUrl"], **common, **what})

    def deliver(self, *, shuffle: bool = False, lose: float = 0.0, repeat: float = 0.0) -> int:
        """Send what is waiting: in another order, some of it never, some of it twice. The number of those answered with 2xx."""
        notices, self.notices = self.notices, []
        if shuffle:
            self._random.shuffle(notices)
        taken = 0
        for notice in notices:
            if self._random.random() < lose:
                continue
            item = {name: value for name, value in notice.items() if name != "to"}
            for _ in range(2 if self._random.random() < repeat else 1):
                taken += self._sender.post(notice["to"], json={"value": [item]}, timeout=10).status_code in {200, 202, 204}
        return taken

    # The wire.

    def _post_subscription(self, *, body: bytes, headers: dict[str, str], **_: Any) -> Answer:
        self._needs("Files.ReadWrite.All")
        asked = json.loads(body)
        found = re.fullmatch(r"/?drives/([^/]+)/root", asked.get("resource", ""))
        if found is None or asked.get("changeType") != "updated":
            raise Refusal(400, "InvalidRequest", "The resource or its changeType is not supported.")
        self._drive(found.group(1))
        if len(asked.get("clientState", "")) > 128:
            raise Refusal(400, "InvalidRequest", "clientState has more than 128 characters.")
        self._check_life(asked.get("expirationDateTime", ""))
        resource = asked["resource"].strip("/")
        if any(one["resource"].strip("/") == resource for one in self.subscriptions.values()):
            raise Refusal(409, "Conflict", "A subscription already exists for this resource and change type.")
        for name in ("notificationUrl", "lifecycleNotificationUrl"):
            if name in asked:
                self._shake_hands(asked[name])
        subscription_id = str(uuid.UUID(int=self._random.getrandbits(128)))
        self.subscriptions[subscription_id] = {**asked, "id": subscription_id, "prefer": headers.get("prefer", "")}
        self._grant(subscription_id)
        return json_answer(self._shown(subscription_id), status=201)

    def _shake_hands(self, url: str) -> None:
        token = f"Validation: a token & {next(self._numbers)} with ünusual characters"
        try:
            answer = self._sender.post(url, params={"validationToken": token}, headers={"Content-Type": "text/plain"}, timeout=10)
        except httpx.TransportError as error:
            raise Refusal(400, "ValidationError", f"Subscription validation request failed: {error}") from None
        plain = answer.headers.get("Content-Type", "").partition(";")[0] == "text/plain"
        if answer.status_code != 200 or not plain or answer.text != token:
            raise Refusal(400, "ValidationError", "Subscription validation request failed. The answer is wrong.")

    def _check_life(self, expires: str) -> None:
        if not expires or _moment(expires) <= self.now or _moment(expires) > self.now + LONGEST_LIFE:
            raise Refusal(400, "InvalidRequest", "Subscription expiration can only be 42300 minutes in the future.")

    def _grant(self, subscription_id: str) -> None:
        one = self.subscriptions[subscription_id]
        if self.grants is not None and _moment(one["expirationDateTime"]) > self.now + self.grants:
            one["expirationDateTime"] = (self.now + self.grants).isoformat()

    def _shown(self, subscription_id: str) -> Json:
        return {
            **{name: value for name, value in self.subscriptions[subscription_id].items() if name != "prefer"},
            "clientState": None,
        }

    def _get_subscriptions(self, **_: Any) -> Answer:
        return json_answer({"value": [self._shown(one) for one in self.subscriptions]})

    def _known(self, subscription_id: str) -> Json:
        if subscription_id not in self.subscriptions:
            raise Refusal(404, "ResourceNotFound", "The object was not found.")
        return self.subscriptions[subscription_id]

    def _get_subscription(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        return json_answer(self._shown(subscription_id))

    def _patch_subscription(self, subscription_id: str, *, body: bytes, **_: Any) -> Answer:
        one = self._known(subscription_id)
        asked = json.loads(body)
        self._check_life(asked.get("expirationDateTime", ""))
        one["expirationDateTime"] = asked["expirationDateTime"]
        self._grant(subscription_id)
        return json_answer(self._shown(subscription_id))

    def _delete_subscription(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        del self.subscriptions[subscription_id]
        return Answer(status=204)

    def _reauthorize(self, subscription_id: str, **_: Any) -> Answer:
        self._known(subscription_id)
        return Answer(status=204)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
