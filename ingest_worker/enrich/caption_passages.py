"""From captions to passages: their text, their place among the others, and what a document may say of itself with them."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ingest_worker.catalogue.captions import Thumbnail
from ingest_worker.parse.pictures import Picture
from ingest_worker.publish import NewVersion
from shared.documents import Chunk, ChunkKind, DocumentState, caption_text
from shared.tokens import load_token_counter

ONLY_CAPTIONS = "captions_only"
"""The reason of a document without a word of its own, which is found by what a model said of its pictures."""

_ONLY = "What is searchable are captions of its pictures, written by a model."
_TOO = "Captions of its pictures, written by a model, are searchable too."


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A picture, what a model said of it, and which one."""

    picture: Picture
    caption: str
    model: str


@functools.cache
def _counter() -> Callable[[str], int]:
    return load_token_counter().count


def with_captions(
    version: NewVersion, described: Sequence[Described], *, count: Callable[[str], int] | None = None
) -> NewVersion:
    """The version with these captions as passages, and no others. `count` counts tokens, with the bundled tokenizer.

    A document without text is found by its captions, and says so: it is not whole for it.
    """
    plain = without_captions(version)
    if not described:
        return replace(plain, captioned=True)
    counted = count or _counter()
    chunks = list(plain.chunks)
    thumbnails: dict[uuid.UUID, Thumbnail] = {}
    for one in described:
        chunk = _passage(one, counted)
        if chunk.chunk_id not in thumbnails:
            thumbnails[chunk.chunk_id] = Thumbnail(picture=bytes.fromhex(one.picture.key), image=one.picture.thumbnail)
            chunks.insert(place_for(chunk, chunks), chunk)
    state, code, reason = _standing(plain)
    return replace(
        plain, chunks=tuple(chunks), thumbnails=thumbnails, state=state, reason_code=code, reason=reason, captioned=True
    )


def without_captions(version: NewVersion) -> NewVersion:
    """The version as it stands by its own words."""
    chunks = tuple(chunk for chunk in version.chunks if chunk.kind is not ChunkKind.CAPTION)
    if version.reason_code == ONLY_CAPTIONS:
        reason = (version.reason or "").removesuffix(_ONLY).rstrip()
        pages = bool(version.page_count)
        state, code = (DocumentState.NEEDS_OCR, "no_text") if pages else (DocumentState.SKIPPED, "empty")
        return replace(version, chunks=chunks, thumbnails={}, state=state, reason_code=code, reason=reason)
    own = version.reason.removesuffix(_TOO).rstrip() if version.reason else version.reason
    return replace(version, chunks=chunks, thumbnails={}, reason=own)


def _standing(plain: NewVersion) -> tuple[DocumentState, str | None, str | None]:
    if not plain.chunks:
        return DocumentState.PARTIAL, ONLY_CAPTIONS, f"{plain.reason or 'It holds no text.'} {_ONLY}"
    if plain.reason_code == "pages_without_text":
        return plain.state, plain.reason_code, f"{plain.reason} {_TOO}"
    return plain.state, plain.reason_code, plain.reason


def _passage(one: Described, count: Callable[[str], int]) -> Chunk:
    text = caption_text(one.model, one.caption)
    return Chunk(
        kind=ChunkKind.CAPTION,
        text=text,
        tokens=max(1, count(text)),
        section=one.picture.section,
        span=one.picture.span,
    )


def place_for(caption: Chunk, chunks: Sequence[Chunk]) -> int:
    """Where a caption stands among the passages: behind the last one of its page, slide, sheet or section, or of those before."""
    span = caption.span
    last = None
    for number, chunk in enumerate(chunks):
        if chunk.span.attachment != span.attachment:
            continue
        other = chunk.span
        if span.page_start is not None:
            is_before = other.page_start is not None and other.page_start <= span.page_start
        elif span.slide is not None:
            is_before = other.slide is not None and other.slide <= span.slide
        elif span.sheet is not None:
            is_before = other.sheet == span.sheet
        else:
            is_before = chunk.section == caption.section
        last = number if is_before else last
    if last is not None:
        return last + 1
    # On a page before all others.
    return 0 if span.attachment is None and (span.page_start or span.slide) else len(chunks)
