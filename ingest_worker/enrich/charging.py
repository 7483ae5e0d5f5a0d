"""What a paid call took, written into the ledger."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from psycopg import Connection

from ingest_worker.catalogue import ledger
from shared.config import Settings
from shared.prices import TokenUse, cost


def charge(
    connection: Connection[Any],
    settings: Settings,
    document_id: uuid.UUID,
    kind: Literal["context", "caption"],
    model: str,
    use: TokenUse,
    *,
    in_batch: bool = False,
) -> None:
    """Write down what calls for a document took, and what that costs by the settings' prices; nothing where nothing was used."""
    if use.calls:
        money = cost(settings.prices, model, use, in_batch=in_batch)
        ledger.record(connection, [ledger.Entry(document_id=document_id, kind=kind, model=model, use=use, money=money)])
