"""Readers who ask all the time, and check each answer against what was written.

One answer is one snapshot: of a document it holds one revision, whole, each passage with its own text on its own lines or page;
never an older revision than the answer before, and never none once there was one, unless it is being deleted.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from query_server.retrieve.collapse import whole
from shared.documents import Chunk
from shared.errors import DocwellError
from tests.faults.ledger import Entry, Ledger
from tests.faults.texts import expected_chunks, revisions_in

LIMIT = 50
MOST_TOKENS = 50_000


class Asking(Protocol):
    """What answers: the search service in this process as the reader's role, or MCP over HTTP."""

    def search(self, query: str, mode: str) -> Mapping[str, Any]: ...

    def read(self, document_id: str) -> Mapping[str, Any]: ...


@dataclass(kw_only=True)
class Findings:
    """What readers found, put together. Violations are sentences; the first hundred are kept."""

    answers: Counter[str] = field(default_factory=Counter)
    unavailable: int = 0
    violations: list[str] = field(default_factory=list)
    evidence: list[Mapping[str, Any]] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, how: str) -> None:
        with self._lock:
            self.answers[how] += 1

    def was_unavailable(self) -> None:
        with self._lock:
            self.unavailable += 1

    def violated(self, sentence: str, answer: Mapping[str, Any]) -> None:
        with self._lock:
            if len(self.violations) < 100:
                self.violations.append(f"at {self.clock():.2f} s, {sentence}")
                self.evidence.append({"violation": sentence, "answer": answer})


@dataclass(kw_only=True)
class _Memory:
    """What one reader saw of a document last. `born`: the life in which it saw it. `gone`: what it saw gone ended with this."""

    revision: int = 0
    born: int = 0
    gone: int = 0
    versions: dict[str, int] = field(default_factory=dict)


