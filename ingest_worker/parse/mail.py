"""Mails (RFC 5322, MIME) to elements, and web pages that were saved as mails (.mht).

The parser is Python's own, in its old policy: the new one raises on headers that break the rules.
"""

from __future__ import annotations

import email.parser
import email.utils
import re
from collections.abc import Iterator
from email.header import decode_header
from email.message import Message
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.html import add_html, decode_html
from ingest_worker.parse.inside import attachment_name
from ingest_worker.parse.letter import Letter, read_letter
from shared.documents import ParsedDocument

_HEADERS: Final = ("From", "To", "Cc", "Date", "Reply-To")
_MOST_DEPTH: Final = 40
_MOST_PARTS: Final = 2_000
_APPLE_LENGTH: Final = re.compile(rb"\A\d+\s*\n")
_SIGNATURES: Final = frozenset(("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"))
_ENDINGS: Final = {
    "text/plain": ".txt",
    "text/html": ".html",
    "text/calendar": ".ics",
    "text/csv": ".csv",
    "application/pdf": ".pdf",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "message/rfc822": ".eml",
}


def parse(file: File) -> ParsedDocument:
    """The mail's headers and text, then its attachments; of a saved page its text alone.

    Raises:
        Skipped: it holds no text.
        Unreadable: `too_deep`, its parts are nested without end.
    """
    data = _APPLE_LENGTH.sub(b"", file.data, count=1) if file.name.lower().endswith(".emlx") else file.data
    try:
        message = email.parser.BytesParser().parsebytes(data.lstrip(b"\r\n\xef\xbb\xbf"))
    except RecursionError as error:
        raise Unreadable("The mail's parts are nested too deeply to be read.", code="too_deep") from error
    if file.name.lower().endswith((".mht", ".mhtml")) or message["Snapshot-Content-Location"] is not None:
        return _saved_page(file, message)
    letter = Letter(subject=_header(message, "Subject"))
    letter.headers = [(name, _header(message, name)) for name in _HEADERS]
    letter.headers.append(("Subject", letter.subject))
    _Parts(letter).add(message, 0)
    if not letter.bodies and not letter.attachments and not any(value for _, value in letter.headers):
        raise Skipped(f"{file.name} is no mail, or holds nothing.", code="empty")
    return read_letter(file, letter)


def _saved_page(file: File, message: Message) -> ParsedDocument:
    builder = Builder()
    title: str | None = None
    warnings: list[str] = []
    for part in message.walk():
        if part.get_content_type() in ("text/html", "application/xhtml+xml"):
            found, said = add_html(builder, _decoded(part))
            title = title or found
            warnings += said
    if builder.is_empty:
        raise Skipped(f"{file.name} holds no page with text.", code="empty")
    return ParsedDocument(elements=tuple(builder.elements), media_type=file.media_type, title=title, warnings=tuple(warnings))


class _Parts:
    """The walk through a message's parts."""

    def __init__(self, letter: Letter) -> None:
        self._letter = letter
        self._count = 0

    def add(self, part: Message, depth: int) -> None:
        """Add one part, and what is in it, to the letter."""
        self._count += 1
        if depth > _MOST_DEPTH or self._count > _MOST_PARTS:
            if self._count <= _MOST_PARTS + 1:
                self._letter.unread.append("Parts of the mail are nested too deeply, or too many, and were not read.")
            return
        kind = part.get_content_type()
        if kind == "multipart/alternative":
            self._alternatives(part, depth)
        elif kind == "multipart/encrypted" or (kind.endswith("pkcs7-mime") and part.get_param("smime-type") != "signed-data"):
            self._letter.unread.append("The mail's text is encrypted.")
        elif kind == "message/rfc822":
            self._message(part)
        elif part.is_multipart():
            for one in _children(part):
                self.add(one, depth + 1)
        elif kind in _SIGNATURES:
            return
        elif kind in ("text/plain", "text/html") and part.get_content_disposition() != "attachment" and not _filename(part):
            text = _decoded(part)
            self._letter.bodies.append((None, text) if kind == "text/html" else (text, None))
        else:
            self._attachment(part)

    def _alternatives(self, part: Message, depth: int) -> None:
        """Forms of the same text: plain, HTML, and HTML with its pictures."""
        plain = html = None
        others: list[Message] = []
        for one in _children(part):
            kind = one.get_content_type()
            page = next((p for p in one.walk() if p.get_content_type() == "text/html"), None) if one.is_multipart() else None
            if kind == "text/plain" and plain is None:
                plain = _decoded(one)
            elif kind == "text/html" and html is None:
                html = _decoded(one)
            elif kind == "multipart/related" and page is not None and html is None:
                html = _decoded(page)
                others += [other for other in _children(one) if other is not page]
            else:
                others.append(one)
        self._letter.bodies.append((plain, html))
        for one in others:
            self.add(one, depth + 1)

    def _message(self, part: Message) -> None:
        for one in _children(part):
            name = _filename(part) or _header(one, "Subject") or "message"
            self._letter.attachments.append((attachment_name(name.removesuffix(".eml"), "message") + ".eml", _as_bytes(one)))

    def _attachment(self, part: Message) -> None:
        kind = part.get_content_type()
        number = len(self._letter.attachments) + 1
        name = attachment_name(_filename(part), f"attachment {number}{_ENDINGS.get(kind, '')}")
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes) or not data:
            return
        if part.get_content_disposition() != "attachment" and part["Content-ID"] and kind.startswith("image/"):
            # A picture of the text itself: a logo, a signature.
            self._letter.notes.append(f"{name} is a picture in the text.")
            return
        self._letter.attachments.append((name, data))


def _children(part: Message) -> Iterator[Message]:
    payload = part.get_payload()
    if isinstance(payload, list):
        yield from (one for one in payload if isinstance(one, Message))


def _as_bytes(message: Message) -> bytes:
    try:
        return message.as_bytes()
    except (UnicodeError, LookupError, KeyError, ValueError):
        # Headers that no codec takes cannot be written back as they were.
        return message.as_string().encode("utf-8", "surrogateescape")


def _decoded(part: Message) -> str:
    """The text of a part: what its bytes say of their codec goes before what its header says."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    text = decode_html(data, _charset(part)).text
    if part.get_param("format") == "flowed":
        # Lines that end with a space go on in the next one (RFC 3676).
        text = re.sub(r"(?<!\n--) \n(?!\n)", " ", text)
    return text


def _charset(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except ValueError:  # a name with NUL in it
        return None


def _filename(part: Message) -> str:
    try:
        name = part.get_filename()
    except ValueError:
        return ""
    return _words(name) if name else ""


def _header(message: Message, name: str) -> str:
    return ", ".join(_words(str(value)) for value in message.get_all(name, []))


def _words(value: str) -> str:
    """A header's value, with its encoded words (RFC 2047) decoded; what breaks the rules stays as it is."""
    try:
        pieces = decode_header(value)
    except (ValueError, LookupError):
        return value
    parts: list[str] = []
    for piece, codec in pieces:
        if isinstance(piece, bytes):
            parts.append(decode_html(piece, codec).text if codec and codec != "unknown-8bit" else decode_html(piece).text)
        else:
            parts.append(piece)
    return "".join(parts)
