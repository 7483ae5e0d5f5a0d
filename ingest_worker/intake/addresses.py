"""Which addresses of the web may be fetched: by the list of hosts, and by what a name resolves to. Pure; asks no network.

Whoever may send a webhook could else make the worker ask what only this machine can reach: services of the intranet, of the
loopback, or the metadata of a cloud (server-side request forgery).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from ingest_worker.catalogue.asking import BadQuestion
from shared.errors import PermanentError
from shared.hosts import DEFAULT_PORTS, HostRule

Address = IPv4Address | IPv6Address

# What machines of an intranet have: RFC 1918, 6598 and 4193, and the loopback.
_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "::1/128", "fc00::/7"))
)
# Where clouds keep metadata and secrets of the machine beside 169.254.169.254, which is link-local: Azure's wire server (a public
# address), Alibaba, and AWS and Google over IPv6 (addresses of private networks).
_METADATA = frozenset(map(ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


class NotListed(PermanentError):
    """No setting lets this host be fetched from."""


def checked_address(url: str, *, allowed: Sequence[HostRule]) -> httpx.URL:
    """An address that the list of hosts lets in. No message holds its query, which may be a signature.

    Raises:
        BadQuestion: it is no address of http or https, or holds a user or password.
        NotListed: its host is not in the list.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise BadQuestion("The `url` is no address that can be fetched.", code="bad_url") from None
    scheme, host = parsed.scheme, host_of(parsed)
    if scheme not in DEFAULT_PORTS or not host:
        raise BadQuestion("The `url` is no address of http or https.", code="bad_url")
    if parsed.userinfo:
        raise BadQuestion("The `url` holds a user name or a password; these would be stored. Leave them out.", code="bad_url")
    if not allowed:
        raise NotListed(
            f"{host} cannot be fetched from: no host is. List it in DOCWELL_FETCH_ALLOWED_HOSTS, or send the content.",
            code="fetch_off",
        )
    if not any(rule.admits(scheme, host, port_of(parsed)) for rule in allowed):
        raise NotListed(
            f"{shown(parsed)} cannot be fetched from: DOCWELL_FETCH_ALLOWED_HOSTS does not list this host, scheme and port.",
            code="host_not_allowed",
        )
    return parsed


def host_of(url: httpx.URL) -> str:
    """The host as lists of hosts spell it: small letters, punycode, no final dot, no brackets."""
    return url.raw_host.decode("ascii", "replace").lower().removesuffix(".").strip("[]")


def port_of(url: httpx.URL) -> int:
    """The port, the scheme's own where none is written."""
    return url.port or DEFAULT_PORTS.get(url.scheme, 0)


def shown(url: httpx.URL) -> str:
    """An address for messages: scheme, host and port. Path and query may be secret."""
    port = f":{url.port}" if url.port else ""
    host = url.raw_host.decode("ascii", "replace")
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def refusal(text: str, *, private: bool) -> str | None:
    """Why a resolved address may not be asked, None when it may. `private`: the host may be at a private or loopback address.

    Link-local addresses, others where clouds keep their metadata, multicast and reserved ones are never asked. An IPv4 address
    inside of an IPv6 one counts as what it is.
    """
    try:
        address = _unwrapped(ip_address(text.partition("%")[0]))
    except ValueError:
        return f"{text} is no address"
    if "%" in text or address.is_link_local:
        return f"{address} is link-local"
    if address in _METADATA:
        return f"{address} is where a cloud keeps its metadata"
    if address.is_multicast or address.is_unspecified:
        return f"{address} is no address of one machine"
    if private and any(address in network for network in _PRIVATE):
        return None
    if address.is_loopback:
        return f"{address} is the loopback"
    if not address.is_global or address.is_reserved or (isinstance(address, IPv6Address) and address.is_site_local):
        return f"{address} is private or reserved"
    return None


def _unwrapped(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and (any(address in network for network in _NAT64) or int(address) >> 32 == 0):
        inner = IPv4Address(int(address) & 0xFFFFFFFF) if int(address) > 1 else None
    return inner if inner is not None else address
