"""A driveItem of Graph as an item of the index, and why some are left out. Pure.

Source: learn.microsoft.com/graph/api/resources/driveitem.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from ingest_worker.sources.protocol import Item
from ingest_worker.sources.sharepoint.drives import Drive

SELECT = (
    "id,name,size,eTag,cTag,file,folder,package,root,deleted,malware,remoteItem,parentReference,webUrl,fileSystemInfo,"
    "lastModifiedDateTime,lastModifiedBy"
)
"""What is asked for where Graph lets us choose."""


def is_folder(item: Mapping[str, Any]) -> bool:
    """Whether other things may stand in it; a notebook is such a thing too."""
    return "folder" in item or "root" in item or "package" in item


def is_document(item: Mapping[str, Any]) -> bool:
    """Whether it is to be known in the index, if only with the reason why its contents are not."""
    return "root" not in item and ("file" in item or "package" in item or "remoteItem" in item)


def left_out(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why the contents of a document cannot be taken: a code and what to say after its name."""
    if "package" in item:
        return "package", "is a notebook of OneNote, which has no file that could be read"
    if "malware" in item:
        return "malware", "holds malware, SharePoint says, and is not downloaded"
    if "remoteItem" in item and "file" not in item:
        return "shortcut", "is a shortcut to another library; take that library in instead"
    if item.get("size") == 0:
        return "empty", "has no bytes"
    return None


def key_of(drive: Drive, item_id: str) -> str:
    """An item's identity: its id is unique within its drive only."""
    return f"{drive.drive_id}/{item_id}"


def to_item(item: Mapping[str, Any], *, drive: Drive, below: str, readers: tuple[str, ...] | None) -> Item:
    """`below` is the path below the drive's root."""
    path = unicodedata.normalize("NFC", f"{drive.name}/{below}")
    file = item.get("file")
    media_type = file.get("mimeType") if isinstance(file, Mapping) else None
    size = item.get("size")
    url = item.get("webUrl")
    modified = _modified(item)
    content = _content(item)
    values = (item.get("eTag"), path, url, modified, size, left_out(item), readers)
    return Item(
        key=key_of(drive, str(item["id"])),
        content=content,
        path=path,
        facts=hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()[:32],
        url=url if isinstance(url, str) else None,
        metadata={"library": drive.name},
        readers=readers,
        source_modified=modified,
        # The name's own ending says more: Graph calls Markdown and source code application/octet-stream.
        media_type=media_type if isinstance(media_type, str) and not PurePosixPath(path).suffix else None,
        size=size if isinstance(size, int) and "package" not in item else None,
    )


def _content(item: Mapping[str, Any]) -> str:
    """A text that changes with the bytes. The hash is the same wherever an item comes from; a delta query may leave out cTag."""
    reason = left_out(item)
    if reason is not None:
        return f"{reason[0]}:{item.get('eTag') or item.get('id')}"
    file = item.get("file")
    hashes = file.get("hashes") if isinstance(file, Mapping) else None
    quick = hashes.get("quickXorHash") if isinstance(hashes, Mapping) else None
    if isinstance(quick, str) and quick:
        return f"x:{quick}:{item.get('size')}"
    if isinstance(item.get("cTag"), str):
        return f"c:{item['cTag']}"
    return f"e:{item.get('eTag')}"


def _modified(item: Mapping[str, Any]) -> datetime | None:
    info = item.get("fileSystemInfo")
    for value in (info.get("lastModifiedDateTime") if isinstance(info, Mapping) else None, item.get("lastModifiedDateTime")):
        if isinstance(value, str) and not value.startswith("0001-"):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                continue
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return None
