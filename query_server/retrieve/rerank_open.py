"""The reranker that the settings ask for."""

from __future__ import annotations

from query_server.retrieve.rerank import Reranker, Reranking
from shared.config import Settings
from shared.prices import is_paid_service


def open_reranking(settings: Settings, *, patient: bool) -> Reranking | None:
    """An endpoint, a model in this process, or None: it is off unless one of them is set. Nothing is loaded yet."""
    if not settings.rerank_url and not settings.rerank_model_path:
        return None
    is_paid = bool(settings.rerank_url) and is_paid_service(settings.rerank_url or "", settings.rerank_model, settings.prices)
    return Reranking(lambda: open_reranker(settings), limit_seconds=settings.rerank_seconds, patient=patient, is_paid=is_paid)


def open_reranker(settings: Settings) -> Reranker:
    """The one that is set; a model is loaded by it.

    Raises:
        ConfigurationError: the folder holds no model, or a package for it is missing.
    """
    # Each is imported when it is wanted: a server without a reranker needs neither.
    if settings.rerank_model_path is not None:
        from query_server.retrieve.rerank_local import LocalReranker
        from shared.embedding.local import default_threads

        return LocalReranker(settings.rerank_model_path, threads=default_threads(), limit_seconds=settings.rerank_seconds)
    from query_server.retrieve.rerank_endpoint import EndpointReranker

    key = settings.rerank_api_key
    return EndpointReranker(
        url=settings.rerank_url or "",
        model=settings.rerank_model,
        api_key=key.get_secret_value() if key else None,
        limit_seconds=settings.rerank_seconds,
    )
