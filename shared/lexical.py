"""Terms of a text for keyword search: one module for both sides, so that what is indexed is what is asked for.

A text is cut into tokens, and each token gives one or more terms:

- a word gives its English Snowball stem with accents folded (`refunded` -> `refund`, `cafés` -> `cafe`), its exact folded form
  and, of six letters and more, its first five (`Rechnungen` -> `rechn`, `договорами` -> `догов`), each when it differs from those
  before. The beginning is what inflected forms share in languages that inflect at the end, and what a compound shares with its
  first part; it finds more than a stemmer for the language would, and needs no guess of it (docs/decisions/0012-keyword.md);
- a compound (`snake_case`, `camelCase`, `ERR-0042`, `src/app/main.py`, `std::vector`) gives itself whole, its segments, and
  their words; a version number (`v1.9.2`) itself and what it belongs to (`1.9`);
- a number whose digits stand in groups (`4,711`, `4'711`, `4 711`, `4.711`) gives itself written as one, `4711`, and its groups;
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
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import Stemmer

from shared.spelling import GROUPS, groups_of, is_digits, joined, may_have_groups, other_umlauts
from shared.stop_words import ELSEWHERE, ENGLISH, STOP_WORDS

LEXICAL_VERSION = 3
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
_TOKEN_OR_GROUPS = re.compile(f"{GROUPS}|{_PLAIN_TOKENS}")
_COMPOUND = re.compile(rf"[^\w{_MARKS}'’]|_|\d[^\W\d]|[^\W\d]\d|[a-z][A-Z]|[A-Z]{{2}}[a-z]")
_SEGMENTS = (re.compile(r"[/\\]"), re.compile(r"::|->|[.:@]"), re.compile(r"[-'’]"))
_HUMPS = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)(.*)")
_STRIPPED_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670]")
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"})
_LETTERS_IN_A_ROW = re.compile(r"[^\W\d_]+")
_IDENTIFIER = re.compile(
    r"""[^\W_]_+[^\W_]            # snake_case
      | [^\W\d_]\d|\d[^\W\d_]     # letters with digits: utf8, 0x1f
      | [^\W\d_]{2,}[-:]\d        # ERR-0042
      | \d\.\d                    # 1.9.2
      | ::|->|@|\\                # std::vector, a@b.example
      | /.*/                      # a path
      | [^\W_]{2,}\.[^\W_]{2,}    # module.name
      | \b[a-z]{2,}[A-Z][a-z]     # camelCase
      | (?:[A-Z][a-z]+){3}        # three humps: two are a product's name more often than a class
    """,
    re.VERBOSE,
)
_HUMP = re.compile(r"[a-z][A-Z]")
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»|`([^`]+)`|「([^」]+)」|『([^』]+)』')


class TermKind(StrEnum):
    """How a term came out of its token."""

    STEM = "stem"
    EXACT = "exact"
    BEGINNING = "beginning"
    COMPOUND = "compound"
    GRAM = "gram"
    SPELLING = "spelling"
    """Written otherwise: a number without its groups, a German word with umlauts or without."""


OTHER_FORMS = frozenset({TermKind.EXACT, TermKind.BEGINNING, TermKind.SPELLING})
"""Further forms of a word that is asked for already: holding one is no second thing that a chunk holds."""

_WEIGHTS: Mapping[TermKind, float] = {
    TermKind.STEM: 1.0,
    TermKind.EXACT: 0.25,
    TermKind.BEGINNING: 0.25,
    TermKind.COMPOUND: 1.0,
    TermKind.GRAM: 1.0,
    TermKind.SPELLING: 1.0,
}
MOST_SPELLED = 32
"""Terms of a query up to which other spellings are asked for too: no more are scored, and those of the query come first."""

SHORTEST_FIGURE = 3
"""Digits of a number that is missed when it stands nowhere: a `5` stands for anything."""

_BEGINNING_ELSEWHERE = 0.5
"""Weight of beginnings in a query that is not English, whose stems are worth less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerm:
    """One term that a query asks for. `weight` multiplies its BM25 score; `surface` is the form as people read it. `word` is the
    same for the forms of one word.
    """

    number: int
    surface: str
    kind: TermKind
    weight: float
    word: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerms:
    """What a query asks for.

    `text` is the query itself, NFKC. `terms` are distinct, in the query's order, other spellings of words last. `identifiers` are
    those of them that stand for a whole identifier: a passage that holds one is an exact hit; `identifier_names` are these as
    they were written. `phrases` are the quoted parts, folded as `fold_phrase` folds a text, and `phrase_terms` the numbers of the
    terms that every text with the phrase holds, for each phrase. `figures` are the numbers in it as they were written, each with
    the terms of which a text that gives this number holds one. A query is `bare` when it is nothing but identifiers, numbers and
    quoted phrases.
    """

    text: str
    terms: tuple[QueryTerm, ...]
    identifiers: tuple[QueryTerm, ...]
    phrases: tuple[str, ...]
    phrase_terms: tuple[tuple[int, ...], ...]
    identifier_names: tuple[str, ...] = ()
    figures: tuple[tuple[str, frozenset[int]], ...] = ()
    bare: bool = False

    @property
    def numbers(self) -> list[int]:
        """The term numbers, in the query's order."""
        return [term.number for term in self.terms]


