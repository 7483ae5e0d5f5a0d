"""Lists of hosts in settings: which addresses of the web may be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_PORTS = {"https": 443, "http": 80}

_RULE = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>(?:\*\.)?[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
    """One entry: `host` in small letters without a final dot; `*.example.com` are all names below example.com, not itself."""

    scheme: str
    host: str
    port: int

    def admits(self, scheme: str, host: str, port: int) -> bool:
        """Whether an address with these parts is meant; `host` in small letters, as it stands in an address."""
        if (scheme, port) != (self.scheme, self.port):
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def parse_rule(text: str) -> HostRule:
    """`docs.example.com`, `*.example.com`, `docs.example.com:8443`, `http://wiki.intranet:8090`; https unless http is written.

    Raises:
        ValueError: it is none of these.
    """
    found = _RULE.fullmatch(text.strip().lower().removesuffix("/").removesuffix("."))
    if found is None:
        raise ValueError(f"{text!r} names no host: write `docs.example.com`, `*.example.com` or `http://wiki.intranet:8090`")
    scheme = found["scheme"] or "https"
    port = int(found["port"]) if found["port"] else DEFAULT_PORTS[scheme]
    if not 0 < port < 65536:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    return HostRule(scheme=scheme, host=found["host"].strip("[]"), port=port)


def parse_rules(texts: Iterable[str]) -> tuple[HostRule, ...]:
    """All entries of a list.

    Raises:
        ValueError: as `parse_rule`.
    """
    return tuple(parse_rule(text) for text in texts)
