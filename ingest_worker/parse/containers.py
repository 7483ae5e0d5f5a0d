"""What a binary file is, by its bytes: the family of ZIP packages, of Microsoft's compound files, and pictures."""

from __future__ import annotations

import io
import zipfile
from typing import Final

from ingest_worker.parse import formats
from ingest_worker.parse.errors import Unreadable, Unsupported
from ingest_worker.parse.formats import Format

# Magic numbers, from the file(1) database.
_COMPOUND: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_PICTURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"BM", "bmp"),
)
_OTHERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x1f\x8b", "archive"),
    (b"BZh", "archive"),
    (b"\xfd7zXZ\0", "archive"),
    (b"(\xb5/\xfd", "archive"),
    (b"7z\xbc\xaf\x27\x1c", "archive"),
    (b"Rar!\x1a", "archive"),
    (b"SQLite format 3\0", "database file"),
    (b"ITSF", "compiled help file"),
)
_LEGACY: Final = "Unsupported for now: {what} of Office 97–2003 ({name}). Save it as {better}."
_ODF: Final = "application/vnd.oasis.opendocument."


def known_container(name: str, data: bytes) -> Format | None:
    """The format of a binary file that is known by its first bytes; None when they say nothing.

    Raises:
        Unsupported: it is known, and nothing reads it.
        Unreadable: it is a package that is damaged.
    """
    if data.startswith(_ZIP):
        return _package(name, data)
    if data.startswith(_COMPOUND):
        return _compound(name, data)
    if data.startswith(b"{\\rtf"):
        return formats.RTF
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return formats.picture("webp")
    for magic, kind in _PICTURES:
        if data.startswith(magic) and (kind != "bmp" or data[6:10] == b"\0\0\0\0"):
            return formats.picture(kind)
    for magic, what in _OTHERS:
        if data.startswith(magic):
            raise Unsupported(f"Unsupported for now: {what} ({name})")
    return None


def _package(name: str, data: bytes) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            members = {member.lstrip("/").lower() for member in package.namelist()}
            declared = package.read("mimetype")[:100].decode("ascii", "replace").strip() if "mimetype" in members else ""
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, NotImplementedError, RuntimeError, EOFError) as error:
        raise Unreadable(f"{name} is a damaged ZIP package: {error}. Save it anew.", code="damaged") from error
    if declared == "application/epub+zip" or "meta-inf/container.xml" in members:
        return formats.EPUB
    if declared.startswith(_ODF):
        family = declared.removeprefix(_ODF)
        return formats.ODS if family.startswith("spreadsheet") else formats.open_document(declared)
    if "xl/workbook.bin" in members:
        return formats.XLSB
    for folder, found in (("word/", formats.DOCX), ("ppt/", formats.PPTX), ("xl/", formats.XLSX)):
        if any(member.startswith(folder) for member in members):
            return found
    if "content.xml" in members and "meta-inf/manifest.xml" in members:
        return formats.open_document(_ODF + "text")
    raise Unsupported(f"Unsupported for now: archive ({name}). Unpack it.")


def _compound(name: str, data: bytes) -> Format:
    """By the names of the streams inside, which stand in the file as UTF-16 (MS-CFB, section 2.6.1)."""

    def has(stream: str) -> bool:
        return stream.encode("utf-16-le") in data

    if has("EncryptedPackage"):
        return formats.ENCRYPTED
    if has("__properties_version1.0"):
        return formats.MSG
    if has("WordDocument"):
        raise Unsupported(_LEGACY.format(what="Word document", name=name, better=".docx"))
    if has("PowerPoint Document"):
        raise Unsupported(_LEGACY.format(what="PowerPoint presentation", name=name, better=".pptx"))
    if has("Workbook") or has("Book"):
        return formats.XLS
    raise Unsupported(f"Unsupported for now: compound file of an unknown program ({name})")
