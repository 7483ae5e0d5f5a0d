"""Bearer tokens that are kept in PostgreSQL, as both servers check them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

Scope = Literal["search", "ingest", "admin"]

PREFIX = "dw_"
"""How a token begins, so that people and scanners of leaked secrets know one when they see it."""

_ANY: LiteralString = "SELECT docwell.has_tokens(%s)"
_FIND: LiteralString = "SELECT name, scope, namespaces, names FROM docwell.find_token(%s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a token lets its holder do. `namespaces` of None are all; `names` of None show a document whatever its readers."""

    name: str
    scope: Scope
    namespaces: list[str] | None
    names: list[str] | None


def new_token() -> str:
    """A token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def token_sha256(token: str) -> bytes:
    """What is kept of a token, 32 bytes. Looking a hash up tells an attacker's clock nothing of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def find_credential(connection: Connection[Any], token: str) -> Credential | None:
    """What this token stands for; None when it is unknown, has expired or was revoked."""
    if not token.startswith(PREFIX):
        return None
    with connection.cursor(row_factory=class_row(Credential)) as cursor:
        return cursor.execute(_FIND, (token_sha256(token),)).fetchone()


def any_credential(connection: Connection[Any], scopes: Sequence[Scope]) -> bool:
    """Whether a token of one of these scopes holds now."""
    row = connection.execute(_ANY, (list(scopes),)).fetchone()
    return bool(row and row[0])
