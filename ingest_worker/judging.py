"""What a parsed file becomes: a version with its facts, and the state that its pages and parts add up to."""

from __future__ import annotations

from ingest_worker.catalogue.documents import Content
from ingest_worker.parse.cage import Parsed
from ingest_worker.publish import NewVersion
from shared.documents import DocumentState

_REASON_CHARS = 1_000


def version_of(parsed: Parsed, content: Content, *, version_id: int, number: int, audience_id: int) -> NewVersion:
    """The version that these bytes became in the parser, ready to be embedded."""
    state, code, reason = judge(parsed)
    return NewVersion(
        version_id=version_id,
        number=number,
        audience_id=audience_id,
        state=state,
        reason_code=code,
        reason=reason,
        media_type=parsed.media_type,
        title=parsed.title,
        encoding=parsed.encoding,
        page_count=parsed.page_count,
        pages_with_text=parsed.pages_with_text,
        warnings=parsed.warnings,
        modified=content.modified,
        chunks=parsed.chunks,
    )


def judge(parsed: Parsed) -> tuple[DocumentState, str | None, str | None]:
    """The state of what was read, with a code and a sentence where it is not simply indexed."""
    pages, with_text = parsed.page_count, parsed.pages_with_text
    if not parsed.chunks:
        if pages:
            which = f"None of its {pages} pages has text: they are" if pages > 1 else "Its only page has no text: it is"
            what = "pictures, or their text cannot be decoded" if pages > 1 else "a picture, or its text cannot be decoded"
            return DocumentState.NEEDS_OCR, "no_text", f"{which} {what}. {parsed.ocr or 'It needs OCR.'}"
        return DocumentState.SKIPPED, "empty", " ".join(["It holds no text.", *parsed.unread])[:_REASON_CHARS]
    if pages is not None and with_text is not None and with_text < pages:
        said = [
            f"{with_text} of {pages} pages had text; the others need OCR.",
            *([parsed.ocr] if parsed.ocr else []),
            *parsed.unread,
        ]
        return DocumentState.PARTIAL, "pages_without_text", " ".join(said)[:_REASON_CHARS]
    if parsed.unread:
        return DocumentState.PARTIAL, "parts_unread", " ".join(parsed.unread)[:_REASON_CHARS]
    if parsed.ocr:
        return DocumentState.INDEXED, "ocr", parsed.ocr
    return DocumentState.INDEXED, None, None
