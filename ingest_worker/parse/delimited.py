"""Tables of separated values (CSV and its kin) to tables with their row numbers.

Not csv.Sniffer: it takes seconds for a few lines with quotes, and finds delimiters in prose.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ingest_worker.parse.encoding import decode
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.grid import Row, grid_elements
from shared.documents import ParsedDocument, Span

_DELIMITERS: Final = "\t;|,"
"""Of those that fit as well the first is taken: a comma is a decimal sign in many countries, and stands in prose."""
_SAMPLE_CHARS: Final = 65_536
_SAMPLE_ROWS: Final = 200
_FITS: Final = 0.8
"""Share of a sample's rows that must have the usual number of columns."""
_CELL_CHARS: Final = 16 * 1024**2
_SEPARATOR_LINE: Final = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How the cells of a line are told apart."""

    delimiter: str
    quotes: bool = True


def parse(file: File) -> ParsedDocument:
    """The file's rows, counted as a spreadsheet counts them: a cell with line breaks in it makes one row.

    Raises:
        Skipped: no cell holds anything.
        Unreadable: `too_large`, one cell is larger than 16 million characters.
    """
    decoded = decode(file.data)
    text = decoded.text
    named = _SEPARATOR_LINE.match(text)
    if named:
        text = text[named.end() :]
    dialect = Dialect(delimiter=named[1]) if named else find_dialect(text, tabs=file.media_type.startswith("text/tab"))
    elements = tuple(grid_elements(_rows(text, dialect), Span(), blocks=False))
    if not elements:
        raise Skipped(f"{file.name} holds no values.", code="empty")
    return ParsedDocument(elements=elements, media_type=file.media_type, encoding=decoded.codec, warnings=decoded.warnings)


def find_dialect(text: str, *, tabs: bool = False) -> Dialect:
    """The delimiter that gives the same number of columns, more than one, in the most rows; a comma when none does.

    With `tabs` a tab is taken wherever it occurs.
    """
    sample = text[:_SAMPLE_CHARS]
    if len(sample) == _SAMPLE_CHARS and "\n" in sample:
        sample = sample[: sample.rindex("\n") + 1]
    delimiters = "\t" if tabs and "\t" in sample else _DELIMITERS
    candidates = [Dialect(delimiter=delimiter, quotes=quotes) for quotes in (True, False) for delimiter in delimiters]
    scores = [_score(sample, candidate) for candidate in candidates]
    best = max(score for score, _ in scores)
    if best < _FITS:
        return Dialect(delimiter=delimiters[-1])
    at = next(i for i, (score, _) in enumerate(scores) if score == best)
    found, rows = candidates[at], scores[at][1]
    without_quotes, lines = _score(sample, Dialect(delimiter=found.delimiter, quotes=False))
    # Where each line has its columns, a quotation mark that joins several of them is an inch sign, or was never closed.
    return Dialect(delimiter=found.delimiter, quotes=found.quotes and not (without_quotes == 1 and lines > rows))


def _score(sample: str, dialect: Dialect) -> tuple[float, int]:
    """The share of rows that have the usual number of columns, which is more than one, and the number of rows."""
    try:
        widths = [len(row) for _, row in zip(range(_SAMPLE_ROWS), _read(sample, dialect), strict=False) if row]
    except csv.Error:
        return 0.0, 0
    usual, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
    return (count / len(widths) if usual > 1 else 0.0), len(widths)


def _rows(text: str, dialect: Dialect) -> Iterator[Row]:
    before = csv.field_size_limit(_CELL_CHARS)
    number = 0
    try:
        for number, cells in enumerate(_read(text, dialect), start=1):
            yield Row(number, dict(enumerate(cells)))
    except csv.Error as error:
        raise Unreadable(
            f"Row {number + 1} holds a cell of more than {_CELL_CHARS} characters ({error}); a quotation mark that is never"
            " closed makes such cells.",
            code="too_large",
        ) from error
    finally:
        csv.field_size_limit(before)


def _read(text: str, dialect: Dialect) -> Iterable[list[str]]:
    lines = io.StringIO(text, newline="")
    if dialect.quotes:
        return csv.reader(lines, delimiter=dialect.delimiter)
    return csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)
