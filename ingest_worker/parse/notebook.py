"""Jupyter notebooks to elements: the cells in their order, Markdown as Markdown, code as code, with the text of its outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.encoding import Decoded, decode
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.html import add_html
from ingest_worker.parse.markdown import parse_markdown
from shared.documents import ElementKind, ParsedDocument, Span
from shared.text import clean_text

_OUTPUT_CHARS: Final = 2_000
"""What is kept of one output: its beginning says what it is, a log of ten thousand lines does not say more."""
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9+#._-]{1,40}")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def parse(file: File) -> ParsedDocument:
    """The notebook's cells. Cells have no pages, and lines of the JSON around them say nothing: they are cited by heading.

    Raises:
        Skipped: its cells are empty.
        Unreadable: it is no notebook.
    """
    try:
        # Not orjson, which refuses halves of characters that outputs of programs hold.
        notebook = json.loads(decode(file.data).text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{file.name} is no notebook: its JSON is damaged ({error}). Save it anew.", code="damaged") from error
    if not isinstance(notebook, dict):
        raise Unreadable(f"{file.name} is no notebook: it holds no cells.", code="damaged")
    language = _language(notebook)
    builder = Builder()
    title: str | None = None
    for cell in _cells(notebook):
        source = clean_text(_text(cell.get("source", cell.get("input"))))
        kind = cell.get("cell_type")
        if kind == "code":
            builder.code(_fenced(source, language), language)
            for output in _outputs(cell):
                builder.text(output)
        elif kind == "markdown":
            parsed = parse_markdown(Decoded(text=source, codec="utf-8"), "text/markdown")
            title = title or parsed.title
            builder.extend([replace(element, span=Span()) for element in parsed.elements])
        elif kind == "heading":
            level = cell.get("level")
            builder.heading(source, level if isinstance(level, int) else 1)
        elif kind == "html":
            add_html(builder, source)
        else:
            builder.text(source)
    if builder.is_empty:
        raise Skipped(f"{file.name} holds no text: its cells are empty.", code="empty")
    first = next((e.text for e in builder.elements if e.kind is ElementKind.HEADING), None)
    return ParsedDocument(
        elements=tuple(builder.elements), media_type=file.media_type, title=title or (first or "")[:300] or None
    )


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of format 4, or of the worksheets of format 3."""
    lists = [notebook.get("cells")]
    worksheets = notebook.get("worksheets")
    if isinstance(worksheets, list):
        lists += [sheet.get("cells") for sheet in worksheets if isinstance(sheet, dict)]
    for cells in lists:
        if isinstance(cells, list):
            yield from (cell for cell in cells if isinstance(cell, dict))


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    for name in ("language_info", "kernelspec"):
        found = metadata.get(name) if isinstance(metadata, dict) else None
        language = found.get("name" if name == "language_info" else "language") if isinstance(found, dict) else None
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return "python" if language == "ipython" else language.lower()
    return "python"


def _fenced(source: str, language: str) -> str:
    if not source.strip():
        return ""
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", source)), default=0) + 1)
    return f"{fence}{language}\n{source.rstrip()}\n{fence}"


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        text = _text(output.get("text"))
        if not text and isinstance(data, dict):
            text = _text(data.get("text/markdown") or data.get("text/plain"))
        if not text and output.get("ename"):
            text = f"{output.get('ename')}: {output.get('evalue')}"
        text = _ESCAPES.sub("", text).strip("\n")
        if text.strip():
            cut = f"{text[:_OUTPUT_CHARS]} […]" if len(text) > _OUTPUT_CHARS else text
            yield f"Output:\n{cut}"


def _text(value: object) -> str:
    """A text, or the list of its lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""
