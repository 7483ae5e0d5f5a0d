"""Documents that say which document and revision they are, so that a reader can check an answer.

Revision r of document d is always the same file. A third of its parts never change: they are the chunks that a new version takes
over from the old one, on other lines. Some documents have a paragraph in common.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Sequence
from functools import lru_cache

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.documents import Chunk
from shared.tokens import load_token_counter
from tests.unit.test_parse_pdf import make_pdf

CHUNK_TOKENS = 64
ENDINGS = ("md", "md", "txt", "pdf")

_VOCABULARY = [
    f"{first}{second}{third}" for first in "bdfgklmnprst" for second in ("a", "e", "io", "u") for third in ("r", "n", "l")
]
_REVISION = re.compile(r"\br(\d{5})\b")
_SHARED_TEXTS = 8
_parsing = threading.Lock()  # PDFium is for one thread at a time


def word_of(number: int) -> str:
    """The word by which a document is searched: of letters alone, so that it is one term, which no other document has."""
    letters = ""
    for _ in range(4):
        number, rest = divmod(number, 20)
        letters = "bcdfghjklmnpqrstvwxz"[rest] + letters
    return f"zq{letters}"


def revisions_in(text: str) -> set[int]:
    """The revisions that a text names."""
    return {int(found) for found in _REVISION.findall(text)}


@lru_cache(maxsize=4096)
def render(number: int, revision: int, ending: str) -> bytes:
    """Revision `revision` of document `number` as a file with this ending: `md`, `txt` or `pdf`."""
    rng = random.Random(number * 100_003 + revision)
    written = [_part(number, revision, place) for place in range(3 + number % 5)]
    if ending == "pdf":
        return make_pdf(written)
    lines = [f"# {word_of(number)} notes" if ending == "md" else f"{word_of(number)} notes", ""]
    for place, sentences in enumerate(written):
        # Lead lines come and go with each revision, so that everything below stands elsewhere.
        lines += [""] * rng.randrange(3)
        lines += [f"## Part {place}", ""] if ending == "md" else []
        lines += [*sentences, ""]
        if number % 3 == 0 and place == 0 and rng.random() < 0.5:
            lines += [_shared(number % _SHARED_TEXTS), ""]
    return "\n".join(lines).encode()


def _part(number: int, revision: int, place: int) -> Sequence[str]:
    constant = place % 3 == 2
    rng = random.Random(f"{number} {place} {'' if constant else revision}")
    which = "always" if constant else f"revision r{revision:05}"
    words = [" ".join(rng.choices(_VOCABULARY, k=9)) + "." for _ in range(rng.randrange(2, 6))]
    return [f"Document {word_of(number)} {which} part p{place:02} begins here.", *words]


def _shared(number: int) -> str:
    """A paragraph that several documents have in common, and so one chunk."""
    return f"Notice sh{number:02}q: " + " ".join(random.Random(number).choices(_VOCABULARY, k=12)) + "."


@lru_cache(maxsize=1)
def _counter():
    return load_token_counter()


@lru_cache(maxsize=8192)
def expected_chunks(number: int, revision: int, ending: str) -> tuple[Chunk, ...]:
    """The chunks that this revision must have in the index, in reading order: no more, no fewer, and nowhere else."""
    with _parsing:
        document = parse(f"{word_of(number)}.{ending}", render(number, revision, ending))
        return tuple(chunk_document(document, _counter(), CHUNK_TOKENS, 0))
