"""Calls and tokens of paid models: the first load, the same again, one paragraph edited, another model; stand-ins on loopback."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from infra.local.postgres import EmbeddedPostgres
from infra.migrate import migrate
from ingest_worker.parse.cage import CageLimits, ParserCage
from tests.conftest import passable_folder
from tests.costing import costs


def calls_and_tokens() -> list[dict[str, Any]]:
    """A row for each kind of calls in each situation."""
    with ExitStack() as stack:
        folder = stack.enter_context(passable_folder())
        server = EmbeddedPostgres(folder / "home")
        server.start()
        stack.callback(server.stop)
        migrate(server.url_owner, server.url_reader)
        inbox = folder / "inbox"
        inbox.mkdir()
        cage = stack.enter_context(ParserCage(CageLimits()))
        return [
            {
                "situation": one.situation,
                "kind": one.kind,
                "calls": one.calls,
                "passages or pictures sent": one.items,
                "tokens": one.tokens,
                "of these read from the cache": one.read_from_cache,
            }
            for one in costs(server.url_owner, inbox, cage)
        ]
