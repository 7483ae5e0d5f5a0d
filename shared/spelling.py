"""Things that are written in more than one way: numbers whose digits stand in groups, German words without umlauts."""

from __future__ import annotations

import re

# Not with a dot: `4.711` is a token as it is, since it may be a version. Of numbers in a row nobody can tell which are one.
GROUPS = (
    "[1-9](?<![0-9][, '’][1-9])[0-9]{0,2}"
    "(?:(?:,[0-9]{3}){1,5}(?![0-9]|,[0-9])|(?:['’][0-9]{3}){1,5}(?![0-9]|['’][0-9])|(?: [0-9]{3}){1,5}(?![0-9]| [0-9]))"
)
"""A pattern without groups of its own for such numbers in a text."""

AMOUNTS = (
    "(?<![0-9])(?<![0-9][.,])"
    "(?:[0-9]{1,3}(?:\\.[0-9]{3})+,[0-9]{1,2}|[0-9]{1,3}(?:,[0-9]{3})+\\.[0-9]{1,2}|[0-9]+,[0-9]{1,2})"
    r"(?!\w)(?![.,][0-9])"
)
"""A pattern without groups of its own for numbers with one or two decimals that a comma parts from them, or from their groups."""

_GROUP = re.compile("[0-9][, '’][0-9]{3}|[0-9],[0-9]{1,2}(?![0-9])")
_AMOUNT = re.compile("([0-9.,]+)[.,]([0-9]{1,2})")
_GROUPED = re.compile(rf"{GROUPS}|[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}}){{1,5}}")
_DIGITS = re.compile("[0-9]+")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
# After these letters German has no ü: `neue`, `Frauen`, `Quelle` are as they should be.
_DIGRAPH = re.compile("ae|oe|(?<![aeq])ue")
_FROM_DIGRAPH = {"ae": "ä", "oe": "ö", "ue": "ü"}


def is_digits(token: str) -> bool:
    """Whether it is a whole number without groups."""
    return _DIGITS.fullmatch(token) is not None


def may_have_groups(text: str) -> bool:
    """Whether GROUPS and AMOUNTS are worth looking for."""
    return _GROUP.search(text) is not None


def groups_of(token: str) -> list[str]:
    """The runs of digits in a token."""
    return _DIGITS.findall(token)


def joined(token: str) -> str:
    """A number in groups written as one: `4711` of `4,711`, `4.711`, `4'711` and `4 711`; empty when it is none."""
    if not "1" <= token[0] <= "9" or _GROUPED.fullmatch(token) is None:
        return ""
    groups = groups_of(token)
    is_address = token.count(".") == 3 and all(int(group) <= 255 for group in groups)
    return "" if is_address else "".join(groups)


def amount_of(token: str) -> tuple[str, str] | None:
    """The whole part and two decimals of a number as AMOUNTS finds it, or with `.00`: `8750` and `00` of `8.750,00`, `42` and
    `50` of `42,5`; else None.

    `61.50` is what it is: it may be a version, and is written as one.
    """
    found = _AMOUNT.fullmatch(token) if "," in token or token.endswith(".00") else None
    if found is None or ("," not in token and not is_digits(found[1])):
        return None
    return "".join(groups_of(found[1])), found[2].ljust(2, "0")


def other_umlauts(word: str) -> str:
    """A word in lower case with ä, ö, ü as ae, oe, ue, or where it has none the reverse; the word itself when it has neither."""
    if not word.isascii():
        return word.translate(_UMLAUTS)
    return _DIGRAPH.sub(lambda found: _FROM_DIGRAPH[found[0]], word)
