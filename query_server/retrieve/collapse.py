"""One thing is said once: near-duplicates of one document fall into their best, neighbours become one passage."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from query_server.retrieve.overlap import without_overlap
from query_server.retrieve.places import Place
from query_server.retrieve.ranking import Hit
from shared.documents import Span

NEAR_DUPLICATE = 0.8
"""From this share of its word triples on, a passage says what a better one of its document says already. Chunks that follow
each other share a sixth of their text by construction."""

MOST_MERGED_TOKENS = 1_000
"""Tokens of a passage that neighbours are merged into: two full chunks, so that one document does not eat the whole budget."""

CLOSE_RANKS = 10
"""Neighbours are merged when no more ranks than these lie between them: a far lower one only stretches the passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A hit in one document that serves it, with its text."""

    hit: Hit
    place: Place
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A passage to be shown: its best candidate, what it stands for besides, and the text and place of the whole.

    `merged` are all candidates of the passage in reading order, the best among them; `collapsed` those that say the same.
    `copies` are other places of the best one's very text, a few of them.
    """

    best: Candidate
    text: str
    span: Span
    tokens: int
    merged: tuple[Candidate, ...] = ()
    collapsed: tuple[Candidate, ...] = ()
    copies: tuple[Place, ...] = ()


@dataclass
class _Group:
    rank: int
    best: Candidate
    members: list[Candidate]
    collapsed: list[Candidate] = field(default_factory=list)

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Those of its best: made when a second passage of the document turns up, which is seldom."""
        return _shingles(self.best.text)

    @property
    def tokens(self) -> int:
        return sum(member.place.tokens for member in self.members)


def collapse(candidates: Sequence[Candidate]) -> list[Found]:
    """The passages of these candidates, in the order of the best of each. Nothing is lost: a candidate is in exactly one."""
    groups: list[_Group] = []
    by_document: dict[uuid.UUID, list[_Group]] = {}
    for rank, candidate in enumerate(candidates):
        same = by_document.setdefault(candidate.place.document_id, [])
        twin = _twin(same, candidate) if same else None
        if twin is not None:
            twin.collapsed.append(candidate)
            continue
        neighbour = next((group for group in same if rank - group.rank <= CLOSE_RANKS and _adjoins(group, candidate)), None)
        if neighbour is None:
            group = _Group(rank=rank, best=candidate, members=[candidate])
            groups.append(group)
            same.append(group)
            continue
        neighbour.members.append(candidate)
        neighbour.members.sort(key=lambda member: member.place.ordinal)
    return [_found(group) for group in groups]


def _twin(groups: Sequence[_Group], candidate: Candidate) -> _Group | None:
    """The first of these groups that says what the candidate says."""
    shingles = _shingles(candidate.text)
    return next((group for group in groups if _says_it(group.shingles, shingles)), None)


def _adjoins(group: _Group, candidate: Candidate) -> bool:
    """Whether prose goes on from one to the other without a border of the document between them."""
    first, last = group.members[0].place, group.members[-1].place
    place = candidate.place
    return (
        place.ordinal in (first.ordinal - 1, last.ordinal + 1)
        and place.kind == group.best.place.kind == "text"
        and (place.section, place.span.part) == (group.best.place.section, group.best.place.span.part)
        and (_pages_meet(place, first) if place.ordinal < first.ordinal else _pages_meet(last, place))
        and group.tokens + place.tokens <= MOST_MERGED_TOKENS
    )


def _pages_meet(before: Place, after: Place) -> bool:
    """Whether one goes on on the page where the other ends. Where a page was a border each is cited by its own."""
    return before.page_end is None or after.page_start is None or before.page_end == after.page_start


def _found(group: _Group) -> Found:
    members = group.members
    text, span = whole([(member.text, member.place.span) for member in members])
    return Found(
        best=group.best,
        text=text,
        span=span,
        tokens=group.tokens,
        merged=tuple(members) if len(members) > 1 else (),
        collapsed=tuple(group.collapsed),
    )


def alone(found: Found) -> Found:
    """The best candidate of a passage without its neighbours."""
    best = found.best
    return replace(found, text=best.text, span=best.place.span, tokens=best.place.tokens, merged=())


def whole(parts: Sequence[tuple[str, Span]]) -> tuple[str, Span]:
    """Neighbours in reading order as one text, what they share written once, with the place of all of it."""
    if len(parts) == 1:
        return parts[0]
    text = parts[0][0]
    for (before, _), (after, _) in pairwise(parts):
        rest = without_overlap(before, after)
        text += "\n\n" + rest if rest is after else rest
    return text, _span(parts[0][1], parts[-1][1])


def _span(first: Span, last: Span) -> Span:
    """From where the first begins to where the last ends."""
    return replace(
        first,
        page_end=last.page_end if last.page_end is not None else first.page_end,
        line_end=last.line_end if last.line_end is not None else first.line_end,
        row_end=last.row_end if last.row_end is not None else first.row_end,
    )


def _says_it(better: frozenset[tuple[str, ...]], shingles: frozenset[tuple[str, ...]]) -> bool:
    return bool(shingles) and len(better & shingles) / len(shingles) >= NEAR_DUPLICATE


_WORD = re.compile(r"[^\W_]+")


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Triples of words that follow each other; of a script without spaces, triples of characters."""
    folded = text.casefold()
    words = _WORD.findall(folded)
    if len(words) * 12 < len(folded):
        words = [character for character in folded if not character.isspace()]
    return frozenset(zip(words, words[1:], words[2:], strict=False))
