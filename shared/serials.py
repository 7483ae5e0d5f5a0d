"""Numbers of accounts, cards and phones: written in groups or as one, they name one thing.

`DE89 3704 0044 0532 0130 00` is `de89370400440532013000`, and `(030) 123 45 67` is `0301234567`. They are told by their form;
the groups stay terms of their own besides, so a row of numbers that only looks like one loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_IBAN = r"[A-Za-z]{2}[0-9]{2}(?:[ -][A-Za-z]{4})?(?:[ -](?=[A-Za-z]{0,3}[0-9])[0-9A-Za-z]{4}){2,7}(?:[ -][0-9]{1,3})?"
_CARD = "[0-9]{4}(?:[ -][0-9]{4}){3}|3[47][0-9]{2}[ -][0-9]{6}[ -][0-9]{5}"
_GROUPS = r"(?: ?[/-]? ?\(?[0-9]{2,}\)?){1,6}(?:-[0-9])?"
_PHONE = (
    rf"(?:\+|00)[1-9][0-9]{{0,2}}(?: ?\(0\))?{_GROUPS}|(?:\(0[1-9][0-9]{{1,4}}\)|0[1-9][0-9]{{1,4}}(?= ?[ /-])){_GROUPS}"
    r"|(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}|1[3-9][0-9][ -][0-9]{4}[ -][0-9]{4}"
)
_SERIAL = re.compile(
    r"(?<![\w+])(?<![0-9][ ./,:-])(?=[A-Za-z]{2}[0-9]{2}[ -]|[+(0-9])"
    rf"(?:(?P<iban>{_IBAN})|(?P<card>{_CARD})|(?P<phone>{_PHONE}))(?![.,:/-]?[0-9])(?!\w)"
)
_MAY_BE = re.compile(r"[0-9)][ ./-]{1,3}\(?[0-9]{2}")
"""Stands in each of them, and in few other texts; looking for them all takes ten times as long."""

_ABROAD = re.compile(r"(?:\+|00)([1-9][0-9]{0,2})(?: ?\(0\)|[ /-])")
_DIGITS = re.compile("[0-9]+")
_SIGNS = re.compile("[^0-9a-z]+")

_PHONE_DIGITS = range(7, 16)
"""Of a number within a town, and of the longest there is (ITU-T E.164)."""


def find_serials(text: str) -> Iterator[tuple[int, int]]:
    """Where such numbers begin and end in a text, in its order."""
    if _MAY_BE.search(text) is not None:
        yield from (found.span() for found in _SERIAL.finditer(text) if _forms(found))


def serials_of(token: str) -> list[str]:
    """A number in groups as one, the form that says most first; none of what is no such number.

    A phone number with its country is also one without: `+49 30 1234567` gives `49301234567` and `0301234567`.
    """
    found = _SERIAL.fullmatch(token) if _MAY_BE.search(token) is not None else None
    return _forms(found) if found is not None else []


def _forms(found: re.Match[str]) -> list[str]:
    text = found[0]
    joined = _SIGNS.sub("", text.lower())
    if found["iban"]:
        return [joined]
    if found["card"]:
        return [joined] if _is_card(joined) else []
    abroad = _ABROAD.match(text)
    digits = joined.removeprefix("00")
    if "(0)" in text:
        digits = "".join(_DIGITS.findall(text.replace("(0)", " ", 1))).removeprefix("00")
    if len(digits) not in _PHONE_DIGITS:
        return []
    if abroad is None:
        return [digits]
    country = abroad[1]
    # Beside North America a number is dialled within its country with a 0 before it.
    return [digits, ("" if country == "1" else "0") + digits.removeprefix(country)]


def _is_card(digits: str) -> bool:
    """Whether the last digit is the check of the others (ISO/IEC 7812-1, annex B); of years in a row it seldom is."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0
