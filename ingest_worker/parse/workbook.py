"""Workbooks in binary formats (.xls, .xlsb) and OpenDocument sheets to tables, with calamine.

It tells no number formats: a percentage is the fraction that the cell holds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetVisibleEnum,
    XmlError,
    ZipError,
)

from ingest_worker.parse.building import Builder
from ingest_worker.parse.encrypted import is_encrypted_workbook, open_workbook
from ingest_worker.parse.errors import Unreadable, does_not_open
from ingest_worker.parse.file import File
from ingest_worker.parse.grid import Row, grid_elements
from ingest_worker.parse.number_format import plain_number
from ingest_worker.parse.odf_encryption import opened
from ingest_worker.parse.office_pictures import add_sheet_images
from ingest_worker.parse.package import Package
from shared.documents import ParsedDocument, Span
from shared.text import clean_text

Value = int | float | str | bool | time | date | datetime | timedelta


def parse(file: File) -> ParsedDocument:
    """The sheets in their order; sheets that are hidden are read and said to be.

    Raises:
        Unreadable: `encrypted`, `damaged` or `too_large`.
    """
    if file.data.startswith(b"PK"):
        file = opened(file)
        Package(file.data, "workbook")
    elif is_encrypted_workbook(file.data):
        file = replace(file, data=open_workbook(file))
    builder = Builder()
    warnings: list[str] = []
    try:
        with CalamineWorkbook.from_filelike(io.BytesIO(file.data)) as book:
            for number, sheet in enumerate(book.sheets_metadata, start=1):
                file.on_page(number)
                name = clean_text(sheet.name)
                if sheet.visible is not SheetVisibleEnum.Visible:
                    warnings.append(f"The sheet {name} is hidden.")
                builder.span = Span(sheet=name)
                elements = tuple(grid_elements(_rows(book.get_sheet_by_name(sheet.name)), builder.span))
                if elements:
                    builder.heading(name, 1)
                    builder.extend(elements)
    except PasswordError as error:
        raise does_not_open("workbook", file.passwords) from error
    except (CalamineError, XmlError, ZipError, OSError, ValueError) as error:
        raise Unreadable(f"The workbook is damaged: {error}. Save it anew.", code="damaged") from error
    except BaseException as error:
        # A panic of the library is no Exception; it is a file that it does not understand.
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"The workbook is damaged: {error}. Save it anew.", code="damaged") from error
    add_sheet_images(file)
    return ParsedDocument(elements=tuple(builder.elements), media_type=file.media_type, warnings=tuple(warnings))


def _rows(sheet: CalamineSheet) -> Iterator[Row]:
    # The library gives all rows from the first one on, but only the columns from the first used one on.
    if sheet.start is None:
        return
    _, left = sheet.start
    for number, values in enumerate(sheet.iter_rows(), start=1):
        cells = {column: text for column, value in enumerate(values, start=left) if (text := _shown(value))}
        if cells:
            yield Row(number, cells)


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return plain_number(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="minutes" if value.second == 0 else "seconds").removesuffix(" 00:00")
    return str(value)
