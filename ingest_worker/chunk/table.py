"""Tables to chunks: cut between rows, never inside one, with the header repeated in each piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ingest_worker.chunk.borders import Rules, boundary_key, find_borders
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.prose import Sizes, span_of
from ingest_worker.chunk.sentences import split_pieces
from ingest_worker.chunk.units import Unit, join
from shared.documents import Chunk, ChunkKind, Element, Span


def chunk_table(table: Element, lead: Sequence[Unit], section: tuple[str, ...], counter: Counter, sizes: Sizes) -> list[Chunk]:
    """Chunks of one table. `lead` is what introduces it (its heading, a short sentence) and stands before the first piece.

    The span's lines and sheet rows end with the table's last row and hold one for each row; what is left at their beginning
    belongs to the header.
    """
    lines = table.text.split("\n")
    head = 2 if len(lines) > 1 and _separates(lines[1]) else 1
    header, rows = "\n".join(lines[:head]), lines[head:]
    introduction = join(lead)
    before, header_tokens, *tokens = counter.count_many([introduction, header, *rows])
    if before + header_tokens + sum(tokens) <= sizes.target or not rows:
        return [_chunk([table.text], introduction, section, table.span, lead)]
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
        span = _span_of_rows(table.span, start, end, len(rows))
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


def _separates(line: str) -> bool:
    return "-" in line and not line.strip(" \t|:+=-")


def _span_of_rows(span: Span, start: int, end: int, rows: int) -> Span:
    """The place of the rows from `start` to `end` (0-based, exclusive), of `rows` in all; the first come with the header."""
    line_start, line_end = _range_of_rows(span.line_start, span.line_end, start, end, rows)
    row_start, row_end = _range_of_rows(span.row_start, span.row_end, start, end, rows)
    return replace(span, line_start=line_start, line_end=line_end, row_start=row_start, row_end=row_end)


def _range_of_rows(first: int | None, last: int | None, start: int, end: int, rows: int) -> tuple[int | None, int | None]:
    if first is None or last is None:
        return first, last
    header = last - first + 1 - rows
    return first if start == 0 else first + header + start, first + header + end - 1


def _chunk(lines: list[str], introduction: str, section: tuple[str, ...], span: Span, lead: Sequence[Unit]) -> Chunk:
    text = "\n".join(lines)
    return Chunk(
        kind=ChunkKind.TABLE,
        text=f"{introduction}\n\n{text}" if introduction else text,
        tokens=0,
        section=section,
        span=span.union(span_of(lead)) if lead else span,
    )
