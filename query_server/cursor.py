"""Cursors: opaque to the caller, bound to one question and one state of the index."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass

from shared.errors import PermanentError

LARGEST_OFFSET = 2**128 - 1
"""A listing's cursor holds the last document's id as its offset."""

_DAMAGED = "The cursor is damaged. Pass next_cursor on exactly as it was given."


class CursorExpired(PermanentError):
    """The index changed since the cursor was made, so its place in the ranking is gone. Ask again without a cursor."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or str(self.__doc__), code="cursor_expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where to go on: `offset` into the answer to the question with this hash, while the index has this version.

    `order` names the reranker's order that the page before was cut from; it is empty for the order of the fusion.
    """

    question: str
    index_version: int
    offset: int
    order: str = ""

    def encode(self) -> str:
        """The text that callers hand back."""
        order = [self.order] if self.order else []
        raw = json.dumps([self.question, self.index_version, self.offset, *order], separators=(",", ":"))
        return base64.urlsafe_b64encode(raw.encode("ascii")).decode("ascii").rstrip("=")


def question_hash(*parts: object) -> str:
    """A short hash of all that makes an answer what it is."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def decode_cursor(text: str, question: str) -> Cursor | None:
    """The cursor that a caller handed back, None for an empty one.

    Raises:
        PermanentError: `bad_cursor`, it is no cursor, or one of another question.
    """
    if not text:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        asked, version, offset, *order = json.loads(raw)
        numbers = type(version) is int and type(offset) is int
    except (ValueError, TypeError, binascii.Error, UnicodeDecodeError, RecursionError):
        raise PermanentError(_DAMAGED, code="bad_cursor") from None
    if not numbers or offset > LARGEST_OFFSET or not all(isinstance(part, str) for part in (asked, *order)) or len(order) > 1:
        raise PermanentError(_DAMAGED, code="bad_cursor")
    cursor = Cursor(question=asked, index_version=version, offset=offset, order="".join(order))
    if cursor.question != question or cursor.offset < 0:
        raise PermanentError(
            "The cursor belongs to another question. Repeat the same arguments with it, or leave it out.", code="bad_cursor"
        )
    return cursor
