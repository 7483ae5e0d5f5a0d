"""Source code to chunks: functions, methods and classes as the syntax tree gives them; else lines. No line is lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ingest_worker.chunk.borders import CUT_ONLY, Rules, boundary_key, find_borders
from ingest_worker.chunk.counting import Counter
from ingest_worker.chunk.outlines import Definition, Outline
from ingest_worker.chunk.sentences import split_pieces
from ingest_worker.chunk.syntax import FIRM, STATEMENT, outline
from shared.documents import Chunk, ChunkKind, Element

LEFT_OUT: Final = "…"
"""The line between the enclosing scope and a passage that does not follow it directly."""
_BLANK: Final = CUT_ONLY
_INDENTED: Final = CUT_ONLY - 1
_WITHIN_LINE: Final = CUT_ONLY
_SCOPE_CHARS: Final = 160
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line, or a part of one that is too long; `line` is 0-based, `continues` says that no line end stands before it."""

    text: str
    line: int
    continues: bool = False


def chunk_source(element: Element, counter: Counter, target: int) -> list[Chunk]:
    """Chunks of one file of source code, in order, without overlap; `tokens` is made true by the caller.

    Definitions stand alone (very small neighbours are merged), with their comments and decorators; larger ones are cut at
    their strongest inner statements. `symbol` is the dotted path of the definition, of the one that holds several, or else
    their names. A chunk from the inside of a definition begins with the lines that name what is around it, as far as they fit.
    """
    pieces = _pieces(element.text, target)
    found = outline(element.text, element.language) or Outline()
    tokens = counter.count_many([piece.text for piece in pieces])
    windows = dict.fromkeys(range(1, FIRM), max(1, target // 20))
    # An eighth is kept free for the lines of the enclosing scope.
    rules = Rules(limit=target - target // 8, window=max(1, target // 5), firm=FIRM, windows=windows)
    borders = [0, *find_borders(tokens, _ranks(pieces, found), _keys(pieces), rules), len(pieces)]
    scopes = _Scopes(found.definitions, element.text.split("\n"), counter)
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
        around = scopes.lines_around(first, last, room=target - sum(tokens[start:end]))
        chunks.append(
            Chunk(
                kind=ChunkKind.CODE,
                text="\n".join([*around, _join(pieces[start:end])]),
                tokens=0,
                symbol=scopes.symbol(first, last),
                language=element.language,
                span=replace(element.span, line_start=first_line + first, line_end=first_line + last),
            )
        )
    return chunks


class _Scopes:
    """What the definitions of a file say about a stretch of its lines, all 0-based and inclusive."""

    def __init__(self, definitions: Sequence[Definition], lines: Sequence[str], counter: Counter) -> None:
        self._definitions = definitions
        self._starts = [definition.start for definition in definitions]
        self._parents = _parents(definitions)
        self._lines = lines
        self._counter = counter

    def symbol(self, first: int, last: int) -> str | None:
        """The one innermost definition in these lines, what several of them share, or else their names; what is around them."""
        inside = self._definitions[bisect_left(self._starts, first) : bisect_right(self._starts, last)]
        cut = [definition for definition in self._holding(first) if definition.end < last]
        named = {definition.path: definition for definition in (*cut, *inside)}
        leaves = [path for path in named if not any(other.startswith(f"{path}.") for other in named)]
        if not leaves:
            around = self._around(first, last)
            return around[-1].path if around else None
        if len(leaves) == 1:
            return self._of_most_lines(named[leaves[0]], first, last)
        shared = _common(leaves)
        if shared:
            return ".".join(shared)
        tops = [path for path in named if not any(path.startswith(f"{other}.") for other in named)]
        return ", ".join(tops[:_NAMED]) + (", …" if len(tops) > _NAMED else "")

    def _of_most_lines(self, leaf: Definition, first: int, last: int) -> str:
        """A definition alone in these lines, or the one around it when most of the lines are that one's."""
        lines = min(leaf.end, last) - max(leaf.start, first) + 1
        around = self._around(leaf.start, leaf.end)
        return leaf.path if lines * 2 >= last - first + 1 or not around else around[-1].path

    def lines_around(self, first: int, last: int, *, room: int) -> list[str]:
        """The lines that name what holds these lines, from the outermost in; of too many for `room` tokens the innermost ones."""
        heads = sorted({definition.head for definition in self._around(first, last) if definition.head < first})
        if not heads:
            return []
        mark = self._lines[first]
        left_out = mark[: len(mark) - len(mark.lstrip())] + LEFT_OUT
        texts = [self._lines[head].rstrip()[:_SCOPE_CHARS] for head in heads]
        counts = self._counter.count_many([*texts, left_out])
        room -= counts[-1]
        kept: list[str] = []
        for text, tokens in zip(reversed(texts), reversed(counts[:-1]), strict=True):
            room -= tokens
            if room < 0:
                break
            kept.append(text)
        return [*reversed(kept), *([left_out] if kept and heads[-1] < first - 1 else [])]

    def _around(self, first: int, last: int) -> list[Definition]:
        """The definitions that begin before these lines and do not end before their end, from the outermost in."""
        return [definition for definition in self._holding(first) if definition.end >= last]

    def _holding(self, line: int) -> list[Definition]:
        """The definitions that begin before a line and end at it or after it, from the outermost in."""
        holding: list[Definition] = []
        at: int | None = bisect_left(self._starts, line) - 1
        while at is not None and at >= 0:
            if self._definitions[at].end >= line:
                holding.append(self._definitions[at])
            at = self._parents[at]
        return holding[::-1]


def _parents(definitions: Sequence[Definition]) -> list[int | None]:
    """For each definition the index of the one around it; they are in order of their start and nested."""
    parents: list[int | None] = []
    open_ones: list[int] = []
    for i, definition in enumerate(definitions):
        while open_ones and definitions[open_ones[-1]].end < definition.start:
            open_ones.pop()
        parents.append(open_ones[-1] if open_ones else None)
        open_ones.append(i)
    return parents


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


def _common(paths: list[str]) -> list[str]:
    parts = [path.split(".") for path in paths]
    common: list[str] = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return common
