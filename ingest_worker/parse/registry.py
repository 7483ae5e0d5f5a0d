"""What a file is, by its name and its bytes, and whether we read it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from ingest_worker.parse import formats
from ingest_worker.parse.containers import known_container
from ingest_worker.parse.encoding import looks_like_text
from ingest_worker.parse.errors import Skipped, Unreadable, Unsupported
from ingest_worker.parse.formats import Format, FormatKind
from ingest_worker.parse.languages import language_of

__all__ = ["Format", "FormatKind", "detect"]

_MARKDOWN: Final = frozenset(("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "mdwn", "ronn", "qmd", "rmd", "mdc"))
# fmt: off
_TEXT: Final = frozenset((
    "txt", "text", "rst", "rest", "org", "log", "adoc", "asciidoc", "asc", "textile", "me", "1st", "nfo", "srt", "vtt",
    "lr", "man", "changes", "diff", "patch", "license",
))
# fmt: on
_HTML: Final = frozenset(("html", "htm", "xhtml", "xht", "shtml"))
_DELIMITED: Final = frozenset(("csv", "tsv", "tab", "psv"))
_MAIL: Final = frozenset(("eml", "emlx", "mht", "mhtml"))
_PACKAGES: Final[dict[str, str]] = {
    **dict.fromkeys(("docx", "docm", "dotx", "dotm"), "Word document"),
    **dict.fromkeys(("pptx", "pptm", "ppsx", "ppsm", "potx", "potm"), "PowerPoint presentation"),
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xltx", "xltm"), "Excel workbook"),
    **dict.fromkeys(("odt", "odp", "ods", "odg", "ott", "otp", "ots", "odf"), "OpenDocument file"),
    **dict.fromkeys(("epub",), "e-book"),
}
"""Endings of formats that are packages: a file with such a name and other content is damaged."""
_UNSUPPORTED: Final[dict[str, str]] = {
    **dict.fromkeys(("mbox", "pst", "ost"), "mailbox"),
    **dict.fromkeys(("mobi", "azw3", "fb2"), "e-book"),
    **dict.fromkeys(("chm",), "compiled help file"),
    **dict.fromkeys(("pages", "numbers", "key"), "iWork document"),
    **dict.fromkeys(("djvu", "xps", "oxps", "ps", "eps"), "page description file"),
    **dict.fromkeys(("zip", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "jar", "war", "whl"), "archive"),
    **dict.fromkeys(("heic", "heif", "avif", "ico", "cur", "psd", "xcf", "emf", "wmf"), "image"),
    **dict.fromkeys(("mp3", "wav", "flac", "ogg", "m4a", "opus"), "sound"),
    **dict.fromkeys(("mp4", "mkv", "mov", "avi", "webm"), "video"),
    **dict.fromkeys(("ttf", "otf", "woff", "woff2", "eot"), "font"),
    **dict.fromkeys(("sqlite", "sqlite3", "db", "mdb", "parquet", "arrow", "feather"), "database file"),
}
_HTML_STARTS: Final = (b"<!doctype html", b"<html")
_MAIL_HEADER: Final = re.compile(rb"(?:Return-Path|Received|From|To|Date|Subject|Message-ID|MIME-Version):[ \t]", re.IGNORECASE)
_MAIL_HEADERS_WANTED: Final = 3
_MINIFIED_LINE: Final = 5_000
_MINIFIABLE: Final = frozenset(("javascript", "typescript", "tsx", "css", "scss"))


def detect(path: str, data: bytes) -> Format:
    """What the file is.

    Raises:
        Skipped: it is left out on purpose: empty, binary, minified or a source map.
        Unsupported: nothing here reads its format yet.
        Unreadable: its name says what it is, and its bytes say that it is broken.
    """
    name = PurePosixPath(path.replace("\\", "/")).name
    extension = name.lower().rpartition(".")[2] if "." in name else ""
    if not data.strip(b" \t\r\n\f\v\0\xef\xbb\xbf"):
        raise Skipped(f"{name} holds no text.", code="empty")
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n\0")
    if start.startswith(b"%PDF-") or extension == "pdf":
        return formats.PDF
    if extension in _UNSUPPORTED:
        raise Unsupported(f"Unsupported for now: {_UNSUPPORTED[extension]} (.{extension})")
    container = known_container(name, data)
    if container is not None:
        return container
    found = _by_name(name, extension, start, data)
    if found is not None:
        return found
    if not looks_like_text(data):
        raise Skipped(f"{name} is binary: it holds NUL bytes or control characters.", code="binary")
    if extension in _MARKDOWN:
        return formats.MARKDOWN
    _refuse_source_map(name, extension, data)
    language = None if extension in _TEXT else language_of(name, data[:20_000])
    if language is not None:
        _refuse_minified(name, language, data)
        return Format(kind=FormatKind.SOURCE, media_type=f"text/x-{language}", language=language)
    return formats.TEXT if extension in _TEXT else _by_start(start)


def _by_name(name: str, extension: str, start: bytes, data: bytes) -> Format | None:
    """The format that a name's ending tells, where the bytes do not speak against it."""
    if extension in _PACKAGES:
        raise Unreadable(f"{name} is no {_PACKAGES[extension]}: its content is something else. Save it anew.", code="damaged")
    if extension in ("doc", "dot", "xls", "xlt", "ppt", "pps", "msg"):
        # Programs write web pages, mails and tables under these names.
        return _saved_as_office(name, start, data)
    if extension in _HTML:
        return formats.HTML
    if extension in _MAIL:
        return formats.EML
    if extension == "rtf":
        raise Unreadable(f"{name} is no Rich Text document: its content is something else. Save it anew.", code="damaged")
    if extension in _DELIMITED and looks_like_text(data):
        return formats.delimited(extension)
    if extension == "ipynb" and looks_like_text(data):
        return formats.NOTEBOOK
    if extension == "svg":
        return formats.SVG
    if extension in ("png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "webp"):
        raise Unreadable(f"{name} is no picture: its content is something else, or damaged.", code="damaged")
    return None


def _saved_as_office(name: str, start: bytes, data: bytes) -> Format:
    if not looks_like_text(data):
        raise Unreadable(f"{name} is no Office document: its content is something else. Save it anew.", code="damaged")
    if name.lower().endswith((".xls", ".xlt")) and b"\t" in start.split(b"\n", 1)[0]:
        return formats.delimited("tsv")
    return _by_start(start)


def _by_start(start: bytes) -> Format:
    """Text of an unknown name: a web page, a mail, or plain text."""
    if start[:200].lower().startswith(_HTML_STARTS):
        return formats.HTML
    head = start.split(b"\n\n", 1)[0].split(b"\r\n\r\n", 1)[0].splitlines()
    if head and _MAIL_HEADER.match(head[0]) and sum(bool(_MAIL_HEADER.match(line)) for line in head) >= _MAIL_HEADERS_WANTED:
        return formats.EML
    return formats.TEXT


def _refuse_source_map(name: str, extension: str, data: bytes) -> None:
    if extension == "map" and b'"mappings"' in data and b'"version"' in data:
        raise Skipped(f"{name} is a source map: generated, and no text for people.", code="generated")


def _refuse_minified(name: str, language: str, data: bytes) -> None:
    if language not in _MINIFIABLE:
        return
    by_name = ".min." in name.lower()
    if by_name or _longest_line(data) > max(_MINIFIED_LINE, len(data) // 2):
        raise Skipped(f"{name} is minified: index the source that it was made from instead.", code="minified")


def _longest_line(data: bytes) -> int:
    longest = start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        longest = max(longest, end - start)
        start = end + 1
    return longest
