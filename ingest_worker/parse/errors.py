"""Why a file ends without passages: left out on purpose, or not readable. Both are final."""

from __future__ import annotations

from shared.errors import PermanentError


class Skipped(PermanentError):
    """The file is left out on purpose; `code` says why (`unsupported_format`, `binary`, `empty`, `minified`, `generated`).

    A skipped file is no failure: record it as skipped with this reason.
    """


class Unsupported(Skipped):
    """No parser reads this format yet."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unsupported_format")


class Unreadable(PermanentError):
    """The file has a format that we read, but this one cannot be read; `code` says why (`encrypted`, `damaged`, `too_large`)."""


def does_not_open(what: str, passwords: tuple[str, ...]) -> Unreadable:
    """That a file is encrypted (`OpenDocument file`), and what to do; the passwords were tried."""
    return Unreadable(
        f"The {what} is encrypted"
        + (", and none of the configured passwords opens it." if passwords else ".")
        + " Store a copy without a password, or add its password to DOCWELL_DOCUMENT_PASSWORDS.",
        code="encrypted",
    )
