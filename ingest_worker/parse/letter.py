"""A message, whatever it was stored as: who wrote it to whom and when, its text, and the files that came with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.file import File
from ingest_worker.parse.html import add_html
from ingest_worker.parse.inside import Inside, read_inside
from shared.documents import ParsedDocument
from shared.text import clean_text

_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_LINKS: Final = ("://", "www.", "mailto:")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n")


@dataclass(slots=True)
class Letter:
    """`headers` are shown in their order; each body has its plain and its HTML form, one of which may be missing."""

    subject: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[tuple[str | None, str | None]] = field(default_factory=list)
    attachments: list[tuple[str, bytes]] = field(default_factory=list)
    messages: list[tuple[str, Letter]] = field(default_factory=list)  # messages that came with it and are read already
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_letter(file: File, letter: Letter) -> ParsedDocument:
    """The message with its attachments, each read as a file of its own and cited by its name."""
    builder = Builder()
    builder.heading(letter.subject, 1)
    lines = [f"{name}: {' '.join(value.split())}" for name, value in letter.headers if value.strip()]
    names = [name for name, _ in (*letter.attachments, *letter.messages)]
    if names:
        lines.append(f"Attachments: {', '.join(names)}")
    builder.text("\n".join(lines))
    warnings: list[str] = []
    for plain, html in letter.bodies:
        warnings += _add_body(builder, plain, html)
    inside = Inside(unread=letter.unread, notes=letter.notes)
    for name, data in letter.attachments:
        read_inside(file, name, data, inside)
    for name, message in letter.messages:
        inside.add(name, read_letter(file, message))
    return ParsedDocument(
        elements=(*builder.elements, *inside.elements),
        media_type=file.media_type,
        title=" ".join(clean_text(letter.subject).split())[:300] or None,
        warnings=(*warnings, *inside.notes),
        unread=tuple(inside.unread),
    )


def _add_body(builder: Builder, plain: str | None, html: str | None) -> tuple[str, ...]:
    """The HTML form, which keeps tables and lists, and what the plain one says beside it; the plain one when it stands alone."""
    formatted = Builder()
    warnings: tuple[str, ...] = ()
    if html:
        _, warnings = add_html(formatted, html)
    if formatted.is_empty:
        builder.text(plain or "")
        return warnings
    builder.extend(formatted.elements)
    said = {word for element in formatted.elements for word in _words(element.text)}
    paragraphs = [paragraph for paragraph in _PARAGRAPH_END.split(clean_text(plain or "")) if paragraph.strip()]
    missing = [paragraph for paragraph in paragraphs if not said.issuperset(_words(paragraph))]
    builder.text("\n\n".join(paragraphs if len(missing) * 2 > len(paragraphs) else missing))
    return warnings


def _words(text: str) -> list[str]:
    """The words that say something; addresses of links are written in one form of a mail and not in the other."""
    return _WORD.findall(" ".join(word for word in text.lower().split() if not any(mark in word for mark in _LINKS)))
