"""`application/vnd.docwell+json`: a text together with what its sender knows of it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema, field_validator

from ingest_worker.intake.push import Facts
from shared.instants import is_storable
from shared.text import clean_text

MEDIA_TYPE = "application/vnd.docwell+json"

_DEEPEST = 20
"""Levels of nesting in `metadata`."""


def _one_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def _name(text: str) -> str:
    text = _one_line(text)
    if not text or "," in text:
        raise ValueError("may not be empty and may not hold a comma")
    return text


PATH_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "pattern": r"^(?!.*(^|/)\.{0,2}(/|$))[^\x00-\x1f\x7f-\x9f\ufffd]+$",
    "description": "Relative, with `/`; no empty part, `.` or `..`; at most 1,024 bytes in UTF-8. Its ending tells the format.",
}
"""What `checked_path` takes, as far as a pattern can say it."""

_URL_SCHEMA = {
    "anyOf": [
        {
            "type": "string",
            "maxLength": 4000,
            "pattern": r"^(https?://[A-Za-z0-9]+([.-][A-Za-z0-9]+)*(:[1-9][0-9]{0,3})?(/[!-~]*)?)?$",
        },
        {"type": "null"},
    ]
}
Url = Annotated[str | None, Field(max_length=4000), WithJsonSchema(_URL_SCHEMA)]
"""An address of http or https; the schema tells of most, not of names in other scripts."""

Line = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_one_line)]
ShortName = Annotated[
    str,
    StringConstraints(max_length=200),
    AfterValidator(_name),
    WithJsonSchema({"type": "string", "maxLength": 200, "pattern": r"^[^,]*[^,\s\x00-\x1f][^,]*$"}),
]


class EnvelopeFacts(BaseModel):
    """What may be said of a document. What is left out stays as it was before; null or empty takes it away."""

    model_config = ConfigDict(extra="forbid")

    title: Line | None = Field(None, description="Wins over the title in the text.")
    tags: list[ShortName] = Field([], max_length=100)
    metadata: dict[str, Any] = Field({}, description="Any JSON object.")
    groups: list[ShortName] | None = Field(
        None, max_length=1000, description="Who may read it: `eng` means `group:eng`. Null or empty: all who see the namespace."
    )
    url: Url = Field(None, description="Where people read it: http or https.")
    source_modified: datetime | None = Field(None, description="When its source last changed it; UTC unless it says otherwise.")

    @field_validator("url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if not value:
            return None
        value = value.strip()
        if urlsplit(value).scheme.lower() not in {"http", "https"} or not urlsplit(value).hostname or clean_text(value) != value:
            raise ValueError("must be an http or https address")
        return value

    @field_validator("metadata")
    @classmethod
    def _storable(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {clean_text(name): _clean(one, 1) for name, one in value.items()}

    @field_validator("source_modified", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, int | float):
            raise ValueError("is a number; write the time as ISO 8601 (`2026-11-29T10:00:00Z`)")  # noqa: TRY004 - pydantic's way
        return value

    @field_validator("source_modified")
    @classmethod
    def _aware(cls, value: datetime | None) -> datetime | None:
        value = value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value
        if value is not None and not is_storable(value):
            raise ValueError("must lie within the years 1 to 9999, in every time zone")
        return value

    def facts(self) -> Facts:
        """These facts, and which of them were spoken of."""
        spoken = {"readers" if name == "groups" else name for name in self.model_fields_set}
        return Facts(
            given=frozenset(spoken & set(Facts.__dataclass_fields__)),
            title=self.title or None,
            url=self.url,
            tags=tuple(sorted(set(self.tags))),
            metadata=self.metadata,
            readers=tuple(sorted({f"group:{group}" for group in self.groups})) if self.groups else None,
            source_modified=self.source_modified,
        )


class Envelope(EnvelopeFacts):
    """A document as text with its facts; the path's ending tells its format."""

    content: str = Field(description="The whole text of the document.")


def _clean(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): _clean(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one, depth + 1) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds NaN or Infinity, which are no JSON")
    return value
