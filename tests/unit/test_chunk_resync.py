"""One edited paragraph changes few chunks: the promise that keeps re-embedding cheap (docs/decisions/0004-chunk-borders.md)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.tokens import load_token_counter

_Make = Callable[[list[str]], tuple[str, str]]
_SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "za", "den", "for", "gar", "hin", "jol"]


class _Memo:
    """The real counter, which remembers: an edit leaves nearly all texts as they were."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count_many(self, texts: Sequence[str]) -> list[int]:
        new = [text for text in dict.fromkeys(texts) if text not in self._counts]
        self._counts.update(zip(new, load_token_counter().count_many(new), strict=True))
        return [self._counts[text] for text in texts]


_COUNTER = _Memo()


def _sentence(rng: random.Random) -> str:
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(rng.randint(4, 16))]
    return " ".join(words).capitalize() + "."


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(1, 6)))


def _plain(paragraphs: list[str]) -> tuple[str, str]:
    return "a.txt", "\n\n".join(paragraphs)


def _paged(paragraphs: list[str]) -> tuple[str, str]:
    # A page is full after so many characters, so an edit moves every later page border.
    text, used = "", 0
    for paragraph in paragraphs:
        text += paragraph + ("\f" if used > 1800 else "\n\n")
        used = 0 if used > 1800 else used + len(paragraph)
    return "a.txt", text


def _headed(paragraphs: list[str]) -> tuple[str, str]:
    return "a.md", "\n\n".join(paragraphs)


def _with_headings(paragraphs: list[str], rng: random.Random) -> list[str]:
    """The paragraphs with headings of three levels before some of them; edits leave headings alone."""
    texts = ["# Book"]
    for paragraph in paragraphs:
        if rng.random() < 0.3:
            texts.append(f"{'#' * rng.randint(2, 4)} About {paragraph.split()[0]}")
        texts.append(paragraph)
    return texts


def _ids(document: tuple[str, str]) -> set[str]:
    name, text = document
    return {str(chunk.chunk_id) for chunk in chunk_document(parse(name, text.encode()), _COUNTER)}


def _edited(paragraphs: list[str], place: int, rng: random.Random) -> list[str]:
    edited = list(paragraphs)
    while edited[place].startswith("#"):
        place += 1
    match rng.randrange(5):
        case 0:
            edited[place] = _paragraph(rng)
        case 1:
            edited.insert(place, _paragraph(rng))
        case 2:
            del edited[place]
        case 3:
            edited[place] += " " + _sentence(rng)
        case _:
            words = edited[place].split()
            words[rng.randrange(len(words))] = "changed"
            edited[place] = " ".join(words)
    return edited


@pytest.mark.parametrize(("make", "count"), [(_plain, 5000), (_paged, 1200), (_headed, 1200)])
def test_a_long_text_changes_at_most_three_chunks_when_a_paragraph_near_its_start_does(make: _Make, count: int) -> None:
    rng = random.Random(500)
    paragraphs = [_paragraph(rng) for _ in range(count)]
    if make is _headed:
        paragraphs = _with_headings(paragraphs, rng)
    before = _ids(make(paragraphs))
    assert len(before) > count / 5
    for _ in range(2):
        assert len(_ids(make(_edited(paragraphs, rng.randrange(8), rng))) - before) <= 3


@pytest.mark.parametrize("make", [_plain, _paged, _headed])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_edit_of_many_changes_more_than_three_chunks(make: _Make, seed: int) -> None:
    rng = random.Random(seed)
    paragraphs = [_paragraph(rng) for _ in range(50)]
    if make is _headed:
        paragraphs = _with_headings(paragraphs, rng)
    before = _ids(make(paragraphs))
    for _ in range(150):
        assert len(_ids(make(_edited(paragraphs, rng.randrange(len(paragraphs)), rng))) - before) <= 3


def test_an_edited_function_changes_only_its_own_chunks() -> None:
    rng = random.Random(9)
    functions = [
        f"def function_{i}(a, b):\n"
        + "\n".join(f"    {_sentence(rng)[:-1].replace(' ', '_').lower()} = a + {j}" for j in range(6))
        for i in range(150)
    ]
    before = _ids(("a.py", "\n\n\n".join(functions)))
    for _ in range(40):
        edited = list(functions)
        place = rng.randrange(len(edited))
        edited[place] += "\n    return changed_value"
        assert len(_ids(("a.py", "\n\n\n".join(edited))) - before) <= 2
