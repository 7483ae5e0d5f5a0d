"""What a search is narrowed to. Built once, and bound as one fragment to both legs and to every listing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString

from shared.documents import ChunkKind
from shared.errors import PermanentError
from shared.text import as_asked, normalise_path

LONGEST_GLOB = 1000

LISTED_FILTER: LiteralString = """
    (%(filter_path)s::text IS NULL OR d.path ~ %(filter_path)s)
    AND (%(filter_source)s::text IS NULL
         OR d.source_id IN (SELECT s.source_id FROM docwell.source s WHERE s.name = %(filter_source)s))
    AND (%(filter_tags)s::text[] IS NULL OR d.tags @> %(filter_tags)s)
    AND (%(filter_after)s::timestamptz IS NULL OR d.source_modified >= %(filter_after)s)
    AND (%(filter_before)s::timestamptz IS NULL OR d.source_modified < %(filter_before)s)
"""
"""A condition on `docwell.document d`; its parameters come from `Filters.parameters`."""

DOCUMENT_FILTER: LiteralString = (
    LISTED_FILTER
    + """
    AND (%(filter_kinds)s::text[] IS NULL OR EXISTS (
        SELECT FROM docwell.chunk of_kind
        WHERE of_kind.audience_id = place.audience_id AND of_kind.chunk_id = place.chunk_id
          AND of_kind.kind = ANY (%(filter_kinds)s)))
"""
)
"""The same with the kind of the passage, for statements that have `docwell.version_chunk place` beside the document."""

_PATH: LiteralString = " AND d.path ~ %(filter_path)s"
_SOURCE: LiteralString = " AND d.source_id IN (SELECT s.source_id FROM docwell.source s WHERE s.name = %(filter_source)s)"
_TAGS: LiteralString = " AND d.tags @> %(filter_tags)s::text[]"
_AFTER: LiteralString = " AND d.source_modified >= %(filter_after)s::timestamptz"
_BEFORE: LiteralString = " AND d.source_modified < %(filter_before)s::timestamptz"
_KINDS: LiteralString = """ AND EXISTS (
    SELECT FROM docwell.chunk of_kind WHERE of_kind.audience_id = place.audience_id AND of_kind.chunk_id = place.chunk_id
      AND of_kind.kind = ANY (%(filter_kinds)s::text[]))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Only documents that fit all of these are looked at; an empty one does not narrow.

    `path` is a glob: `*` and `?` stop at `/`, `**` does not; without a `/` it is compared with the file's name in any folder.
    `tags` must all be there. `modified_after` is inclusive, `modified_before` exclusive; a document whose source says no time
    fits neither. `kinds` are those of the passage: `text`, `table`, `code`, `caption`.
    """

    namespace: str = ""
    path: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    modified_after: datetime | None = None
    modified_before: datetime | None = None
    kinds: tuple[str, ...] = ()

    @property
    def narrows_documents(self) -> bool:
        """Whether anything beyond the namespace is asked for."""
        return bool(self.path or self.source or self.tags or self.modified_after or self.modified_before or self.kinds)

    @property
    def on_documents(self) -> LiteralString:
        """The conditions that are set, each behind an AND, on `docwell.document d`.

        It says the same as LISTED_FILTER. A plan that PostgreSQL keeps for any values is only as good as what the statement's
        text says: `x IS NULL OR ...` tells it nothing (17 ms instead of 1 for the places of 30 passages).
        """
        path: LiteralString = _PATH if self.path else ""
        source: LiteralString = _SOURCE if self.source else ""
        tags: LiteralString = _TAGS if self.tags else ""
        after: LiteralString = _AFTER if self.modified_after else ""
        before: LiteralString = _BEFORE if self.modified_before else ""
        return path + source + tags + after + before

    @property
    def on_passages(self) -> LiteralString:
        """`on_documents` with the kind of the passage at `docwell.version_chunk place`."""
        return self.on_documents + (_KINDS if self.kinds else "")

    @property
    def parameters(self) -> dict[str, Any]:
        """What these conditions are bound to."""
        return {
            "filter_path": glob_pattern(self.path) if self.path else None,
            "filter_source": self.source or None,
            "filter_tags": list(self.tags) or None,
            "filter_after": self.modified_after,
            "filter_before": self.modified_before,
            "filter_kinds": list(self.kinds) or None,
        }


EVERYTHING = Filters()


def make_filters(
    *,
    namespace: str = "",
    path: str = "",
    source: str = "",
    tags: Sequence[str] = (),
    modified_after: str = "",
    modified_before: str = "",
    kinds: Sequence[str] = (),
) -> Filters:
    """Filters from what a caller wrote; empty strings mean not set. A path is compared in the form in which paths are stored.

    Raises:
        PermanentError: `bad_argument`, a time that is no ISO 8601, a glob that is too long, or a kind that there is not.
    """
    unknown = [kind for kind in kinds if kind not in set(ChunkKind)]
    if unknown:
        raise PermanentError(f"There is no kind {unknown[0]!r}. The kinds are {', '.join(ChunkKind)}.", code="bad_argument")
    if len(path) > LONGEST_GLOB:
        raise PermanentError(f"path is longer than {LONGEST_GLOB} characters.", code="bad_argument")
    return Filters(
        namespace=as_asked(namespace.strip()),
        path=normalise_path(as_asked(path.strip())),
        source=as_asked(source.strip()),
        tags=tuple(dict.fromkeys(as_asked(tag.strip()) for tag in tags if tag.strip())),
        modified_after=parse_time(modified_after, "modified_after"),
        modified_before=parse_time(modified_before, "modified_before"),
        kinds=tuple(dict.fromkeys(kinds)),
    )


def parse_time(value: str, argument: str) -> datetime | None:
    """An ISO 8601 date or time; without a zone it is UTC.

    Raises:
        PermanentError: `bad_argument`, it is neither.
    """
    if not value.strip():
        return None
    try:
        parsed = datetime.fromisoformat(value.strip())
    except ValueError:
        raise PermanentError(
            f"{argument} is no ISO 8601 date or time: {value!r}. Write it like 2026-11-29 or 2026-11-29T10:00:00Z.",
            code="bad_argument",
        ) from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


_GLOB_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def glob_pattern(glob: str) -> str:
    """The glob as a regular expression that both Python and PostgreSQL read alike, anchored at both ends."""
    folder = glob.endswith("/")
    body = "".join(map(_translate, _GLOB_PARTS.findall(glob.removeprefix("./") + ("**" if folder else ""))))
    lead = "" if "/" in glob else "(.*/)?"
    return f"^{lead}{body}$"


def _translate(part: str) -> str:
    match part:
        case "**/":
            return "(.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if len(part) > 2 and part.startswith("[") and part.endswith("]"):
        negated = part.startswith("[!")
        inside = part[2 if negated else 1 : -1].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
        inside = f"\\]{inside[1:]}" if inside.startswith("]") else inside
        return f"[{'^/' if negated else ''}{inside}]" if inside else ""
    return re.sub(r"[^\w\s/]", r"\\\g<0>", part, flags=re.ASCII) if part.isascii() else part
