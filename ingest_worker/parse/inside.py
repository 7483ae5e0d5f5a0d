"""Files inside files: attachments of a mail, documents in a document. Each is read by its own parser and cited by its name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from shared.documents import Element, ParsedDocument
from shared.text import clean_text

MOST_DEPTH: Final = 4
"""Files in files in files: deeper ones are named and left out."""

_NAME_CHARS: Final = 150


@dataclass(slots=True)
class Inside:
    """What came out of files inside a file: elements, sentences on what could not be read, and on what was left out."""

    elements: list[Element] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, parsed: ParsedDocument) -> None:
        """Add a file that was read."""
        self.elements += [_placed(element, name) for element in parsed.elements]
        self.unread += [f"{name}: {sentence}" for sentence in parsed.unread]
        self.notes += [f"{name}: {sentence}" for sentence in parsed.warnings]
        pages, with_text = parsed.page_count, parsed.pages_with_text
        if pages is not None and with_text is not None and with_text < pages:
            sentence = f"{name}: {with_text} of its {pages} pages had text; the others need OCR."
            # Pictures in a mail are logos and signatures more often than scans: what is missing there is a note.
            (self.notes if parsed.media_type.startswith("image/") else self.unread).append(sentence)


def attachment_name(name: str | None, fallback: str) -> str:
    """A name that can be shown and cited: its last part, clean, on one line."""
    text = " ".join(clean_text(name or "").replace("\\", "/").rpartition("/")[2].split())
    text = text.replace(" > ", " ")
    return text[-_NAME_CHARS:] or fallback


def read_inside(outer: File, name: str, data: bytes, inside: Inside) -> None:
    """Read a file that lies in `outer` and add what is in it to `inside`, cited by `name`."""
    if outer.parse is None or outer.depth >= MOST_DEPTH:
        inside.unread.append(f"{name} lies in {outer.depth + 1} other files and was not read.")
        return
    if not outer.allowance.take(len(data)):
        inside.unread.append(f"{name} was not read: the files inside this one are too many or too large.")
        return
    pictures = outer.pictures
    before = len(pictures) if pictures is not None else 0
    try:
        parsed = outer.parse(outer.inner(name, data))
    except Skipped as error:
        inside.notes.append(f"{name} was left out: {error}")
        return
    except Unreadable as error:
        inside.unread.append(f"{name} could not be read: {error}")
        return
    finally:
        if pictures is not None:
            pictures.attach(before, name)
    inside.add(name, parsed)


def _placed(element: Element, name: str) -> Element:
    within = element.span.attachment
    return replace(element, span=replace(element.span, attachment=f"{name} > {within}" if within else name))
