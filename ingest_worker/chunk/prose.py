"""Running text with headings, small tables and code in it, to chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ingest_worker.chunk.borders import Rules, find_borders
from ingest_worker.chunk.units import BIG_PARAGRAPH, FIRM, PAGE, Unit, common_section, join, keep_whole, mark_big_paragraphs
from shared.documents import Chunk, ChunkKind, ElementKind, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What follows from the wanted size of a chunk and its overlap, in tokens."""

    target: int
    overlap: int

    @property
    def limit(self) -> int:
        """The largest chunk without its overlap: a full one keeps a quarter of it, most keep all."""
        return self.target - self.overlap // 4

    @property
    def small(self) -> int:
        """Below this a section, a block of code or an introduction does not stand alone."""
        return self.target // 8

    @property
    def page(self) -> int:
        """Below this a page does not stand alone, where pages are borders: a number and a running line say nothing, one sentence
        can be what somebody asks for."""
        return max(1, self.target // 96)

    @property
    def window(self) -> int:
        """The smallest distance between two borders.

        A quarter: a section that outgrows one chunk then falls into three at most, and stretches without a border that are
        larger than a chunk stay rare.
        """
        return self.target // 4

    @property
    def big_paragraph(self) -> int:
        """Above this a paragraph leaves little room for its neighbours."""
        return self.target * 3 // 8

    @property
    def prose_rules(self) -> Rules:
        """How running text is cut: at headings, then at paragraphs, then at sentences."""
        windows = dict.fromkeys(range(1, FIRM), self.small) | {PAGE: self.page, BIG_PARAGRAPH: self.target // 12}
        return Rules(limit=self.limit, window=self.window, firm=FIRM, windows=windows)


def chunk_run(run: Sequence[Unit], sizes: Sizes) -> list[Chunk]:
    """Chunks of one run of text that no table or large code block interrupts; where `tokens` is 0 the caller counts."""
    units = mark_big_paragraphs(keep_whole(list(run), sizes.limit), big=sizes.big_paragraph)
    tokens = [unit.tokens for unit in units]
    ranks = [unit.rank for unit in units]
    keys = [unit.key for unit in units]
    borders = [0, *find_borders(tokens, ranks, keys, sizes.prose_rules), len(units)]
    chunks: list[Chunk] = []
    previous = 0
    for start, end in pairwise(borders):
        body = units[start:end]
        room = min(sizes.overlap, sizes.target - sum(tokens[start:end]))
        apart = body[0].kind is ElementKind.HEADING or body[0].rank == PAGE
        lead = _overlap(units[previous:start], room) if start and not apart else []
        chunks.append(_chunk(lead, body))
        previous = start
    return chunks


def _overlap(before: Sequence[Unit], room: int) -> list[Unit]:
    """The last sentences before a chunk, as many as fit; never over a heading. A longer sentence gives its last words."""
    lead: list[Unit] = []
    for unit in reversed(before):
        if unit.kind is not ElementKind.TEXT:
            break
        if unit.tokens > room:
            if not lead:
                lead = _tail(unit, room)
            break
        lead.append(unit)
        room -= unit.tokens
    return lead[::-1]


def _tail(unit: Unit, room: int) -> list[Unit]:
    words = unit.text.split()
    # Words have different lengths in tokens: take a tenth less than the average says.
    kept = int(len(words) * room * 0.9 / max(1, unit.tokens))
    if kept < 4:
        return []
    text = unit.text
    start = len(text)
    for word in reversed(words[-kept:]):
        start = text.rindex(word, 0, start)
    tail = text[start:]
    line = unit.span.line_end
    span = unit.span if line is None else replace(unit.span, line_start=line - tail.count("\n"))
    return [replace(unit, text=tail, tokens=0, span=span)]


def _chunk(lead: list[Unit], body: Sequence[Unit]) -> Chunk:
    units = [*lead, *body]
    content = [unit for unit in body if unit.kind is not ElementKind.HEADING]
    kinds = {unit.kind for unit in content}
    is_code = kinds == {ElementKind.CODE}
    return Chunk(
        kind=ChunkKind.CODE if is_code else ChunkKind.TEXT,
        text=join(units),
        # Parts without white space between them, and the beginning of an overlap, have to be counted again.
        tokens=sum([unit.tokens for unit in units]) if all(unit.tokens and unit.gap for unit in units) else 0,
        section=common_section([unit.section for unit in content or body]),
        language=content[0].language if is_code else None,
        span=span_of(units),
    )


def span_of(units: Sequence[Unit]) -> Span:
    """The span of neighbouring units."""
    span = units[0].span
    for unit in units[1:]:
        if unit.span is not span:
            span = span.union(unit.span)
    return span
