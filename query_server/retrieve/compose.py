"""What was gathered as an answer: cut to the budget, cited, with what the reader should know of it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Literal, cast

from query_server.answers import Copy, Leg, Notice, Passage, SearchAnswer
from query_server.cursor import Cursor
from query_server.retrieve.budget import cost, take
from query_server.retrieve.citation import cite
from query_server.retrieve.collapse import Found, alone
from query_server.retrieve.encode import Encoded
from query_server.retrieve.exact import NONE_ABSENT, Absent, gives_the_figures
from query_server.retrieve.extraction import notices_of
from query_server.retrieve.gather import Gathered
from query_server.retrieve.legs import DEPTH
from query_server.retrieve.places import MOST_COPIES, Names, Place
from query_server.retrieve.request import SearchRequest
from query_server.retrieve.rerank import BY_FUSION, Order
from query_server.retrieve.scope import Scope
from query_server.retrieve.window import cut_round

LONGEST_SAID = 100
"""Characters of an exact thing that are repeated when it was not found."""

LEGS: tuple[Leg, ...] = ("keyword", "semantic")

NO_MATCH = (
    "Nothing in the indexed documents answers this. Tell the user that the documents do not cover it; do not answer from memory."
)
WORDLESS = (
    "The question has no word and no number to look for, and no passage that is near to it holds it as it stands. Ask in words."
)
EMPTY = "No searchable document is in this scope. Tell the user that nothing is indexed here; do not answer from memory."


def compose(
    request: SearchRequest,
    encoded: Encoded,
    scope: Scope,
    gathered: Gathered,
    offset: int,
    *,
    order: Order = BY_FUSION,
    rerank_problem: str | None = None,
    absent: Absent = NONE_ABSENT,
    wordless: bool = False,
) -> SearchAnswer:
    """The passages from `offset` on that fit `request.max_tokens`, `request.limit` of them at most.

    They stand in `order` already; `rerank_problem` says why that is not the reranker's, where it should be. `absent` and
    `wordless` are those of the ranking.
    """
    wanted = list(gathered.found[offset : offset + request.limit])
    if wanted and wanted[0].merged and _cost(wanted[0]) > request.max_tokens:
        # Rather the passage that was found than the front of all that it goes on in.
        wanted[0] = alone(wanted[0])
    costs = [_cost(one) for one in wanted]
    taken = take(costs, [one.tokens for one in wanted], request.max_tokens)
    shown = list(wanted[: taken.count])
    if taken.cut is not None:
        shown[0] = cut_round(shown[0], taken.cut, request.query)
    reached = offset + taken.count
    more = gathered.more or reached < len(gathered.found)
    return SearchAnswer(
        search_id=uuid.uuid4().hex,
        query=request.query,
        outcome="ok" if shown else "index_empty" if scope.empty else "no_match",
        message=None if shown else _nothing(scope, absent, offset, wordless=wordless),
        results=tuple(_passage(request, one, gathered.names, order) for one in shown),
        tokens_used=taken.tokens,
        dropped=taken.dropped,
        next_cursor=(
            Cursor(question=request.question, index_version=scope.index_version, offset=reached, order=order.sign).encode()
            if more
            else None
        ),
        index_version=scope.index_version,
        pending_in_scope=scope.pending,
        newest_sweep=scope.newest_sweep,
        stale=scope.stale,
        warming=encoded.warming,
        warnings=tuple(
            _warnings(
                request,
                encoded,
                scope,
                cut=taken.cut is not None,
                limited=gathered.limited and not more,
                rerank_problem=rerank_problem,
                absent=absent if shown else NONE_ABSENT,
            )
        ),
    )


def _nothing(scope: Scope, absent: Absent, offset: int, *, wordless: bool) -> str:
    """Why there is no passage."""
    if scope.empty:
        return EMPTY
    if offset:
        return "There are no further passages."
    if wordless:
        return WORDLESS
    return f"{_said(absent)} Tell the user that; do not answer from memory." if absent.alone else NO_MATCH


def _said(absent: Absent) -> str:
    return f"Nothing that you may see, and that the filters leave, holds {' or '.join(map(_quoted, absent.names))}."


def _found_as(absent: Absent) -> str:
    pairs = "; ".join(f"{_quoted(name)} was found as {_quoted(written)}" for name, written in absent.spelled)
    return f"The documents write it with other separators: {pairs}."


def _quoted(name: str) -> str:
    return f"`{name if len(name) <= LONGEST_SAID else name[:LONGEST_SAID] + '…'}`"


def _cost(found: Found) -> int:
    place = found.best.place
    copies = [part for copy in found.copies for part in (copy.path, copy.path)]
    return cost(found.tokens, place.path, place.path, place.section, place.title, *copies)


def _passage(request: SearchRequest, found: Found, names: Names, order: Order) -> Passage:
    place, hit = found.best.place, found.best.hit
    reranked = order.scores.get(hit.key)
    return Passage(
        chunk_id=place.chunk_id,
        document_id=place.document_id,
        path=place.path,
        source=names.sources.get(place.source_id, ""),
        namespace=names.namespaces.get(place.namespace_id, ""),
        url=place.url,
        title=place.title,
        text=found.text,
        citation=cite(place.path, found.span, place.section, place.kind),
        section=place.section,
        **dataclasses.asdict(found.span),
        language=place.language,
        symbol=place.symbol,
        kind=cast('Literal["text", "table", "code", "caption"]', place.kind),
        score=round(hit.score if reranked is None else reranked, 6),
        score_kind="rrf" if reranked is None else "rerank",
        matched_by=tuple(leg for leg in LEGS if leg in hit.ranks),
        high_confidence=hit.certain and _gives_the_figures(request.query, found),
        version=place.version,
        last_indexed=place.last_indexed,
        source_modified=place.source_modified,
        tags=tuple(place.tags) or None,
        warnings=None if place.remarks is None else notices_of(place.remarks) or None,
        also_in=tuple(_copy(copy, names) for copy in found.copies) or None,
    )


def _copy(place: Place, names: Names) -> Copy:
    return Copy(
        document_id=place.document_id,
        path=place.path,
        source=names.sources.get(place.source_id, ""),
        namespace=names.namespaces.get(place.namespace_id, ""),
        citation=cite(place.path, place.span, place.section, place.kind),
    )


def _gives_the_figures(query: str, found: Found) -> bool:
    """A passage about the revenue of another year answers nothing, however near it is."""
    place = found.best.place
    return gives_the_figures(query, found.text, place.section, place.title, place.symbol, place.path)


def _documents(number: int) -> str:
    return f"{number} document{'s' if number != 1 else ''}"


def _warnings(
    request: SearchRequest,
    encoded: Encoded,
    scope: Scope,
    *,
    cut: bool,
    limited: bool,
    rerank_problem: str | None,
    absent: Absent,
) -> Sequence[Notice]:
    found = []
    if request.mode != "keyword" and encoded.problem is not None:
        found.append(Notice(code="keyword_only", message=f"Only the keyword leg answered: {encoded.problem}"))
    if rerank_problem is not None:
        found.append(
            Notice(code="rerank_failed", message=f"The passages stand in the order of the fusion, not reranked: {rerank_problem}")
        )
    if absent.names:
        found.append(
            Notice(
                code="exact_not_found",
                message=f"{_said(absent)} The passages were found by parts of it, or by the other words of the question.",
            )
        )
    if absent.spelled:
        found.append(Notice(code="found_as", message=_found_as(absent)))
    if cut:
        found.append(
            Notice(
                code="text_cut",
                message="The passage is longer than max_tokens: the part round the words of the question is shown, with […] where"
                " text is left out. Ask with a larger max_tokens, or read_document.",
            )
        )
    if limited:
        found.append(
            Notice(
                code="ranking_limited",
                message=f"These are the last passages that were ranked, not the last that there are: each leg brings its best"
                f" {DEPTH}, and a text is shown in {MOST_COPIES} places at most. For others ask more narrowly: by namespace,"
                " path, source, tags or time, or in more words.",
            )
        )
    if scope.pending:
        found.append(
            Notice(code="pending", message=f"{_documents(scope.pending)} in this scope may be missing here: not indexed yet.")
        )
    if scope.unread:
        found.append(
            Notice(
                code="unread",
                message=f"Of {_documents(scope.unread)} in this scope no text, or not all of it, could be read; index_status and"
                " list_documents say which.",
            )
        )
    if scope.stale:
        since = f"since {scope.newest_sweep:%Y-%m-%d %H:%M} UTC" if scope.newest_sweep is not None else "yet"
        found.append(
            Notice(
                code="stale", message=f"The folders in this scope were not completely looked through {since}: this may be old."
            )
        )
    return found
