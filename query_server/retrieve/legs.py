"""Both legs over one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from query_server.access import Principal
from query_server.retrieve.encode import Encoded
from query_server.retrieve.exact import NONE_ABSENT, Absent, find_absent, find_signs
from query_server.retrieve.keyword import FrequencyCache, KeywordHit, keyword_leg
from query_server.retrieve.request import SearchRequest
from query_server.retrieve.scope import Scope
from query_server.retrieve.semantic import SemanticHit, Space, count_indexed, semantic_leg
from query_server.retrieve.spelled import as_exact, but_spelled, find_spelled
from query_server.retrieve.together import by_closeness
from shared.errors import ConfigurationError
from shared.query_terms import query_terms

DEPTH = 100
"""Hits that each list brings into the fusion, and so how far paging reaches."""


def _unmeasured(_stage: str) -> None:
    """Nobody asks how long it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Legs:
    """What the legs found: one keyword list, and a semantic one for each vector of the query. `exactly` says that the query asks
    for an identifier or a quoted phrase, `limited` that one of the lists was full while there are more chunks. `absent` is what
    the query asks for exactly and nothing holds; `wordless` that it has no word, number or name to look for."""

    keyword: Sequence[KeywordHit] = ()
    semantic: Sequence[Sequence[SemanticHit]] = ()
    exactly: bool = False
    limited: bool = False
    absent: Absent = NONE_ABSENT
    wordless: bool = False


def run_legs(
    connection: Connection[Any],
    request: SearchRequest,
    encoded: Encoded,
    scope: Scope,
    space: Space | None,
    *,
    principal: Principal,
    frequencies: FrequencyCache,
    depth: int = DEPTH,
    lap: Callable[[str], None] = _unmeasured,
) -> Legs:
    """What both legs find, or the one that the mode asks for, `depth` hits of each list at most. `space` is None in the mode
    `keyword`; `lap` is told of each leg's end."""
    asked = query_terms(request.query)
    keyword: Sequence[KeywordHit] = ()
    absent = NONE_ABSENT
    if request.mode != "semantic":
        everything = space.indexed if space is not None else count_indexed(connection)
        keyword = keyword_leg(connection, scope, request.filters, asked, limit=depth, cache=frequencies, everything=everything)
        absent = find_absent(connection, scope, asked, keyword, frequencies)
        spelled = find_spelled(connection, [name for name in absent.names if name not in asked.phrase_names], keyword)
        if spelled:
            keyword = as_exact(keyword, spelled)
            absent = but_spelled(find_absent(connection, scope, asked, keyword, frequencies), spelled)
        keyword = by_closeness(connection, asked, keyword)
        lap("keyword")
    semantic: list[Sequence[SemanticHit]] = []
    if space is not None:
        semantic.extend(
            semantic_leg(
                connection, scope, request.filters, space, vector, limit=depth, sees_everything=principal.sees_everything
            )
            for vector in encoded.vectors
        )
        lap("semantic")
    wordless = not asked.terms
    if wordless and request.mode == "hybrid":
        near = dict.fromkeys(hit.key for hits in semantic for hit in hits)
        keyword = find_signs(connection, asked.text, list(near))
    full = any(len(hits) >= depth for hits in (keyword, *semantic))
    return Legs(
        keyword=keyword,
        semantic=semantic,
        exactly=bool(asked.identifiers or asked.phrases),
        limited=full and scope.searched > depth,
        absent=absent,
        wordless=wordless,
    )


class OtherModel(ConfigurationError):
    """The query's vectors are of another model than the index has by now. `fingerprint` is that of the index."""

    def __init__(self, message: str, *, fingerprint: str) -> None:
        super().__init__(message, code="embedding_mismatch")
        self.fingerprint = fingerprint


def refuse_mismatch(space: Space | None, encoded: Encoded) -> None:
    """Distances between vectors of two models mean nothing.

    Raises:
        OtherModel: the index was made with another model than the query's vectors, or than they were wanted of.
        DocwellError: the model of the index cannot be used, and no later try will mend that.
    """
    if space is None or encoded.meant_for == space.fingerprint:
        if encoded.failure is not None:
            raise encoded.failure.with_traceback(None)
        if space is None:
            return
    # A model that bears the right name has to prove itself as well: it does when it is opened for this space.
    meant_for_other = encoded.meant_for is not None and encoded.meant_for != space.fingerprint
    is_other = encoded.fingerprint is not None and encoded.fingerprint != space.fingerprint
    if is_other or meant_for_other:
        raise OtherModel(
            f"The index holds vectors of {space.model} ({space.provider}, {space.dimension} dimensions), but this process is set"
            f" to {encoded.model}: their distances mean nothing. Set DOCWELL_EMBEDDING_PROVIDER and DOCWELL_EMBEDDING_MODEL as"
            " they were, change the model while everything runs with `docwell reindex`, or begin with an empty database.",
            fingerprint=space.fingerprint,
        )
