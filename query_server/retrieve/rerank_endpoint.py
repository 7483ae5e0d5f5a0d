"""Any server with a `/rerank` endpoint in the manner of Cohere and Jina."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from query_server.retrieve.rerank import RerankFailed

_LARGEST_ANSWER = 4 * 1024 * 1024
_ANSWER_SHOWN = 200


class EndpointReranker:
    """Asks over HTTP, once: a search that waits for a second attempt is slower than one without a reranker.

    `url` is the endpoint's address; `/rerank` is added where it ends otherwise. Nothing is sent before the first call.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str | None,
        api_key: str | None,
        limit_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url if urlsplit(url).path.rstrip("/").endswith("/rerank") else url.rstrip("/") + "/rerank"
        self._shown = self._url.rpartition("@")[2]
        self._model = model
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._limit = limit_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """See `Reranker.scores`.

        Raises:
            RerankFailed: no connection, no answer in time, an error, or an answer that does not fit the request.
        """
        request: dict[str, Any] = {"query": query, "documents": list(texts), "top_n": len(texts)}
        if self._model:
            request["model"] = self._model
        try:
            status, raw = self._post(request)
        except httpx.TimeoutException as error:
            raise RerankFailed(f"{self._shown} did not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RerankFailed(f"{self._shown} cannot be reached ({error}). Check DOCWELL_RERANK_URL and the network.") from error
        if status != 200:
            raise RerankFailed(f"{self._shown} answered HTTP {status}: {_shown(raw)}. {_cure(status)}")
        try:
            return _read(orjson.loads(raw), len(texts))
        except (ValueError, KeyError, TypeError) as error:
            raise RerankFailed(
                f"{self._shown} gave an answer that does not fit ({error}): {_shown(raw)}. Check DOCWELL_RERANK_URL."
            ) from error

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _post(self, request: dict[str, Any]) -> tuple[int, bytes]:
        ends = self._monotonic() + self._limit
        raw = bytearray()
        with self._open().stream("POST", self._url, json=request, headers=self._headers) as response:
            for block in response.iter_bytes():
                raw += block
                if len(raw) > _LARGEST_ANSWER:
                    raise httpx.DecodingError(f"the answer is larger than {_LARGEST_ANSWER:,} bytes")
                if self._monotonic() > ends:
                    raise httpx.ReadTimeout("the answer comes too slowly")
            return response.status_code, bytes(raw)

    def _open(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._limit, follow_redirects=False)
            return self._client


def _read(body: Any, count: int) -> list[float]:
    """The scores by the texts' order. `results` may come in any order; Voyage calls it `data`, some call the score `score`."""
    results = body.get("results", body.get("data")) if isinstance(body, dict) else body
    if not isinstance(results, list):
        raise TypeError("no list of results")
    scores: dict[int, float] = {}
    for result in results:
        index = result["index"]
        score = result["relevance_score"] if "relevance_score" in result else result["score"]
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count or index in scores:
            raise ValueError(f"the index {index!r} twice or out of range")
        if not isinstance(score, int | float) or isinstance(score, bool):
            raise TypeError(f"the score {score!r} is no number")
        scores[index] = float(score)
    if len(scores) != count:
        raise ValueError(f"{len(scores)} scores for {count} passages")
    return [scores[index] for index in range(count)]


def _cure(status: int) -> str:
    if status in (401, 403):
        return "Check DOCWELL_RERANK_API_KEY."
    if status == 429 or status >= 500:
        return "Try again later."
    return "Check DOCWELL_RERANK_URL and DOCWELL_RERANK_MODEL."


def _shown(raw: bytes) -> str:
    return " ".join(raw[:_ANSWER_SHOWN].decode("utf-8", "replace").split()) or "nothing"
