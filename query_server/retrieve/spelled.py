"""Identifiers that the documents write with other separators than the question: `ERR0042` for `ERR-0042`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from psycopg import Connection

from query_server.retrieve.exact import Absent
from query_server.retrieve.keyword import KeywordHit, in_order
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.phrases import read_texts

MOST_READ = 50
"""Passages that are looked through, the best of the keyword leg: another form has its words and numbers in common."""

LONGEST_NAME = 100
_MANY_DIGITS = 6
"""Digits from which on their groups say nothing: `4711-0815` is `47110815`, while `1.92` is not `1.9.2`."""

_SIGNS = r"[-‐‑–_./:\\ ]"
_GROUPING = r"[-‐‑–_/ ]"
"""Parts the digits of one number. A dot does not: `1234.56` is not `123456`."""

_NO_SIGNS = str.maketrans("", "", "-‐‑–_./:\\ ")

_HUMP = re.compile(r"[a-z][A-Z]")
_RUNS = re.compile(r"[0-9]+|[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """An identifier as it was asked for, as the documents write it, and the chunks that do so."""

    name: str
    written: str
    keys: frozenset[ChunkKey]


def find_spelled(connection: Connection[Any], names: Sequence[str], hits: Sequence[KeywordHit]) -> tuple[Spelled, ...]:
    """Those of the names, which nothing holds as they are, that stand in one of the hits with other separators."""
    names = [name for name in names if _has_other_forms(name)]
    if not names or not hits:
        return ()
    keys = [hit.key for hit in hits[:MOST_READ]]
    texts = read_texts(connection, keys)
    bare = [(key, bare_text(texts[key])) for key in keys if key in texts]
    found = []
    for name in names:
        # A pattern takes milliseconds to be made and to be looked for: most names stand nowhere in any form.
        wanted = bare_name(name)
        possible = [key for key, text in bare if wanted in text]
        pattern = pattern_of(name) if possible else None
        if pattern is None:
            continue
        written = {key: match[0] for key in possible if (match := pattern.search(texts[key]))}
        if written:
            found.append(Spelled(name=name, written=next(iter(written.values())), keys=frozenset(written)))
    return tuple(found)


def as_exact(hits: Sequence[KeywordHit], spelled: Sequence[Spelled]) -> list[KeywordHit]:
    """The hits in their order, each identifier in another form counted as the exact thing that it is."""
    return in_order(replace(hit, exact=hit.exact + sum(hit.key in one.keys for one in spelled)) for hit in hits)


def but_spelled(absent: Absent, spelled: Sequence[Spelled]) -> Absent:
    """What is absent without these, which are told as what they are."""
    found = {one.name: one.written for one in spelled}
    names = tuple(name for name in absent.names if name not in found)
    return replace(absent, names=names, spelled=tuple(found.items()))


def pattern_of(name: str) -> re.Pattern[str] | None:
    """Finds the other forms of an identifier; None of what has no letters or few digits, as a phrase has, and is no identifier.

    Between letters, and between letters and digits, separators may be there or not. Between digits they part numbers: there one
    has to stand for another, unless there are so many digits that their groups say nothing.
    """
    if not _has_other_forms(name):
        return None
    runs = _RUNS.findall(name)
    many = _digits(runs) >= _MANY_DIGITS
    grouped = any(one.isdigit() and other.isdigit() for one, other in pairwise(runs))
    forms = [_form(runs, between_digits=f"{_SIGNS}{{1,2}}", within_digits="")]
    if many:
        forms.append(_form(runs, between_digits="", within_digits="" if grouped else f"{_GROUPING}?"))
    return re.compile(rf"(?<![^\W_])(?<![^\W_][-_.])(?:{'|'.join(forms)})(?![^\W_])(?![-_.][^\W_])", re.IGNORECASE)


def _has_other_forms(name: str) -> bool:
    if len(name) > LONGEST_NAME or len(name.split()) > 1:
        return False
    runs = _RUNS.findall(name)
    return len(runs) > 1 or _digits(runs) >= _MANY_DIGITS or _HUMP.search(name) is not None or _is_long_word(runs)


def _digits(runs: Sequence[str]) -> int:
    return sum(len(run) for run in runs if run.isdigit())


def bare_name(name: str) -> str:
    """Stands in the `bare_text` of whatever holds the name in any form."""
    return bare_text("".join(_RUNS.findall(name)))


def bare_text(text: str) -> str:
    """A text without case and without the signs that a pattern lets stand between the parts of a name."""
    return text.casefold().translate(_NO_SIGNS)


def _is_long_word(runs: Sequence[str]) -> bool:
    """`processloadmain` may be `process_load_main`; of a short word the parts are chance."""
    return len(runs) == 1 and len(runs[0]) >= 2 * _MANY_DIGITS


def _form(runs: Sequence[str], *, between_digits: str, within_digits: str) -> str:
    parts: list[str] = []
    for place, run in enumerate(runs):
        if place:
            before = runs[place - 1]
            if before.isdigit() and run.isdigit():
                parts.append(between_digits)
            elif before.isdigit() or run.isdigit():
                parts.append(f"{_SIGNS}{{0,2}}")
            else:
                parts.append(r"[-‐‑_./:\\]{0,2}")
        parts.append((within_digits if run.isdigit() else r"[-‐‑_.]?").join(map(re.escape, run)))
    return "".join(parts)
