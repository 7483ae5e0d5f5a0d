"""The table of bearer tokens: made, listed and revoked by whoever administers; no secret is ever stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from shared.credentials import Scope, new_token, token_sha256
from shared.errors import PermanentError

_INSERT: LiteralString = """
    INSERT INTO docwell.token (name, sha256, scope, namespaces, names, expires_at) VALUES (%s, %s, %s, %s, %s, %s)
"""
_LIST: LiteralString = """
    SELECT name, scope, namespaces, names, created_at, expires_at, revoked_at,
           CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'valid' END AS state
    FROM docwell.token ORDER BY name
"""
_REVOKE: LiteralString = "UPDATE docwell.token SET revoked_at = coalesce(revoked_at, now()) WHERE name = %s RETURNING 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as it is listed; `state` is `valid`, `expired` or `revoked`."""

    name: str
    scope: str
    namespaces: list[str] | None
    names: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    state: str


def create_token(
    connection: Connection[Any],
    name: str,
    *,
    scope: Scope,
    namespaces: Sequence[str] | None,
    names: Sequence[str] | None,
    expires_at: datetime | None,
) -> str:
    """Make a token and answer it; it cannot be shown again. Commits nothing.

    Raises:
        PermanentError: `token_exists`, the name is taken, also by one that was revoked.
    """
    token = new_token()
    values = (
        name,
        token_sha256(token),
        scope,
        None if namespaces is None else sorted(set(namespaces)),
        None if names is None else sorted(set(names)),
        expires_at,
    )
    try:
        connection.execute(_INSERT, values)
    except psycopg.errors.UniqueViolation:
        raise PermanentError(
            f"There is a token named {name!r} already. Names are kept, so that a log line stays true; choose another.",
            code="token_exists",
        ) from None
    return token


def list_tokens(connection: Connection[Any]) -> list[TokenRow]:
    """All tokens by name, those that no longer hold too."""
    with connection.cursor(row_factory=class_row(TokenRow)) as cursor:
        return cursor.execute(_LIST).fetchall()


def revoke_token(connection: Connection[Any], name: str) -> None:
    """Let a token hold no longer; servers notice within seconds.

    Raises:
        PermanentError: `not_found`, there is no token of this name.
    """
    if connection.execute(_REVOKE, (name,)).fetchone() is None:
        raise PermanentError(f"There is no token named {name!r}. `docwell tokens list` shows all.", code="not_found")
