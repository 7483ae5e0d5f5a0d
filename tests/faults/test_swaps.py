"""Readers who ask without a pause while one document is swapped without a pause: each answer is one version, whole."""

from __future__ import annotations

import itertools
import threading
import time
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


def _swap(corpus: Corpus, stop: threading.Event) -> int:
    for number in itertools.count(2):
        if stop.is_set():
            return number - 2
        add(corpus, "a.md", *_version(number))
    raise AssertionError


def _check(results: Sequence[Mapping[str, Any]], newest: int) -> int:
    """The version that the answer is of."""
    versions = {one["version"] for one in results}
    assert len(versions) == 1, f"one answer is of versions {versions}"
    (version,) = versions
    assert version >= newest, f"version {version} was served after {newest}"
    shown = {(one["text"], one["page_start"], one["line_start"]) for one in results}
    assert shown == {(chunk.text, chunk.span.page_start, chunk.span.line_start) for chunk in _version(version)}
    return int(version)


def _search(service: SearchService, mode: Mode, stop: threading.Event) -> int:
    asked = newest = 0
    while not stop.is_set():
        newest = _check(service.search(WORD, mode=mode, limit=20)["results"], newest)
        asked += 1
    return asked


def _read(service: SearchService, document: str, stop: threading.Event) -> int:
    asked = newest = 0
    while not stop.is_set():
        answer = service.read(document)
        newest = _check([{**piece, "version": answer["version"]} for piece in answer["pieces"]], newest)
        asked += 1
    return asked


def test_a_reader_sees_one_version_whole_however_fast_they_follow_each_other(corpus: Corpus, database: Database) -> None:
    document = add(corpus, "a.md", *_version(1))
    stop = threading.Event()
    with serving(database) as service, ThreadPoolExecutor() as threads:
        swapping = threads.submit(_swap, corpus, stop)
        asking = [threads.submit(_search, service, cast("Mode", mode), stop) for mode in ("keyword", "semantic", "hybrid")]
        asking.append(threads.submit(_read, service, document, stop))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not any(one.done() for one in (swapping, *asking)):
            stop.wait(0.05)
        stop.set()
        answers = [one.result() for one in asking]
        swaps = swapping.result()
    assert swaps >= 5
    assert all(count >= 5 for count in answers)
