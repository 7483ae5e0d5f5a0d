"""The two kinds of failure that decide whether work is tried again, and the codes that name their reasons."""

from __future__ import annotations


class DocwellError(Exception):
    """Something went wrong that a person can understand and act on.

    `code` is a short snake_case name that scripts may match on; the message says what happened, to what, and what to do.
    """

    def __init__(self, message: str, *, code: str = "error") -> None:
        super().__init__(message)
        self.code = code


class PermanentError(DocwellError):
    """Trying again with the same input cannot help: the job ends at once, with this reason."""


class TransientError(DocwellError):
    """Trying again later may help: the job is retried with back-off until its attempts are used up."""

    def __init__(self, message: str, *, code: str = "unavailable", retry_after: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after
        """Seconds that the other side asked us to wait, when it said so."""


class Postponed(TransientError):
    """It is not the document's time yet, or not its fault: it waits, and that costs it no attempt."""


class Outage(Postponed):
    """Something that many documents need is away."""


class ConfigurationError(PermanentError):
    """A setting is wrong, or does not fit what is stored. Nothing starts until a person mends it."""

    def __init__(self, message: str, *, code: str = "configuration") -> None:
        super().__init__(message, code=code)


class ServiceUnavailable(TransientError):
    """A service that this command needs cannot be reached (exit code 3 on the command line)."""
