"""Tables to chunks: cut between rows, never inside one, with the header repeated in each piece."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ingest_worker.chunk.borders import Rules, boundary_key, find_borders
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.prose import Sizes, span_of
from ingest_worker.chunk.sentences import split_pieces
from ingest_worker.chunk.units import Unit, join
from shared.documents import Chunk, ChunkKind, Element, Span

_SEPARATOR: Final = re.compile(r"^[ \t|:+=-]*-[ \t|:+=-]*$")


def chunk_table(table: Element, lead: Sequence[Unit], section: tuple[str, ...], counter: Counter, sizes: Sizes) -> list[Chunk]:
    """Chunks of one table. `lead` is what introduces it (its heading, a short sentence) and stands before the first piece."""
    lines = table.text.split("\n")
    head = 2 if len(lines) > 1 and _SEPARATOR.match(lines[1]) else 1
    header, rows = "\n".join(lines[:head]), lines[head:]
    introduction = join(lead)
    before, header_tokens, *tokens = counter.count_many([introduction, header, *rows])
    if before + header_tokens + sum(tokens) <= sizes.target or not rows:
        return [_chunk([table.text], introduction, section, _lines(table.span, 0, len(lines)), lead)]
    # A header that fills most of a chunk is not worth repeating.
    repeated = header_tokens <= sizes.target // 3
    limit = sizes.target - (header_tokens if repeated else 0) - before
    if limit < sizes.target // 3:
        limit = sizes.target // 3
    rules = Rules(limit=limit, window=max(1, limit // 5))
    chunks: list[Chunk] = []
    borders = [0, *find_borders(tokens, [0] * len(rows), [boundary_key(row) for row in rows], rules), len(rows)]
    for start, end in pairwise(borders):
        first = start == 0
        text = [header] if first or repeated else []
        span = _lines(table.span, 0 if first else head + start, head + end)
        if end - start == 1 and tokens[start] > limit:
            pieces = split_pieces(rows[start], max(8, min(400, limit // 2)))
            chunks += [
                _chunk(
                    [*(text if i == 0 or repeated else []), piece], introduction if first and i == 0 else "", section, span, ()
                )
                for i, piece in enumerate(pieces)
            ]
        else:
            text += rows[start:end]
            chunks.append(_chunk(text, introduction if first else "", section, span, lead if first else ()))
    return chunks


def _lines(span: Span, start: int, end: int) -> Span:
    if span.line_start is None:
        return span
    return replace(span, line_start=span.line_start + start, line_end=span.line_start + end - 1)


def _chunk(lines: list[str], introduction: str, section: tuple[str, ...], span: Span, lead: Sequence[Unit]) -> Chunk:
    text = "\n".join(lines)
    return Chunk(
        kind=ChunkKind.TABLE,
        text=f"{introduction}\n\n{text}" if introduction else text,
        tokens=0,
        section=section,
        span=span.union(span_of(lead)) if lead else span,
    )
