"""From a parsed document to its chunks: the one entry to this package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ingest_worker.chunk.borders import GLUE, boundary_key
from ingest_worker.chunk.code import chunk_source
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.fences import chunk_code_block
from ingest_worker.chunk.prose import Sizes, chunk_run
from ingest_worker.chunk.table import chunk_table
from ingest_worker.chunk.units import PAGE, PIECE, Lists, Unit, text_units
from shared.documents import Chunk, Element, ElementKind, ParsedDocument, Span

_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ATTRIBUTES: Final = re.compile(r"\s*\{[:#.][^}]*\}\s*$|\s*\{\s*#[^}]*\}\s*$|<[^>]+>")
_MARKS: Final = re.compile(r"[`*]+|(?<!\w)_+|_+(?!\w)|\\(?=[^\w\s])")
_PLAIN: Final = re.compile(r"[^\[`*_\\<{]*")
_SECTION_CHARS: Final = 200

_SHORT: Final = 3
"""Chunks that a short document fills: there a page that moves changes no more of them than an edit may."""
_LITTLE: Final = 3
"""A page that fills less than one in so many of a chunk is a slide or a form: its text does not run on to the next."""
_BYTES: Final = 4
"""Bytes of a token, about: four letters, or a little more than one ideograph."""


def chunk_document(
    parsed: ParsedDocument, counter: Counter, target_tokens: int = 480, overlap_tokens: int = 80
) -> tuple[Chunk, ...]:
    """The chunks of a document in reading order, each of at most `target_tokens` tokens with its overlap.

    Borders come from the content around them: an edit of one paragraph changes three chunks at most, and four in some texts for
    less than one edit in a thousand (docs/decisions/0004-chunk-borders.md). The same document always gives the same chunks.
    """
    sizes = Sizes(target=target_tokens, overlap=min(overlap_tokens, target_tokens // 2))
    if parsed.is_source:
        chunks = [chunk for element in parsed.elements for chunk in chunk_source(element, counter, target_tokens)]
    else:
        chunks = [chunk for chunk in _chunks(parsed.elements, counter, sizes) if chunk.text.strip()]
    # Characters that no token stands for (a zero-width space, a replacement character alone) are no words to find.
    return tuple(chunk for chunk in _counted(chunks, counter, target_tokens) if chunk.tokens > 0)


def heading_name(text: str) -> str:
    """A heading as people read it: without marks, link targets and anchors."""
    if _PLAIN.fullmatch(text):
        return " ".join(text.split())[:_SECTION_CHARS]
    text = _ATTRIBUTES.sub("", _LINK.sub(r"\1", text))
    return " ".join(_MARKS.sub("", text).split())[:_SECTION_CHARS]


def _chunks(elements: tuple[Element, ...], counter: Counter, sizes: Sizes) -> Iterator[Chunk]:
    path: list[tuple[int, str]] = []
    run: list[Unit] = []
    part = Span().part
    lists = Lists()
    by_page = _pages_are_borders(elements, sizes)
    for element in elements:
        if element.span.part != part:
            # A slide, a sheet or an attachment is cited by itself, and its headings end with it.
            if run:
                yield from chunk_run(run, sizes)
            part, path, run = element.span.part, [], []
        section = tuple(name for _, name in path)
        if element.kind is ElementKind.HEADING:
            level = min(max(element.level or 1, 1), 6)
            path = [(depth, name) for depth, name in path if depth < level]
            lists.clear()
            if not element.text.strip():
                # It only says that the sections before it have ended.
                continue
            path.append((level, heading_name(element.text) or element.text[:_SECTION_CHARS]))
            run += _heading_units(element, level, tuple(name for _, name in path), counter, sizes)
        elif element.kind is ElementKind.TEXT:
            rank = _rank_after(run, element, by_page=by_page)
            run += text_units(element.text, element.span, section, counter, limit=sizes.limit, first_rank=rank, lists=lists)
        else:
            small = _small_block(element, section, run, counter, sizes, lists)
            if small is not None:
                run.append(small)
                continue
            run, lead = _introduction(run, sizes)
            if run:
                yield from chunk_run(run, sizes)
            run = []
            make = chunk_table if element.kind is ElementKind.TABLE else chunk_code_block
            yield from make(element, lead, section, counter, sizes)
    if run:
        yield from chunk_run(run, sizes)


def _heading_units(element: Element, level: int, section: tuple[str, ...], counter: Counter, sizes: Sizes) -> list[Unit]:
    text = f"{'#' * level} {' '.join(element.text.split())}"
    key = boundary_key(text)
    units = text_units(text, element.span, section, counter, limit=sizes.limit, first_rank=level)
    return [replace(unit, kind=ElementKind.HEADING, key=key, rank=GLUE if i else level) for i, unit in enumerate(units)]


def _pages_are_borders(elements: Sequence[Element], sizes: Sizes) -> bool:
    """Whether a passage ends with its page, so that it is cited by that page alone: in a short document, and in one with little
    text on each page. In others an edit would move text over every later page, and all borders with it.
    """
    texts = [element for element in elements if element.span.page_start is not None]
    pages = len({(element.span.attachment, element.span.page_start) for element in texts})
    most = max(_SHORT * sizes.target, pages * sizes.target // _LITTLE) * _BYTES
    return pages > 1 and sum(len(element.text.encode("utf-8", "replace")) for element in texts) <= most


def _rank_after(run: list[Unit], element: Element, *, by_page: bool = False) -> int | None:
    """The rank of the boundary before an element: weakest after a heading, weak when a sentence goes on on the next page, strong
    before a page where pages are borders.

    None: that of its own first line.
    """
    if not run:
        return None
    last = run[-1]
    if last.kind is ElementKind.HEADING:
        return GLUE
    next_page = last.span.page_end != element.span.page_start
    if next_page and last.text[-1].isalnum() and element.text.lstrip()[:1].islower():
        return PIECE
    return PAGE if next_page and by_page else None


def _small_block(
    element: Element, section: tuple[str, ...], run: list[Unit], counter: Counter, sizes: Sizes, lists: Lists
) -> Unit | None:
    """A code block that is too small to stand alone, as one unit of the text around it."""
    if element.kind is not ElementKind.CODE or len(element.text) > sizes.small * 8:
        return None
    tokens = counter.count_many([element.text])[0]
    if tokens >= sizes.small:
        return None
    rank = _rank_after(run, element)
    return Unit(
        text=element.text,
        tokens=tokens,
        rank=lists.rank_of(element.text, paragraph=True) if rank is None else rank,
        key=boundary_key(element.text),
        span=element.span,
        section=section,
        kind=ElementKind.CODE,
        language=element.language,
    )


def _introduction(run: list[Unit], sizes: Sizes) -> tuple[list[Unit], list[Unit]]:
    """The run without, and with only, what introduces the block after it: its heading, and little else, or a short sentence."""
    heading = next((i for i in range(len(run) - 1, -1, -1) if run[i].kind is ElementKind.HEADING), None)
    if heading is None:
        start = 0
    else:
        start = heading
        while start and run[start - 1].kind is ElementKind.HEADING:
            start -= 1
    if sum(unit.tokens for unit in run[start:]) >= sizes.small:
        return run, []
    return run[:start], run[start:]


def _counted(chunks: list[Chunk], counter: Counter, target: int) -> Iterator[Chunk]:
    """The chunks with the number of tokens of their text, where that is not known yet; the few that are too large, halved."""
    unknown = [chunk for chunk in chunks if not chunk.tokens]
    counts = iter(counter.count_many([chunk.text for chunk in unknown]))
    for chunk in chunks:
        tokens = chunk.tokens or next(counts)
        if tokens <= target or len(chunk.text) < 2:
            yield chunk if chunk.tokens else replace(chunk, tokens=tokens)
        else:
            half = _middle(chunk.text)
            parts = [replace(chunk, text=part, tokens=0) for part in (chunk.text[:half], chunk.text[half:]) if part.strip()]
            yield from _counted(parts, counter, target)


def _middle(text: str) -> int:
    """Where a text is halved as the last resort: at the line end or space nearest to the middle, else in the middle."""
    middle = len(text) // 2
    for mark in "\n ":
        at = text.rfind(mark, len(text) // 4, middle + len(text) // 4)
        if at > 0:
            return at + 1
    return middle
