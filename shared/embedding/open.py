"""The embedder that the settings ask for."""

from __future__ import annotations

import importlib

from shared.config import Settings
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError


def open_embedder(settings: Settings) -> Embedder:
    """An OpenAI-compatible API, our embedder process when its URL is known, else the local model in this process.

    Only the last loads anything here (a second or two, half a gigabyte); the others connect at the first call.

    Raises:
        ConfigurationError: settings are missing, or the local model is.
    """
    if settings.embedding_provider == "openai":
        return _open_openai(settings)
    if settings.embedder_url:
        from shared.embedding.remote import RemoteEmbedder

        return RemoteEmbedder(settings.embedder_url)
    return open_local(settings)


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


def _open_openai(settings: Settings) -> Embedder:
    from shared.embedding.openai_compatible import OpenAIEmbedder

    if not settings.embedding_model:
        raise ConfigurationError(
            "DOCWELL_EMBEDDING_PROVIDER is openai, but DOCWELL_EMBEDDING_MODEL is not set: name the model, for example "
            "text-embedding-3-small.",
            code="embedding_model_unset",
        )
    key = settings.embedding_api_key
    return OpenAIEmbedder(
        base_url=settings.embedding_base_url,
        api_key=key.get_secret_value() if key else None,
        model=settings.embedding_model,
        dimension=settings.embedding_dimension,
    )
