"""A query's vectors, from an embedder that may be away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from query_server.retrieve.encode import Encoder, as_embedded
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Role, Vectors
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError
from tests.asking import MODEL


class Failing:
    """An embedder that has an error for everything."""

    fingerprint = MODEL

    def __init__(self, error: DocwellError) -> None:
        self._error = error
        self.closed = False

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    "error",
    [ServiceUnavailable("It is away."), TransientError("It cannot be reached."), TransientError("HTTP 429", retry_after=60)],
    ids=["our embedder is away", "an API is away", "an API has had enough"],
)
def test_an_embedder_that_does_not_answer_leaves_the_keyword_leg_and_says_why(error: TransientError) -> None:
    encoded = Encoder(lambda: Failing(error), patient=True).encode("a question")
    assert (list(encoded.vectors), encoded.problem) == ([], str(error))


def test_what_no_later_try_can_mend_is_an_error() -> None:
    with pytest.raises(PermanentError):
        Encoder(lambda: Failing(PermanentError("It takes no such text.")), patient=True).encode("a question")


@pytest.mark.parametrize(
    ("query", "embedded"),
    [
        ("KÜNDIGUNGSFRIST?", "kündigungsfrist?"),
        ("ku\u0308ndigungsfrist?", "kündigungsfrist?"),
        ("  kündigungsfrist?\n", "kündigungsfrist?"),
        ("Kündigungsfrist?", "Kündigungsfrist?"),
        ("ERR-0042", "ERR-0042"),
        ("SLA", "SLA"),
    ],
)
def test_a_query_is_embedded_in_one_normal_form_and_without_shouting(query: str, embedded: str) -> None:
    assert as_embedded(query) == embedded


def test_the_embedders_connections_are_closed_with_it() -> None:
    embedder = Failing(TransientError("away"))
    encoder = Encoder(lambda: embedder, patient=True)
    encoder.encode("a question")
    encoder.close()
    assert embedder.closed


class Counting(Failing):
    """An embedder that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(TransientError("away"))
        self.asked: list[tuple[str, Role]] = []

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        self.asked += [(text, role) for text in texts]
        return np.ones((len(texts), MODEL.dimension), np.float32)


def test_a_query_is_embedded_once_in_each_role() -> None:
    embedder = Counting()
    encoder = Encoder(lambda: embedder, patient=True)
    for _ in range(2):
        assert len(encoder.encode("a question", "a question").vectors) == 2
    assert embedder.asked == [("a question", Role.QUERY), ("a question", Role.PASSAGE)]


def test_another_model_is_asked_anew() -> None:
    embedder = Counting()
    encoder = Encoder(lambda: embedder, patient=True)
    encoder.encode("a question")
    embedder.fingerprint = Fingerprint(provider="test", model="another", dimension=MODEL.dimension)
    encoder.encode("a question")
    assert len(embedder.asked) == 2
