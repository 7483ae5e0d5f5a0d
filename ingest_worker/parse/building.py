"""Elements in reading order: each text is cleaned here, and what is empty is left out."""

from __future__ import annotations

from collections.abc import Sequence

from ingest_worker.parse.markdown_table import markdown_tables
from shared.documents import Element, ElementKind, Span
from shared.text import clean_text


class Builder:
    """Collects the elements of a document. `span` is where the next ones stand, unless they say otherwise."""

    def __init__(self, span: Span | None = None) -> None:
        self.span = span or Span()
        self.elements: list[Element] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found yet."""
        return not self.elements

    def heading(self, text: str, level: int, span: Span | None = None) -> None:
        """A heading on one line; `level` counts from 1."""
        text = " ".join(clean_text(text).split())
        if text:
            self.elements.append(Element(kind=ElementKind.HEADING, text=text, level=max(1, level), span=span or self.span))

    def text(self, text: str, span: Span | None = None) -> None:
        """A paragraph, a list, a note."""
        text = clean_text(text).strip("\n").rstrip()
        if text.strip():
            self.elements.append(Element(kind=ElementKind.TEXT, text=text, span=span or self.span))

    def code(self, text: str, language: str | None, span: Span | None = None) -> None:
        """Code, its indentation kept."""
        text = clean_text(text).strip("\n").rstrip()
        if text.strip():
            self.elements.append(Element(kind=ElementKind.CODE, text=text, language=language, span=span or self.span))

    def table(self, rows: Sequence[Sequence[str]], span: Span | None = None) -> None:
        """A table whose first row is its header, several beside each other when it is wide. What is blank is left out."""
        for text in markdown_tables(rows):
            self.elements.append(Element(kind=ElementKind.TABLE, text=text, span=span or self.span))

    def extend(self, elements: Sequence[Element]) -> None:
        """Elements that are ready."""
        self.elements.extend(elements)
