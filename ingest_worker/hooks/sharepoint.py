"""Notifications of Microsoft Graph: a batch over several subscriptions, each item with the `clientState` of its subscription.

Nothing is signed (learn.microsoft.com/graph/change-notifications-delivery-webhooks): the state is the only proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ingest_worker.hooks.authentic import matches_any
from shared.errors import PermanentError

LONGEST_TOKEN = 8192
"""Characters of a validation token; Graph's have a few hundred."""

_LONGEST_KIND = 100


class NotANotification(PermanentError):
    """The body is none of Graph's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """The items whose state fits, as one body for each kind (`updated`, or a lifecycle event), without the state, which is
    secret; and how many items were left out because theirs does not."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    dropped: int = 0


def sort_items(body: bytes, secrets: Sequence[str]) -> Sorted:
    """Check every item of a notification.

    Raises:
        NotANotification: it is no JSON object with a list `value`.
    """
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotANotification(f"The body is no JSON: {error}.", code="bad_json") from None
    items = found.get("value") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise NotANotification(
            "The body is no notification of Microsoft Graph: it has no list `value`.", code="not_a_notification"
        )
    keys = [secret.encode() for secret in secrets]
    kinds: dict[str, list[Any]] = {}
    dropped = 0
    for item in items:
        state = item.get("clientState") if isinstance(item, dict) else None
        if not isinstance(state, str) or not matches_any([state.encode()], keys):
            dropped += 1
            continue
        kept = {name: value for name, value in item.items() if name != "clientState"}
        same = kinds.setdefault(_kind(item), [])
        if kept not in same[-20:]:
            same.append(kept)
    return Sorted(bodies={kind: orjson.dumps({"value": kept}) for kind, kept in kinds.items()}, dropped=dropped)


def _kind(item: dict[str, Any]) -> str:
    for name in ("lifecycleEvent", "changeType"):
        value = item.get(name)
        if isinstance(value, str) and value:
            return value[:_LONGEST_KIND]
    return ""
