"""The formats that are read: the parser of each, and the names and media types that they go by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FormatKind(StrEnum):
    """The parser that reads a file."""

    MARKDOWN = "markdown"
    TEXT = "text"
    PDF = "pdf"
    SOURCE = "source"
    HTML = "html"
    DELIMITED = "delimited"
    WORD = "word"
    SLIDES = "slides"
    SHEETS = "sheets"
    OTHER_SHEETS = "other_sheets"
    OPEN_DOCUMENT = "open_document"
    RICH_TEXT = "rich_text"
    EPUB = "epub"
    MAIL = "mail"
    OUTLOOK = "outlook"
    NOTEBOOK = "notebook"
    IMAGE = "image"
    DRAWING = "drawing"
    ENCRYPTED_OFFICE = "encrypted_office"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a file is. `language` names the grammar of source code (`python`)."""

    kind: FormatKind
    media_type: str
    language: str | None = None


_OOXML: Final = "application/vnd.openxmlformats-officedocument."
DOCX: Final = Format(kind=FormatKind.WORD, media_type=f"{_OOXML}wordprocessingml.document")
PPTX: Final = Format(kind=FormatKind.SLIDES, media_type=f"{_OOXML}presentationml.presentation")
XLSX: Final = Format(kind=FormatKind.SHEETS, media_type=f"{_OOXML}spreadsheetml.sheet")
XLSB: Final = Format(kind=FormatKind.OTHER_SHEETS, media_type="application/vnd.ms-excel.sheet.binary.macroEnabled.12")
XLS: Final = Format(kind=FormatKind.OTHER_SHEETS, media_type="application/vnd.ms-excel")
ODS: Final = Format(kind=FormatKind.OTHER_SHEETS, media_type="application/vnd.oasis.opendocument.spreadsheet")
EPUB: Final = Format(kind=FormatKind.EPUB, media_type="application/epub+zip")
HTML: Final = Format(kind=FormatKind.HTML, media_type="text/html")
RTF: Final = Format(kind=FormatKind.RICH_TEXT, media_type="application/rtf")
EML: Final = Format(kind=FormatKind.MAIL, media_type="message/rfc822")
MSG: Final = Format(kind=FormatKind.OUTLOOK, media_type="application/vnd.ms-outlook")
NOTEBOOK: Final = Format(kind=FormatKind.NOTEBOOK, media_type="application/x-ipynb+json")
SVG: Final = Format(kind=FormatKind.DRAWING, media_type="image/svg+xml")
ENCRYPTED: Final = Format(kind=FormatKind.ENCRYPTED_OFFICE, media_type="application/encrypted")
MARKDOWN: Final = Format(kind=FormatKind.MARKDOWN, media_type="text/markdown")
PDF: Final = Format(kind=FormatKind.PDF, media_type="application/pdf")
TEXT: Final = Format(kind=FormatKind.TEXT, media_type="text/plain")


def open_document(media_type: str) -> Format:
    """An OpenDocument text, presentation or drawing."""
    return Format(kind=FormatKind.OPEN_DOCUMENT, media_type=media_type)


def delimited(extension: str) -> Format:
    """A table of separated values."""
    return Format(
        kind=FormatKind.DELIMITED, media_type="text/tab-separated-values" if extension in ("tsv", "tab") else "text/csv"
    )


def picture(kind: str) -> Format:
    """A picture of pixels (`png`)."""
    return Format(kind=FormatKind.IMAGE, media_type=f"image/{kind}")
