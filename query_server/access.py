"""Who asks, and what that lets them see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks. `namespaces` and `names` (`user:NAME`, `group:NAME`) of None see all; empty ones see nothing of it."""

    name: str
    namespaces: frozenset[str] | None = frozenset()
    names: frozenset[str] | None = frozenset()

    @property
    def sees_everything(self) -> bool:
        """No row is hidden from it."""
        return self.namespaces is None and self.names is None


LOCAL = Principal(name="local", namespaces=None, names=None)
"""Whoever can start a process on this machine could read the files themselves."""

NOBODY = Principal(name="nobody")

_SCOPE: LiteralString = "SELECT set_config('docwell.namespaces', %s, true), set_config('docwell.names', %s, true)"


def scope(connection: Connection[Any], principal: Principal) -> None:
    """Bind this transaction to what the principal may see; row-level security does the rest."""
    connection.execute(_SCOPE, (_setting(principal.namespaces), _setting(principal.names)))


def _setting(values: frozenset[str] | None) -> str:
    """`*` for all, nothing for none, else a text[] literal."""
    if values is None:
        return "*"
    if not values:
        return ""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in sorted(values))
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
