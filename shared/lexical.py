"""Terms of a text for keyword search: one module for both sides, so that what is indexed is what is asked for.

A text is cut into tokens, and each token gives one or more terms:

- a word gives its English Snowball stem with accents folded (`refunded` -> `refund`, `cafés` -> `cafe`), its exact folded form
  and, of six letters and more, its first five (`Rechnungen` -> `rechn`, `договорами` -> `догов`), each when it differs from those
  before. The beginning is what inflected forms share in languages that inflect at the end, and what a compound shares with its
  first part; it finds more than a stemmer for the language would, and needs no guess of it (docs/decisions/0012-keyword.md);
- a compound (`snake_case`, `camelCase`, `ERR-0042`, `src/app/main.py`, `std::vector`) gives itself whole, its segments, and
  their words; a version number (`v1.9.2`) itself and what it belongs to (`1.9`);
- a number whose digits stand in groups (`4,711`, `4'711`, `4 711`, `4.711`) gives itself written as one, `4711`, and its groups;
- an amount (`8.750,00`, `61.00`) gives itself with a dot, `8750.00`, and its whole part, which is all of it where zeros follow;
  one with a comma (`42,50`, `42,5`) gives itself with one decimal and with two, `42.5` and `42.50`;
- the number of an account, a card or a phone that is written in groups gives itself as one, beside what its groups give
  (serials.py);
- a run of a script that is written without spaces (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese, Tibetan) gives its
  characters and its pairs of characters when indexed, and only the pairs when asked for. Such a run ends at a script border,
  so `docker部署` is `docker` and `部署`.

A query asks besides for German words as they are written with and without umlauts: `Mueller` finds `Müller`, and the reverse.

A term is known by its number, a hash. A chunk's length for BM25 is the sum of its counts: every form of a word counts, which
stretches all chunks alike, so the quotient of length and average length keeps its meaning.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import Stemmer

from shared.serials import find_serials, serials_of
from shared.spelling import AMOUNTS, GROUPS, amount_of, groups_of, joined, may_have_groups

LEXICAL_VERSION = 5
"""Raised whenever the same text would give other terms. It is stored with the terms of each chunk, and the scheduler makes those
of an older version again."""

TERM_SPACE = 1_000_000_000
"""Term numbers are 1..TERM_SPACE: the most dimensions that pgvector's sparsevec takes."""

MOST_TERMS = 16_000
"""Non-zero elements that a sparsevec can hold; of a chunk with more terms the most frequent are kept."""

MOST_COUNTED = 63
"""The highest count that is stored: BM25 saturates, so 63 and 630 differ by 2 % of a term's score. See `counting_vectors`."""

COUNTED_AT_ONCE = 4
"""Counts that one inner product yields: sparsevec adds in float32, which holds 24 bits, four digits of base 64."""

BEGINNING = 5
"""Letters of a longer word that make its beginning: five found more than four, six or seven did."""

LONGEST_WORD = 64
LONGEST_COMPOUND = 160
"""Characters after which a word or a compound is cut: beyond stand encoded data and minified code, which nobody asks for."""

_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fbc\u1000-\u109f\u1100-\u11ff\u1780-\u17d3\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u3096"
    "\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
# Combining marks that Python's \w leaves out: without them a Hindi or a vocalised Arabic word would fall into pieces.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0df3"
)
_WORD = rf"[^\W{_UNSPACED}]+(?:[{_MARKS}]+[^\W{_UNSPACED}]*)*"
_PLAIN_TOKENS = rf"[{_UNSPACED}]+|[A-Za-z](?:\+\+|#)(?![\w+#])|{_WORD}(?:(?:::|->|[._/\\:@'’-]){_WORD})*"
_TOKEN = re.compile(_PLAIN_TOKENS)
_TOKEN_OR_GROUPS = re.compile(f"{AMOUNTS}|{GROUPS}|{_PLAIN_TOKENS}")
COMPOUND = re.compile(rf"[^\w{_MARKS}'’]|_|\d[^\W\d]|[^\W\d]\d|[a-z][A-Z]|[A-Z]{{2}}[a-z]")
_SEGMENTS = (re.compile(r"[/\\]"), re.compile(r"::|->|[.:@]"), re.compile(r"[-'’]"))
_HUMPS = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)(.*)")
_STRIPPED_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670]")
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"})


