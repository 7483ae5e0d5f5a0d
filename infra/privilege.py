"""What each process may know: secrets reach those only that use them, in their environment and in their settings.

A process that reads documents, answers strangers or runs a model cannot give away what it was never given. Settings that are no
secrets go to all: nobody is harmed by them, and each process judges them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from shared.config import Settings, secret_variables

_WRITES = frozenset(("api", "worker", "watch", "scheduler"))

NEEDED_BY: Mapping[str, frozenset[str]] = {
    "database_url": _WRITES,
    "query_database_url": frozenset(("mcp",)),
    "redis_url": _WRITES,
    "usage_redis_url": frozenset(("mcp",)),
    "api_tokens": frozenset(("api",)),
    "mcp_tokens": frozenset(("mcp",)),
    "webhook_secrets": frozenset(("api",)),
    "embedding_api_key": frozenset(("worker", "mcp")),
    "reindex_api_key": frozenset(("worker", "mcp")),
    "rerank_api_key": frozenset(("mcp",)),
    "anthropic_api_key": frozenset(("worker", "scheduler")),
    "document_passwords": frozenset(("worker",)),
    "ask_token": frozenset(),  # `docwell ask` runs where a person types it
}
"""Every setting that is a secret, and the processes that use it."""

_READS_SOURCES = _WRITES
"""Who asks sources, takes their events or reads what they keep; their tables hold credentials."""

_TRACED = frozenset(("api", "worker", "mcp"))


def environment_for(service: str, base: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """What `service` is given of an environment: all but secrets that it does not use, be they values or names of files.

    What libpq and OpenTelemetry read by themselves goes to those that call them.
    """
    hidden = {variable for variable, field in secret_variables().items() if not _needs(service, field, settings)}
    return {name: value for name, value in base.items() if name not in hidden and not _is_foreign(service, name, settings)}


def settings_for(service: str, settings: Settings) -> Settings:
    """`settings` without the secrets that `service` does not use, also those that `docwell.toml` or the running Docwell told."""
    fields = Settings.model_fields
    hidden = {field: fields[field].get_default() for field in NEEDED_BY if not _needs(service, field, settings)}
    if service not in _READS_SOURCES:
        hidden["sources"] = ()
    return settings.model_copy(update=hidden)


def _needs(service: str, field: str, settings: Settings) -> bool:
    if field == "database_url" and service == "mcp":
        # Without an address for the role that only reads, it takes the owner's, and that role.
        return settings.query_database_url is None
    if field == "redis_url" and service == "mcp":
        # What questions use of a limited API counts towards what ingest may use of it.
        return settings.embedding_requests_per_minute is not None or settings.embedding_tokens_per_minute is not None
    return service in NEEDED_BY[field]


def _is_foreign(service: str, name: str, settings: Settings) -> bool:
    if name.startswith("OTEL_"):
        return service not in _TRACED
    if not name.startswith("PG"):
        return False
    if service == "mcp" and name == "PGPASSWORD":  # the owner's where the reader has one of his own
        url = settings.query_database_url
        return url is not None and urlsplit(url.get_secret_value()).password is not None
    return service not in _WRITES | {"mcp"}
