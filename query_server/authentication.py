"""From a bearer token to the principal that it stands for: bootstrap tokens, stored ones, and those of an issuer."""

from __future__ import annotations

import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jwt

from query_server.access import Principal
from shared.config import Settings
from shared.credentials import PREFIX, Credential, token_sha256
from shared.errors import PermanentError, ServiceUnavailable

Authenticate = Callable[[str], Principal | None]
"""The principal of a token, None for one that does not hold. Safe for threads; may ask a database or an issuer."""

KNOWN_SECONDS = 5.0
"""How long a stored token is taken for what it was: a revoked one is shut out after this time."""

MOST_KNOWN = 10_000

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a key pair only: with a shared secret whoever can check a token can make one."""

LEEWAY_SECONDS = 30
KEYS_SECONDS = 300
FETCH_SECONDS = 5


class InsufficientScope(PermanentError):
    """The token holds, but does not carry the scope that this server asks for."""

    def __init__(self, needed: Sequence[str]) -> None:
        super().__init__(f"The token lacks the scope {' '.join(needed)}.", code="insufficient_scope")
        self.needed = tuple(needed)


class BootstrapTokens:
    """Tokens of the configuration, whose holders see everything. Every one is compared, in constant time."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = [token.encode("utf-8") for token in tokens]

    def __call__(self, token: str) -> Principal | None:
        """The principal, None for an unknown token."""
        given = token.encode("utf-8", "surrogatepass")
        found = sum(hmac.compare_digest(given, known) for known in self._tokens)
        return Principal(name="bootstrap", namespaces=None, names=None) if found else None


class StoredTokens:
    """Tokens that `docwell tokens` made."""

    def __init__(self, find: Callable[[str], Credential | None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()

    def __call__(self, token: str) -> Principal | None:
        """The principal, None for a token that is unknown, has expired, was revoked, or is not made for searching."""
        if not token.startswith(PREFIX):
            return None
        key = token_sha256(token)
        now = self._clock()
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] > now:
            return known[1]
        credential = self._find(token)
        principal = None if credential is None or credential.scope == "ingest" else _principal(credential)
        with self._lock:
            self._known[key] = (now + KNOWN_SECONDS, principal)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return principal


def _principal(credential: Credential) -> Principal:
    return Principal(
        name=f"token:{credential.name}",
        namespaces=None if credential.namespaces is None else frozenset(credential.namespaces),
        names=None if credential.names is None else frozenset(credential.names),
    )


class IssuedTokens:
    """Signed tokens (RFC 9068, OpenID Connect) of an issuer whose public keys are fetched when they are first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = jwt.PyJWKClient(str(settings.mcp_jwks_url), lifespan=KEYS_SECONDS, timeout=FETCH_SECONDS)

    def __call__(self, token: str) -> Principal | None:
        """The principal, None for a token that is not of this issuer, not for this server, expired or not signed by its keys.

        Raises:
            InsufficientScope: it holds, but lacks a scope.
            ServiceUnavailable: the issuer's keys cannot be fetched.
        """
        if token.count(".") != 2:
            return None
        try:
            key = self._keys.get_signing_key_from_jwt(token)
        except jwt.PyJWKClientConnectionError:
            raise ServiceUnavailable(
                "The keys of the tokens' issuer cannot be fetched. Try again later.", code="issuer_unavailable"
            ) from None
        except jwt.PyJWTError:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._settings.mcp_issuer,
                audience=self._settings.mcp_audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._settings.mcp_user_claim]},
            )
        except jwt.PyJWTError:
            return None
        self._check_scopes(claims)
        return claimed_principal(self._settings, claims)

    def _check_scopes(self, claims: Mapping[str, Any]) -> None:
        held = set(_words(claims.get("scope"))) | set(_words(claims.get("scp")))
        if not held.issuperset(self._settings.mcp_required_scopes):
            raise InsufficientScope(self._settings.mcp_required_scopes)


def claimed_principal(settings: Settings, claims: Mapping[str, Any]) -> Principal:
    """Who the claims say it is. A namespaces claim that is configured and missing means no namespace at all."""
    user = str(claims[settings.mcp_user_claim])
    names = [f"user:{user}", *(f"group:{group}" for group in _words(claims.get(settings.mcp_groups_claim)))]
    claim = settings.mcp_namespaces_claim
    return Principal(
        name=f"user:{user}",
        namespaces=None if claim is None else frozenset(_words(claims.get(claim))),
        names=frozenset(names),
    )


def _words(value: object) -> list[str]:
    """A claim that is a list of texts, or one text with spaces between."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [part for part in value if isinstance(part, str) and part]
    return []


def make_authenticate(settings: Settings, find: Callable[[str], Credential | None]) -> Authenticate:
    """Bootstrap tokens, stored ones as `find` knows them, and those of the configured issuer, in this order."""
    ways: list[Authenticate] = [
        BootstrapTokens(token.get_secret_value() for token in settings.mcp_tokens),
        StoredTokens(find),
    ]
    if settings.mcp_jwks_url is not None:
        ways.append(IssuedTokens(settings))

    def authenticate(token: str) -> Principal | None:
        return next((found for way in ways if (found := way(token)) is not None), None)

    return authenticate
