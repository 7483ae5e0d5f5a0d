"""Source code to chunks: functions, methods and classes as the syntax tree gives them; else lines. No line is lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ingest_worker.chunk.borders import CUT_ONLY, Rules, boundary_key, find_borders
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.sentences import split_pieces
from ingest_worker.chunk.syntax import FIRM, STATEMENT, Definition, Outline, outline
from shared.documents import Chunk, ChunkKind, Element

_BLANK: Final = CUT_ONLY
_INDENTED: Final = CUT_ONLY - 1
_WITHIN_LINE: Final = CUT_ONLY


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line, or a part of one that is too long; `line` is 0-based, `continues` says that no line end stands before it."""

    text: str
    line: int
    continues: bool = False


def chunk_source(element: Element, counter: Counter, target: int) -> list[Chunk]:
    """Chunks of one file of source code, in order, without overlap; `tokens` is made true by the caller.

    Definitions stand alone (very small neighbours are merged), with their comments and decorators; larger ones are cut at
    their strongest inner statements. `symbol` is the dotted path of the definition, or of the one that holds several.
    """
    pieces = _pieces(element.text, target)
    found = outline(element.text, element.language) or Outline()
    tokens = counter.count_many([piece.text for piece in pieces])
    windows = dict.fromkeys(range(1, FIRM), max(1, target // 20))
    rules = Rules(limit=target, window=max(1, target // 5), firm=FIRM, windows=windows)
    borders = [0, *find_borders(tokens, _ranks(pieces, found), _keys(pieces), rules), len(pieces)]
    starts = [definition.start for definition in found.definitions]
    first_line = element.span.line_start or 1
    chunks: list[Chunk] = []
    for start, end in pairwise(borders):
        while start < end and not pieces[start].text.strip():
            start += 1
        while end > start and not pieces[end - 1].text.strip():
            end -= 1
        if start == end:
            continue
        first, last = pieces[start].line, pieces[end - 1].line
        chunks.append(
            Chunk(
                kind=ChunkKind.CODE,
                text=_join(pieces[start:end]),
                tokens=0,
                symbol=_symbol(found.definitions, starts, first, last),
                language=element.language,
                span=replace(element.span, line_start=first_line + first, line_end=first_line + last),
            )
        )
    return chunks


def _pieces(text: str, target: int) -> list[_Piece]:
    most = max(8, min(400, target // 2))
    pieces: list[_Piece] = []
    for number, line in enumerate(text.split("\n")):
        if len(line) <= most:
            pieces.append(_Piece(line, number))
        else:
            parts = split_pieces(line, most)
            pieces += [_Piece(part, number, continues=i > 0) for i, part in enumerate(parts)]
    return pieces


def _ranks(pieces: list[_Piece], found: Outline) -> list[int]:
    ranks: list[int] = []
    without_tree = not found.ranks
    blank = False
    for piece in pieces:
        is_blank = not piece.text.strip()
        if piece.continues:
            rank = _WITHIN_LINE
        elif piece.line in found.ranks:
            rank = found.ranks[piece.line]
        elif is_blank:
            rank = _BLANK
        elif without_tree:
            rank = STATEMENT + (0 if blank else 20) + (30 if piece.text[0].isspace() else 0)
        else:
            rank = _INDENTED
        ranks.append(rank)
        blank = is_blank
    return ranks


def _keys(pieces: list[_Piece]) -> list[int]:
    # Single lines repeat often (`}`, `return None`): two of them make keys that differ.
    following = [*(piece.text for piece in pieces[1:]), ""]
    return [boundary_key(f"{piece.text.strip()[:40]}\n{after.strip()}") for piece, after in zip(pieces, following, strict=True)]


def _join(pieces: list[_Piece]) -> str:
    parts = [pieces[0].text]
    for piece in pieces[1:]:
        parts += [piece.text] if piece.continues else ["\n", piece.text]
    return "".join(parts).rstrip()


def _symbol(definitions: list[Definition], starts: list[int], first: int, last: int) -> str | None:
    """The one innermost definition that begins in these lines, else what several share, else the one that holds the lines."""
    inside = definitions[bisect_left(starts, first) : bisect_right(starts, last)]
    if not inside:
        holders = definitions[: bisect_right(starts, first)]
        return next((definition.path for definition in reversed(holders) if definition.end >= last), None)
    paths = [definition.path for definition in inside]
    leaves = [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]
    if len(set(leaves)) == 1:
        return leaves[0]
    shared = _common(leaves)
    if shared:
        return ".".join(shared)
    holder = next((d for d in reversed(definitions[: bisect_left(starts, first)]) if d.end >= last), None)
    return holder.path if holder else leaves[0]


def _common(paths: list[str]) -> list[str]:
    parts = [path.split(".") for path in paths]
    common: list[str] = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return common
