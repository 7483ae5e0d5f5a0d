"""The model that writes contexts, over Anthropic's Messages API: one call, and what its answer holds."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, read_answer
from ingest_worker.enrich.service import checked_message, explain, not_installed, use_of
from shared.config import Settings
from shared.errors import ConfigurationError
from shared.prices import TokenUse

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message, MessageParam, TextBlockParam

_SECONDS = 60.0
_RETRIES = 2
_SETTING = "DOCWELL_CONTEXT_MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A context, or why an answer that was paid for holds none."""

    use: TokenUse
    context: str | None = None
    code: str | None = None
    reason: str | None = None


class ContextModel(Protocol):
    """Writes where a passage stands. May be asked from several threads."""

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""

    def ask(self, shown: str, question: str) -> Answer:
        """The context for one passage; `shown` is the same text for many questions, and comes first.

        Raises:
            PermanentError: this request is refused; another passage may pass.
            ConfigurationError: no request will pass until a person has mended something.
            TransientError: the service is away or busy; `retry_after` seconds when it says so.
        """


class AnthropicModel:
    """See `ContextModel`. Nothing is sent before the first question.

    Raises:
        ConfigurationError: there is no key, or the package anthropic is not installed.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int = _RETRIES) -> None:
        if not api_key:
            raise ConfigurationError("No key for contexts: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE.", code="no_key")
        self._model = model
        self._key = api_key
        self._url = base_url
        self._retries = retries
        self._client: Anthropic | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """See `ContextModel.name`."""
        return self._model

    def ask(self, shown: str, question: str) -> Answer:
        """See `ContextModel.ask`."""
        client = self._open()
        import anthropic

        try:
            answered: object = client.messages.create(
                model=self._model,
                max_tokens=MOST_ANSWER_TOKENS,
                system=INSTRUCTIONS,
                messages=messages_of(shown, question),
            )
        except anthropic.APIError as error:
            raise explain(error, model=self._model, setting=_SETTING) from error
        return read_message(checked_message(answered, client.base_url))

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Anthropic:
        try:
            import anthropic
        except ImportError as error:
            raise not_installed() from error
        with self._lock:
            if self._client is None:
                self._client = anthropic.Anthropic(
                    api_key=self._key, base_url=self._url, timeout=_SECONDS, max_retries=self._retries
                )
            return self._client


def open_model(settings: Settings) -> AnthropicModel:
    """The model that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    key = settings.anthropic_api_key
    return AnthropicModel(
        model=settings.context_model,
        api_key=key.get_secret_value() if key else None,
        base_url=settings.anthropic_base_url,
    )


def messages_of(shown: str, question: str, *, is_cached: bool = True) -> list[MessageParam]:
    """What the model is shown; with `is_cached` the service is asked to keep what many questions begin with."""
    document: TextBlockParam = {"type": "text", "text": shown}
    if is_cached:
        document["cache_control"] = {"type": "ephemeral"}
    return [{"role": "user", "content": [document, {"type": "text", "text": question}]}]


def read_message(message: Message) -> Answer:
    """What an answer holds, and what it took."""
    use = use_of(message)
    if message.stop_reason == "refusal":
        return Answer(use=use, code="refused", reason="The model refused to describe the passage.")
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text.strip():
        return Answer(use=use, code="empty_answer", reason="The model answered nothing.")
    context = read_answer(text, was_cut=message.stop_reason == "max_tokens")
    if context is None:
        return Answer(use=use, code="bad_answer", reason="The model's answer is no sentence that could be used.")
    return Answer(use=use, context=context)
