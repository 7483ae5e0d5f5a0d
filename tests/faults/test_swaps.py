"""Readers who ask without a pause while one document is swapped without a pause: each answer is one version, whole."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from query_server.retrieve.request import Mode
from query_server.service import SearchService
from shared.documents import Chunk, Span
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk

SECONDS = 2.5
ENOUGH = 5
"""So many swaps, and so many answers to each reader, there are at least: on a busy machine it takes longer."""
PATIENCE_SECONDS = 60.0
PARTS = 5
WORD = "zqswapped"


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


def _version(number: int) -> list[Chunk]:
    """Every part says its version, but the last, which never changes; all of them stand on pages and lines of that version."""
    return [
        text_chunk(
            f"{WORD} part {part} " + ("always" if part == PARTS - 1 else f"revision r{number:05}"),
            span=Span(page_start=number, page_end=number, line_start=part + 1, line_end=part + 1),
            section=(f"Part {part}",),  # neighbours of one section would come as one passage
        )
        for part in range(PARTS)
    ]


def _swap(corpus: Corpus, stop: threading.Event, done: Counter[str]) -> None:
    for number in itertools.count(2):
        if stop.is_set():
            return
        add(corpus, "a.md", *_version(number))
        done["swap"] += 1


def _check(results: Sequence[Mapping[str, Any]], newest: int) -> int:
    """The version that the answer is of."""
    versions = {one["version"] for one in results}
    assert len(versions) == 1, f"one answer is of versions {versions}"
    (version,) = versions
    assert version >= newest, f"version {version} was served after {newest}"
    shown = {(one["text"], one["page_start"], one["line_start"]) for one in results}
    assert shown == {(chunk.text, chunk.span.page_start, chunk.span.line_start) for chunk in _version(version)}
    return int(version)


def _search(service: SearchService, mode: Mode, stop: threading.Event, done: Counter[str]) -> None:
    newest = 0
    while not stop.is_set():
        newest = _check(service.search(WORD, mode=mode, limit=20)["results"], newest)
        done[mode] += 1


def _read(service: SearchService, document: str, stop: threading.Event, done: Counter[str]) -> None:
    newest = 0
    while not stop.is_set():
        answer = service.read(document)
        newest = _check([{**piece, "version": answer["version"]} for piece in answer["pieces"]], newest)
        done["read"] += 1


def test_a_reader_sees_one_version_whole_however_fast_they_follow_each_other(corpus: Corpus, database: Database) -> None:
    document = add(corpus, "a.md", *_version(1))
    stop, modes = threading.Event(), ("keyword", "semantic", "hybrid")
    done = Counter(dict.fromkeys(("swap", *modes, "read"), 0))
    with serving(database) as service, ThreadPoolExecutor(len(done)) as threads:
        running = [threads.submit(_swap, corpus, stop, done)]
        running += [threads.submit(_search, service, cast("Mode", mode), stop, done) for mode in modes]
        running.append(threads.submit(_read, service, document, stop, done))
        began = time.monotonic()
        while not any(one.done() for one in running):
            took = time.monotonic() - began
            if took > PATIENCE_SECONDS or (took > SECONDS and min(done.values()) >= ENOUGH):
                break
            stop.wait(0.05)
        stop.set()
        for one in running:
            one.result()
    assert min(done.values()) >= ENOUGH, done
