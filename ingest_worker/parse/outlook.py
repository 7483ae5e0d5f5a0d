"""Outlook messages (.msg, MS-OXMSG) to elements, read from the properties in their compound file.

Not python-oxmsg, which reads the same properties, but no messages in messages and no text that is stored as RTF alone.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import olefile

from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.html import decode_html
from ingest_worker.parse.inside import attachment_name
from ingest_worker.parse.letter import Letter, read_letter
from ingest_worker.parse.rtf_tokens import codec_of
from shared.documents import ParsedDocument

Path = tuple[str, ...]

# Property numbers: MS-OXPROPS.
_SUBJECT, _BODY, _HTML, _RTF = "0037", "1000", "1013", "1009"
_SENDER_NAME, _SENDER_ADDRESS, _SENDER_SMTP = "0C1A", "0C1F", "5D01"
_TO, _CC = "0E04", "0E03"
_SUBMITTED, _DELIVERED, _CODE_PAGE, _INTERNET_CODE_PAGE = 0x0039, 0x0E06, 0x3FFD, 0x3FDE
_LONG_NAME, _SHORT_NAME, _DATA, _DISPLAY_NAME = "3707", "3704", "3701", "3001"
_ATTACHMENT: Final = "__attach_version1.0_#"
_EMBEDDED: Final = "__substg1.0_3701000D"
_MOST_DEPTH: Final = 4
_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)
_RTF_START: Final = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbolArial"
    rb"Times New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n" + rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
"""What the dictionary of compressed RTF begins with (MS-OXRTFCP, section 2.1.2.1)."""


def parse(file: File) -> ParsedDocument:
    """The message's headers and text, then its attachments.

    Raises:
        Unreadable: it is damaged.
    """
    try:
        with olefile.OleFileIO(io.BytesIO(file.data)) as compound:
            letter = _letter(_Store(compound=compound), 0)
    except (OSError, ValueError, IndexError, KeyError, struct.error, RecursionError) as error:
        raise Unreadable(f"The Outlook message is damaged: {error}. Save it anew.", code="damaged") from error
    return read_letter(file, letter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """A message, or an attachment, in the file; `header` is the length of what stands before its fixed properties."""

    compound: olefile.OleFileIO
    path: Path = ()
    header: int = 32

    def stream(self, name: str) -> bytes | None:
        """The bytes of a stream."""
        where = [*self.path, name]
        return bytes(self.compound.openstream(where).read()) if self.compound.exists(where) else None

    def binary(self, number: str) -> bytes | None:
        """A property of bytes."""
        return self.stream(f"__substg1.0_{number}0102")

    def text(self, number: str) -> str | None:
        """A property of text, stored as UTF-16 or in the message's code page."""
        wide = self.stream(f"__substg1.0_{number}001F")
        if wide is not None:
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self.stream(f"__substg1.0_{number}001E")
        if narrow is None:
            return None
        return decode_html(narrow.rstrip(b"\0"), codec_of(self.number(_CODE_PAGE))).text

    def number(self, tag: int) -> int | None:
        """A property that is a number or a time."""
        fixed = self.stream("__properties_version1.0") or b""
        for at in range(self.header, len(fixed) - 15, 16):
            kind, found = struct.unpack_from("<HH", fixed, at)
            if found == tag and kind in (0x0003, 0x0040):
                return int.from_bytes(fixed[at + 8 : at + (12 if kind == 0x0003 else 16)], "little")
        return None

    def folders(self, prefix: str) -> list[Path]:
        """The storages below this one whose names begin so, in order."""
        depth = len(self.path)
        found = {tuple(path[: depth + 1]) for path in self.compound.listdir() if tuple(path[:depth]) == self.path}
        return sorted(path for path in found if len(path) > depth and path[depth].startswith(prefix))


def _letter(store: _Store, depth: int) -> Letter:
    letter = Letter(subject=store.text(_SUBJECT) or "")
    sent = store.number(_SUBMITTED) or store.number(_DELIVERED)
    letter.headers = [
        ("From", _sender(store)),
        ("To", store.text(_TO) or ""),
        ("Cc", store.text(_CC) or ""),
        ("Date", _date(sent)),
        ("Subject", letter.subject),
    ]
    html = store.binary(_HTML)
    page = decode_html(html, codec_of(store.number(_INTERNET_CODE_PAGE))).text if html else store.text(_HTML)
    plain = store.text(_BODY)
    if plain or page:
        letter.bodies.append((plain, page))
    elif (packed := store.binary(_RTF)) and (rich := unpack_rtf(packed)):
        letter.attachments.append(("text.rtf", rich))
    for path in store.folders(_ATTACHMENT):
        _attach(letter, _Store(compound=store.compound, path=path, header=8), depth)
    return letter


def _attach(letter: Letter, store: _Store, depth: int) -> None:
    number = len(letter.attachments) + 1
    given = store.text(_LONG_NAME) or store.text(_SHORT_NAME) or store.text(_DISPLAY_NAME)
    data = store.binary(_DATA)
    if data is not None:
        if data:
            letter.attachments.append((attachment_name(given, f"attachment {number}"), data))
        return
    embedded = _Store(compound=store.compound, path=(*store.path, _EMBEDDED), header=24)
    if embedded.stream("__properties_version1.0") is None:
        letter.notes.append(f"{attachment_name(given, f'attachment {number}')} is a link, not a file.")
        return
    if depth >= _MOST_DEPTH:
        letter.unread.append("A message lies too deep in other messages and was not read.")
        return
    inner = _letter(embedded, depth + 1)
    letter.messages.append((attachment_name(given or inner.subject, "message"), inner))


def _sender(store: _Store) -> str:
    name = (store.text(_SENDER_NAME) or "").strip()
    address = (store.text(_SENDER_SMTP) or store.text(_SENDER_ADDRESS) or "").strip()
    return f"{name} <{address}>" if name and address and address != name else name or address


def _date(ticks: int | None) -> str:
    """A time in tenths of a microsecond since 1601."""
    if not ticks:
        return ""
    try:
        return (_EPOCH + timedelta(microseconds=ticks // 10)).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError):
        return ""


def unpack_rtf(packed: bytes) -> bytes | None:
    """Compressed RTF (MS-OXRTFCP, section 2.2); None when it is none."""
    if len(packed) < 16:
        return None
    _, raw_size, kind = struct.unpack_from("<III", packed)
    content = packed[16:]
    if kind == 0x414C454D:
        return content[:raw_size]
    if kind != 0x75465A4C:
        return None
    window = bytearray(_RTF_START.ljust(4096, b" "))
    at, write = 0, len(_RTF_START)
    out = bytearray()
    while at < len(content):
        control = content[at]
        at += 1
        for bit in range(8):
            if at >= len(content):
                break
            if control >> bit & 1:
                if at + 1 >= len(content):
                    return bytes(out)
                reference = content[at] << 8 | content[at + 1]
                at += 2
                offset, length = reference >> 4, (reference & 15) + 2
                if offset == write:
                    return bytes(out)
                for i in range(length):
                    byte = window[(offset + i) % 4096]
                    out.append(byte)
                    window[write] = byte
                    write = (write + 1) % 4096
            else:
                out.append(content[at])
                window[write] = content[at]
                write = (write + 1) % 4096
                at += 1
    return bytes(out)
