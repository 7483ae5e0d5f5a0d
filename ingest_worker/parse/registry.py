"""What a file is, by its name and its first bytes, and whether we read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from ingest_worker.parse.encoding import looks_like_text
from ingest_worker.parse.errors import Skipped, Unsupported
from ingest_worker.parse.languages import language_of


class FormatKind(StrEnum):
    """The parser that reads a file."""

    MARKDOWN = "markdown"
    TEXT = "text"
    PDF = "pdf"
    SOURCE = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a file is. `language` names the grammar of source code (`python`)."""

    kind: FormatKind
    media_type: str
    language: str | None = None


_MARKDOWN: Final = frozenset(("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "mdwn", "ronn", "qmd", "rmd", "mdc"))
# fmt: off
_TEXT: Final = frozenset((
    "txt", "text", "rst", "rest", "org", "log", "adoc", "asciidoc", "asc", "textile", "me", "1st", "nfo", "srt", "vtt",
    "lr", "man", "changes", "diff", "patch", "license",
))
# fmt: on
_UNSUPPORTED: Final[dict[str, str]] = {
    **dict.fromkeys(("docx", "docm", "dotx", "doc", "dot"), "Word document"),
    **dict.fromkeys(("pptx", "pptm", "ppsx", "ppt", "pps"), "PowerPoint presentation"),
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xltx", "xls"), "Excel workbook"),
    **dict.fromkeys(("odt", "odp", "ods", "odg", "ott", "odf"), "OpenDocument file"),
    **dict.fromkeys(("html", "htm", "xhtml", "mhtml", "mht"), "HTML page"),
    **dict.fromkeys(("csv", "tsv", "psv"), "table of separated values"),
    **dict.fromkeys(("eml", "msg", "mbox", "emlx"), "e-mail"),
    **dict.fromkeys(("epub", "mobi", "azw3", "fb2"), "e-book"),
    **dict.fromkeys(("rtf",), "Rich Text document"),
    **dict.fromkeys(("ipynb",), "Jupyter notebook"),
    **dict.fromkeys(("chm",), "compiled help file"),
    **dict.fromkeys(("pages", "numbers", "key"), "iWork document"),
    **dict.fromkeys(("djvu", "xps", "oxps", "ps", "eps"), "page description file"),
    **dict.fromkeys(("zip", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "jar", "war", "whl"), "archive"),
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "webp", "heic", "avif", "ico", "svg", "psd"), "image"),
    **dict.fromkeys(("mp3", "wav", "flac", "ogg", "m4a", "opus"), "sound"),
    **dict.fromkeys(("mp4", "mkv", "mov", "avi", "webm"), "video"),
    **dict.fromkeys(("ttf", "otf", "woff", "woff2", "eot"), "font"),
    **dict.fromkeys(("sqlite", "sqlite3", "db", "mdb", "parquet", "arrow", "feather"), "database file"),
}
# Magic numbers, from the file(1) database; the ZIP family is told apart by the names of its first members.
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "legacy Office or Outlook file"),
    (b"\x89PNG\r\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF87a", "image"),
    (b"GIF89a", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (b"\x1f\x8b", "archive"),
    (b"BZh", "archive"),
    (b"\xfd7zXZ\0", "archive"),
    (b"(\xb5/\xfd", "archive"),
    (b"7z\xbc\xaf\x27\x1c", "archive"),
    (b"Rar!\x1a", "archive"),
    (b"SQLite format 3\0", "database file"),
    (b"{\\rtf", "Rich Text document"),
    (b"ITSF", "compiled help file"),
)
_ZIP: Final = b"PK\x03\x04"
_ZIP_MEMBERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"application/epub+zip", "e-book"),
    (b"application/vnd.oasis.opendocument", "OpenDocument file"),
    (b"word/", "Word document"),
    (b"ppt/", "PowerPoint presentation"),
    (b"xl/", "Excel workbook"),
)
_HTML_STARTS: Final = (b"<!doctype html", b"<html")
_MINIFIED_LINE: Final = 5_000
_MINIFIABLE: Final = frozenset(("javascript", "typescript", "tsx", "css", "scss"))


def detect(path: str, data: bytes) -> Format:
    """What the file is.

    Raises:
        Skipped: it is left out on purpose: empty, binary, minified or a source map.
        Unsupported: nothing here reads its format yet.
    """
    name = PurePosixPath(path.replace("\\", "/")).name
    extension = name.lower().rpartition(".")[2] if "." in name else ""
    head = data[:4096]
    if not data.strip(b" \t\r\n\f\v\0\xef\xbb\xbf"):
        raise Skipped(f"{name} holds no text.", code="empty")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
    if start.startswith(b"%PDF-") or extension == "pdf":
        return Format(kind=FormatKind.PDF, media_type="application/pdf")
    _refuse_known_containers(name, extension, head)
    if not looks_like_text(data):
        raise Skipped(f"{name} is binary: it holds NUL bytes or control characters.", code="binary")
    if extension in _MARKDOWN:
        return Format(kind=FormatKind.MARKDOWN, media_type="text/markdown")
    _refuse_source_map(name, extension, data)
    language = None if extension in _TEXT else language_of(name, data[:20_000])
    if language is not None:
        _refuse_minified(name, language, data)
        return Format(kind=FormatKind.SOURCE, media_type=f"text/x-{language}", language=language)
    if extension not in _TEXT and start[:200].lower().startswith(_HTML_STARTS):
        raise Unsupported(f"Unsupported for now: HTML page ({name})")
    return Format(kind=FormatKind.TEXT, media_type="text/plain")


def _refuse_known_containers(name: str, extension: str, head: bytes) -> None:
    if extension in _UNSUPPORTED:
        raise Unsupported(f"Unsupported for now: {_UNSUPPORTED[extension]} (.{extension})")
    if head.startswith(_ZIP):
        what = next((what for member, what in _ZIP_MEMBERS if member in head), "archive")
        raise Unsupported(f"Unsupported for now: {what} (ZIP content in {name})")
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise Unsupported(f"Unsupported for now: {what} ({name})")


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