@lru_cache(maxsize=1 << 17)
def term_number(term: str) -> int:
    """The number of a term, the same on every machine: 1..TERM_SPACE."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") % TERM_SPACE + 1


def term_counts(text: str) -> dict[int, int]:
    """How often each term stands in a text: {term number: count}, at most MOST_TERMS of them.

    The sum of the counts is the text's length for BM25.
    """
    tokens = _tokens(_normalised(text))
    # Counted without a step of Python for each token: this is a good part of the cost of an ingest.
    counts = Counter(chain.from_iterable(map(_numbers, tokens)))
    if len(counts) <= MOST_TERMS:
        return counts
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_TERMS])


def term_places(text: str, wanted: Set[int]) -> list[tuple[int, int]]:
    """Where tokens with any of these terms begin in a text, each with the first such term; in the text's order."""
    pattern = _TOKEN_OR_GROUPS if may_have_groups(text) else _TOKEN
    found = []
    for match in pattern.finditer(text):
        term = next((number for number in _numbers(_normalised(match[0])) if number in wanted), None)
        if term is not None:
            found.append((match.start(), term))
    return found


def query_terms(query: str) -> QueryTerms:
    """The terms, identifiers and quoted phrases that a query asks for.

    Function words are left out unless they are quoted or nothing else is there.
    """
    query = unicodedata.normalize("NFKC", query)
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(query)]
    tokens = _tokens(query)
    kept = [token for token in tokens if token.casefold() not in STOP_WORDS]
    if quoted or not kept:
        protected = {token for phrase in quoted for token in _tokens(phrase)} if kept or quoted else set(tokens)
        kept = [token for token in tokens if token in protected or token.casefold() not in STOP_WORDS]
    weights = {**_WEIGHTS, TermKind.BEGINNING: _BEGINNING_ELSEWHERE} if _is_elsewhere(tokens) else _WEIGHTS
    terms: dict[int, QueryTerm] = {}
    identifiers: dict[int, QueryTerm] = {}
    names: dict[int, str] = {}
    spelled: dict[int, QueryTerm] = {}
    english = _is_english(tokens)
    word = 0
    for token in kept:
        asked = list(_asked(token))
        for surface, kind in asked:
            number = term_number(surface)
            word += kind not in OTHER_FORMS
            terms.setdefault(number, QueryTerm(number=number, surface=surface, kind=kind, weight=weights[kind], word=word))
        for surface in _identifying(token, asked, alone=len(tokens) == 1):
            number = term_number(surface)
            identifiers[number] = terms[number]
            names.setdefault(number, token)
        for surface, kind in _spellings(token):
            number = term_number(surface)
            # In English words `oe` and `ue` are no umlauts, unless in names.
            if not english or (token[0].isupper() and kind is TermKind.SPELLING):
                spelled[number] = QueryTerm(
                    number=number, surface=surface, kind=TermKind.SPELLING, weight=weights[kind], word=word
                )
    if len(terms.keys() | spelled.keys()) <= MOST_SPELLED:
        terms |= {number: term for number, term in spelled.items() if number not in terms}
    phrases = {folded: _certain(phrase) for phrase in quoted if (folded := fold_phrase(phrase))}
    return QueryTerms(
        text=query,
        terms=tuple(terms.values()),
        identifiers=tuple(identifiers.values()),
        phrases=tuple(phrases),
        phrase_terms=tuple(phrases.values()),
        identifier_names=tuple(names.values()),
        figures=tuple((token, _readings(token)) for token in dict.fromkeys(tokens) if _readings(token)),
        bare=bool(tokens) and all(map(_names_one_thing, _tokens(_QUOTED.sub(" ", query)))),
    )


