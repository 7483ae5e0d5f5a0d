"""From a file's bytes to a parsed document: detect, decode, and the parser of its format."""

from __future__ import annotations

from collections.abc import Callable

from ingest_worker.parse.encoding import decode
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.markdown import parse_markdown
from ingest_worker.parse.pdf import PdfLimits, parse_pdf
from ingest_worker.parse.plain import parse_plain
from ingest_worker.parse.registry import FormatKind, detect
from ingest_worker.parse.source import parse_source
from shared.documents import ParsedDocument


def _nobody(page: int) -> None:
    """Progress that nobody asked for."""


def parse(
    path: str, data: bytes, *, pdf_limits: PdfLimits | None = None, on_page: Callable[[int], None] = _nobody
) -> ParsedDocument:
    """Parse a file; `path` is used only for its name. `on_page` hears the 1-based page that is read next.

    Raises:
        Skipped: the file is left out on purpose (its subclass Unsupported: no parser reads it yet).
        Unreadable: the file is encrypted, damaged or too large.
    """
    found = detect(path, data)
    if found.kind is FormatKind.PDF:
        return parse_pdf(data, found.media_type, pdf_limits or PdfLimits(), on_page)
    decoded = decode(data)
    if not decoded.text.strip():
        raise Skipped(f"{path} holds no text.", code="empty")
    if found.kind is FormatKind.MARKDOWN:
        return parse_markdown(decoded, found.media_type)
    if found.kind is FormatKind.SOURCE:
        return parse_source(decoded, found.media_type, found.language)
    return parse_plain(decoded, found.media_type)
