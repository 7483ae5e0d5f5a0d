"""What a query asks for in keyword search: its terms as the index has them, identifiers, quoted phrases and numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.lexical import (
    BEGINNING,
    COMPOUND,
    LONGEST_WORD,
    TermKind,
    fold,
    is_unspaced,
    stem_of,
    term_number,
    token_terms,
    tokens_of,
    without_accents,
)
from shared.serials import find_serials, serials_of
from shared.spelling import amount_of, groups_of, is_digits, joined, other_umlauts
from shared.stop_words import ELSEWHERE, ENGLISH, STOP_WORDS

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

MOST_BRIEF = 4
"""Words of a question that is brief: a passage that holds all of them is meant rather than one that repeats some."""

_BEGINNING_ELSEWHERE = 0.5
"""Weight of beginnings in a query that is not English, whose stems are worth less."""

_LETTERS_IN_A_ROW = re.compile(r"[^\W\d_]+")
_IDENTIFIER = re.compile(
    r"""[^\W_]_+[^\W_]            # snake_case
      | [^\W\d_]\d|\d[^\W\d_]     # letters with digits: utf8, 0x1f
      | [^\W\d_]{2,}[-:]\d        # ERR-0042
      | \b[^\W\d_]-\d{2}          # E-5501
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
    they were written. `phrases` are the quoted parts, folded as `fold_phrase` folds a text, `phrase_names` as they were written,
    and `phrase_terms` the numbers of the terms that every text with the phrase holds, for each phrase. `figures` are the numbers
    in it as they were written, each with the terms of which a text that gives this number holds one. A query is `bare` when it is
    nothing but identifiers, numbers and quoted phrases. `needs` are, for a brief query with a number or an identifier in it, the
    forms of each of its words: a text that holds one form of every word holds all that was asked for.
    """

    text: str
    terms: tuple[QueryTerm, ...]
    identifiers: tuple[QueryTerm, ...]
    phrases: tuple[str, ...]
    phrase_terms: tuple[tuple[int, ...], ...]
    identifier_names: tuple[str, ...] = ()
    phrase_names: tuple[str, ...] = ()
    figures: tuple[tuple[str, frozenset[int]], ...] = ()
    bare: bool = False
    needs: tuple[frozenset[int], ...] = ()

    @property
    def numbers(self) -> list[int]:
        """The term numbers, in the query's order."""
        return [term.number for term in self.terms]


def query_terms(query: str) -> QueryTerms:
    """The terms, identifiers and quoted phrases that a query asks for.

    Function words are left out unless they are quoted or nothing else is there.
    """
    query = unicodedata.normalize("NFKC", query)
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(query)]
    tokens = _tokens(query)
    kept = [token for token in tokens if token.casefold() not in STOP_WORDS]
    if quoted or not kept:
        protected = {token for phrase in quoted for token in tokens_of(phrase)} if kept or quoted else set(tokens)
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
            # In English `oe` and `ue` are umlauts in names alone, and nobody has to write these with a capital.
            if not english or kind is TermKind.SPELLING:
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
        phrase_names=tuple({fold_phrase(phrase): " ".join(phrase.split()) for phrase in quoted if fold_phrase(phrase)}.values()),
        figures=tuple((token, _readings(token)) for token in dict.fromkeys(tokens) if _readings(token)),
        bare=bool(tokens) and all(map(_names_one_thing, _tokens(_QUOTED.sub(" ", query)))),
        needs=_needs(kept),
    )


