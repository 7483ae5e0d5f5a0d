"""The model that answers, over Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infra.ask.conversation import INSTRUCTIONS
from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError, PermanentError, ServiceUnavailable

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message, MessageParam, ToolChoiceParam, ToolParam

ANSWER_TOKENS = 8_192
"""Of a message, what the model thinks before it included."""

_SECONDS = 120.0
_SAID_CHARACTERS = 300


class Anthropic:
    """See `conversation.Model`."""

    def __init__(self, client: AsyncAnthropic, model: str) -> None:
        self._client = client
        self._model = model
        self._chooses_alone = False

    async def reply(self, messages: Sequence[MessageParam], tools: Sequence[ToolParam], choice: ToolChoiceParam) -> Message:
        """See `conversation.Model.reply`. Newer models cannot be made to call a tool; they are then asked to."""
        import anthropic

        if choice["type"] == "tool" and self._chooses_alone:
            choice = {"type": "auto"}
        try:
            return await self._send(messages, tools, choice)
        except anthropic.BadRequestError as error:
            if choice["type"] != "tool" or "tool_choice" not in str(error):
                raise _explain(error, self._model) from error
        except anthropic.APIError as error:
            raise _explain(error, self._model) from error
        self._chooses_alone = True
        return await self.reply(messages, tools, choice)

    async def _send(self, messages: Sequence[MessageParam], tools: Sequence[ToolParam], choice: ToolChoiceParam) -> Message:
        from anthropic.types import Message

        # What is no JSON (a proxy's page) comes as a text, whatever the types say.
        answered: object = await self._client.messages.create(
            model=self._model,
            max_tokens=ANSWER_TOKENS,
            system=INSTRUCTIONS,
            tools=tools,
            tool_choice=choice,
            messages=messages,
        )
        if not isinstance(answered, Message):
            raise ConfigurationError(
                f"{self._client.base_url} answered with something that is no message of a model. Check ANTHROPIC_BASE_URL.",
                code="bad_response",
            )
        return answered


def require_key(settings: Settings) -> str:
    """The key of the service.

    Raises:
        ConfigurationError: none is set.
    """
    if settings.anthropic_api_key is None:
        raise ConfigurationError(
            "`docwell ask` needs a model: set ANTHROPIC_API_KEY (or ANTHROPIC_API_KEY_FILE). Without one, `docwell search`"
            " finds the passages.",
            code="no_key",
        )
    return settings.anthropic_api_key.get_secret_value()


@asynccontextmanager
async def open_model(settings: Settings, name: str) -> AsyncIterator[Anthropic]:
    """The model of this name.

    Raises:
        ConfigurationError: there is no key, or the client is not installed.
    """
    key = require_key(settings)
    try:
        from anthropic import AsyncAnthropic
    except ImportError as error:
        raise ConfigurationError(
            "The Python package anthropic is not installed: install `docwell[enrich]`, or run `make install`.",
            code="anthropic_missing",
        ) from error
    async with AsyncAnthropic(api_key=key, base_url=settings.anthropic_base_url, timeout=_SECONDS) as client:
        yield Anthropic(client, name)


def _explain(error: Exception, model: str) -> DocwellError:
    import anthropic

    if isinstance(error, anthropic.APIConnectionError):
        reason = error.__cause__ or error
        return ServiceUnavailable(
            f"The service of {model} cannot be reached ({reason}). Check ANTHROPIC_BASE_URL.", code="unreachable"
        )
    if not isinstance(error, anthropic.APIStatusError):
        return PermanentError(f"The service of {model} gave an answer that cannot be read: {error}", code="bad_response")
    status, said = error.status_code, str(error)[:_SAID_CHARACTERS]
    if status in (401, 403):
        return ConfigurationError(f"The key is refused (HTTP {status}): {said} Check ANTHROPIC_API_KEY.", code="key_refused")
    if status == 404:
        return ConfigurationError(
            f"There is no model {model} (HTTP 404): {said} Check DOCWELL_ASK_MODEL and ANTHROPIC_BASE_URL.", code="no_model"
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return ServiceUnavailable(f"The service of {model} cannot answer now (HTTP {status}): {said}", code="unavailable")
    return PermanentError(f"The service of {model} refused the request (HTTP {status}): {said}", code="request_refused")
