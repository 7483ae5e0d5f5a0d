"""How a model is asked: what the settings say of it, or what an embedding space remembers. It never holds a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from shared.config import Settings
from shared.prices import Price, is_paid_service

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`local`: a model folder, or the bundled model when `model_path` is None. `openai`: a server with `/v1/embeddings`.

    `again` tells a model apart from the one that had its name before.
    """

    provider: str
    model: str | None = None
    base_url: str | None = None
    api_version: str | None = None
    dimension: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    model_path: str | None = None
    again: str = ""

    @property
    def address(self) -> str:
        """Scheme, host and port that are asked; the local models have none."""
        parts = urlsplit(self.base_url or OPENAI_URL)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}" if self.provider == "openai" else "local"

    def is_paid(self, prices: Mapping[str, Price]) -> bool:
        """Whether texts that it embeds leave for a paid service; see `is_paid_service`."""
        return self.provider == "openai" and is_paid_service(self.base_url or OPENAI_URL, self.model, prices)

    @property
    def revision(self) -> str:
        """What prefixes, and `again`, add to the identity of a model behind an API; nothing without any."""
        said = f"query={self.query_prefix!r} passage={self.passage_prefix!r}" if self.query_prefix or self.passage_prefix else ""
        return " ".join(part for part in (said, f"again={self.again}" if self.again else "") if part)

    def to_json(self) -> dict[str, Any]:
        """What a database keeps: no user and password of the address."""
        parts = urlsplit(self.base_url or "")
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return {name: value for name, value in {**asdict(self), "base_url": bare or None}.items() if value not in (None, "")}

    def declares(self, *, provider: str, model: str, dimension: int, revision: str) -> bool:
        """Whether this names the model of that fingerprint, as far as can be said without asking anybody.

        Of a local model only the kind is known before its files are read.
        """
        if provider != self.provider:
            return False
        if provider != "openai":
            return True
        named = (self.model, self.dimension or dimension, self.revision)
        return named == (model, dimension, revision)


def endpoint_from_json(stored: Mapping[str, Any]) -> Endpoint:
    """The endpoint again; names that a newer Docwell wrote are left out."""
    known = {field.name for field in fields(Endpoint)}
    return Endpoint(**{name: value for name, value in stored.items() if name in known})


def endpoint_of(settings: Settings) -> Endpoint:
    """The model that the settings name."""
    if settings.embedding_provider == "openai":
        return Endpoint(
            provider="openai",
            model=settings.embedding_model,
            base_url=settings.embedding_base_url,
            api_version=settings.embedding_api_version,
            dimension=settings.embedding_dimension,
            query_prefix=settings.embedding_query_prefix or "",
            passage_prefix=settings.embedding_passage_prefix or "",
        )
    path: Path | None = settings.embedding_model_path
    return Endpoint(provider="local", model_path=str(path) if path else None)


def key_for(endpoint: Endpoint, settings: Settings) -> str | None:
    """The key to ask this endpoint with. A key goes to no other address than the one that it was set for."""
    own = endpoint_of(settings)
    is_own = endpoint == own or (settings.reindex_api_key is None and endpoint.address == own.address)
    key: SecretStr | None = settings.embedding_api_key if is_own else settings.reindex_api_key
    return key.get_secret_value() if key else None
