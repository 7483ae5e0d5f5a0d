"""A passage that a model was shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A passage and where it stands; `citation` is the server's own (`[billing.pdf, page 3]`)."""

    citation: str
    path: str
    document_id: str
    chunk_id: str
    namespace: str | None = None
    url: str | None = None
