"""Read a document's bytes for its job: whole, unchanged while we read, and from nowhere but its source."""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from pathlib import Path
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.documents import Content, JobDocument
from ingest_worker.catalogue.erasures import ERASED, erased_reason, find_erasure
from ingest_worker.catalogue.sources import MANUAL, PUSH
from ingest_worker.intake.observe import modified_ns
from shared.errors import Outage, PermanentError, TransientError

ON_DISK = frozenset({"folder", MANUAL})
"""Types of sources whose documents are files that a worker reads; the bytes of all others are kept."""


class Gone(PermanentError):
    """The file is not there any more."""


class Refused(PermanentError):
    """The file may not be read: the document is skipped, with this reason.

    `size` (bytes) and `modified_ns` are the file's, when they are known, so that a sweep asks again only after a change.
    """

    def __init__(self, message: str, *, code: str, size: int | None = None, modified_ns: int | None = None) -> None:
        super().__init__(message, code=code)
        self.size = size
        self.modified_ns = modified_ns


def read_content(connection: Connection[Any], document: JobDocument, *, max_bytes: int) -> Content:
    """The bytes of a document that may be taken in.

    Raises:
        Refused: what stands here, or what has these bytes, was erased.
        Gone, Refused, PermanentError, TransientError: as `read_bytes`.
    """
    content = read_bytes(connection, document, max_bytes=max_bytes)
    erasure_id = find_erasure(
        connection, source=document.source, namespace=document.namespace, path=document.path, sha256=content.sha256
    )
    if erasure_id is not None:
        raise Refused(erased_reason(erasure_id), code=ERASED, size=content.size, modified_ns=content.modified_ns)
    return content


def read_bytes(connection: Connection[Any], document: JobDocument, *, max_bytes: int) -> Content:
    """The bytes of a folder's file, a file that was named by hand, or those that are kept of any other document.

    Raises:
        Gone: the file is not there, though its source's folder is.
        Refused: larger than the source's own limit or else `max_bytes`, no regular file, or a link that leaves the source.
        PermanentError: it may not be read, or nothing of it is kept.
        TransientError: the folder is away, the file is busy, or it changed while it was read.
    """
    if document.source_type not in ON_DISK:
        return _read_kept(connection, document)
    if document.max_bytes is not None:
        return read_file(_locate(document), max_bytes=document.max_bytes, limit=f"`max_bytes` of source {document.source}")
    return read_file(_locate(document), max_bytes=max_bytes)


def _locate(document: JobDocument) -> Path:
    name = document.path if document.locator is None else os.fsdecode(document.locator)
    if document.source_type == MANUAL:
        return Path(name)
    root = Path(document.root or "")
    if not root.is_dir():
        raise Outage(
            f"The folder {root} of source {document.source} is not there. Mount it, or correct its root.", code="root_missing"
        )
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise Refused(
            f"{document.path} leads out of the folder {root}: links that leave it are not followed.", code="outside_root"
        )
    return path


def is_gone(document: JobDocument) -> bool:
    """Whether a document's file is not there now, though its source's folder is. Kept bytes are never gone."""
    if document.source_type not in ON_DISK:
        return False
    try:
        return not stat.S_ISREG(_locate(document).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, Outage, Refused):  # whoever reads it next says what is the matter
        return False


def gone_seconds(document: JobDocument, *, now_ns: int) -> float:
    """How long a file has been gone at least: as long as the nearest folder of its path that is still there has not changed."""
    folder = _locate(document).parent
    while True:
        try:
            return (now_ns - folder.stat().st_mtime_ns) / 1e9
        except (FileNotFoundError, NotADirectoryError):
            folder = folder.parent


def read_file(path: Path, *, max_bytes: int, limit: str = "DOCWELL_MAX_BYTES") -> Content:
    """One file, read whole; its size and time before and after must agree. `limit` names the setting that `max_bytes` is."""
    try:
        # O_NONBLOCK: a named pipe that took a file's place must not hold the worker.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Gone(f"{path} is not there any more.", code="gone") from error
    except PermissionError as error:
        raise PermanentError(
            f"{path} may not be read by this user. Give it read permission; the next change or sweep takes it.",
            code="permission_denied",
        ) from error
    except OSError as error:
        raise TransientError(f"{path} cannot be opened now: {error.strerror}.", code="unreadable") from error
    before = os.fstat(handle)
    if not stat.S_ISREG(before.st_mode):
        os.close(handle)
        if stat.S_ISDIR(before.st_mode):
            raise Gone(f"{path} is a folder now.", code="gone")
        raise Refused(f"{path} is no regular file.", code="not_a_file")
    with os.fdopen(handle, "rb") as file:
        if before.st_size > max_bytes:
            raise Refused(
                f"{path} has {before.st_size:,} bytes, the limit is {max_bytes:,}. Raise {limit} to take it.",
                code="too_large",
                size=before.st_size,
                modified_ns=modified_ns(before),
            )
        try:
            data = file.read(max_bytes + 1)
        except OSError as error:
            raise TransientError(f"{path} cannot be read now: {error.strerror}.", code="unreadable") from error
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(data) != after.st_size:
        raise TransientError(f"{path} changed while it was read; it is tried again.", code="changing")
    return Content(data=data, sha256=hashlib.sha256(data).digest(), size=len(data), modified_ns=modified_ns(after))


# Formats that cannot be told from the bytes; a media type is kept only for paths without an ending.
_ENDINGS = {
    "text/markdown": ".md",
    "text/x-markdown": ".md",
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/csv": ".csv",
    "text/x-python": ".py",
    "text/javascript": ".js",
    "application/json": ".json",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}


def _read_kept(connection: Connection[Any], document: JobDocument) -> Content:
    row = connection.execute(
        "SELECT content, sha256, source_modified, media_type, heading FROM docwell.pushed_content WHERE document_id = %s",
        (document.document_id,),
    ).fetchone()
    if row is None:
        cure = "Push the document again" if document.source_type == PUSH else f"Run `docwell sources sync {document.source}`"
        raise PermanentError(f"No bytes of {document.path} are kept. {cure}.", code="no_content")
    data = zlib.decompress(row[0])
    modified_ns = None if row[2] is None else round(row[2].timestamp() * 1_000_000) * 1000
    ending = _ENDINGS.get(row[3] or "", "")
    return Content(data=data, sha256=bytes(row[1]), size=len(data), modified_ns=modified_ns, ending=ending, heading=tuple(row[4]))
