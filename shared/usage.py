"""An event of the usage log, as the query server writes it to Redis and the ingest side reads it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

import orjson

from shared.config import Settings
from shared.errors import ConfigurationError

STREAM = "docwell:usage"

FIELD = b"event"
"""The one field of an entry of the stream; it holds JSON."""

MOST_WAITING = 10_000
"""Events that the stream holds at about 4 KB each at most, so that a scheduler that is away for long does not fill the broker."""

MOST_PASSAGES = 100
LONGEST_QUERY = 1_000
LONGEST_NAME = 200
"""Passages and characters of an event; what is beyond is left out."""

Kind = Literal["search", "read"]

_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}$")


class Unreadable(ValueError):
    """An entry of the stream that is no event of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEvent:
    """One call of `search_documents` or `read_document`.

    `outcome` is that of the search, `ok` for a document that was read, or the code of the error. `passages` are pairs of document
    and chunk in the order of the answer. `namespace` and `source` are those that a search was kept to; `continued` tells that it
    went on with a cursor. `query` is there only where the log holds texts.
    """

    kind: Kind
    at: datetime
    principal: str
    outcome: str
    milliseconds: float
    passages: tuple[tuple[uuid.UUID, uuid.UUID], ...] = ()
    search_id: str | None = None
    namespace: str | None = None
    source: str | None = None
    continued: bool = False
    query: str | None = None


def encode_event(event: UsageEvent) -> bytes:
    """The event as JSON, within its limits."""
    return orjson.dumps(
        {
            "kind": event.kind,
            "at": event.at.astimezone(UTC).isoformat(),
            "principal": clean(event.principal, LONGEST_NAME),
            "outcome": clean(event.outcome, LONGEST_NAME),
            "milliseconds": round(event.milliseconds, 1),
            "passages": [f"{document.hex}{chunk.hex}" for document, chunk in event.passages[:MOST_PASSAGES]],
            "search_id": None if event.search_id is None else clean(event.search_id, LONGEST_NAME),
            "namespace": name_or_none(event.namespace),
            "source": name_or_none(event.source),
            "continued": event.continued,
            "query": None if event.query is None else clean(event.query, LONGEST_QUERY),
        }
    )


def decode_event(entry: Mapping[bytes, bytes]) -> UsageEvent:
    """The event in an entry of the stream.

    Raises:
        Unreadable: it is none, or goes beyond the limits.
    """
    try:
        held: dict[str, Any] = orjson.loads(entry[FIELD])
        return UsageEvent(
            kind=_kind(held["kind"]),
            at=_utc(held["at"]),
            principal=clean(held["principal"], LONGEST_NAME),
            outcome=clean(held["outcome"], LONGEST_NAME),
            milliseconds=_duration(held["milliseconds"]),
            passages=tuple((uuid.UUID(hex=pair[:32]), uuid.UUID(hex=pair[32:])) for pair in held["passages"][:MOST_PASSAGES]),
            search_id=None if held.get("search_id") is None else clean(held["search_id"], LONGEST_NAME),
            namespace=name_or_none(held.get("namespace")),
            source=name_or_none(held.get("source")),
            continued=held.get("continued") is True,
            query=None if held.get("query") is None else clean(held["query"], LONGEST_QUERY),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable(f"no event: {error!r}") from error


def clean(text: str, longest: int) -> str:
    """The front of a text, in characters that PostgreSQL and JSON both take."""
    return text[:longest].replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def name_or_none(text: str | None) -> str | None:
    """The name of a namespace or a source; what cannot be one is text of the caller's, and is not kept."""
    return text if text is not None and _NAME.match(text) else None


def _kind(text: str) -> Kind:
    if text not in {"search", "read"}:
        raise ValueError(f"kind {text!r}")
    return cast('Literal["search", "read"]', text)


def _utc(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return at.astimezone(UTC)


def _duration(value: float) -> float:
    milliseconds = float(value)
    if not 0 <= milliseconds < 1e9:
        raise ValueError("a duration that is none")
    return milliseconds


def require_address(settings: Settings) -> None:
    """Refuse a log that has no place to go to.

    Raises:
        ConfigurationError: the log is on and its Redis is not named.
    """
    if settings.usage_log != "off" and settings.usage_redis_url is None:
        raise ConfigurationError(
            f"DOCWELL_USAGE_LOG is {settings.usage_log}, and DOCWELL_USAGE_REDIS_URL does not say where to. Set it to a Redis"
            " user that may only XADD to docwell:usage (docs/operations.md shows how), or set DOCWELL_USAGE_LOG=off.",
            code="usage_address_missing",
        )
