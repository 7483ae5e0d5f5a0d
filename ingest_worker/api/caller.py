"""Who asks, and for which namespaces that may be."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from shared.errors import PermanentError

KEY = "docwell.caller"
"""Where the guard leaves the caller in a request's scope."""


class Forbidden(PermanentError):
    """The token does not reach so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever holds a token; `namespaces` of None are all."""

    name: str
    namespaces: frozenset[str] | None = None

    def check(self, namespace: str) -> None:
        """Let only the caller's namespaces be written.

        Raises:
            Forbidden: this is none of them.
        """
        if not self.sees(namespace):
            own = ", ".join(sorted(self.namespaces or ()))
            raise Forbidden(
                f"The token {self.name!r} is for {own}, not for the namespace {namespace!r}.",
                code="forbidden",
            )

    def check_list(self, namespace: str | None) -> None:
        """Let a list be asked for within the caller's namespaces, one at a time.

        Raises:
            Forbidden: the list would reach beyond.
        """
        if self.namespaces is not None and namespace is None:
            raise Forbidden(
                f"The token {self.name!r} is for some namespaces only: ask for one of them with `namespace`"
                f" ({', '.join(sorted(self.namespaces))}).",
                code="forbidden",
            )
        if namespace is not None:
            self.check(namespace)

    def sees(self, namespace: str) -> bool:
        """Whether the caller may know of what is in there; what it may not is answered like what does not exist."""
        return self.namespaces is None or namespace in self.namespaces

    def check_whole(self) -> None:
        """Let only whoever may reach everything see the state of the whole.

        Raises:
            Forbidden: the caller is for some namespaces only.
        """
        if self.namespaces is not None:
            raise Forbidden(f"The token {self.name!r} is for some namespaces only; this tells of all of them.", code="forbidden")


LOCAL = Caller(name="local")


def caller(request: Request) -> Caller:
    """Who asks."""
    found = request.scope.get(KEY)
    return found if isinstance(found, Caller) else LOCAL
