"""Any server with OpenAI's `/v1/embeddings`: batches, retries, and splitting what is too much for it."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from shared.embedding import openai_answers as answers
from shared.embedding.endpoint import OPENAI_URL
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.limiter import LONGEST_HOLD_SECONDS, Limiter, Unlimited
from shared.embedding.openai_answers import Timeout, TooMuch
from shared.embedding.probe import ORDINARY
from shared.embedding.protocol import Role, TextsRefused, Vectors
from shared.embedding.vectors import NoDirection, normalise, pool, well_formed
from shared.errors import ConfigurationError, PermanentError, TransientError
from shared.prices import TokenUse

if TYPE_CHECKING:
    from openai import OpenAI

# OpenAI takes 2,048 texts and 300,000 tokens a request; small batches lose little and are cheap to send again.
_BATCH_TEXTS = 128
_BATCH_TOKENS = 50_000
# UTF-8 bytes per token are about 4 in English and 3 to 5 in Chinese; the estimate errs towards more tokens.
_BYTES_PER_TOKEN = 3
_ATTEMPTS = {Role.QUERY: 2, Role.PASSAGE: 5}
# A longer wait is the job's business: it is put back with this wait, and its worker does something else.
_LONGEST_WAIT = {Role.QUERY: 2.0, Role.PASSAGE: 30.0}
_SHORTEST_TEXT = 64

_Rows = list[Vectors | PermanentError]


@dataclass(slots=True)
class _Call:
    """What is known since this call began: whether the server took a text, and how many it did not take by themselves."""

    is_proven: bool = False
    culprits: int = 0


class OpenAIEmbedder:
    """Embeds over HTTP. Nothing is sent before the first call.

    A batch that the server finds too large, or that takes too long, is halved down to the single text; where none of them was at
    fault, batches stay smaller from then on. A single text that is too long is embedded in halves whose mean is taken. Before a
    text counts as refused the server must have taken another one, an ordinary sentence at least. `dimension` is asked of the
    server where it can choose (`dimensions`), and checked in each answer; when None it is learnt from the first answer. The
    prefixes are put before each text, and before each part of one that is too long. With an `api_version` the server is asked as
    Azure wants it: `{base_url}/embeddings?api-version=…` where the address names a deployment, else with the model as the
    deployment, and the key in the header `api-key`. `revision` tells its vectors apart from those of the same name (see
    `Endpoint.revision`). `limiter` is asked before each call.

    Raises:
        ConfigurationError: OpenAI's own server is used without a key.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key: str | None,
        model: str,
        dimension: int | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        api_version: str | None = None,
        revision: str = "",
        limiter: Limiter | None = None,
        timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if base_url is None and not api_key:
            raise ConfigurationError(
                "DOCWELL_EMBEDDING_PROVIDER is openai without DOCWELL_EMBEDDING_API_KEY. Set the key, or set "
                "DOCWELL_EMBEDDING_BASE_URL to a server that needs none.",
                code="embedding_key_unset",
            )
        self._url = base_url or OPENAI_URL
        self._prefixes = {Role.QUERY: query_prefix, Role.PASSAGE: passage_prefix}
        self._api_version = api_version
        self._revision = revision
        self._limiter = limiter or Unlimited()
        self._key = api_key or "none"
        self._model = model
        self._dimension = dimension
        self._timeout = timeout
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._batch_texts = _BATCH_TEXTS
        self._options: dict[str, Any] = {"encoding_format": "base64"}
        if dimension is not None:
            self._options["dimensions"] = dimension
        self._client: OpenAI | None = None
        self._lock = threading.Lock()
        self._use = TokenUse()

    @property
    def fingerprint(self) -> Fingerprint:
        """The model's identity; asks the server for one vector when the dimension is not known yet."""
        if self._dimension is None:
            self.embed(["dimension"], Role.QUERY)
        assert self._dimension is not None  # noqa: S101 - every answer sets it
        return Fingerprint(provider="openai", model=self._model, dimension=self._dimension, revision=self._revision)

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """See `Embedder.embed`. The role decides on the prefix, and how patiently is retried.

        Raises:
            ConfigurationError: key, URL, model or dimension is wrong, or the server refuses every text.
            TextsRefused: the server refuses some of the texts; it has the vectors of the others.
            TransientError: rate limit, overload, timeout or no connection, after all attempts.
        """
        # Servers refuse an empty string; a full stop has a vector without meaning, as `Embedder` promises.
        wanted = [text if text.strip() else "." for text in well_formed(texts)]
        rows: _Rows = []
        call = _Call()
        start = 0
        while start < len(wanted):
            stop = start + self._fitting(wanted, start)
            rows += self._embed_batch(wanted[start:stop], role, call)
            start = stop
        if not rows:
            return np.empty((0, self.fingerprint.dimension), np.float32)
        vectors = [row for row in rows if not isinstance(row, PermanentError)]
        if len(vectors) < len(rows):
            raise TextsRefused(rows)
        return np.stack(vectors)

    def take_use(self) -> TokenUse:
        """See `Metered.take_use`: calls, and the tokens that the server said it had counted."""
        with self._lock:
            use, self._use = self._use, TokenUse()
        return use

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fitting(self, texts: Sequence[str], start: int) -> int:
        """How many texts from `start` on make the next batch."""
        tokens = 0
        for count, text in enumerate(texts[start : start + self._batch_texts]):
            tokens += _tokens(text)
            if count and tokens > _BATCH_TOKENS:
                return count
        return min(self._batch_texts, len(texts) - start)

    def _embed_batch(self, texts: list[str], role: Role, call: _Call) -> _Rows:
        try:
            vectors = self._ask(texts, role)
        except (TooMuch, Timeout, NoDirection) as error:
            if len(texts) > 1:
                half, culprits = len(texts) // 2, call.culprits
                rows = [row for part in (texts[:half], texts[half:]) for row in self._embed_batch(part, role, call)]
                if isinstance(error, TooMuch) and call.culprits == culprits:
                    self._batch_texts = max(1, min(self._batch_texts, half))
                return rows
            call.culprits += 1
            if isinstance(error, Timeout):
                raise
            if isinstance(error, NoDirection) or not error.too_long or len(texts[0]) < 2 * _SHORTEST_TEXT:
                self._prove(error, role, call)
                return [error]
        else:
            call.is_proven = True
            return list(vectors)
        parts = _halves(texts[0])
        made: list[Vectors] = []
        for part in parts:
            (row,) = self._embed_batch([part], role, call)
            if isinstance(row, PermanentError):
                return [row]
            made.append(row)
        return [pool(np.stack(made), [len(part) for part in parts])]

    def _prove(self, error: PermanentError, role: Role, call: _Call) -> None:
        """See that the server takes an ordinary text: else the trouble is not the refused one's."""
        if call.is_proven:
            return
        try:
            self._ask([ORDINARY], role)
        except (TooMuch, NoDirection) as again:
            raise ConfigurationError(
                f"{self._url} takes no text for the model {self._model}, not even an ordinary sentence: {error}. Check"
                " DOCWELL_EMBEDDING_MODEL, and the account and the options of that server.",
                code="embedding_refuses_all",
            ) from again
        call.is_proven = True

    def _ask(self, texts: list[str], role: Role) -> Vectors:
        def worth_another_try(error: BaseException) -> bool:
            if isinstance(error, Timeout) and len(texts) > 1:
                return False
            return isinstance(error, TransientError) and (error.retry_after or 0.0) <= _LONGEST_WAIT[role]

        retrying = Retrying(
            retry=retry_if_exception(worth_another_try),
            stop=stop_after_attempt(_ATTEMPTS[role]),
            wait=self._wait,
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._ask_once, texts, role)

    def _wait(self, state: RetryCallState) -> float:
        """Seconds until the next attempt: what the server asked for, or a doubling pause with jitter."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, TransientError) and error.retry_after is not None:
            return error.retry_after + self._rng.uniform(0, 0.25)
        return min(0.5 * 2.0 ** (state.attempt_number - 1), 8.0) * self._rng.uniform(0.5, 1.0)

    def _ask_once(self, texts: list[str], role: Role) -> Vectors:
        while True:
            try:
                body = self._post(texts, role)
                break
            except TooMuch as error:
                # A server that does not know an option of ours says so with the same status as for a text it cannot take.
                option = next(_named_options(str(error), self._options), None)
                if option is None:
                    raise
                del self._options[option]
        with self._lock:
            self._use += TokenUse(calls=1, input_tokens=answers.read_tokens(body))
        vectors = answers.read_vectors(body, len(texts), self._url)
        if self._dimension is None:
            self._dimension = vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise ConfigurationError(
                f"The model {self._model} at {self._url} answers {vectors.shape[1]} dimensions, expected {self._dimension}. Set "
                f"DOCWELL_EMBEDDING_DIMENSION={vectors.shape[1]}, or name a model that gives {self._dimension}.",
                code="embedding_dimension",
            )
        return normalise(vectors)

    def _post(self, texts: list[str], role: Role) -> Any:
        import openai

        wanted = [self._prefixes[role] + text for text in texts]
        # Who searches waits for no budget: his call counts, and ingest waits for it.
        self._limiter.take(sum(map(_tokens, wanted)), patient=role is Role.PASSAGE)
        request = {"model": self._model, "input": wanted, **self._options}
        try:
            return self._open().post("/embeddings", body=request, cast_to=object)
        except (openai.APIError, ValueError) as error:  # the latter for what should be JSON and is none
            found = answers.explain(error, self._url, self._model)
            if isinstance(found, TransientError) and found.retry_after and found.code == "embedding_rate_limit":
                self._limiter.hold(min(found.retry_after, LONGEST_HOLD_SECONDS))
            raise found from error

    def _open(self) -> OpenAI:
        import openai

        with self._lock:
            if self._client is None:
                options: dict[str, Any] = {"api_key": self._key, "timeout": self._timeout, "max_retries": 0}
                if self._api_version is None:
                    self._client = openai.OpenAI(base_url=self._url, **options)
                else:
                    self._client = openai.AzureOpenAI(base_url=self._url, api_version=self._api_version, **options)
            return self._client


def _tokens(text: str) -> int:
    return len(text.encode("utf-8")) // _BYTES_PER_TOKEN + 1


def _named_options(message: str, options: dict[str, Any]) -> Iterator[str]:
    words = {"dimensions": r"dimension|matryoshka", "encoding_format": r"encoding_format|base64"}
    return (option for option in options if re.search(words[option], message, re.IGNORECASE))


def _halves(text: str) -> tuple[str, str]:
    """The text in two, at the white space nearest before its middle when there is any in the second quarter."""
    middle = len(text) // 2
    cut = next((place for place in range(middle, middle // 2, -1) if text[place].isspace()), middle)
    return text[:cut], text[cut:]
