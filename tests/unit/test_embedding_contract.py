"""Fingerprints, turns at the model, the wire form, and which embedder the settings open."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from shared.config import Settings
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.open import open_embedder
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.embedding.remote import RemoteEmbedder
from shared.embedding.turns import Turns
from shared.embedding.vectors import normalise, pool
from shared.embedding.wire import dump_fingerprint, dump_vectors, load_fingerprint, load_vectors, socket_path
from shared.errors import ConfigurationError, PermanentError

FINGERPRINT = Fingerprint(provider="local", model="e5", dimension=384, revision="1")


def test_a_fingerprints_key_never_changes() -> None:
    # It stands in every database: another key for the same model would make every index unusable.
    assert FINGERPRINT.key == "20622fca79790f51"


@pytest.mark.parametrize("change", [{"provider": "openai"}, {"model": "e5-large"}, {"dimension": 385}, {"revision": "2"}])
def test_each_part_of_a_fingerprint_changes_its_key(change: dict[str, str]) -> None:
    assert replace(FINGERPRINT, **change).key != FINGERPRINT.key


def test_the_wire_form_gives_back_what_it_was_given() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(load_vectors(dump_vectors(vectors), 3), vectors)
    assert load_fingerprint(dump_fingerprint(FINGERPRINT)) == FINGERPRINT
    with pytest.raises(ValueError):
        load_vectors(b"\0" * 10, 3)


def test_urls_of_sockets_may_hold_spaces_and_others_are_told_apart() -> None:
    assert socket_path("unix:///run/my%20home/e.sock") == "/run/my home/e.sock"
    assert socket_path("http://embedder:8070") is None
    for wrong in ("unix://relative", "embedder:8070", "ftp://x", "http://"):
        with pytest.raises(ConfigurationError, match="DOCWELL_EMBEDDER_URL"):
            socket_path(wrong)


def test_a_vector_without_direction_is_refused() -> None:
    with pytest.raises(PermanentError):
        normalise(np.zeros((1, 3), np.float32))
    with pytest.raises(PermanentError):
        normalise(np.array([[1.0, np.nan]], np.float32))


def test_parts_of_a_text_count_by_their_length() -> None:
    pooled = pool(np.eye(2, dtype=np.float32), [3, 4])
    np.testing.assert_allclose(pooled, [0.6, 0.8], atol=1e-6)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.001)


def take(turns: Turns, name: str, order: list[str], *, urgent: bool) -> threading.Thread:
    def run() -> None:
        with turns.take(urgent=urgent):
            order.append(name)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_query_that_came_last_has_the_next_turn() -> None:
    turns, order = Turns(), list[str]()
    with turns.take(urgent=False):
        waiting = [take(turns, f"passage {n}", order, urgent=False) for n in range(3)]
        wait_until(lambda: len(turns._others) == 3)
        waiting.append(take(turns, "query", order, urgent=True))
        wait_until(lambda: turns._urgent_waiting == 1)
    for thread in waiting:
        thread.join()
    assert order[0] == "query"


def test_passages_get_a_turn_in_a_flood_of_queries() -> None:
    turns, order = Turns(), list[str]()
    with turns.take(urgent=True):
        waiting = [take(turns, "query", order, urgent=True) for _ in range(80)]
        waiting.append(take(turns, "passage", order, urgent=False))
        wait_until(lambda: turns._urgent_waiting + len(turns._others) == 81)
    for thread in waiting:
        thread.join()
    assert order.index("passage") == 31  # the query that held the turn was the first of 32


def test_the_settings_decide_which_embedder_is_opened() -> None:
    remote = open_embedder(Settings(embedder_url="unix:///nowhere/e.sock"))
    assert isinstance(remote, RemoteEmbedder)
    api = open_embedder(Settings(embedding_provider="openai", embedding_model="m", embedding_base_url="http://127.0.0.1:9/v1"))
    assert isinstance(api, OpenAIEmbedder)
    with pytest.raises(ConfigurationError, match="DOCWELL_EMBEDDING_MODEL"):
        open_embedder(Settings(embedding_provider="openai", embedding_api_key="k"))


def test_opening_a_remote_embedder_imports_no_model_library() -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = sys.modules['tokenizers'] = sys.modules['uvicorn'] = None\n"
        "from shared.config import Settings\n"
        "from shared.embedding.open import open_embedder\n"
        "import shared.tokens, shared.embedding.local\n"
        "open_embedder(Settings(embedding_provider='openai', embedding_model='m', embedding_api_key='k'))\n"
        "open_embedder(Settings(embedder_url='http://127.0.0.1:9'))\n"
        "assert 'openai' not in sys.modules, 'openai is slow to import: only at the first call'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