class TermKind(StrEnum):
    """How a term came out of its token."""

    STEM = "stem"
    EXACT = "exact"
    BEGINNING = "beginning"
    COMPOUND = "compound"
    GRAM = "gram"
    SPELLING = "spelling"
    """Written otherwise: a number without its groups, a German word with umlauts or without."""


@lru_cache(maxsize=1 << 14)
def term_number(term: str) -> int:
    """The number of a term, the same on every machine: 1..TERM_SPACE."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") % TERM_SPACE + 1


def term_counts(text: str) -> dict[int, int]:
    """How often each term stands in a text: {term number: count}, at most MOST_TERMS of them.

    The sum of the counts is the text's length for BM25.
    """
    text = normalised(text)
    # Counted without a step of Python for each token: this is a good part of the cost of an ingest.
    counts = Counter(chain.from_iterable(map(_numbers, tokens_of(text))))
    counts.update(number for start, end in find_serials(text) for number in _of_serial(text[start:end]))
    if len(counts) <= MOST_TERMS:
        return counts
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_TERMS])


def term_places(text: str, wanted: Set[int]) -> list[tuple[int, int]]:
    """Where tokens with any of these terms begin in a text, each with the first such term; in the text's order."""
    pattern = _TOKEN_OR_GROUPS if may_have_groups(text) else _TOKEN
    found = []
    for match in pattern.finditer(text):
        term = next((number for number in _numbers(normalised(match[0])) if number in wanted), None)
        if term is not None:
            found.append((match.start(), term))
    # Each place stays where it is: NFKC may make a text longer.
    text = text.replace("\u00a0", " ").replace("\u202f", " ")
    for start, end in find_serials(text):
        term = next((number for number in _of_serial(text[start:end]) if number in wanted), None)
        if term is not None:
            found.append((start, term))
    return sorted(found, key=lambda one: one[0])


def sparsevec_text(counts: Mapping[int, int]) -> str:
    """The stored form of a chunk's terms, a sparsevec literal of TERM_SPACE dimensions: `{7:1,42:3}/1000000000`.

    A count above MOST_COUNTED is stored as MOST_COUNTED.
    """
    return "{" + ",".join(f"{number}:{min(counts[number], MOST_COUNTED)}" for number in sorted(counts)) + f"}}/{TERM_SPACE}"


def counting_vectors(numbers: Sequence[int]) -> list[str]:
    """Sparsevec literals, one for each four of these terms, whose inner product with a stored one holds the four counts.

    The term at place p of a group of four weighs 64**p, so the product is a number in base 64 whose digits are the counts.
    That reads a stored vector once for four terms, where a unit vector for each term would read it four times.
    """
    groups = [numbers[start : start + COUNTED_AT_ONCE] for start in range(0, len(numbers), COUNTED_AT_ONCE)]
    weighed = [sorted((number, (MOST_COUNTED + 1) ** place) for place, number in enumerate(group)) for group in groups]
    return ["{" + ",".join(f"{number}:{weight}" for number, weight in group) + f"}}/{TERM_SPACE}" for group in weighed]


def _of_serial(written: str) -> list[int]:
    return [term_number(form) for form in serials_of(written)]


# Longer tokens are runs of unspaced scripts and encoded data, which hardly ever come again.
_CACHED_LENGTH = 24


def tokens_of(text: str) -> list[str]:
    """The tokens of a text in their order, NFKC."""
    # Looking for groups at every place of a text takes a fifth longer, and few texts have any.
    return (_TOKEN_OR_GROUPS if may_have_groups(text) else _TOKEN).findall(text)


