"""The smallest pieces that a chunk is made of, and how they are made from running text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ingest_worker.chunk.borders import CUT_ONLY, boundary_key
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.sentences import split_paragraphs, split_pieces, split_sentences
from shared.documents import ElementKind, Span

# Ranks of boundaries, strongest first. Headings have their level, 1 to 6.
BIG_PARAGRAPH: Final = 7
"""Before and after a paragraph that leaves little room for others in its chunk."""
FIRM: Final = 7
"""Ranks below this are borders wherever their window allows it."""
PARAGRAPH: Final = 10
SENTENCE: Final = 20
PIECE: Final = 30

_MOST_CHARS: Final = 30
"""More characters than this make more than one token, in any text with words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of text that is not cut: a heading, a sentence, a small block of code.

    `text` has no white space at its end; `gap` is what stood between it and the next unit. `rank` and `key` belong to the
    boundary before it (see `borders`). `section` is the heading path at this place.
    """

    text: str
    tokens: int
    rank: int
    span: Span
    key: int = 0
    gap: str = "\n\n"
    section: tuple[str, ...] = ()
    kind: ElementKind = ElementKind.TEXT
    language: str | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    gap: str
    rank: int
    span: Span


def text_units(
    text: str,
    span: Span,
    section: tuple[str, ...],
    counter: Counter,
    *,
    limit: int,
    first_rank: int = PARAGRAPH,
) -> list[Unit]:
    """Units of one element of running text; `first_rank` is the rank of the boundary before it, `limit` is in tokens."""
    parts: list[_Part] = []
    starts: list[int] = []
    line = span.line_start
    for paragraph in split_paragraphs(text):
        starts.append(len(parts))
        for sentence in split_sentences(paragraph):
            parts.append(_part(sentence, CUT_ONLY, span, line))
            line = None if line is None else line + sentence.count("\n")
    # What is far too long for a chunk is cut into pieces without being counted whole.
    counts = counter.count_many([part.text if len(part.text) < limit * _MOST_CHARS else "" for part in parts])
    counts = [count if len(part.text) < limit * _MOST_CHARS else limit + 1 for part, count in zip(parts, counts, strict=True)]
    units: list[Unit] = []
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        whole = sum(counts[start:end]) <= limit
        paragraph_units: list[Unit] = []
        for part, tokens in zip(parts[start:end], counts[start:end], strict=True):
            rank = PARAGRAPH if not paragraph_units else part.rank if whole else SENTENCE
            if tokens <= limit:
                paragraph_units.append(_unit(part, tokens, rank, section))
            else:
                paragraph_units += _pieces(part, rank, section, counter, limit)
        units += paragraph_units
    if units:
        units[0] = replace(units[0], rank=first_rank)
        units[-1] = replace(units[-1], gap="\n\n")
    return units


def mark_big_paragraphs(units: list[Unit], *, big: int) -> list[Unit]:
    """Give the boundaries around paragraphs of more than `big` tokens a stronger rank.

    A chunk that may hold such a paragraph and its neighbours would often be too large, and cutting it moves more borders.
    """
    starts = [i for i, unit in enumerate(units) if i == 0 or unit.rank <= PARAGRAPH]
    strong: set[int] = set()
    for start, end in zip(starts, [*starts[1:], len(units)], strict=True):
        if sum(unit.tokens for unit in units[start:end]) > big:
            strong |= {start, end}
    return [replace(unit, rank=BIG_PARAGRAPH) if i in strong and unit.rank == PARAGRAPH else unit for i, unit in enumerate(units)]


def join(units: Iterable[Unit]) -> str:
    """The text of neighbouring units, with the white space that stood between them."""
    return "".join(text for unit in units for text in (unit.text, unit.gap)).strip("\n").rstrip()


def _part(text: str, rank: int, span: Span, line: int | None) -> _Part:
    body = text.rstrip()
    gap = text[len(body) :]
    if "\f" in gap or gap.count("\n") > 1:
        gap = "\n\n"
    lead = len(body) - len(body.lstrip("\n\f"))
    if line is not None:
        first = line + body[:lead].count("\n")
        span = replace(span, line_start=first, line_end=line + body.count("\n"))
    return _Part(body[lead:], gap, rank, span)


def _unit(part: _Part, tokens: int, rank: int, section: tuple[str, ...]) -> Unit:
    return Unit(
        text=part.text, tokens=tokens, rank=rank, gap=part.gap, key=boundary_key(part.text), span=part.span, section=section
    )


def _pieces(part: _Part, rank: int, section: tuple[str, ...], counter: Counter, limit: int) -> list[Unit]:
    """A sentence that is larger than a chunk, in pieces; a character is at most about one token."""
    line = part.span.line_start
    parts: list[_Part] = []
    for piece in split_pieces(part.text, max(8, min(120, limit // 2))):
        parts.append(_part(piece, PIECE, part.span, line))
        line = None if line is None else line + piece.count("\n")
    counts = counter.count_many([piece.text for piece in parts])
    units = [_unit(piece, tokens, PIECE, section) for piece, tokens in zip(parts, counts, strict=True)]
    units[0] = replace(units[0], rank=rank)
    units[-1] = replace(units[-1], gap=part.gap)
    return units
