"""A client of our own embedder process."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import httpx
import numpy as np
import orjson

from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Role, Vectors
from shared.embedding.vectors import well_formed
from shared.embedding.wire import (
    EMBED_PATH,
    FINGERPRINT_HEADER,
    FINGERPRINT_PATH,
    load_fingerprint,
    load_vectors,
    socket_path,
)
from shared.errors import ConfigurationError, PermanentError, ServiceUnavailable

# A request of 32 passages takes some seconds on two cores. Smaller ones let several workers take turns.
_REQUEST_TEXTS = 32
_REQUEST_BYTES = 1024 * 1024
_READ_SECONDS = {Role.QUERY: 15.0, Role.PASSAGE: 300.0}
_CONNECT_SECONDS = 2.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class RemoteEmbedder:
    """Embeds in the process at `url`: `unix:///path/embedder.sock` or `http://host:port`.

    It connects at the first call, and again by itself. While the embedder is away or warming, passages are tried again for
    `passage_patience` seconds, which bridges a restart; queries only for `query_patience`, since somebody waits and the keyword
    leg can answer. May be used from several threads and after a fork.
    """

    def __init__(
        self,
        url: str,
        *,
        query_patience: float = 2.0,
        passage_patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._socket = socket_path(url)
        self._patience = {Role.QUERY: query_patience, Role.PASSAGE: passage_patience}
        self._sleep = sleep
        self._clock = clock
        self._clients: dict[int, httpx.Client] = {}
        self._known: Fingerprint | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the model behind the URL, asked for once.

        Raises:
            ServiceUnavailable: the embedder is away or still warming.
        """
        return self._learn(Role.PASSAGE)

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """See `Embedder.embed`.

        Raises:
            ServiceUnavailable: the embedder is away, warming (code `embedder_warming`) or too busy.
            ConfigurationError: another model than before answers.
        """
        known = self._learn(role)
        answers = [self._embed_batch(batch, role, known) for batch in _batches(well_formed(texts))]
        return np.concatenate(answers) if answers else np.empty((0, known.dimension), np.float32)

    def close(self) -> None:
        """Close the connections of this process."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _learn(self, role: Role) -> Fingerprint:
        if self._known is None:
            answer = self._ask("GET", FINGERPRINT_PATH, None, role)
            try:
                self._known = load_fingerprint(answer.content)
            except (ValueError, TypeError) as error:
                raise self._not_ours(answer) from error
        return self._known

    def _embed_batch(self, texts: Sequence[str], role: Role, known: Fingerprint) -> Vectors:
        answer = self._ask("POST", EMBED_PATH, orjson.dumps({"texts": texts, "role": role}), role)
        found = answer.headers.get(FINGERPRINT_HEADER)
        if found != known.key:
            raise ConfigurationError(
                f"The embedder at {self._url} serves another model than when this process began ({found}, then {known.key} "
                f"of {known.model}). Restart this process, so that it checks the index against the new model.",
                code="embedding_mismatch",
            )
        try:
            vectors = load_vectors(answer.content, known.dimension)
        except ValueError as error:
            raise self._not_ours(answer) from error
        if len(vectors) != len(texts):
            raise self._not_ours(answer)
        return vectors

    def _ask(self, method: str, path: str, body: bytes | None, role: Role) -> httpx.Response:
        """One request, tried again within the role's patience. Asking twice does no harm: embedding changes nothing."""
        deadline = self._clock() + self._patience[role]
        pause = _FIRST_PAUSE
        while True:
            try:
                self._probe()
                answer = self._client().request(method, path, content=body, timeout=_timeout(role))
            except httpx.ReadTimeout as error:
                raise ServiceUnavailable(
                    f"The embedder at {self._url} did not answer within {_READ_SECONDS[role]:.0f} s: it has too much to do.",
                    code="embedder_timeout",
                ) from error
            except (httpx.TransportError, OSError) as error:
                failure = ServiceUnavailable(
                    f"The embedder at {self._url} cannot be reached ({_reason(error)}). Start it with `docwell embedder`, or "
                    "everything with `docwell up`.",
                    code="embedder_unavailable",
                )
                cause: Exception | None = error
            else:
                if answer.is_success:
                    return answer
                if answer.status_code != 503:
                    raise self._refused(answer)
                failure, cause = self._later(answer), None
            wait = max(pause, failure.retry_after or 0.0)
            if self._clock() + wait > deadline:
                raise failure from cause
            # Workers that lost the same embedder do not come back in step.
            self._sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, no secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _probe(self) -> None:
        """Whether somebody listens on the socket: the HTTP library forgets to close one that cannot be connected."""
        if self._socket:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(_CONNECT_SECONDS)
                link.connect(self._socket)

    def _client(self) -> httpx.Client:
        # A connection must not be shared with a forked child, so each process has a client of its own.
        client = self._clients.get(os.getpid())
        if client is None:
            transport = httpx.HTTPTransport(uds=self._socket) if self._socket else None
            base = "http://embedder" if self._socket else self._url
            client = httpx.Client(base_url=base, transport=transport, trust_env=False)
            self._clients[os.getpid()] = client
        return client

    def _later(self, answer: httpx.Response) -> ServiceUnavailable:
        code, message = _explained(answer)
        retry_after = answer.headers.get("retry-after", "")
        return ServiceUnavailable(
            f"The embedder at {self._url} cannot answer yet: {message}",
            code=code,
            retry_after=float(retry_after) if retry_after.isdigit() else None,
        )

    def _refused(self, answer: httpx.Response) -> PermanentError:
        code, message = _explained(answer)
        return PermanentError(f"The embedder at {self._url} refused (HTTP {answer.status_code}): {message}", code=code)

    def _not_ours(self, answer: httpx.Response) -> ConfigurationError:
        return ConfigurationError(
            f"{self._url} answered {len(answer.content)} bytes that are no answer of this version's embedder. Check "
            "DOCWELL_EMBEDDER_URL, and that both run the same version.",
            code="embedder_url",
        )


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        bytes_ = len(text.encode("utf-8"))
        if batch and (len(batch) == _REQUEST_TEXTS or size + bytes_ > _REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += bytes_
    if batch:
        yield batch


def _timeout(role: Role) -> httpx.Timeout:
    return httpx.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS[role], write=30.0, pool=None)


def _explained(answer: httpx.Response) -> tuple[str, str]:
    try:
        body = orjson.loads(answer.content)
        return str(body["code"]), str(body["message"])
    except (ValueError, TypeError, KeyError):
        return "embedder_error", answer.text[:200] or "no reason given"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