def normalised(text: str) -> str:
    """A text in NFKC."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


class _Numbers(dict[str, tuple[int, ...]]):
    """The term numbers of a token, those of short tokens kept: a dictionary is asked faster than `lru_cache`."""

    def __missing__(self, token: str) -> tuple[int, ...]:
        numbers = tuple(map(term_number, dict.fromkeys(term for term, _ in token_terms(token))))
        if len(token) <= _CACHED_LENGTH:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[token] = numbers
        return numbers


_MOST_CACHED = 1 << 15
_numbers = _Numbers().__getitem__


def is_unspaced(token: str) -> bool:
    """Whether it is a run of a script that is written without spaces."""
    return re.match(f"[{_UNSPACED}]", token) is not None


def token_terms(token: str) -> Iterator[tuple[str, TermKind]]:
    """The terms of one token, its most specific one first."""
    if is_unspaced(token):
        yield from ((token[start : start + 2], TermKind.GRAM) for start in range(len(token) - 1))
        yield from ((character, TermKind.GRAM) for character in token)
    elif whole := joined(token):
        if "." in token:
            # It may be a version all the same; `22.338` of `22.338.618` would be one of nothing.
            yield token, TermKind.COMPOUND
            yield whole, TermKind.SPELLING
        else:
            yield whole, TermKind.STEM
            yield from ((digits, TermKind.EXACT) for digits in groups_of(token))
    elif amount := amount_of(token):
        whole, decimals = amount
        yield f"{whole}.{decimals}", TermKind.COMPOUND
        yield whole, TermKind.SPELLING if decimals == "00" else TermKind.EXACT
        if decimals != "00":
            if decimals.endswith("0"):
                yield f"{whole}.{decimals[0]}", TermKind.SPELLING
            yield groups_of(token)[-1], TermKind.EXACT
    elif COMPOUND.search(token):
        yield from _compound_terms(token)
    else:
        yield from _word_terms(token)


def _compound_terms(token: str) -> Iterator[tuple[str, TermKind]]:
    """A compound whole, then its segments from the outermost separator in, then their words."""
    version = _VERSION.fullmatch(token.casefold())
    if version is not None:
        yield from ((term, TermKind.COMPOUND) for term in _version_terms(*version.groups()))
        return
    seen: set[str] = set()
    pieces = [token]
    for separator in (None, *_SEGMENTS):
        if separator is not None:
            pieces = [piece for whole in pieces for piece in separator.split(whole) if piece]
        for piece in pieces:
            folded = fold(piece)[:LONGEST_COMPOUND]
            if folded not in seen and COMPOUND.search(piece):
                seen.add(folded)
                yield folded, TermKind.COMPOUND
    for piece in pieces:
        humps = _HUMPS.findall(piece)
        for word in humps or [piece]:
            # The single letters of `e.g.` or `__x` say nothing; the compound holds them.
            if len(word) > 1 or word.isdigit():
                yield from _word_terms(word)


def _version_terms(number: str, rest: str) -> Iterator[str]:
    """`1.9.2-rc1` is found as itself, as `1.9.2` and as `1.9`, with `v` or without; its single digits say nothing."""
    if rest:
        yield number + rest
    parts = number.split(".")
    yield from (".".join(parts[:end]) for end in range(len(parts), 1, -1))


def _word_terms(word: str) -> Iterator[tuple[str, TermKind]]:
    if "'" in word or "’" in word:
        # English endings (`customer's`, `don't`) and Romance elisions (`l'homme`): what is longer than two letters counts.
        for part in filter(None, _SEGMENTS[2].split(word)):
            if len(part) > 2:
                yield from _word_terms(part)
        return
    exact = fold(word)[:LONGEST_WORD]
    bare = exact if exact.isascii() else without_accents(exact)
    stem = stem_of(bare)
    yield stem, TermKind.STEM
    if exact != stem:
        yield exact, TermKind.EXACT
    if len(bare) > BEGINNING and bare.isalpha() and bare[:BEGINNING] not in (stem, exact):
        yield bare[:BEGINNING], TermKind.BEGINNING


def fold(text: str) -> str:
    """Case folded, NFKC."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())


def without_accents(word: str) -> str:
    """A folded word with plain letters."""
    bare = _STRIPPED_MARKS.sub("", unicodedata.normalize("NFKD", word)).translate(_LETTERS)
    return unicodedata.normalize("NFC", bare)


class _Local(threading.local):
    """A stemmer for each thread: one may not be used by two at once."""

    def __init__(self) -> None:
        self.stemmer = Stemmer.Stemmer("english", 0)


@lru_cache(maxsize=1)
def _local() -> _Local:
    return _Local()


def stem_of(word: str) -> str:
    """The English Snowball stem; of anything but ASCII letters the word itself."""
    if not word.isascii() or not word.isalpha():
        return word
    return str(_local().stemmer.stemWord(word))
