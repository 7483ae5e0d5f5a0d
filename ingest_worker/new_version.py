"""A version that is ready to be served, as a value."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingest_worker.catalogue.captions import Thumbnail
from shared.documents import Chunk, DocumentState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version ready to be served: its facts and its chunks in reading order.

    `state` is INDEXED or PARTIAL with chunks, NEEDS_OCR or SKIPPED without: then nothing of the document is served any more,
    since the old text is no longer what is in the folder. `again`: it was published before, and a person wants it back.
    `contexts`: its chunks may have other contexts than those by which they are searched. `captioned`: its captions were looked
    for; `thumbnails` are the pictures of those that may be new, by `Chunk.chunk_id`.
    """

    version_id: int
    number: int
    audience_id: int
    state: DocumentState
    reason_code: str | None = None
    reason: str | None = None
    media_type: str | None = None
    title: str | None = None
    encoding: str | None = None
    page_count: int | None = None
    pages_with_text: int | None = None
    warnings: tuple[str, ...] = ()
    modified: datetime | None = None
    chunks: tuple[Chunk, ...] = ()
    again: bool = False
    contexts: bool = False
    captioned: bool = False
    thumbnails: Mapping[uuid.UUID, Thumbnail] = field(default_factory=dict, repr=False)
