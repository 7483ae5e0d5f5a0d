"""Whether this machine may serve others: said at once, and not by each server when it has loaded all that it needs."""

from __future__ import annotations

from shared.config import Settings
from shared.credentials import any_credential
from shared.database import connect, reachable
from shared.loopback import is_loopback


def refuse_open_doors(settings: Settings, database_url: str) -> None:
    """Refuse to start servers that others could reach and that ask nobody for a token.

    Raises:
        ConfigurationError: one of the two hosts is not the loopback, and no token for it is set or stored.
    """
    if is_loopback(settings.mcp_host) and is_loopback(settings.api_host):
        return
    # The servers' own rules, which bring the servers' libraries along.
    from ingest_worker.api.guard import check_binding
    from query_server.http import require_tokens

    with reachable(), connect(database_url, name="docwell-up") as connection:
        require_tokens(settings, lambda: any_credential(connection, ("search", "admin")))
        check_binding(settings, lambda: any_credential(connection, ("ingest", "admin")))
