"""The model that answers, over Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infra.ask.conversation import INSTRUCTIONS
from ingest_worker.enrich.service import checked_message, explain, not_installed
from shared.config import Settings
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message, MessageParam, ToolChoiceParam, ToolParam

ANSWER_TOKENS = 8_192
"""Of a message, what the model thinks before it included."""

_SECONDS = 120.0
_SETTING = "DOCWELL_ASK_MODEL"


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
                raise explain(error, model=self._model, setting=_SETTING) from error
        except anthropic.APIError as error:
            raise explain(error, model=self._model, setting=_SETTING) from error
        self._chooses_alone = True
        return await self.reply(messages, tools, choice)

    async def _send(self, messages: Sequence[MessageParam], tools: Sequence[ToolParam], choice: ToolChoiceParam) -> Message:
        answered: object = await self._client.messages.create(
            model=self._model,
            max_tokens=ANSWER_TOKENS,
            system=INSTRUCTIONS,
            tools=tools,
            tool_choice=choice,
            messages=messages,
        )
        return checked_message(answered, self._client.base_url)


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
        raise not_installed() from error
    async with AsyncAnthropic(api_key=key, base_url=settings.anthropic_base_url, timeout=_SECONDS) as client:
        yield Anthropic(client, name)
