"""Code blocks inside documents to chunks: whole when they fit, else cut at blank lines, each piece closed and opened again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ingest_worker.chunk.borders import CUT_ONLY, Rules, boundary_key, find_borders
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.prose import Sizes, span_of
from ingest_worker.chunk.sentences import split_pieces
from ingest_worker.chunk.units import Unit, join
from shared.documents import Chunk, ChunkKind, Element

_FENCE: Final = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})")


def chunk_code_block(
    block: Element, lead: Sequence[Unit], section: tuple[str, ...], counter: Counter, sizes: Sizes
) -> list[Chunk]:
    """Chunks of one code block. `lead` is what introduces it and stands before the first piece."""
    introduction = join(lead)
    whole = f"{introduction}\n\n{block.text}" if introduction else block.text
    chunk = Chunk(
        kind=ChunkKind.CODE,
        text=whole,
        tokens=0,
        section=section,
        language=block.language,
        span=block.span.union(span_of(lead)) if lead else block.span,
    )
    if counter.count_many([whole])[0] <= sizes.target:
        return [chunk]
    return _split(block, introduction, chunk, counter, sizes)


def _split(block: Element, introduction: str, whole: Chunk, counter: Counter, sizes: Sizes) -> list[Chunk]:
    lines = block.text.split("\n")
    opening = _FENCE.match(lines[0])
    head, body, closed = "", lines, ""
    if opening:
        head, closed = lines[0], opening["indent"] + opening["fence"]
        body = lines[1:-1] if len(lines) > 1 and lines[-1].strip().startswith(opening["fence"]) else lines[1:]
    before, around = counter.count_many([introduction, f"{head} {closed}"])
    limit = max(sizes.target - before - around, sizes.target // 3)
    places, texts = _code_lines(body, max(8, limit // 2))
    rules = Rules(limit=limit, window=max(1, limit // 5))
    keys = [boundary_key(text) for text in texts]
    borders = [0, *find_borders(counter.count_many(texts), _ranks(texts), keys, rules), len(texts)]
    first_line = None if block.span.line_start is None else block.span.line_start + (1 if opening else 0)
    chunks: list[Chunk] = []
    for start, end in pairwise(borders):
        content = "\n".join(texts[start:end]).strip("\n")
        if not content.strip():
            continue
        text = f"{head}\n{content}\n{closed}" if opening else content
        span = block.span
        if first_line is not None:
            span = replace(span, line_start=first_line + places[start], line_end=first_line + places[end - 1])
        if not chunks:
            text = f"{introduction}\n\n{text}" if introduction else text
            span = replace(span, line_start=whole.span.line_start)
        chunks.append(replace(whole, text=text, span=span))
    return chunks


def _code_lines(lines: list[str], most: int) -> tuple[list[int], list[str]]:
    """Lines, those of more than `most` characters in pieces, each with the index of its line."""
    places: list[int] = []
    texts: list[str] = []
    for i, line in enumerate(lines):
        for piece in split_pieces(line, most) if len(line) > most else [line]:
            places.append(i)
            texts.append(piece)
    return places, texts


def _ranks(lines: list[str]) -> list[int]:
    ranks = []
    blank = True
    for line in lines:
        ranks.append(10 if blank and line.strip() else CUT_ONLY if not line.strip() or line[0].isspace() else 20)
        blank = not line.strip()
    return ranks
