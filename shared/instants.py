"""Which points in time can be stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)


def is_storable(moment: datetime) -> bool:
    """Whether PostgreSQL gives an aware time back as one that Python knows, in every time zone.

    With its offset a time of the first or the last day lies before the year 1 or after 9999 in another zone. PostgreSQL keeps
    it all the same, and from then on no list that holds its document could be read.
    """
    return _FIRST <= moment <= _LAST
