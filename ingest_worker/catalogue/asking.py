"""What a list is asked for: filters, pages, and how people write a time or a path."""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from shared.errors import PermanentError
from shared.paths import readable
from shared.text import normalise_path

T = TypeVar("T")


class BadQuestion(PermanentError):
    """A filter, a limit or a cursor that cannot be understood."""


class Unknown(PermanentError):
    """There is no document, job or source of this name."""


class Conflict(PermanentError):
    """It exists, but its state does not allow what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a list is narrowed to; None or empty means everything.

    `path` is a glob: `*` and `?` stay within a folder, `**` does not; see `path_pattern`.
    """

    namespace: str | None = None
    source: str | None = None
    states: tuple[str, ...] = ()
    since: datetime | None = None
    path: str | None = None
    document_id: uuid.UUID | None = None

    def bound(self) -> dict[str, Any]:
        """The values under the names that the SQL of the lists uses."""
        return {
            "namespace": self.namespace,
            "source": self.source,
            "states": list(self.states) or None,
            "since": self.since,
            "path": None if self.path is None else path_pattern(normalise_path(readable(self.path))),
            "document": self.document_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows, and the cursor for those after them when there are more."""

    rows: tuple[T, ...]
    next_cursor: str | None = None


def known_states(names: Iterable[str], states: type[StrEnum]) -> tuple[str, ...]:
    """The states that were named, each alone or several with commas.

    Raises:
        BadQuestion: one is no state.
    """
    wanted = [part.strip() for name in names for part in name.split(",") if part.strip()]
    known = {state.value for state in states}
    for name in wanted:
        if name not in known:
            raise BadQuestion(f"There is no state {name!r}. The states are {', '.join(states)}.", code="bad_state")
    return tuple(wanted)


def storable(text: str | None) -> str | None:
    """A filter as PostgreSQL takes it.

    Raises:
        BadQuestion: it holds a NUL character.
    """
    if text is not None and "\0" in text:
        raise BadQuestion("A filter holds a NUL character.", code="bad_filter")
    return text


_AGO = re.compile(r"(\d{1,9})\s*(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_since(text: str, *, now: datetime) -> datetime:
    """The time that a person means: ISO 8601 (UTC unless it says otherwise), or how long ago: `90s`, `15m`, `2h`, `7d`, `1w`.

    Raises:
        BadQuestion: neither of them.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        # A `+` in a query string arrives as a space.
        moment = datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text.strip()) if "T" in text else text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadQuestion(
            f"{text!r} is no time. Write 2026-11-29, 2026-11-29T10:00:00Z, or how long ago: 90s, 15m, 2h, 7d.",
            code="bad_time",
        ) from None


LONGEST_GLOB = 1000
_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def path_pattern(glob: str) -> str:
    """A path filter as a regular expression for PostgreSQL's `~`, by the rules of a search's `path`, and for folders too.

    Without a `/` it is compared with the name of a file or folder anywhere; without a wildcard a folder means all below it.

    Raises:
        BadQuestion: it is too long, or no glob.
    """
    if len(glob) > LONGEST_GLOB:
        raise BadQuestion(f"The path filter has more than {LONGEST_GLOB} characters.", code="bad_filter")
    parts = _PARTS.findall(glob.removeprefix("./").rstrip("/") + ("/**" if glob.endswith("/") else ""))
    lead = "" if "/" in glob else "(.*/)?"
    tail = "" if any(len(part) > 1 or part in _WILDCARDS for part in parts) else "(/.*)?"
    pattern = f"^{lead}{''.join(map(_as_regex, parts))}{tail}$"
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadQuestion(f"The path filter {glob!r} cannot be read: {error}.", code="bad_filter") from error
    return pattern


def _as_regex(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if len(part) > 1:
        negated = part.startswith("[!")
        members = part[2 if negated else 1 : -1].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
        return f"[{'^/' if negated else ''}{members.replace('^', chr(92) + '^')}]"
    # In PostgreSQL a backslash before a letter or digit is an escape of its own, so only signs are quoted.
    return part if part.isalnum() or part in "_/" else "\\" + part


def write_cursor(*key: object) -> str:
    """A cursor that holds the key of the last row of a page."""
    raw = json.dumps([part.isoformat() if isinstance(part, datetime) else str(part) for part in key], ensure_ascii=False)
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def read_cursor(cursor: str, length: int) -> list[str]:
    """The key in a cursor: `length` strings.

    Raises:
        BadQuestion: it is none of ours.
    """
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        key = None
    if not isinstance(key, list) or len(key) != length or not all(isinstance(part, str) and "\0" not in part for part in key):
        raise bad_cursor()
    return key


def bad_cursor() -> BadQuestion:
    """The error for a cursor that cannot be read."""
    return BadQuestion("The cursor is none that this list gave. Begin again without one.", code="bad_cursor")


def uuid_key(text: str) -> uuid.UUID:
    """A UUID out of a cursor."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise bad_cursor() from None


def number_key(text: str) -> int:
    """A number out of a cursor."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise bad_cursor()
    return int(text)


def time_key(text: str) -> datetime:
    """A time out of a cursor."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad_cursor() from None
    if moment.tzinfo is None:
        raise bad_cursor()
    return moment


def cut(rows: Sequence[T], limit: int | None) -> tuple[tuple[T, ...], bool]:
    """The first `limit` rows of `limit + 1` that were asked for, and whether there are more."""
    if limit is None or len(rows) <= limit:
        return tuple(rows), False
    return tuple(rows[:limit]), True
