"""Anthropic's service: what its client's errors mean to us, what a message used, and whether an answer is one at all.

For everything that asks it, `docwell ask` included. Nothing is imported from the client before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError, PermanentError, ServiceUnavailable
from shared.prices import TokenUse

if TYPE_CHECKING:
    from anthropic.types import Message

LONGEST_PAUSE_SECONDS = 3_600.0
"""A service that asks for a longer pause is asked again after this one."""

_SAID_CHARACTERS = 300


def explain(error: Exception, *, model: str, setting: str) -> DocwellError:
    """Our error for one of the client's: what happened, and what to do. `setting` is the one that names the model.

    A ServiceUnavailable is worth another try, after `retry_after` seconds when the service says so; a ConfigurationError means
    that no request passes until a person has mended something; any other PermanentError is about this request alone.
    """
    import anthropic

    if isinstance(error, anthropic.APIConnectionError):
        reason = error.__cause__ or error
        return ServiceUnavailable(
            f"The service of {model} cannot be reached ({reason}). Check ANTHROPIC_BASE_URL.", code="unreachable"
        )
    if not isinstance(error, anthropic.APIStatusError):
        return ServiceUnavailable(f"The service of {model} gave an answer that cannot be read: {error}", code="bad_response")
    status, said = error.status_code, str(error)[:_SAID_CHARACTERS]
    if status == 402:
        return ConfigurationError(
            f"The service of {model} wants to be paid first (HTTP 402): {said} See to the account of ANTHROPIC_API_KEY.",
            code="unpaid",
        )
    if status in (401, 403):
        return ConfigurationError(f"The key is refused (HTTP {status}): {said} Check ANTHROPIC_API_KEY.", code="key_refused")
    if status == 404:
        return ConfigurationError(
            f"There is no model {model} (HTTP 404): {said} Check {setting} and ANTHROPIC_BASE_URL.", code="no_model"
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return ServiceUnavailable(
            f"The service of {model} cannot answer now (HTTP {status}): {said}",
            code="rate_limit" if status == 429 else "unavailable",
            retry_after=_seconds(error.response.headers.get("retry-after")),
        )
    return PermanentError(f"The service of {model} refused the request (HTTP {status}): {said}", code="request_refused")


def key_of(settings: Settings) -> str | None:
    """The key that the settings have for it."""
    return settings.anthropic_api_key.get_secret_value() if settings.anthropic_api_key is not None else None


def not_installed() -> ConfigurationError:
    """The client is no part of this installation."""
    return ConfigurationError(
        "The Python package anthropic is not installed: install `docwell[enrich]`, or run `make install`.",
        code="anthropic_missing",
    )


def checked_message(answered: object, address: object) -> Message:
    """The answer, when it is a message: a proxy's page comes as a text, and other JSON as a message without its parts, whatever
    the client's types say.

    Raises:
        ConfigurationError: something else answers at this address.
    """
    from anthropic.types import Message, Usage

    if isinstance(answered, Message) and isinstance(answered.usage, Usage) and isinstance(answered.content, list):
        return answered
    raise ConfigurationError(
        f"{address} answered with something that is no message of a model. Check ANTHROPIC_BASE_URL.", code="bad_response"
    )


def use_of(message: Message) -> TokenUse:
    """What a message used. `input_tokens` of the service leave out what was read from the cache or written to it."""
    usage = message.usage
    return TokenUse(
        calls=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
    )


def _seconds(value: str | None) -> float | None:
    try:
        return min(max(0.0, float(value or "")), LONGEST_PAUSE_SECONDS)
    except ValueError:
        return None
