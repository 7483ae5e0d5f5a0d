"""Which ranges of a document can be asked for: its pages or slides, and its lines or rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

_RANGES: LiteralString = """
    SELECT min(place.page_start) AS first_page, max(coalesce(place.page_end, place.page_start)) AS last_page,
           min(place.slide) AS first_slide, max(place.slide) AS last_slide,
           min(place.line_start) AS first_line, max(coalesce(place.line_end, place.line_start)) AS last_line,
           min(place.row_start) AS first_row, max(coalesce(place.row_end, place.row_start)) AS last_row
    FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
    WHERE d.document_id = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The first and last page, slide, line and row with text, each 1-based; None of what the document has not."""

    first_page: int | None = None
    last_page: int | None = None
    first_slide: int | None = None
    last_slide: int | None = None
    first_line: int | None = None
    last_line: int | None = None
    first_row: int | None = None
    last_row: int | None = None


def read_ranges(connection: Connection[Any], document_id: uuid.UUID) -> Ranges:
    """The ranges of the version that is served."""
    with connection.cursor(row_factory=class_row(Ranges)) as cursor:
        return cursor.execute(_RANGES, (document_id,)).fetchone() or Ranges()


def ranges_said(ranges: Ranges) -> str:
    """What can be asked for, as a sentence for a model."""
    pages = _named(("pages", ranges.first_page, ranges.last_page), ("slides", ranges.first_slide, ranges.last_slide))
    lines = _named(("lines", ranges.first_line, ranges.last_line), ("rows", ranges.first_row, ranges.last_row))
    taken = [f"page_start and page_end ({pages})"] * bool(pages) + [f"line_start and line_end ({lines})"] * bool(lines)
    if not taken:
        return "It has neither pages nor lines: read it whole, or one passage by its chunk_id."
    return f"It takes {' or '.join(taken)}{_lacking(pages, lines)}."


def _lacking(pages: str, lines: str) -> str:
    if pages and lines:
        return ""
    return ", and has no lines" if pages else ", and has no pages"


def _named(*found: tuple[str, int | None, int | None]) -> str:
    parts: Sequence[str] = [f"{word} {first} to {last}" for word, first, last in found if first is not None]
    return ", ".join(parts)
