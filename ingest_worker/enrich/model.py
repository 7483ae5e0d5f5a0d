"""The model that writes contexts: what it is shown, and what of its answer is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ingest_worker.enrich.messages import RETRIES, Answer, Messages, read_text
from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, read_answer
from ingest_worker.enrich.service import key_of
from shared.config import Settings

if TYPE_CHECKING:
    from anthropic.types import Message, MessageParam, TextBlockParam


class ContextModel(Protocol):
    """Writes where a passage stands. May be asked from several threads."""

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""

    def ask(self, shown: str, question: str) -> Answer:
        """The context for one passage; `shown` is the same text for many questions, and comes first.

        Raises:
            PermanentError, ConfigurationError, TransientError: as `Messages.send`.
        """


class AnthropicModel(Messages):
    """See `ContextModel`.

    Raises:
        ConfigurationError: there is no key.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int = RETRIES) -> None:
        super().__init__(
            model=model, api_key=api_key, base_url=base_url, retries=retries, what="contexts", setting="DOCWELL_CONTEXT_MODEL"
        )

    def ask(self, shown: str, question: str) -> Answer:
        """See `ContextModel.ask`."""
        messages = messages_of(shown, question)
        return read_message(self.send(messages, instructions=INSTRUCTIONS, most_tokens=MOST_ANSWER_TOKENS))


def open_model(settings: Settings) -> AnthropicModel:
    """The model that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    return AnthropicModel(model=settings.context_model, api_key=key_of(settings), base_url=settings.anthropic_base_url)


def messages_of(shown: str, question: str, *, is_cached: bool = True) -> list[MessageParam]:
    """What the model is shown; with `is_cached` the service is asked to keep what many questions begin with."""
    document: TextBlockParam = {"type": "text", "text": shown}
    if is_cached:
        document["cache_control"] = {"type": "ephemeral"}
    return [{"role": "user", "content": [document, {"type": "text", "text": question}]}]


def read_message(message: Message) -> Answer:
    """What an answer holds, and what it took."""
    return read_text(message, read_answer, thing="passage")
