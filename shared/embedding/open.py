"""The embedder that the settings ask for."""

from __future__ import annotations

import importlib
from pathlib import Path

from shared.config import Settings
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.endpoint import OPENAI_URL, Endpoint, endpoint_of, key_for
from shared.embedding.limiter import SharedLimiter
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError


def open_embedder(settings: Settings) -> Embedder:
    """An OpenAI-compatible API, our embedder process when its URL is known, else the local model in this process.

    Only the last loads anything here (a second or two, half a gigabyte); the others connect at the first call.

    Raises:
        ConfigurationError: settings are missing, or the local model is.
    """
    if settings.embedding_provider == "openai":
        return _open_openai(endpoint_of(settings), settings)
    if settings.embedder_url:
        from shared.embedding.remote import RemoteEmbedder

        return RemoteEmbedder(settings.embedder_url)
    return open_local(settings)


def open_endpoint(endpoint: Endpoint, settings: Settings) -> Embedder:
    """The model that an embedding space remembers; keys and budgets come from the settings.

    A local one that is not the settings' own is loaded into this process: the embedder process holds one model.

    Raises:
        ConfigurationError: a key, or the local model, is missing.
    """
    own = endpoint_of(settings)
    if endpoint == own:
        return open_embedder(settings)
    if endpoint.provider == "openai":
        return _open_openai(endpoint, settings)
    from shared.embedding.local import LocalEmbedder

    return LocalEmbedder(Path(endpoint.model_path) if endpoint.model_path else bundled_model_dir())


def import_embedder(settings: Settings) -> None:
    """Import what `open_embedder` will need, without opening it: before a fork, so that the children share it."""
    if settings.embedding_provider == "openai":
        importlib.import_module("openai.resources.embeddings")
    elif settings.embedder_url:
        importlib.import_module("shared.embedding.remote")


def open_local(settings: Settings) -> Embedder:
    """The local model, loaded into this process.

    Raises:
        ConfigurationError: its files or the packages that run it are missing.
    """
    from shared.embedding.local import LocalEmbedder

    return LocalEmbedder(settings.embedding_model_path or bundled_model_dir())


def _open_openai(endpoint: Endpoint, settings: Settings) -> Embedder:
    from shared.embedding.openai_compatible import OpenAIEmbedder

    if not endpoint.model:
        raise ConfigurationError(
            "DOCWELL_EMBEDDING_PROVIDER is openai, but DOCWELL_EMBEDDING_MODEL is not set: name the model, for example "
            "text-embedding-3-small.",
            code="embedding_model_unset",
        )
    return OpenAIEmbedder(
        base_url=endpoint.base_url,
        api_key=key_for(endpoint, settings),
        model=endpoint.model,
        dimension=endpoint.dimension,
        query_prefix=endpoint.query_prefix,
        passage_prefix=endpoint.passage_prefix,
        api_version=endpoint.api_version,
        revision=endpoint.revision,
        limiter=_limiter(endpoint, settings),
    )


def _limiter(endpoint: Endpoint, settings: Settings) -> SharedLimiter:
    return SharedLimiter(
        f"{endpoint.model} at {endpoint.base_url or OPENAI_URL}",
        requests_per_minute=settings.embedding_requests_per_minute,
        tokens_per_minute=settings.embedding_tokens_per_minute,
        redis_url=settings.redis_url.get_secret_value() if settings.redis_url else None,
    )
