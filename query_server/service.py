"""One facade for all that can be asked: the MCP tools and `docwell search` run the same code."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from query_server.access import LOCAL, NOBODY, Principal
from query_server.answers import SearchAnswer, as_json
from query_server.retrieve.encode import Encoded, Encoder
from query_server.retrieve.explain import Trace
from query_server.retrieve.filters import EVERYTHING, Filters, make_filters, parse_time
from query_server.retrieve.legs import OtherModel
from query_server.retrieve.listing import (
    ListRequest,
    find_document,
    index_status,
    list_documents,
    list_namespaces,
    list_sources,
)
from query_server.retrieve.read import ReadRequest, read_document
from query_server.retrieve.request import Mode, SearchRequest
from query_server.retrieve.rerank import OnDemand
from query_server.retrieve.search import CacheUse, Search
from query_server.retrieve.thumbnails import read_thumbnail
from query_server.searched import Searched, Watch
from query_server.snapshot import Snapshots
from shared.credentials import Credential, any_credential, find_credential
from shared.database import Pool
from shared.documents import DocumentState
from shared.errors import DocwellError, PermanentError
from shared.text import as_asked, clean_text
from shared.tracing import emit_stages

if TYPE_CHECKING:
    from query_server.retrieve.trace import Traced

LONGEST_QUERY = 10_000
"""Characters of a query or a hypothetical answer."""

_SWITCHES = 4
"""How often a search is asked anew because the model of the index changed meanwhile."""


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class SearchService:
    """Answers in JSON's types, the shapes of `query_server.answers`. Safe for threads.

    Every method may raise the errors of `shared.errors`: PermanentError when asking again cannot help, TransientError when
    it can.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        encoder: Encoder,
        *,
        rescan_seconds: Callable[[], float],
        clock: Callable[[], datetime] = utc_now,
        reranking: OnDemand | None = None,
    ) -> None:
        self._reranking = reranking or OnDemand()
        self._snapshots = snapshots
        self._encoder = encoder
        self._rescan_seconds = rescan_seconds
        self._clock = clock
        self._search = Search(snapshots, self._reranking, notice=encoder.notice)
        self._watches: list[Watch] = []

    def watch(self, watch: Watch) -> None:
        """Tell of every search from now on, well or not."""
        self._watches.append(watch)

    @property
    def pool(self) -> Pool | None:
        """The connections, once there are any."""
        return self._snapshots.pool

    def search(
        self,
        query: str,
        *,
        limit: int = 5,
        namespace: str = "",
        path: str = "",
        source: str = "",
        tags: Sequence[str] = (),
        modified_after: str = "",
        modified_before: str = "",
        kinds: Sequence[str] = (),
        mode: Mode = "hybrid",
        hypothetical_answer: str = "",
        max_tokens: int = 4000,
        cursor: str = "",
        explain: bool = False,
        principal: Principal = LOCAL,
    ) -> dict[str, Any]:
        """Find passages. Beside the answer, not in its shape, stand `_meta` and, with `explain`, an `explanation` of the answer
        and in each result (see `query_server.retrieve.explain`)."""
        filters = make_filters(
            namespace=namespace,
            path=path,
            source=source,
            tags=tags,
            modified_after=modified_after,
            modified_before=modified_before,
            kinds=kinds,
        )
        request = SearchRequest(
            query=_checked(query, "query"),
            filters=filters,
            limit=limit,
            mode=mode,
            hypothetical_answer=_checked(hypothetical_answer, "hypothetical_answer", required=False),
            max_tokens=max_tokens,
            cursor=cursor,
        )
        trace = Trace(on=explain)
        searched = Searched(outcome="failed", mode=mode, stages=trace.stages)
        try:
            answer, encoded, cache = self._answer(request, principal, trace)
            searched = _searched(searched, encoded, answer, cache)
        finally:
            emit_stages(trace.stages)
            for watch in self._watches:
                watch(searched)
        found: dict[str, Any] = {**as_json(answer), "_meta": {"cache": cache}}
        if trace.explained is not None:
            found["explanation"] = as_json(trace.explained.answer)
            for result, explanation in zip(found["results"], trace.explained.passages, strict=True):
                result["explanation"] = as_json(explanation)
        return found

    def _answer(self, request: SearchRequest, principal: Principal, trace: Trace) -> tuple[SearchAnswer, Encoded, CacheUse]:
        """Encode, then search one snapshot. Where that shows that the index has been switched to another model, the query is
        encoded with that one and asked anew."""
        for tries_left in reversed(range(_SWITCHES)):
            encoded = Encoded()
            if request.mode != "keyword":
                encoded = self._encoder.encode(request.query, request.hypothetical_answer)
                trace.lap("encode")
            try:
                answer, cache = self._search.answer(
                    request, encoded, principal=principal, now=self._clock(), rescan_seconds=self._rescan_seconds(), trace=trace
                )
            except OtherModel as other:
                if not self._encoder.follow(other.fingerprint, encoded) or not tries_left:
                    raise
            else:
                return answer, encoded, cache
        raise AssertionError("the last try returns or raises")

    def trace(
        self,
        document_id: uuid.UUID,
        query: str = "",
        *,
        filters: Filters = EVERYTHING,
        limit: int = 5,
        mode: Mode = "hybrid",
        max_tokens: int = 4000,
        principal: Principal = LOCAL,
    ) -> Traced:
        """What the searches of `principal` make of one document; with a `query`, up to its place in the answer."""
        # Only `docwell why` asks this.
        from query_server.retrieve.trace import trace_document

        request = None
        encoded = Encoded()
        if query:
            request = SearchRequest(
                query=_checked(query, "query"), filters=filters, limit=limit, mode=mode, max_tokens=max_tokens
            )
            self._encoder.look_up()
            encoded = encoded if mode == "keyword" else self._encoder.encode(request.query)
        return trace_document(
            self._search,
            self._snapshots,
            document_id,
            filters=filters,
            request=request,
            encoded=encoded,
            principal=principal,
            now=self._clock(),
            rescan_seconds=self._rescan_seconds(),
        )

    def read(
        self,
        document_id: str,
        *,
        page_start: int = 0,
        page_end: int = 0,
        line_start: int = 0,
        line_end: int = 0,
        chunk_id: str = "",
        max_tokens: int = 8000,
        cursor: str = "",
        principal: Principal = LOCAL,
    ) -> dict[str, Any]:
        """Read a document's text in order; numbers of 0 and empty texts are not set."""
        request = ReadRequest(
            document_id=_uuid(document_id, "document_id"),
            page_start=page_start or None,
            page_end=page_end or None,
            line_start=line_start or None,
            line_end=line_end or None,
            chunk_id=_uuid(chunk_id, "chunk_id") if chunk_id else None,
            max_tokens=max_tokens,
            cursor=cursor,
        )
        with self._snapshots.open(principal) as connection:
            return dict(as_json(read_document(connection, request)))

    def thumbnail(self, chunk_id: str, *, principal: Principal = LOCAL) -> bytes:
        """The picture that a passage of kind `caption` describes, small, as a JPEG."""
        with self._snapshots.open(principal) as connection:
            return read_thumbnail(connection, _uuid(chunk_id, "chunk_id"))

    def list(
        self,
        *,
        namespace: str = "",
        path: str = "",
        source: str = "",
        tags: Sequence[str] = (),
        state: str = "",
        changed_since: str = "",
        limit: int = 50,
        cursor: str = "",
        principal: Principal = LOCAL,
    ) -> dict[str, Any]:
        """List documents; deleted ones only when that state is asked for."""
        if state and state not in set(DocumentState):
            raise PermanentError(f"There is no state {state!r}. The states are {', '.join(DocumentState)}.", code="bad_argument")
        request = ListRequest(
            filters=make_filters(namespace=namespace, path=path, source=source, tags=tags),
            state=state,
            changed_since=parse_time(changed_since, "changed_since"),
            limit=limit,
            cursor=cursor,
        )
        with self._snapshots.open(principal) as connection:
            answer = list_documents(connection, request, now=self._clock(), rescan_seconds=self._rescan_seconds())
        return dict(as_json(answer))

    def status(self, path: str = "", *, principal: Principal = LOCAL) -> dict[str, Any]:
        """The state of the index, or of one path in it."""
        with self._snapshots.open(principal) as connection:
            answer = index_status(
                connection,
                as_asked(path),
                now=self._clock(),
                rescan_seconds=self._rescan_seconds(),
                warming=self._encoder.warming,
                errors=principal.sees_everything,
            )
        return dict(as_json(answer))

    def sources(self, *, principal: Principal = LOCAL) -> dict[str, Any]:
        """The sources in sight."""
        with self._snapshots.open(principal) as connection:
            found = list_sources(
                connection, now=self._clock(), rescan_seconds=self._rescan_seconds(), errors=principal.sees_everything
            )
        return {"sources": as_json(found)}

    def document(self, document_id: str, *, principal: Principal = LOCAL) -> dict[str, Any]:
        """One document's row."""
        with self._snapshots.open(principal) as connection:
            found = find_document(connection, _uuid(document_id, "document_id"))
        if found is None:
            raise PermanentError(f"There is no document {document_id}.", code="not_found")
        return dict(as_json(found))

    def namespaces(self, *, principal: Principal = LOCAL) -> Sequence[tuple[str, str | None]]:
        """Names and descriptions of the namespaces in sight."""
        with self._snapshots.open(principal) as connection:
            return list_namespaces(connection)

    def credential(self, token: str) -> Credential | None:
        """What a stored token stands for, None when it does not hold."""
        with self._snapshots.open(NOBODY) as connection:
            return find_credential(connection, token)

    def has_tokens(self) -> bool:
        """Whether a stored token would let anybody search."""
        with self._snapshots.open(NOBODY) as connection:
            return any_credential(connection, ("search", "admin"))

    def warm(self) -> None:
        """Load the models in the background."""
        self._encoder.warm()
        threading.Thread(target=self._warm_reranker, name="docwell-warm-reranker", daemon=True).start()

    def _warm_reranker(self) -> None:
        try:
            reranking = self._reranking()
        except DocwellError:  # the settings are wrong or nothing runs: the first search says so
            return
        if reranking is not None:
            reranking.warm()

    def close(self) -> None:
        """Give the connections back."""
        self._snapshots.close()
        self._encoder.close()
        self._reranking.close()


def _searched(search: Searched, encoded: Encoded, answer: SearchAnswer, ranking: CacheUse) -> Searched:
    missed = len(encoded.vectors) - encoded.remembered
    vectors = [("vector", "hit")] * encoded.remembered + [("vector", "miss")] * missed
    return dataclasses.replace(
        search,
        outcome=answer.outcome,
        caches=[("ranking", ranking), *vectors],
        warnings=[warning.code for warning in answer.warnings],
        warming=answer.warming,
    )


def _checked(text: str, argument: str, *, required: bool = True) -> str:
    # As the texts that are looked through: a word that was copied from a PDF may hold soft hyphens.
    text = clean_text(text).strip()
    if required and not text:
        raise PermanentError(f"{argument} is empty: give a question, or the words to look for.", code="bad_argument")
    if len(text) > LONGEST_QUERY:
        raise PermanentError(f"{argument} is longer than {LONGEST_QUERY} characters.", code="bad_argument")
    return text


def _uuid(text: str, argument: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise PermanentError(
            f"{argument} is no id: {text!r}. Take it from search_documents or list_documents.", code="bad_argument"
        ) from None
