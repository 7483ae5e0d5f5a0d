"""Source code: one element that holds the whole file; the syntax tree is read when it is chunked."""

from __future__ import annotations

from ingest_worker.parse.encoding import Decoded
from shared.documents import Element, ElementKind, ParsedDocument, Span


def parse_source(decoded: Decoded, media_type: str, language: str | None) -> ParsedDocument:
    """The file as one CODE element; its lines count from 1."""
    element = Element(
        kind=ElementKind.CODE,
        text=decoded.text,
        language=language,
        span=Span(line_start=1, line_end=decoded.text.rstrip("\n").count("\n") + 1),
    )
    return ParsedDocument(
        elements=(element,), media_type=media_type, is_source=True, encoding=decoded.label, warnings=decoded.warnings
    )
