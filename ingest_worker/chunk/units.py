"""The smallest pieces that a chunk is made of, and how they are made from running text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ingest_worker.chunk.borders import CUT_ONLY, boundary_key
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.sentences import split_paragraphs, split_pieces, split_sentences
from shared.documents import ElementKind, Span

# Ranks of boundaries, strongest first. Headings have their level, 1 to 6.
PAGE: Final = 6
"""Before the first text of a page, in documents whose pages are borders."""
BIG_PARAGRAPH: Final = 7
"""Before and after a paragraph that leaves little room for others in its chunk."""
FIRM: Final = 7
"""Ranks below this are borders wherever their window allows it."""
PARAGRAPH: Final = 10
ITEM: Final = 11
"""Before an item of a list; an item of a list inside an item is one weaker, down to the fifth level."""
WITHIN_ITEM: Final = 17
"""Before a paragraph or a block of code that belongs to an item of a list."""
SENTENCE: Final = 20
PIECE: Final = 30

_DEEPEST: Final = 4
_MOST_CHARS: Final = 30
"""More characters than this make more than one token, in any text with words."""
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+•▪–]|\(?\d{1,9}[.)])[ \t]")


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


class _Part(NamedTuple):
    text: str
    gap: str
    rank: int
    span: Span


class Lists:
    """The lists that are open at a place of a text, by the columns where their items begin."""

    def __init__(self) -> None:
        self._columns: list[int] = []

    def clear(self) -> None:
        """No list goes on."""
        self._columns.clear()

    def rank_of(self, text: str, *, paragraph: bool) -> int:
        """The rank of the boundary before `text`, which begins a line; `paragraph` says that a blank line stands before it."""
        column = indentation(text)
        bullet = _BULLET.match(text)
        if bullet is None:
            if not paragraph:
                return SENTENCE
            if column >= 2 and self._columns and column > self._columns[0]:
                return WITHIN_ITEM
            self._columns.clear()
            return PARAGRAPH
        while self._columns and self._columns[-1] >= column:
            self._columns.pop()
        self._columns.append(column)
        depth = min(len(self._columns) - 1, _DEEPEST)
        return PARAGRAPH if paragraph and not depth else ITEM + depth


def indentation(text: str) -> int:
    """The column in which the first line that is not blank begins; a tab goes to the next multiple of four."""
    line = text.lstrip("\n\f")
    if not line.startswith((" ", "\t")):
        return 0
    white = line[: len(line) - len(line.lstrip(" \t"))]
    return len(white.expandtabs(4))


def text_units(
    text: str,
    span: Span,
    section: tuple[str, ...],
    counter: Counter,
    *,
    limit: int,
    first_rank: int | None = None,
    lists: Lists | None = None,
) -> list[Unit]:
    """Units of one element of running text; `limit` is in tokens.

    `first_rank` is the rank of the boundary before it, where that does not follow from the text; `lists` are those that are open
    before it.
    """
    parts = _parts(text, span, first_rank, lists or Lists())
    # What is far too long for a chunk is cut into pieces without being counted whole.
    most = limit * _MOST_CHARS
    counts = counter.count_many([part.text if len(part.text) < most else "" for part in parts])
    units: list[Unit] = []
    for part, tokens in zip(parts, counts, strict=True):
        if tokens <= limit and len(part.text) < most:
            units.append(
                Unit(
                    text=part.text,
                    tokens=tokens,
                    rank=part.rank,
                    span=part.span,
                    key=boundary_key(part.text),
                    gap=part.gap,
                    section=section,
                )
            )
        else:
            units += _pieces(part, section, counter, limit)
    return units


def keep_whole(units: list[Unit], limit: int) -> list[Unit]:
    """The units with boundaries weakened wherever the paragraph, the item or the list around them fits into `limit` tokens."""
    ranks = [unit.rank for unit in units]
    for rank in sorted({rank for rank in ranks if PARAGRAPH < rank <= PIECE}):
        # Between two boundaries that are stronger lies the group that this rank would divide.
        start = 0
        size = 0
        inner = False
        for i, unit in enumerate(units):
            if i and ranks[i] < rank:
                if inner and size <= limit:
                    _weaken(ranks, start, i, rank)
                start, size, inner = i, 0, False
            inner = inner or (i > start and ranks[i] == rank)
            size += unit.tokens
        if inner and size <= limit:
            _weaken(ranks, start, len(units), rank)
    return [unit if unit.rank == rank else replace(unit, rank=rank) for unit, rank in zip(units, ranks, strict=True)]


def mark_big_paragraphs(units: list[Unit], *, big: int) -> list[Unit]:
    """Give the boundaries around paragraphs of more than `big` tokens a stronger rank.

    A chunk that may hold such a paragraph and its neighbours would often be too large, and cutting it moves more borders.
    """
    starts = [i for i, unit in enumerate(units) if i == 0 or unit.rank <= PARAGRAPH]
    strong: set[int] = set()
    for start, end in zip(starts, [*starts[1:], len(units)], strict=True):
        if sum([unit.tokens for unit in units[start:end]]) > big:
            strong |= {start, end}
    if not strong:
        return units
    return [replace(unit, rank=BIG_PARAGRAPH) if i in strong and unit.rank == PARAGRAPH else unit for i, unit in enumerate(units)]


def join(units: Iterable[Unit]) -> str:
    """The text of neighbouring units, with the white space that stood between them."""
    return "".join([text for unit in units for text in (unit.text, unit.gap)]).strip("\n").rstrip()


def common_section(sections: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The heading path of text from several sections: the one that holds them all, with the names of those that it is from.

    `(A, B)` and `(A, C)` give `(A, "B; C")`; `(A,)` and `(A, C)` give `(A,)`.
    """
    first = sections[0]
    if all(section == first for section in sections):
        return first
    shared = 0
    for names in zip(*sections, strict=False):
        if len(set(names)) > 1:
            break
        shared += 1
    rest = list(dict.fromkeys(" > ".join(section[shared:]) for section in sections))
    if "" in rest:
        return first[:shared]
    return (*first[:shared], "; ".join(rest[:_NAMED]) + ("; …" if len(rest) > _NAMED else ""))