def fold_phrase(text: str) -> str:
    """A text as quoted phrases are compared with it: NFKC, case folded, every run of white space one space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


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


# Longer tokens are runs of unspaced scripts and encoded data, which hardly ever come again.
_CACHED_LENGTH = 24


def _tokens(text: str) -> list[str]:
    # Looking for groups at every place of a text takes a fifth longer, and few texts have any.
    return (_TOKEN_OR_GROUPS if may_have_groups(text) else _TOKEN).findall(text)


def _normalised(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


class _Numbers(dict[str, tuple[int, ...]]):
    """The term numbers of a token, those of short tokens kept: a dictionary is asked faster than `lru_cache`."""

    def __missing__(self, token: str) -> tuple[int, ...]:
        numbers = tuple(map(term_number, dict.fromkeys(term for term, _ in _terms(token))))
        if len(token) <= _CACHED_LENGTH:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[token] = numbers
        return numbers


_MOST_CACHED = 1 << 16
_numbers = _Numbers().__getitem__


def _asked(token: str) -> Iterator[tuple[str, TermKind]]:
    """The terms of a token of a query: those of the index, without single characters of runs that have pairs.

    Of a number in groups only that as one, since its groups are other numbers; where spaces part them they may be meant.
    """
    whole = joined(token)
    if whole and "." not in token:
        apart = token.split(" ")
        yield from ((piece, TermKind.STEM) for piece in apart if len(apart) > 1)
        yield whole, TermKind.SPELLING if len(apart) > 1 else TermKind.STEM
        return
    pairs = not _is_unspaced(token) or len(token) == 1
    for term, kind in _terms(token):
        if pairs or kind is not TermKind.GRAM or len(term) > 1:
            yield term, kind


def _certain(phrase: str) -> tuple[int, ...]:
    """The terms of a phrase that no text around it changes: `a.b` is no term of `a.b.c`, but `a` and `b` are."""
    terms: list[tuple[str, TermKind]] = []
    for token in _tokens(phrase):
        if joined(token) and "." not in token:  # `4,711` stands in `4,711,000`, which is another number
            terms += ((digits, TermKind.STEM) for digits in groups_of(token))
        else:
            terms += ((term, kind) for term, kind in _asked(token) if kind is not TermKind.SPELLING)
    words = [term for term, kind in terms if kind in {TermKind.STEM, TermKind.GRAM}]
    return tuple(dict.fromkeys(map(term_number, words or [term for term, _ in terms])))


def _is_elsewhere(tokens: Sequence[str]) -> bool:
    """Whether a query is rather not English: by its function words, or by letters that English does without."""
    words = [token.casefold() for token in tokens]
    elsewhere = sum(word in ELSEWHERE for word in words) - sum(word in ENGLISH for word in words)
    return elsewhere > 0 or (elsewhere == 0 and any(not word.isascii() and word.isalpha() for word in words))


def _is_english(tokens: Sequence[str]) -> bool:
    """Whether a query has more function words of English than of other languages."""
    words = [token.casefold() for token in tokens]
    return sum(word in ENGLISH for word in words) > sum(word in ELSEWHERE for word in words)


def _readings(token: str) -> frozenset[int]:
    """Terms of which each text that gives this number holds one; none of a token that is no whole number."""
    whole = joined(token)
    if not whole:
        return frozenset({term_number(token)}) if is_digits(token) else frozenset()
    return frozenset({term_number(whole), term_number(token)}) if "." in token else frozenset({term_number(whole)})


def _spellings(token: str) -> Iterator[tuple[str, TermKind]]:
    """The words of a token with ä, ö, ü as ae, oe, ue, or the reverse; and the beginnings of these."""
    for word in _LETTERS_IN_A_ROW.findall(_fold(token)):
        other = other_umlauts(word)
        if other == word:
            continue
        bare = _without_accents(other)
        yield other[:LONGEST_WORD] if word.isascii() else _stem(bare)[:LONGEST_WORD], TermKind.SPELLING
        if len(bare) > BEGINNING and bare.isalpha():
            yield bare[:BEGINNING], TermKind.BEGINNING


def _is_unspaced(token: str) -> bool:
    return re.match(f"[{_UNSPACED}]", token) is not None


def _terms(token: str) -> Iterator[tuple[str, TermKind]]:
    """The terms of one token, its most specific one first."""
    if _is_unspaced(token):
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
    elif _COMPOUND.search(token):
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
            folded = _fold(piece)[:LONGEST_COMPOUND]
            if folded not in seen and _COMPOUND.search(piece):
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
    exact = _fold(word)[:LONGEST_WORD]
    bare = exact if exact.isascii() else _without_accents(exact)
    stem = _stem(bare)
    yield stem, TermKind.STEM
    if exact != stem:
        yield exact, TermKind.EXACT
    if len(bare) > BEGINNING and bare.isalpha() and bare[:BEGINNING] not in (stem, exact):
        yield bare[:BEGINNING], TermKind.BEGINNING


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())


def _without_accents(word: str) -> str:
    bare = _STRIPPED_MARKS.sub("", unicodedata.normalize("NFKD", word)).translate(_LETTERS)
    return unicodedata.normalize("NFC", bare)


class _Local(threading.local):
    """A stemmer for each thread: one may not be used by two at once."""

    def __init__(self) -> None:
        self.stemmer = Stemmer.Stemmer("english", 0)


@lru_cache(maxsize=1)
def _local() -> _Local:
    return _Local()


def _stem(word: str) -> str:
    if not word.isascii() or not word.isalpha():
        return word
    return str(_local().stemmer.stemWord(word))


def _names_one_thing(token: str) -> bool:
    """Whether a token is an identifier or a number by its form alone; `e-mail` and `and/or` are only words with a sign."""
    return not _is_unspaced(token) and (
        bool(_readings(token)) or _IDENTIFIER.search(token) is not None or _HUMP.search(token) is not None
    )


def _is_identifier(token: str, *, alone: bool) -> bool:
    """Whether a token names one thing exactly: decided by its form, or by standing alone without being a plain word."""
    if _is_unspaced(token):
        return False
    if _IDENTIFIER.search(token):
        return True
    return alone and (_COMPOUND.search(token) is not None or bool(_readings(token)))


def _identifying(token: str, asked: Sequence[tuple[str, TermKind]], *, alone: bool) -> Sequence[str]:
    """Those of its terms that stand for an identifier as a whole; they are `asked`, the most specific one first."""
    if not asked or not _is_identifier(token, alone=alone):
        return ()
    first, whole = asked[0][0], joined(token)
    if "." not in token or not alone:
        return (whole if whole and "." not in token else first,)
    return (first, whole) if whole else (first,)
