"""From a file's bytes to a parsed document: detect, and the parser of its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Final, cast

from ingest_worker.parse.encoding import decode
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File, nobody
from ingest_worker.parse.general import read_with_second_opinion
from ingest_worker.parse.generated import beginning, is_generated, without_data
from ingest_worker.parse.markdown import parse_markdown
from ingest_worker.parse.ocr import OcrSettings
from ingest_worker.parse.pdf import PdfLimits, parse_pdf
from ingest_worker.parse.pictures import Pictures
from ingest_worker.parse.plain import parse_plain
from ingest_worker.parse.registry import Format, FormatKind, detect
from ingest_worker.parse.source import parse_source
from shared.documents import ParsedDocument

_MODULES: Final[dict[FormatKind, str]] = {
    FormatKind.HTML: "html",
    FormatKind.DELIMITED: "delimited",
    FormatKind.WORD: "docx",
    FormatKind.SLIDES: "pptx",
    FormatKind.SHEETS: "xlsx",
    FormatKind.OTHER_SHEETS: "workbook",
    FormatKind.OPEN_DOCUMENT: "odf",
    FormatKind.RICH_TEXT: "rtf",
    FormatKind.EPUB: "epub",
    FormatKind.MAIL: "mail",
    FormatKind.OUTLOOK: "outlook",
    FormatKind.NOTEBOOK: "notebook",
    FormatKind.IMAGE: "image",
    FormatKind.DRAWING: "image",
    FormatKind.ENCRYPTED_OFFICE: "encrypted",
}
"""The module of a format whose libraries are loaded with the first file of that format: it has a function `parse`."""


_NO_TEXT: Final = " \t\n\f\ufffd"
_MOST_CHARACTERS: Final = 20_000_000
"""Characters of one text file; chunking them takes half a minute."""


def parse(
    path: str,
    data: bytes,
    *,
    pdf_limits: PdfLimits | None = None,
    on_page: Callable[[int], None] = nobody,
    passwords: tuple[str, ...] = (),
    ocr: OcrSettings | None = None,
    pictures: Pictures | None = None,
) -> ParsedDocument:
    """Parse a file; `path` is used only for its name. `on_page` hears the 1-based page that is read next.

    `pictures` collects those of the file.

    Raises:
        Skipped: the file is left out on purpose (its subclass Unsupported: no parser reads it yet).
        Unreadable: the file is encrypted, damaged or too large.
    """
    read = partial(_parse, pdf_limits=pdf_limits or PdfLimits())
    return read(
        File(
            name=path,
            data=data,
            passwords=passwords,
            ocr=ocr or OcrSettings(),
            on_page=on_page,
            parse=read,
            pictures=pictures,
        )
    )


def _parse(file: File, *, pdf_limits: PdfLimits) -> ParsedDocument:
    before = len(file.pictures) if file.pictures is not None else 0
    document = _read(file, pdf_limits)
    if file.pictures is not None:
        file.pictures.surround(before, document.elements)
    return document


def _read(file: File, pdf_limits: PdfLimits) -> ParsedDocument:
    found = detect(file.name, file.data)
    if found.kind is FormatKind.PDF:
        return parse_pdf(replace(file, media_type=found.media_type), pdf_limits)
    if found.kind in _MODULES:
        module = import_module(f"ingest_worker.parse.{_MODULES[found.kind]}")
        read = cast("Callable[[File], ParsedDocument]", module.parse)
        return read_with_second_opinion(read, replace(file, media_type=found.media_type), found.kind)
    return _parse_text(file, found)


def _parse_text(file: File, found: Format) -> ParsedDocument:
    decoded, data = without_data(decode(file.data))
    if not decoded.text.strip(_NO_TEXT):
        raise Skipped(f"{file.name} holds no text.", code="empty")
    if len(decoded.text) > _MOST_CHARACTERS:
        raise Unreadable(
            f"{file.name} holds {len(decoded.text):,} characters of text; at most {_MOST_CHARACTERS:,} are read. Split it.",
            code="too_large",
        )
    rest = None
    if found.kind is FormatKind.MARKDOWN:
        document = parse_markdown(decoded, found.media_type, mdx=file.name.lower().endswith(".mdx"))
    elif found.kind is FormatKind.SOURCE:
        if is_generated(file.name, decoded.text):
            decoded, rest = beginning(decoded)
        document = parse_source(decoded, found.media_type, found.language)
    else:
        document = parse_plain(decoded, found.media_type)
    return replace(
        document,
        warnings=(*document.warnings, *([data] if data else [])),
        unread=(*document.unread, *([rest] if rest else [])),
    )