_NAMED: Final = 4
"""Sections of one chunk that are named; of more the first ones."""


def _parts(text: str, span: Span, first_rank: int | None, lists: Lists) -> list[_Part]:
    parts: list[_Part] = []
    line = span.line_start
    for paragraph in split_paragraphs(text):
        begins = True
        fresh = True
        for sentence in split_sentences(paragraph):
            rank = lists.rank_of(sentence, paragraph=begins) if fresh else SENTENCE
            if first_rank is not None and not parts:
                rank = first_rank
            parts.append(_part(sentence, rank, span, line))
            begins, fresh = False, sentence.endswith("\n")
            if line is not None:
                line += sentence.count("\n")
    if parts:
        parts[-1] = parts[-1]._replace(gap="\n\n")
    return parts


def _part(text: str, rank: int, span: Span, line: int | None) -> _Part:
    body = text.rstrip()
    gap = text[len(body) :]
    if "\f" in gap or gap.count("\n") > 1:
        gap = "\n\n"
    lead = len(body) - len(body.lstrip("\n\f"))
    if line is not None:
        first, last = line + body.count("\n", 0, lead), line + body.count("\n")
        if (first, last) != (span.line_start, span.line_end):
            span = replace(span, line_start=first, line_end=last)
    return _Part(body[lead:], gap, rank, span)


def _pieces(part: _Part, section: tuple[str, ...], counter: Counter, limit: int) -> list[Unit]:
    """A sentence that is larger than a chunk, in pieces; a character is at most about one token."""
    line = part.span.line_start
    parts: list[_Part] = []
    for piece in split_pieces(part.text, max(8, min(120, limit // 2))):
        parts.append(_part(piece, PIECE if parts else part.rank, part.span, line))
        line = None if line is None else line + piece.count("\n")
    parts[-1] = parts[-1]._replace(gap=part.gap)
    counts = counter.count_many([piece.text for piece in parts])
    return [
        Unit(
            text=piece.text,
            tokens=tokens,
            rank=piece.rank,
            span=piece.span,
            key=boundary_key(piece.text),
            gap=piece.gap,
            section=section,
        )
        for piece, tokens in zip(parts, counts, strict=True)
    ]


def _weaken(ranks: list[int], start: int, end: int, rank: int) -> None:
    # Among what is only cut when it must be, an item is still stronger than a sentence, and that than a piece of one.
    for i in range(start + 1, end):
        if rank <= ranks[i] <= PIECE:
            ranks[i] += CUT_ONLY
