"""The doctor's look at embedding models, and at documents that an older parser has read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection

from infra.findings import Finding, fine, warning
from ingest_worker.catalogue import batches, without_vector
from ingest_worker.reindexing import control
from ingest_worker.reprocessing import count_older
from shared.config import Settings
from shared.embedding.endpoint import Endpoint, endpoint_of
from shared.embedding.spaces import StoredModel, model_in, read_models


def changed_on_purpose(connection: Connection[Any], settings: Settings) -> Finding | None:
    """The finding where the index was changed to a model that the settings do not name; None where that must be checked."""
    models = read_models(connection)
    active = model_in(models, "active")
    own = endpoint_of(settings)
    if active is None or active.endpoint is None or active.is_declared_by(own):
        return None
    if not any(one.is_declared_by(own) for one in models):
        return None
    wanted = wanted_settings(active.endpoint)
    if (active.endpoint.provider, active.model) == (own.provider, own.model):
        return fine("embedding model", f"{active.model}, filled anew under its name: what runs follows the index.")
    return warning(
        "embedding model",
        f"The index was changed to {_named(active)}, and what runs follows it; the settings still name the former model.",
        f"Set {', '.join(wanted)}, and start again.",
    )


def wanted_settings(endpoint: Endpoint) -> list[str]:
    """The settings that name this model."""
    values = {
        "DOCWELL_EMBEDDING_PROVIDER": endpoint.provider,
        "DOCWELL_EMBEDDING_MODEL": endpoint.model,
        "DOCWELL_EMBEDDING_BASE_URL": endpoint.base_url,
        "DOCWELL_EMBEDDING_API_VERSION": endpoint.api_version,
        "DOCWELL_EMBEDDING_DIMENSION": endpoint.dimension,
        "DOCWELL_EMBEDDING_QUERY_PREFIX": repr(endpoint.query_prefix) if endpoint.query_prefix else None,
        "DOCWELL_EMBEDDING_PASSAGE_PREFIX": repr(endpoint.passage_prefix) if endpoint.passage_prefix else None,
        "DOCWELL_EMBEDDING_MODEL_PATH": endpoint.model_path,
    }
    return [f"{name}={value}" for name, value in values.items() if value is not None]


def look_at_upkeep(connection: Connection[Any], settings: Settings) -> Iterator[Finding]:
    """An open reindex, and documents of an older parser."""
    found = control.status(connection, settings)
    if found is not None:
        done = f"{found.filled} of {found.passages} passages have their vector"
        said = f"{found.model} beside {found.active}: {found.state}, {done}."
        if found.problem is not None:
            yield warning("reindex", f"{said} The newest batch failed: {found.problem}", "`docwell reindex status` shows more.")
        elif found.refused:
            yield warning(
                "reindex",
                f"{said} Its model has refused {found.refused}, those of {', '.join(found.refused_documents)} among them.",
                "`docwell reindex retry` asks again, `docwell reindex switch --accept-missing` goes without them.",
            )
        else:
            yield fine("reindex", said)
    for gap in without_vector.count_active(connection):
        yield warning(
            "passages without vectors",
            f"{gap.passages} passages of {gap.documents} documents, {gap.example} among them, are found by their words alone:"
            f" {gap.reason}",
            _GAP_CURES[gap.code],
        )
    yield from _look_at_batches(connection)
    older = count_older(connection, settings)
    if older:
        yield warning(
            "older documents",
            f"{older} documents were read by an older parser, chunker or prompt. They are found as before.",
            "`docwell reprocess --plan` says which, and what reading them again would take.",
        )
    else:
        yield fine("older documents", "Every document was read by this version's parser, chunker and prompt.")


_LATE_SECONDS = 26 * 3_600.0
_UNORDERED_SECONDS = 3_600.0


def _look_at_batches(connection: Connection[Any]) -> Iterator[Finding]:
    """Contexts that come in batches: what is under way, and what keeps it from coming."""
    found = batches.waiting(connection)
    if not (found.batches or found.documents):
        return
    said = f"{found.passages} passages are in {found.batches} batches, {found.documents} documents are to be ordered."
    age = 0.0 if found.since is None else (datetime.now(UTC) - found.since).total_seconds()
    if found.problem is not None:
        yield warning(
            "context batches", f"{said} The newest try failed: {found.problem}", "They are tried again every five minutes."
        )
    elif age > _LATE_SECONDS or (found.seconds or 0.0) > _UNORDERED_SECONDS:
        yield warning(
            "context batches",
            f"{said} The oldest batch was ordered {age / 3600:.0f} hours ago, the first document waits for"
            f" {(found.seconds or 0.0) / 3600:.0f} hours.",
            "The scheduler orders and fetches them: see that it runs, with ANTHROPIC_API_KEY, and read its log.",
        )
    else:
        yield fine("context batches", said)


_GAP_CURES = {
    "kept_here": 'Nothing, if that is meant. Else set a local model, or `embed = "anyway"` in the source\'s table; a price of 0'
    " under [prices] says that the model costs nothing.",
    "refused": "`docwell reindex retry` asks the model again at once; it is asked a day later by itself.",
}


def _named(model: StoredModel) -> str:
    return f"{model.model} ({model.provider}, {model.dimension} dimensions)"