class Reader:
    """One reader; its memory is its own, so that each sees time go forwards only."""

    def __init__(self, name: str, asking: Asking, ledger: Ledger, findings: Findings, *, seed: int) -> None:
        self._name = name
        self._asking = asking
        self._ledger = ledger
        self._findings = findings
        self._rng = random.Random(f"{name} {seed}")
        self._memory: dict[int, _Memory] = {}
        self._answer: Mapping[str, Any] = {}

    def run(self, stop: threading.Event, *, pause: float) -> None:
        while not stop.wait(pause):
            entries = self._ledger.all()
            if entries:
                # Mostly what was touched lately, where something is going on.
                recent = entries[-20:] if self._rng.random() < 0.5 else entries
                self.look(self._rng.choice(recent).number)

    def look(self, number: int) -> None:
        """Ask for one document and check the answer."""
        mode = "hybrid" if self._rng.random() < 0.2 else "keyword"
        before = self._ledger.get(number)
        try:
            answer = self._asking.search(before.word, mode)
        except DocwellError:
            self._findings.was_unavailable()
            return
        after = self._ledger.get(number)
        self._answer = answer
        self._findings.answered(f"search, {mode}")
        standing = _by_document(answer["results"], before.word)
        revisions = {
            document: self._check_document(after, document, found, whole=mode == "keyword" and len(standing) == 1)
            for document, found in standing.items()
        }
        self._check_number(before, after, revisions, standing)
        paths = {one["path"] for found in standing.values() for one in found}
        if paths == {after.path} and len(standing) == 1:
            self._ledger.arrived(number, after.path, max(revisions.values()))
        if standing and self._rng.random() < 0.3:
            self._read(after, self._rng.choice(sorted(standing)))

    def _check_document(self, entry: Entry, document: str, found: Sequence[Mapping[str, Any]], *, whole: bool) -> int:
        """All passages of one document: one revision, in its places, and all of it (`whole`). Returns the revision."""
        named = set().union(*(revisions_in(one["text"]) for one in found))
        versions = {one["version"] for one in found}
        paths = {one["path"] for one in found}
        if len(named) != 1 or len(versions) != 1 or len(paths) != 1:
            self._violated(entry, f"one answer mixed revisions {named}, versions {versions}, paths {paths}")
            return max(named, default=0)
        (revision,), (version,) = named, versions
        if revision > entry.written:
            self._violated(entry, f"revision {revision} was never written")
            return revision
        chunks = expected_chunks(entry.number, revision, entry.ending)
        expected = _passages(chunks)
        shown = {(one["text"], _place_of(one)) for one in found}
        if not shown <= expected.keys():
            self._violated(entry, f"of revision {revision} these stand elsewhere or are no part of it: {shown - expected.keys()}")
        # A hybrid answer is full of other documents; texts that two documents share may be shown for one of them alone.
        held = {text for one in shown for text in expected.get(one, ())}
        missing = {chunk.text for chunk in chunks if entry.word in chunk.text} - held
        if missing and whole:
            self._violated(entry, f"of revision {revision} parts are missing: {missing}")
        memory = self._memory.setdefault(entry.number, _Memory())
        if version < memory.versions.get(document, 0):
            self._violated(entry, f"version {version} was served after {memory.versions[document]}")
        memory.versions[document] = version
        return revision

    def _check_number(
        self, before: Entry, after: Entry, revisions: Mapping[str, int], standing: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        memory = self._memory.setdefault(before.number, _Memory())
        if not revisions:
            if _is_steady(before, after) and memory.born == after.born:
                self._violated(after, f"revision {memory.revision} was served, and now there is none")
            if before.leaving and memory.born == before.born:
                memory.gone = before.written
            return
        if len(revisions) > 1 and not (before.redone or after.redone):
            where = {document: (found[0]["path"], f"v{found[0]['version']}") for document, found in standing.items()}
            self._violated(after, f"it is served as several documents: {revisions} at {where}")
        newest = max(revisions.values())
        if newest < memory.revision:
            self._violated(after, f"revision {newest} was served after {memory.revision}")
        if newest <= memory.gone:
            self._violated(after, f"revision {newest} came back from before its deletion")
        memory.revision = max(memory.revision, newest)
        if newest >= after.born:
            memory.born = after.born

    def _read(self, before: Entry, document: str) -> None:
        try:
            answer = self._asking.read(document)
        except DocwellError:
            self._findings.was_unavailable()
            return
        after = self._ledger.get(before.number)
        self._answer = answer
        self._findings.answered("read")
        text = "\n".join(piece["text"] for piece in answer["pieces"])
        if not text:
            if _is_steady(before, after):
                self._violated(after, f"a read after a search gave nothing: {answer.get('message')}")
            return
        named = revisions_in(text)
        if len(named) != 1 or max(named) > after.written:
            self._violated(after, f"a read gave revisions {named}")
            return
        (revision,) = named
        expected = [chunk.text for chunk in expected_chunks(after.number, revision, after.ending)]
        lost = [one for one in expected if _words(one) not in _words(text)]
        if lost:
            self._violated(after, f"a read of revision {revision} left out {lost}")

    def _violated(self, entry: Entry, what: str) -> None:
        self._findings.violated(f"{self._name}: {entry.word} ({entry.path}, written r{entry.written}): {what}", self._answer)


def _is_steady(before: Entry, after: Entry) -> bool:
    """Whether all the while between two looks at the ledger the document was one that must be served, if it ever was."""
    return before.born == after.born and not (before.leaving or after.leaving or before.redone or after.redone)


def _by_document(results: Sequence[Mapping[str, Any]], word: str) -> dict[str, list[Mapping[str, Any]]]:
    """Of the documents that name themselves so, all passages."""
    ours = {one["document_id"] for one in results if word in one["text"]}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in results:
        if one["document_id"] in ours:
            found.setdefault(one["document_id"], []).append(one)
    return found


_PLACES = ("page_start", "page_end", "line_start", "line_end")


def _passages(chunks: Sequence[Chunk]) -> dict[tuple[str, tuple[int | None, ...]], Sequence[str]]:
    """What an answer may show: each chunk in its place, and chunks that follow each other as one passage; with their texts."""
    found = {}
    for first in range(len(chunks)):
        for end in range(first + 1, len(chunks) + 1):
            run = chunks[first:end]
            text, span = whole([(chunk.text, chunk.span) for chunk in run])
            found[text, _place(span)] = [chunk.text for chunk in run]
    return found


def _place(span: Any) -> tuple[int | None, ...]:
    return tuple(getattr(span, name) for name in _PLACES)


def _place_of(passage: Mapping[str, Any]) -> tuple[int | None, ...]:
    return tuple(passage.get(name) for name in _PLACES)


def _words(text: str) -> str:
    return " ".join(text.split())
