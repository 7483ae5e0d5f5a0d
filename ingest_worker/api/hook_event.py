"""The body of the generic webhook: an event, and where it was sent as a form, the document that came with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from ingest_worker.api.envelope import PATH_SCHEMA, EnvelopeFacts, Url
from ingest_worker.intake.push import Facts
from shared.config import NAME_PATTERN

_AHEAD = timedelta(days=1)


class HookEvent(EnvelopeFacts):
    """A document that changed at its sender's: upsert with `content`, with a part `file`, or with a `url` to fetch; or delete."""

    action: Literal["upsert", "delete"]
    namespace: Annotated[str, Field(pattern=NAME_PATTERN, description="Where the document belongs.")]
    path: Annotated[str, Field(min_length=1, max_length=4096), WithJsonSchema(PATH_SCHEMA)]
    content: str | None = Field(None, description="The whole text of the document.")
    url: Url = Field(
        None,
        description="Where people read it: http or https. Without content and file a worker fetches the document from here.",
    )
    source_modified: datetime | None = Field(
        None,
        description="When its source last changed it. What is older than what is known of the document changes nothing.",
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        if isinstance(value, dict) and "content" in value and value["content"] is None:
            return {name: one for name, one in value.items() if name != "content"}
        return value

    @field_validator("source_modified")
    @classmethod
    def _not_ahead(cls, value: datetime | None) -> datetime | None:
        if value is not None and value > datetime.now(UTC) + _AHEAD:
            raise ValueError("lies more than a day ahead: every later change would count as older")
        return value

    def hook_facts(self, *, fetched: bool) -> Facts:
        """What is said of the document. An address with a query is not shown when it is fetched: it may hold a signature."""
        facts = self.facts()
        if not fetched or self.url is None:
            return facts
        parts = urlsplit(self.url)
        shown = None if parts.query or parts.username or parts.password else self.url
        return replace(facts, url=shown)
