"""Values of cells as text: numbers as they are, percentages, money and dates as their number format shows them.

Number formats: ECMA-376 part 1, section 18.8.30 and 18.8.31. What a format only decorates (colours, thousands separators) is
left away, so that a number is written, and found, in one way.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_PERCENT_IDS: Final = {9: 0, 10: 2}
_DATE_IDS: Final = frozenset((*range(14, 18), 22, *range(27, 37), *range(50, 59)))
_TIME_IDS: Final = frozenset((*range(18, 22), 45, 46, 47))
_LITERAL: Final = re.compile(r"\"[^\"]*\"|\\.|_.|\*.|\[(?!\$|h+\]|m+\]|s+\])[^\]]*\]", re.IGNORECASE)
_CURRENCY_TAG: Final = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_QUOTED: Final = re.compile(r"\"([^\"]*)\"")
_SYMBOLS: Final = "$€£¥₹₽₩"
_EPOCH: Final = datetime(1899, 12, 30)  # noqa: DTZ001 - dates of a sheet have no zone
_MAC_DAYS: Final = 1462
"""Days between the two date systems (section 18.17.4.1)."""
_MOST_DAYS: Final = 2_958_465
"""31 December 9999, the last day that a spreadsheet knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """What a format makes of a number: `kind` is general, percent, date, time or money; money stands before or after."""

    kind: str = "general"
    decimals: int = 0
    before: str = ""
    after: str = ""


GENERAL: Final = NumberFormat()


def read_format(number: int, code: str | None) -> NumberFormat:
    """The format of this number, with its code when the workbook defines it itself."""
    if code is None:
        if number in _PERCENT_IDS:
            return NumberFormat(kind="percent", decimals=_PERCENT_IDS[number])
        if number in _DATE_IDS:
            return NumberFormat(kind="date")
        return NumberFormat(kind="time") if number in _TIME_IDS else GENERAL
    section = code.split(";", 1)[0]
    bare = _LITERAL.sub("", section)
    without_currency = _CURRENCY_TAG.sub("", bare)
    if "%" in without_currency:
        return NumberFormat(kind="percent", decimals=_decimals(without_currency))
    letters = re.sub(r"general", "", without_currency, flags=re.IGNORECASE).lower()
    if re.search(r"[yd]", letters) or re.search(r"m", letters):
        return NumberFormat(kind="time" if re.search(r"[hs]", letters) and not re.search(r"[yd]", letters) else "date")
    if re.search(r"[hs]", letters):
        return NumberFormat(kind="time")
    return _money(section) or GENERAL


def show_number(value: float, shown_as: NumberFormat, *, mac_dates: bool = False) -> str:
    """The number as text; a date that no calendar has is shown as its number."""
    if shown_as.kind == "percent":
        return f"{value * 100:.{shown_as.decimals}f}%" if math.isfinite(value) else str(value)
    if shown_as.kind in ("date", "time"):
        days = value + (_MAC_DAYS if mac_dates else 0)
        if 0 <= days <= _MOST_DAYS:
            return _moment(days, time_only=shown_as.kind == "time")
    return f"{shown_as.before}{plain_number(value)}{shown_as.after}"


def plain_number(value: float) -> str:
    """The shortest text that means this number to 15 digits, which is what a spreadsheet holds."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.15g}"


def _decimals(code: str) -> int:
    match = re.search(r"\.([0#?]+)", code)
    return len(match[1]) if match else 0


def _money(section: str) -> NumberFormat | None:
    tag = _CURRENCY_TAG.search(section)
    if tag and tag[1]:
        symbol, at = tag[1], tag.start()
    else:
        quoted = next((match for match in _QUOTED.finditer(section) if any(s in match[1] for s in _SYMBOLS)), None)
        plain = next((i for i, character in enumerate(section) if character in _SYMBOLS), None)
        if quoted is not None:
            symbol, at = quoted[1].strip(), quoted.start()
        elif plain is not None:
            symbol, at = section[plain], plain
        else:
            return None
    digits = re.search(r"[0#?]", section)
    if digits is not None and at < digits.start():
        return NumberFormat(kind="money", before=symbol if len(symbol) == 1 else f"{symbol} ")
    return NumberFormat(kind="money", after=f" {symbol}")


def _moment(days: float, *, time_only: bool) -> str:
    # Serials below 60 count the 29 February 1900, which never was.
    moment = _EPOCH + timedelta(days=days + (1 if 0 < days < 60 else 0))
    moment = (moment + timedelta(microseconds=500_000)).replace(microsecond=0)
    clock = moment.strftime("%H:%M:%S").removesuffix(":00")
    if time_only and days < 1:
        return clock
    date = moment.date().isoformat()
    return date if clock == "00:00" else f"{date} {clock}"
