"""Which connector serves which type of source: those that come with Docwell, and those of other makers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import httpx

from ingest_worker.sources.protocol import Source
from shared.config import ConnectionSettings
from shared.errors import ConfigurationError

GROUP = "docwell.sources"
"""The group of entry points by which another package offers a type: `notes = "its_package.source:open_source"`."""

_BUILT_IN = {
    "confluence": "ingest_worker.sources.confluence:open_source",
    "sharepoint": "ingest_worker.sources.sharepoint:open_source",
}


def types() -> list[str]:
    """The types of sources that can be asked over the network."""
    return sorted({*_BUILT_IN, *(one.name for one in entry_points(group=GROUP))})


def open_source(settings: ConnectionSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> Source:
    """The source of these settings, open. All of its requests go through `client`, which keeps to the source's rate.

    Raises:
        ConfigurationError: nobody serves this type, or its connector cannot be loaded; the message names what is nearest.
        PermanentError, TransientError: of the connector.
    """
    return _factory(settings)(settings, client=client, clock=clock)  # type: ignore[no-any-return]


def check_type(settings: ConnectionSettings) -> None:
    """Raises what `open_source` would, without opening anything."""
    _factory(settings)


def _factory(settings: ConnectionSettings) -> Callable[..., Any]:
    target = _BUILT_IN.get(settings.type)
    try:
        if target is not None:
            module, _, name = target.partition(":")
            return getattr(import_module(module), name)  # type: ignore[no-any-return]
        found = _offered(settings.type)
        if found is not None:
            return found.load()  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"The connector of source {settings.name} (type {settings.type}) cannot be loaded: {error}.", code="no_connector"
        ) from error
    known = ["folder", *types()]
    nearest = difflib.get_close_matches(settings.type, known, n=1, cutoff=0.0)[0]
    raise ConfigurationError(
        f"Source {settings.name} has the type {settings.type!r}, which nobody serves. The nearest known one is {nearest!r};"
        f" another package offers a type as an entry point of the group {GROUP!r}.",
        code="unknown_source_type",
    )


def _offered(kind: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=kind)), None)
