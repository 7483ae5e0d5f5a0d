"""Files that Office documents carry as objects: in a compound file (MS-OLEDS), or as they are."""

from __future__ import annotations

import io
import struct
from typing import Final

import olefile

from ingest_worker.parse.file import File
from ingest_worker.parse.inside import Inside, attachment_name, read_inside
from ingest_worker.parse.ooxml import Office, Relation

_KINDS: Final = frozenset(("package", "oleObject"))
_COMPOUND: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def read_embedded(file: File, office: Office, relation: Relation, inside: Inside) -> None:
    """Read the file that a reference of an Office document means, and add it to `inside`; other things are passed by."""
    if relation.kind not in _KINDS or relation.target not in office.package:
        return
    name = attachment_name(relation.target, "embedded object")
    data = office.package.read(relation.target)
    unwrapped = unwrap(data, name)
    if unwrapped is None:
        inside.notes.append(f"{name} was left out: it is an object of a program that nothing here knows.")
        return
    read_inside(file, *unwrapped, inside)


def unwrap(data: bytes, name: str) -> tuple[str, bytes] | None:
    """Name and bytes of the file in an object; None when the object is none that we know."""
    if not data.startswith(_COMPOUND):
        return name, data
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as compound:
            streams = {tuple(path)[-1] for path in compound.listdir()}
            for stream in ("Package", "CONTENTS"):
                if stream in streams:
                    return name, compound.openstream(stream).read()
            if "\x01Ole10Native" in streams:
                return _native(compound.openstream("\x01Ole10Native").read(), name)
    except (OSError, ValueError, IndexError, struct.error):
        return None
    # A document of Office 97–2003 is the object itself.
    return (name, data) if streams & {"Workbook", "Book", "WordDocument", "PowerPoint Document"} else None


def _native(data: bytes, name: str) -> tuple[str, bytes] | None:
    """The file in an `Ole10Native` stream: two numbers, its name, its path, and further on its size and bytes."""
    label_end = data.find(b"\0", 6)
    path_end = data.find(b"\0", label_end + 1)
    if label_end < 0 or path_end < 0:
        return None
    # After the paths: four bytes, the length of another path, that path, the size (public descriptions; no specification has it).
    (skipped,) = struct.unpack_from("<I", data, path_end + 5)
    at = path_end + 9 + skipped
    (size,) = struct.unpack_from("<I", data, at)
    content = data[at + 4 : at + 4 + size]
    label = data[6:label_end].decode("cp1252", "replace")
    return (attachment_name(label, name), content) if content else None