def fold_phrase(text: str) -> str:
    """A text as quoted phrases are compared with it: NFKC, case folded, every run of white space one space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _tokens(query: str) -> list[str]:
    """The tokens of a query, in which the number of an account or a phone is one whatever its groups."""
    tokens: list[str] = []
    reached = 0
    for start, end in find_serials(query):
        tokens += [*tokens_of(query[reached:start]), query[start:end]]
        reached = end
    return tokens + tokens_of(query[reached:])


def _asked(token: str) -> Iterator[tuple[str, TermKind]]:
    """The terms of a token of a query: those of the index, without single characters of runs that have pairs.

    Of a number in groups only that as one, since its groups are other numbers; where spaces part them they may be meant.
    """
    forms = serials_of(token)
    if forms:
        yield forms[0], TermKind.COMPOUND
        yield from ((form, TermKind.SPELLING) for form in forms[1:])
        for part in tokens_of(token):
            yield from ((term, TermKind.EXACT) for term, _ in token_terms(part))
        return
    whole = joined(token)
    if whole and "." not in token:
        apart = token.split(" ")
        yield from ((piece, TermKind.STEM) for piece in apart if len(apart) > 1)
        yield whole, TermKind.SPELLING if len(apart) > 1 else TermKind.STEM
        return
    pairs = not is_unspaced(token) or len(token) == 1
    for term, kind in token_terms(token):
        if pairs or kind is not TermKind.GRAM or len(term) > 1:
            yield term, kind


def _needs(kept: Sequence[str]) -> tuple[frozenset[int], ...]:
    """For each word of a brief query its forms; of a run without spaces each pair. None where no word names one thing."""
    words = list(dict.fromkeys(kept))
    # Not by its humps: a query in lower case is the same one.
    if not 1 < len(words) <= MOST_BRIEF or not any(_names_one_thing(word.casefold()) for word in words):
        return ()
    needs: list[frozenset[int]] = []
    for word in words:
        asked = list(_asked(word))
        if is_unspaced(word):
            needs += (frozenset({term_number(pair)}) for pair, _ in asked)
        elif readings := _readings(word):
            needs.append(readings)
        else:
            whole = [asked[0]] if COMPOUND.search(word) else [*asked, *_spellings(word)]
            needs.append(frozenset(term_number(surface) for surface, _ in whole))
    return tuple(needs)


def _certain(phrase: str) -> tuple[int, ...]:
    """The terms of a phrase that no text around it changes: `a.b` is no term of `a.b.c`, but `a` and `b` are."""
    terms: list[tuple[str, TermKind]] = []
    for token in tokens_of(phrase):
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
    """Terms of which each text that gives this number holds one; none of a token that is no number, or one with decimals as a
    version has."""
    forms = serials_of(token)
    if forms:
        return frozenset(map(term_number, forms))
    amount = amount_of(token)
    if amount is not None:
        number, decimals = amount
        shorter = [number] if decimals == "00" else [f"{number}.{decimals[0]}"] if decimals.endswith("0") else []
        return frozenset(map(term_number, [f"{number}.{decimals}", *shorter]))
    whole = joined(token)
    if not whole:
        return frozenset({term_number(token)}) if is_digits(token) else frozenset()
    return frozenset({term_number(whole), term_number(token)}) if "." in token else frozenset({term_number(whole)})


def _spellings(token: str) -> Iterator[tuple[str, TermKind]]:
    """The words of a token with ä, ö, ü as ae, oe, ue, or the reverse; and the beginnings of these."""
    for word in _LETTERS_IN_A_ROW.findall(fold(token)):
        other = other_umlauts(word)
        if other == word:
            continue
        bare = without_accents(other)
        yield other[:LONGEST_WORD] if word.isascii() else stem_of(bare)[:LONGEST_WORD], TermKind.SPELLING
        if len(bare) > BEGINNING and bare.isalpha():
            yield bare[:BEGINNING], TermKind.BEGINNING


def _names_one_thing(token: str) -> bool:
    """Whether a token is an identifier or a number by its form alone; `e-mail` and `and/or` are only words with a sign."""
    return not is_unspaced(token) and (
        bool(_readings(token)) or _IDENTIFIER.search(token) is not None or _HUMP.search(token) is not None
    )


def _is_identifier(token: str, *, alone: bool) -> bool:
    """Whether a token names one thing exactly: decided by its form, or by standing alone without being a plain word."""
    if is_unspaced(token):
        return False
    if _IDENTIFIER.search(token) or serials_of(token):
        return True
    return alone and (COMPOUND.search(token) is not None or bool(_readings(token)))


def _identifying(token: str, asked: Sequence[tuple[str, TermKind]], *, alone: bool) -> Sequence[str]:
    """Those of its terms that stand for an identifier as a whole; they are `asked`, the most specific one first."""
    if not asked or not _is_identifier(token, alone=alone):
        return ()
    if forms := serials_of(token):
        return forms
    if amount_of(token):
        return [surface for surface, _ in asked if term_number(surface) in _readings(token)]
    first, whole = asked[0][0], joined(token)
    if "." not in token or not alone:
        return (whole if whole and "." not in token else first,)
    return (first, whole) if whole else (first,)
